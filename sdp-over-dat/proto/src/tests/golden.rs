//! Every message byte for byte: parsed, and emitted again.

use super::hex;
use crate::{
    Seq,
    wire::{
        Body, Flags, Header, Message, Mid, Mode, ModeChange, SinkAvail, SrcAvail, TargetHalf,
        WireError,
    },
};

struct Row {
    hex: &'static str,
    bufs: u16,
    seq: u32,
    ack: u32,
    payload_len: u32,
    body: Body,
}

const fn row(
    hex: &'static str,
    (bufs, seq, ack): (u16, u32, u32),
    payload_len: u32,
    body: Body,
) -> Row {
    Row {
        hex,
        bufs,
        seq,
        ack,
        payload_len,
        body,
    }
}

const SRC_AVAIL: SrcAvail = SrcAvail {
    len: 131_072,
    stag: 0x1234_5678,
    address: 0x7f00_dead_b000,
};

const SINK_AVAIL: SinkAvail = SinkAvail {
    len: 65_536,
    stag: 0x0a0b_0c0d,
    address: 0x7f00_c0de_0000,
    non_discards: 2,
};

const TO_PIPELINED: ModeChange = ModeChange {
    half: TargetHalf::Receive,
    mode: Mode::Pipelined,
};

/// The messages of a conversation, then single messages.
#[rustfmt::skip]
const ROWS: [Row; 18] = [
    row("ff000040 00000015 00000001 00000000 68656c6c 6f", (64, 1, 0), 5, Body::Data),
    row("ff000040 00000010 00000001 00000001", (64, 1, 1), 0, Body::Data),
    row("fe000040 00000021 00000002 00000001 00020000 12345678 00007f00 deadb000 41",
        (64, 2, 1), 1, Body::SrcAvail(SRC_AVAIL)),
    row("0600003f 00000014 00000002 00000002 0001ffff", (63, 2, 2), 0, Body::RdmaRdCompl(131_071)),
    row("02000040 00000010 00000003 00000002", (64, 3, 2), 0, Body::DisConn),
    row("0400003f 00000010 00000003 00000002", (63, 3, 2), 0, Body::SendSm),
    row("08000040 00000010 00000003 00000002", (64, 3, 2), 0, Body::SrcAvailCancel),
    row("fd00003f 00000024 00000003 00000002 00010000 0a0b0c0d 00007f00 c0de0000 00000002",
        (63, 3, 2), 0, Body::SinkAvail(SINK_AVAIL)),
    row("05000040 00000014 00000003 00000003 00010000", (64, 3, 3), 0, Body::RdmaWrCompl(65_536)),
    row("09000040 00000010 00000003 00000003", (64, 3, 3), 0, Body::SinkAvailCancel),
    row("0a000040 00000010 00000004 00000003", (64, 4, 3), 0, Body::SinkCancelAck),
    row("07000040 00000014 00000004 00000003 20000000", (64, 4, 3), 0,
        Body::ModeChange(TO_PIPELINED)),
    row("0b000040 00000014 00000005 00000003 00020010", (64, 5, 3), 0, Body::ChRcvBuf(131_088)),
    row("0c00003f 00000014 00000004 00000005 00008010", (63, 4, 5), 0, Body::ChRcvBufAck(32_784)),
    row("0d000040 00000018 00000005 00000004 00000000 00011390", (64, 5, 4), 0,
        Body::SuspComm(0x1_1390)),
    row("0e000040 00000010 00000005 00000005", (64, 5, 5), 0, Body::SuspCommAck),
    row("03000040 00000010 00000008 00000004", (64, 8, 4), 0, Body::AbortConn),
    row("02000040 00000010 00000003 00000003", (64, 3, 3), 0, Body::DisConn),
];

fn message(row: &Row) -> Message {
    Message {
        flags: Flags::default(),
        bufs: row.bufs,
        seq: Seq(row.seq),
        ack: Seq(row.ack),
        body: row.body,
        payload_len: row.payload_len,
    }
}

#[test]
fn every_message_is_parsed_and_emitted() {
    for row in &ROWS {
        let bytes = hex(row.hex);
        let message = message(row);
        let parsed = Message::parse(&bytes, bytes.len());
        assert_eq!(parsed, Ok(message), "{}", row.hex);
        let header = message.emit();
        let header_len = message.header_len();
        assert_eq!(header.as_bytes(), &bytes[..header_len], "{}", row.hex);
        assert_eq!(bytes.len(), header_len + row.payload_len as usize);
    }
    for mid in Mid::ALL {
        let is_setup = matches!(mid, Mid::Hello | Mid::HelloAck);
        let is_there = ROWS.iter().any(|row| row.body.mid() == mid);
        assert!(is_setup || is_there, "{mid:?} has no row");
    }
}

#[test]
fn an_urgent_byte_sets_both_flags() {
    let bytes = hex("ff030040 00000011 00000006 00000004 21");
    let message = Message::parse(&bytes, bytes.len()).expect("a good message");
    assert_eq!(message.flags, Flags::OOB_PRES.with(Flags::OOB_PEND));
    assert_eq!(message.payload_len, 1);
    assert_eq!(message.emit().as_bytes(), &bytes[..16]);
}

#[test]
fn every_mode_change_has_its_byte() {
    let rows = [
        (TargetHalf::Receive, Mode::Buffered, 0x00),
        (TargetHalf::Receive, Mode::Combined, 0x10),
        (TargetHalf::Receive, Mode::Pipelined, 0x20),
        (TargetHalf::Send, Mode::Buffered, 0x80),
        (TargetHalf::Send, Mode::Combined, 0x90),
        (TargetHalf::Send, Mode::Pipelined, 0xa0),
    ];
    for (half, mode, byte) in rows {
        let body = Body::ModeChange(ModeChange { half, mode });
        let mut bytes = hex("07000040 00000014 00000004 00000003 00000000");
        bytes[16] = byte;
        let parsed = Message::parse(&bytes, 20).expect("a defined mode");
        assert_eq!(parsed.body, body);
        let header: Header = parsed.emit();
        assert_eq!(header.as_bytes(), bytes);
    }
    let undefined = hex("07000040 00000014 00000004 00000003 30000000");
    let error = WireError::ModeChange(0x30);
    assert_eq!(Message::parse(&undefined, 20), Err(error));
}

#[test]
fn invalid_messages_are_refused() {
    macro_rules! refused {
        ($($text:literal => $error:expr,)+) => {$(
            let bytes = hex($text);
            assert_eq!(Message::parse(&bytes, bytes.len()), Err($error), "{}", $text);
        )+};
    }
    use WireError::{Length, Misplaced, Payload, Short, UnknownMid, Urgent};
    refused! {
        "ff000040 00000010 00000001" => Short { len: 12 },
        "0f000040 00000010 00000001 00000000" => UnknownMid(0x0f),
        "40000040 00000010 00000001 00000000" => UnknownMid(0x40),
        "fc000040 00000010 00000001 00000000" => UnknownMid(0xfc),
        "00000040 00000010 00000001 00000000" => Misplaced(Mid::Hello),
        "01000040 00000010 00000001 00000000" => Misplaced(Mid::HelloAck),
        "ff000040 00000011 00000001 00000000" => Length { stated: 17, received: 16 },
        "02000040 00000011 00000001 00000000 00" => Payload(Mid::DisConn),
        "06000040 00000010 00000001 00000000" => Short { len: 16 },
        "fe000040 00000014 00000001 00000000 00000001" => Short { len: 20 },
        "ff010040 00000010 00000001 00000000" => Urgent,
        "02010040 00000010 00000001 00000000" => Urgent,
    }
}

#[test]
fn unknown_flags_are_ignored() {
    let bytes = hex("fff80040 00000010 00000001 00000000");
    let message = Message::parse(&bytes, 16).expect("a good message");
    assert_eq!(message.flags, Flags::default());
}
