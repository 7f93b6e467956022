//! The verdict for each message in each state, and for each change of mode.

use super::script::{
    ABORT_CONN, DIS_CONN, HELLO, HELLO_ACK, Message, SEND_SM, SINK_CANCEL, SINK_CANCEL_ACK,
    SINK_TO_COMBINED, SRC_CANCEL, SUSP_COMM, SUSP_COMM_ACK,
    Step::{self, Delivers, Receives, Sends},
    TO_BUFFERED, TO_COMBINED, TO_PIPELINED, UPDATE, data, mode, read, resize, resized, sink_avail,
    src_avail, verdict, written,
};
use crate::{
    Broken,
    Side::{Active, Passive},
};

/// All 18 messages in the order of their numbers, and further forms of ModeChange, SrcAvail and
/// Data. The active side sends them.
const MESSAGES: [Message; 22] = [
    HELLO,
    HELLO_ACK,
    DIS_CONN,
    ABORT_CONN,
    SEND_SM,
    written(10),
    read(10),
    TO_PIPELINED,
    TO_BUFFERED,
    SINK_TO_COMBINED,
    SRC_CANCEL,
    SINK_CANCEL,
    SINK_CANCEL_ACK,
    resize(500),
    resized(500),
    SUSP_COMM,
    SUSP_COMM_ACK,
    sink_avail(100, 0),
    src_avail(20, 1),
    src_avail(20, 0),
    UPDATE,
    data(1),
];

/// The letters of the table.
const fn letter(result: Result<(), Broken>) -> char {
    match result {
        Ok(()) => '.',
        Err(Broken::Kind) => 'K',
        Err(Broken::Abort) => 'A',
        Err(Broken::SendSm) => 's',
        Err(Broken::WriteDone) => 'w',
        Err(Broken::ReadDone) => 'r',
        Err(Broken::ReadOfCrossed) => 'R',
        Err(Broken::ModeChange) => 'm',
        Err(Broken::Cancel) => 'c',
        Err(Broken::SinkCancelAck) => 'k',
        Err(Broken::Unasked) => 'u',
        Err(Broken::SinkAvail) => 'S',
        Err(Broken::SinkBehindSource) => 'b',
        Err(Broken::AdvertForm) => 'f',
        Err(Broken::AdvertLimit) => 'l',
        Err(Broken::SourceBehindSink) => 'B',
        Err(Broken::DataBehindAdvert) => 'd',
        Err(Broken::DisConnTooEarly) => 'e',
        Err(Broken::AfterDisConn) => 'F',
        Err(Broken::Suspend) => 'p',
        Err(Broken::AfterSuspend) => 'P',
        Err(_) => '?',
    }
}

/// Both halves change to pipelined mode.
const PIPELINED: [Step; 2] = [
    Delivers(Active, TO_PIPELINED),
    Delivers(Passive, TO_PIPELINED),
];

/// States of the active side: a name, the steps that lead there, and a letter for each of
/// [`MESSAGES`]. The steps follow changes of both halves to pipelined mode, unless the name says
/// otherwise.
#[rustfmt::skip]
const STATES: [(&str, &[Step], &str); 20] = [
    ("combined", &[],
     "KK.Aswr..mcck.u.uS.f.."),
    ("buffered", &[Delivers(Active, TO_BUFFERED), Delivers(Passive, TO_BUFFERED)],
     "KK.Aswrmm.cck.u.uSff.."),
    ("pipelined", &[],
     "KK.Aswrmmmcck.u.u.f..."),
    ("own advert, combined", &[Delivers(Active, src_avail(50, 1))],
     "KKeAswr.mm.ck.u.uSlf.d"),
    ("peer's advert, combined", &[Delivers(Passive, src_avail(50, 1))],
     "KK.A.w...mcck.u.uS.f.."),
    ("own adverts, pipelined", &[Delivers(Active, src_avail(50, 0))],
     "KKeAswrmmm.ck.u.u.f..d"),
    ("peer's adverts, pipelined", &[Delivers(Passive, src_avail(50, 0))],
     "KK.A.w.mmmcck.u.ubf..."),
    ("own adverts at the limit",
     &[Delivers(Active, src_avail(50, 0)), Delivers(Active, src_avail(50, 0))],
     "KKeAswrmmm.ck.u.ulfl.d"),
    ("own cancel", &[Delivers(Active, src_avail(50, 0)), Delivers(Active, SRC_CANCEL)],
     "KKeAswrmmmcck.u.u.fl.d"),
    ("peer's cancel", &[Delivers(Passive, src_avail(50, 0)), Delivers(Passive, SRC_CANCEL)],
     "KK.A.w.mmmcck.u.ubf..."),
    ("own memory advertised", &[Delivers(Active, sink_avail(100, 0))],
     "KK.Aswrmmmc.k.u.u.f..."),
    ("peer's memory advertised", &[Delivers(Passive, sink_avail(100, 0))],
     "KK.As.rmmmcck.u.u.fB.."),
    ("own sink cancel", &[Delivers(Active, sink_avail(100, 0)), Delivers(Active, SINK_CANCEL)],
     "KK.Aswrmmmcck.u.ulf..."),
    ("peer's sink cancel", &[Delivers(Passive, sink_avail(100, 0)), Delivers(Passive, SINK_CANCEL)],
     "KK.As.rmmmcc..u.u.fB.."),
    ("advert that crossed SendSm", &[
        Delivers(Passive, src_avail(50, 0)), Sends(Passive, src_avail(50, 0)),
        Delivers(Active, SEND_SM), Receives(Active)],
     "KK.A.wRmmmcck.u.u.f..."),
    ("peer's resize, combined", &[Delivers(Passive, resize(500))],
     "KK.Aswr..mcck...uS.f.."),
    ("peer's suspend, combined", &[Delivers(Passive, SUSP_COMM)],
     "KK.Aswr..mcck.u..S.f.."),
    ("suspended", &[Delivers(Passive, SUSP_COMM), Delivers(Active, SUSP_COMM_ACK)],
     "KK.AsPrmmmcck.upuPPP.P"),
    ("own half ended", &[Delivers(Active, DIS_CONN)],
     "KKF.sFrmmmcck.u.u.FF.F"),
    ("peer's half ended", &[Delivers(Passive, DIS_CONN)],
     "KK.Aswrmmmcck.u.uSf..."),
];

#[test]
fn every_message_in_every_state() {
    let mut wrong = Vec::new();
    for (name, steps, expected) in STATES {
        let is_pipelined = !name.contains("combined") && !name.contains("buffered");
        let modes = if is_pipelined { &PIPELINED[..] } else { &[] };
        let before = [modes, steps].concat();
        let letters: String = MESSAGES
            .iter()
            .map(|message| {
                letter(verdict(
                    2,
                    &[&before[..], &[Delivers(Active, *message)]].concat(),
                ))
            })
            .collect();
        if letters != expected {
            wrong.push(format!("{letters} {name}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The half of which the active side is the source, in each mode.
const MODES: [(&str, &[Step]); 3] = [
    ("buffered", &[Delivers(Active, TO_BUFFERED)]),
    ("combined", &[]),
    ("pipelined", &[Delivers(Active, TO_PIPELINED)]),
];

#[test]
fn every_change_of_every_mode() {
    // The header's first byte names the receiver's half and the new mode.
    let by_source = [("buffered", 0x00), ("combined", 0x10), ("pipelined", 0x20)];
    let by_sink = [("buffered", 0x80), ("combined", 0x90), ("pipelined", 0xa0)];
    let legal_for_source = [
        ("combined", "buffered"),
        ("combined", "pipelined"),
        ("pipelined", "combined"),
    ];
    for (from, before) in MODES {
        for (sender, changes) in [(Active, by_source), (Passive, by_sink)] {
            for (to, byte) in changes {
                let is_legal = match sender {
                    Active => legal_for_source.contains(&(from, to)),
                    Passive => (from, to) == ("buffered", "combined"),
                };
                let steps = [before, &[Delivers(sender, mode(byte))]].concat();
                let expected = if is_legal {
                    Ok(())
                } else {
                    Err(Broken::ModeChange)
                };
                assert_eq!(verdict(2, &steps), expected, "{from} to {to}, {byte:#04x}");
            }
        }
    }
}

/// The mode that a change has set: the forms of source advertisements show it.
#[test]
fn every_legal_change_sets_the_mode() {
    let forms = [src_avail(20, 1), src_avail(20, 0)];
    let of = |steps: &[Step]| {
        forms.map(|form| verdict(2, &[steps, &[Delivers(Active, form)]].concat()).is_ok())
    };
    let to_buffered = [Delivers(Active, TO_BUFFERED)];
    assert_eq!(of(&to_buffered), [false, false]);
    let back = [to_buffered[0], Delivers(Passive, SINK_TO_COMBINED)];
    assert_eq!(of(&back), [true, false]);
    let to_pipelined = [Delivers(Active, TO_PIPELINED)];
    assert_eq!(of(&to_pipelined), [false, true]);
    let back = [to_pipelined[0], Delivers(Active, TO_COMBINED)];
    assert_eq!(of(&back), [true, false]);
}
