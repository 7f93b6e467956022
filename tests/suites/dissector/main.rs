//! The Wireshark dissector of SDP over iWARP, run by tshark: on byte-exact messages in capture
//! files that the suite writes, and on a captured connection.

mod captured;
mod messages;
mod pcap;
mod tshark;

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Result, ensure};
use stack_tests::frame_writer::{self, Frame};
use stack_tests::{available, not_run};
use tempfile::TempDir;

use messages::{FAULTS, HELLO, HELLO_ACK, HELLO6, HINT, MESSAGES, Sample};
use pcap::{Pcap, Sender};
use tshark::{Dissector, Fields};

/// The lengths to which zeros fill Hello and HelloAck.
const HELLO_LEN: usize = 92;
const HELLO_ACK_LEN: usize = 196;

impl Sample {
    fn bytes(&self) -> Vec<u8> {
        let digits: Vec<u8> = self
            .bytes
            .chars()
            .filter_map(|c| c.to_digit(16))
            .map(|digit| digit as u8)
            .collect();
        digits
            .chunks(2)
            .map(|pair| pair[0] << 4 | pair[1])
            .collect()
    }

    /// The message, filled with zeros up to `len`.
    fn padded(&self, len: usize) -> Vec<u8> {
        let mut bytes = self.bytes();
        bytes.resize(len.max(bytes.len()), 0);
        bytes
    }

    /// All fields that the dissector must show for this message.
    fn expected(&self) -> Fields {
        let bytes = self.bytes();
        let word = |at: usize| u32::from_be_bytes([0, 1, 2, 3].map(|index| bytes[at + index]));
        let base = [
            ("mid", format!("0x{:02x}", bytes[0])),
            ("flags", format!("0x{:02x}", bytes[1])),
            ("flags.oob_pres", "0".to_owned()),
            ("flags.oob_pend", "0".to_owned()),
            ("flags.req_pipe", "0".to_owned()),
            ("flags.reserved", "0x00".to_owned()),
            ("bufs", (word(0) & 0xffff).to_string()),
            ("len", word(4).to_string()),
            ("mseq", word(8).to_string()),
            ("mseqack", word(12).to_string()),
        ];
        let mut fields: Fields = base
            .map(|(name, value)| (name.to_owned(), vec![value]))
            .into();
        for field in self.fields.split_whitespace() {
            let (name, value) = field.split_once('=').unwrap_or((field, "1"));
            fields.insert(name.to_owned(), vec![value.to_owned()]);
        }
        fields
    }
}

/// The dissector; `None` if this tshark runs no scripts.
fn dissector() -> Result<Option<Dissector>> {
    let libraries = captured::LIBRARIES.as_ref();
    libraries.map_err(|error| anyhow::anyhow!("{error}"))?;
    if tshark::has_lua()? {
        return Dissector::staged().map(Some);
    }
    not_run("this tshark was built without Lua");
    Ok(None)
}

/// Replaces the texts of faults by 1.
fn without_texts(mut fields: Fields) -> Fields {
    for (name, values) in &mut fields {
        if name.starts_with("expert.") {
            values.fill("1".to_owned());
        }
    }
    fields
}

/// Appends start-up frames with the private data of SDP.
fn start_up(pcap: &mut Pcap, hello: &Sample) {
    let request = frame_writer::request(&hello.padded(HELLO_LEN));
    let reply = frame_writer::reply(&HELLO_ACK.padded(HELLO_ACK_LEN));
    pcap.start_up(&request, &reply);
}

fn check_all(shown: Vec<Fields>, expected: &[&Sample]) -> Result<()> {
    ensure!(
        shown.len() == expected.len(),
        "{} packets: {shown:#?}",
        shown.len()
    );
    for (fields, sample) in shown.into_iter().zip(expected) {
        let (fields, expected) = (without_texts(fields), sample.expected());
        ensure!(
            fields == expected,
            "{}\n{fields:#?}\nexpected {expected:#?}",
            sample.bytes
        );
    }
    Ok(())
}

/// Writes a capture, and checks the fields of each packet in it.
fn check(pcap: &Pcap, expected: &[&Sample]) -> Result<()> {
    let dissector = available!(dissector()?);
    let dir = TempDir::with_prefix("dissector-")?;
    let file = dir.path().join("capture.pcap");
    pcap.write(&file)?;
    check_all(dissector.fields(&file)?, expected)
}

#[test]
fn every_field_of_every_message_is_shown() -> Result<()> {
    let mut pcap = Pcap::new();
    start_up(&mut pcap, &HELLO);
    for message in MESSAGES.iter().chain([&HINT]) {
        pcap.sends(message.by, &[&message.bytes()]);
    }
    let mut expected = vec![&HELLO, &HELLO_ACK];
    expected.extend(MESSAGES.iter().chain([&HINT]));
    check(&pcap, &expected)
}

#[test]
fn the_samples_have_all_messages_and_all_fields() -> Result<()> {
    let samples = || MESSAGES.iter().chain([&HELLO, &HELLO6, &HELLO_ACK, &HINT]);
    let kinds: BTreeSet<u8> = samples().map(|sample| sample.bytes()[0]).collect();
    ensure!(kinds.len() == 18, "{kinds:x?}");
    let dissector = available!(dissector()?);
    let fields: BTreeSet<String> = samples().flat_map(|it| it.expected().into_keys()).collect();
    let names: BTreeSet<String> = dissector.names().map(str::to_owned).collect();
    ensure!(fields == names, "{fields:?}\nin the dissector: {names:?}");
    Ok(())
}

#[test]
fn set_up_is_found_in_every_form_of_private_data() -> Result<()> {
    let enhanced = |sample: &Sample, len| {
        let private_data = sample.padded(len);
        match sample.by {
            Sender::Client => frame_writer::enhanced_request(4, 4, &private_data),
            Sender::Server => frame_writer::enhanced_reply(4, 4, &private_data),
        }
    };
    let forms: [[Frame; 2]; 3] = [
        // Trailing zeros are removed.
        [
            frame_writer::request(&HELLO6.bytes()),
            frame_writer::reply(&HELLO_ACK.bytes()),
        ],
        [
            enhanced(&HELLO6, HELLO_LEN),
            enhanced(&HELLO_ACK, HELLO_ACK_LEN),
        ],
        [enhanced(&HELLO6, 0), enhanced(&HELLO_ACK, 0)],
    ];
    for [request, reply] in forms {
        let mut pcap = Pcap::new();
        pcap.start_up(&request, &reply);
        check(&pcap, &[&HELLO6, &HELLO_ACK])?;
    }
    let mut pcap = Pcap::new();
    let other = frame_writer::request(&[0; 300]);
    pcap.start_up(
        &other,
        &frame_writer::reply(b"private data of another protocol"),
    );
    check(&pcap, &[])
}

#[test]
fn messages_are_found_without_hello_and_in_every_kind_of_send() -> Result<()> {
    let mut pcap = Pcap::new();
    pcap.start_up(&frame_writer::request(&[]), &frame_writer::reply(&[]));
    for opcode in [
        frame_writer::SEND,
        frame_writer::SEND_INVALIDATE,
        frame_writer::SEND_SOLICITED,
        frame_writer::SEND_SOLICITED_INVALIDATE,
    ] {
        pcap.send_as(Sender::Client, opcode, &MESSAGES[0].bytes());
    }
    check(&pcap, &[&MESSAGES[0]; 4])
}

#[test]
fn segments_of_other_protocols_are_ignored() -> Result<()> {
    let mut pcap = Pcap::new();
    pcap.start_up(&frame_writer::request(&[]), &frame_writer::reply(&[]));
    pcap.sends(Sender::Client, &[b"a message of another protocol"]);
    // The faults after the first six have the form of messages, so they would be shown.
    for fault in &FAULTS[..6] {
        pcap.sends(fault.by, &[&fault.bytes()]);
    }
    // Memory may contain bytes in the form of a message.
    let message = MESSAGES[0].bytes();
    pcap.fpdu(Sender::Client, &frame_writer::write(7, 0x1000, &message));
    pcap.fpdu(
        Sender::Server,
        &frame_writer::read_response(7, 0x1000, &message),
    );
    check(&pcap, &[])
}

#[test]
fn faults_are_reported() -> Result<()> {
    let mut pcap = Pcap::new();
    start_up(&mut pcap, &HELLO);
    for fault in &FAULTS {
        pcap.sends(fault.by, &[&fault.bytes()]);
    }
    let mut expected = vec![&HELLO, &HELLO_ACK];
    expected.extend(&FAULTS);
    check(&pcap, &expected)
}

/// The values of one field in all packets.
fn all(shown: &[Fields], name: &str) -> Vec<String> {
    let values = shown.iter().filter_map(|fields| fields.get(name));
    values.flatten().cloned().collect()
}

/// Writes a capture and returns the fields of each packet, and the texts that describe the packets;
/// `None` if this tshark runs no scripts.
fn shown(pcap: &Pcap, options: Option<&str>) -> Result<Option<(Vec<Fields>, Vec<String>)>> {
    let Some(dissector) = dissector()? else {
        return Ok(None);
    };
    let dir = TempDir::with_prefix("dissector-")?;
    let file: &Path = &dir.path().join("capture.pcap");
    pcap.write(file)?;
    let fields = match options {
        Some(options) => dissector.fields_with(file, options)?,
        None => dissector.fields(file)?,
    };
    Ok(Some((fields, dissector.texts(file)?)))
}

#[test]
fn a_packet_may_contain_several_messages() -> Result<()> {
    let mut pcap = Pcap::new();
    start_up(&mut pcap, &HELLO);
    let messages: Vec<_> = MESSAGES[..3].iter().map(Sample::bytes).collect();
    let messages: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
    pcap.sends(Sender::Client, &messages);
    let (fields, texts) = available!(shown(&pcap, None)?);
    ensure!(
        all(&fields[2..], "mid") == ["0xff", "0xff", "0xfe"],
        "{fields:#?}"
    );
    ensure!(
        texts
            == [
                "Hello version 2.2, MaxAdverts 1, LocalRcvSz 32784",
                "HelloAck version 2.2, MaxAdverts 1, ActRcvSz 32784",
                "Data MSeq=1, Ack=0, Bufs=64, 5 bytes of payload | Data MSeq=1, Ack=1, Bufs=64 | \
                 SrcAvail MSeq=2, Ack=1, Bufs=64, 131072 bytes advertised, 1 bytes of payload",
            ],
        "{texts:#?}"
    );
    Ok(())
}

/// With the recommended option each segment is shown; without it Wireshark reassembles them.
#[test]
fn a_message_may_have_several_segments() -> Result<()> {
    let mut message = MESSAGES[0].bytes();
    message.resize(3_000, b'x');
    message[4..8].copy_from_slice(&3_000_u32.to_be_bytes());
    let mut pcap = Pcap::new();
    pcap.start_up(&frame_writer::request(&[]), &frame_writer::reply(&[]));
    pcap.send_in_segments(Sender::Client, &message, 1_400);
    pcap.sends(Sender::Client, &[&MESSAGES[0].bytes()]);
    let reassembled = "-o iwarp_ddp_rdmap.reassemble_iwarp_rdma_send:TRUE";
    for (options, packets, lengths) in [
        (None, 4, vec![1_384, 1_400, 200, 5]),
        (Some(reassembled), 2, vec![2_984, 5]),
    ] {
        let (fields, _) = available!(shown(&pcap, options)?);
        ensure!(fields.len() == packets, "{fields:#?}");
        ensure!(all(&fields, "mid") == ["0xff", "0xff"], "{fields:#?}");
        ensure!(all(&fields, "payload_len") == ["2984", "5"], "{fields:#?}");
        let shown: Vec<usize> = all(&fields, "payload")
            .iter()
            .map(|it| it.len() / 2)
            .collect();
        ensure!(shown == lengths, "{shown:?}");
        ensure!(all(&fields, "expert.length").is_empty(), "{fields:#?}");
    }
    Ok(())
}
