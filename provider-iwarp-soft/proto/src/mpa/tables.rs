//! Both sides of the start-up as tables: every state against every kind of frame.
//!
//! A row has a name, the frame as flags, revision and private data in hexadecimal digits, and then
//! the result in each state. The enhanced words are IRD with flags A (8) and B (4), then ORD with
//! flags C (8) and D (4).

use super::*;
use crate::{tests::hex, wire::mpa::RtrKinds};

use super::tests::{PLAIN, reply, request_frame};

/// The columns of a table, line by line.
fn rows(table: &str) -> impl Iterator<Item = Vec<&str>> {
    table
        .lines()
        .map(|line| line.split('|').map(str::trim).collect())
}

/// Bytes that are invalid in every state: a name, the bytes for an initiator and for a responder.
fn no_frames() -> Vec<(&'static str, [Vec<u8>; 2])> {
    let both = |cut: usize, rest: &[u8]| {
        let mut frames = [reply(0, 1, rest), request_frame(0, 1, rest)];
        frames.each_mut().map(|frame| frame[..cut].to_vec())
    };
    let http = b"GET / HTTP/1.1\r\n\r\n\r\n".to_vec();
    vec![
        ("needs 20", both(0, b"")),
        ("needs 20", both(19, b"")),
        ("needs 24", both(20, b"data")),
        ("needs 24", both(23, b"data")),
        ("no MPA", [http.clone(), http]),
        ("WrongSide", [request_frame(0, 1, b""), reply(0, 1, b"")]),
        ("PrivateDataLength(513)", both(20, &[0; 513])),
    ]
}

/// The short form of a result. `frame` returns that of a frame.
fn verdict<T>(progress: Progress<T>, frame: impl Fn(T) -> String) -> String {
    match progress {
        Progress::NeedMore(len) => format!("needs {len}"),
        Progress::NotMpa => "no MPA".into(),
        Progress::Malformed(Malformed::NoEnhancedWords(len)) => format!("short {len}"),
        Progress::Malformed(why) => format!("{why:?}"),
        Progress::Frame { value, .. } => frame(value),
    }
}

fn agreed(negotiated: &Negotiated) -> String {
    let Negotiated {
        rev, ird, ord, rtr, ..
    } = negotiated;
    match rtr {
        None => format!("rev {rev}: {ird}/{ord}"),
        Some(kind) => format!("rev {rev}: {ird}/{ord} {kind:?}"),
    }
}

fn of_reply(initiator: &Initiator, frame: &[u8]) -> String {
    verdict(initiator.handle_input(frame), |outcome| match outcome {
        ReplyOutcome::Accepted { negotiated, .. } => agreed(&negotiated),
        ReplyOutcome::Rejected { peer: None } => "rejected".into(),
        ReplyOutcome::Rejected { peer: Some(_) } => "rejected 2".into(),
        ReplyOutcome::Refused(Refusal::NotEnhanced) => "again".into(),
        ReplyOutcome::Refused(Refusal::MarkersRequired) => "no markers".into(),
        ReplyOutcome::Refused(Refusal::InsufficientIrd { .. }) => "error 6".into(),
        ReplyOutcome::Refused(Refusal::NoMatchingRtr { .. }) => "error 7".into(),
    })
}

/// The states of an initiator. It waits for the Reply to a Request of revision 1; to one of
/// revision 2; to one in peer-to-peer mode that offers Write and Read; to one that offers the Send
/// and cannot insert markers.
fn initiators() -> [Initiator; 4] {
    let able = InitiatorConfig {
        can_insert_markers: true,
        ..PLAIN
    };
    let rows = [
        InitiatorConfig {
            enhanced: false,
            ..able
        },
        able,
        InitiatorConfig {
            peer_to_peer: Some(RtrKinds::WRITE_READ),
            ..able
        },
        InitiatorConfig {
            peer_to_peer: Some(RtrKinds::only(RtrKind::Send)),
            ..PLAIN
        },
    ];
    rows.map(|config| Initiator::request(config, b"").expect("no private data").0)
}

/// Name, Reply, and the states of [`initiators`].
const REPLIES: &str = "\
revision 0 | 00 00 | Revision(0) | Revision(0) | Revision(0) | Revision(0)
revision 1 | 00 01 | rev 1: 4/4 | again | again | again
1 with data | 00 01 61 | rev 1: 4/4 | again | again | again
1 with S | 10 01 616263 | rev 1: 4/4 | again | again | again
1 with M | 80 01 | rev 1: 4/4 | again | again | no markers
revision 3 | 00 03 | Revision(3) | Revision(3) | Revision(3) | Revision(3)
2 without S | 00 02 | Revision(2) | again | again | again
no words | 10 02 | Revision(2) | short 0 | short 0 | short 0
short words | 10 02 616263 | Revision(2) | short 3 | short 3 | short 3
client-server | 10 02 00040004 | Revision(2) | rev 2: 4/4 | rev 2: 4/4 | rev 2: 4/4
2 with M | 90 02 00040004 | Revision(2) | rev 2: 4/4 | rev 2: 4/4 | no markers
no kind left | 10 02 80040004 | Revision(2) | rev 2: 4/4 | error 7 | error 7
Send left | 10 02 c0040004 | Revision(2) | rev 2: 4/4 | error 7 | rev 2: 4/4 Send
Write left | 10 02 80048004 | Revision(2) | rev 2: 4/4 | rev 2: 4/4 Write | error 7
Read left | 10 02 80044004 | Revision(2) | rev 2: 4/4 | rev 2: 4/4 Read | error 7
all left | 10 02 c004c004 | Revision(2) | rev 2: 4/4 | rev 2: 4/4 Write | rev 2: 4/4 Send
kinds without A | 10 02 4004c004 | Revision(2) | rev 2: 4/4 | rev 2: 4/4 | rev 2: 4/4
lower IRD | 10 02 00010004 | Revision(2) | rev 2: 4/1 | rev 2: 4/1 | rev 2: 4/1
higher IRD | 10 02 00090004 | Revision(2) | rev 2: 4/4 | rev 2: 4/4 | rev 2: 4/4
lower ORD | 10 02 00040001 | Revision(2) | rev 2: 4/4 | rev 2: 4/4 | rev 2: 4/4
higher ORD | 10 02 00040005 | Revision(2) | error 6 | error 6 | error 6
no depths | 10 02 3fff3fff | Revision(2) | rev 2: 4/4 | rev 2: 4/4 | rev 2: 4/4
reject 1 | 20 01 6e6f | rejected | rejected | rejected | rejected
reject 2 | 30 02 00040004 | rejected | rejected 2 | rejected 2 | rejected 2
reject of siw, no words | 30 02 | rejected | rejected | rejected | rejected
reject with M | a0 01 | rejected | rejected | rejected | rejected
reject 3 | 20 03 | rejected | rejected | rejected | rejected";

#[test]
fn every_reply_to_every_initiator() {
    for (expected, [frame, _]) in no_frames() {
        let outcomes = initiators().map(|initiator| of_reply(&initiator, &frame));
        assert_eq!(outcomes, [expected; 4]);
    }
    for columns in rows(REPLIES) {
        let bytes = hex(columns[1]);
        let frame = reply(bytes[0], bytes[1], &bytes[2..]);
        let outcomes = initiators().map(|initiator| of_reply(&initiator, &frame));
        assert_eq!(outcomes, columns[2..], "{}", columns[0]);
    }
}

/// The verdict of a responder, and both of its answers: the agreed parameters, then flags, revision
/// and words of the accepting and of the rejecting Reply.
fn of_request(responder: &Responder, frame: &[u8]) -> String {
    let params = AcceptParams {
        ird: 4,
        ord: 4,
        ird_max: 8,
    };
    verdict(responder.handle_input(frame), |info| {
        let accepted = responder.accept(&info, params, b"");
        let rejection = responder
            .reject(&info, params, b"")
            .expect("no private data");
        let rejection = short(rejection.as_bytes());
        match accepted {
            Ok((reply, negotiated)) => {
                let reply = short(reply.as_bytes());
                format!("{} {reply} {rejection}", agreed(&negotiated))
            }
            Err(error) => format!("{error:?} {rejection}"),
        }
    })
}

/// Flags and revision, and the bytes after the length, in hexadecimal digits.
fn short(frame: &[u8]) -> String {
    let digits =
        |bytes: &[u8]| -> String { bytes.iter().map(|byte| format!("{byte:02x}")).collect() };
    let text = format!("{} {}", digits(&frame[16..18]), digits(&frame[20..]));
    text.trim_end().to_owned()
}

/// The states of a responder. It waits for a Request with the default configuration; without CRC,
/// and with only the Write as first FPDU; without the ability to insert markers.
fn responders() -> [Responder; 3] {
    let rows = [
        ResponderConfig::default(),
        ResponderConfig {
            crc: false,
            rtr_kinds: RtrKinds::only(RtrKind::Write),
            ..ResponderConfig::default()
        },
        ResponderConfig {
            can_insert_markers: false,
            ..ResponderConfig::default()
        },
    ];
    rows.map(Responder::new)
}

/// Name, Request, and the states of [`responders`].
const REQUESTS: &str = "\
revision 0      | 00 00          | Revision(0) | Revision(0) | Revision(0)
revision 1 | 00 01 | rev 1: 4/4 4001 6001 | rev 1: 4/4 0001 2001 | rev 1: 4/4 4001 6001
1, odd flags | 3f 01 61 | rev 1: 4/4 4001 6001 | rev 1: 4/4 0001 2001 | rev 1: 4/4 4001 6001
1 with C | 40 01 | rev 1: 4/4 4001 6001 | rev 1: 4/4 4001 6001 | rev 1: 4/4 4001 6001
1 with M | 80 01 | rev 1: 4/4 4001 6001 | rev 1: 4/4 0001 2001 | MarkersRequired 6001
revision 3      | 00 03          | Revision(3) | Revision(3) | Revision(3)
2 without S | 00 02 | rev 2: 4/4 4002 6002 | rev 2: 4/4 0002 2002 | rev 2: 4/4 4002 6002
no words        | 10 02          | short 0 | short 0 | short 0
short words     | 10 02 616263   | short 3 | short 3 | short 3
client-server   | 10 02 00040004 | rev 2: 4/4 5002 00040004 7002 00040004 | \
                                   rev 2: 4/4 1002 00040004 3002 00040004 | \
                                   rev 2: 4/4 5002 00040004 7002 00040004
kinds without A | 10 02 4004c004 | rev 2: 4/4 5002 00040004 7002 00040004 | \
                                   rev 2: 4/4 1002 00040004 3002 00040004 | \
                                   rev 2: 4/4 5002 00040004 7002 00040004
lower IRD       | 10 02 00020004 | rev 2: 4/2 5002 00040002 7002 00040004 | \
                                   rev 2: 4/2 1002 00040002 3002 00040004 | \
                                   rev 2: 4/2 5002 00040002 7002 00040004
lower ORD       | 10 02 00040002 | rev 2: 4/4 5002 00040004 7002 00040004 | \
                                   rev 2: 4/4 1002 00040004 3002 00040004 | \
                                   rev 2: 4/4 5002 00040004 7002 00040004
higher ORD      | 10 02 00090006 | rev 2: 6/4 5002 00060004 7002 00040004 | \
                                   rev 2: 6/4 1002 00060004 3002 00040004 | \
                                   rev 2: 6/4 5002 00060004 7002 00040004
too high ORD    | 10 02 00090009 | rev 2: 8/4 5002 00080004 7002 00040004 | \
                                   rev 2: 8/4 1002 00080004 3002 00040004 | \
                                   rev 2: 8/4 5002 00080004 7002 00040004
no depths       | 10 02 3fff3fff | rev 2: 4/4 5002 3fff3fff 7002 00040004 | \
                                   rev 2: 4/4 1002 3fff3fff 3002 00040004 | \
                                   rev 2: 4/4 5002 3fff3fff 7002 00040004
no IRD          | 10 02 3fff0004 | rev 2: 4/4 5002 00043fff 7002 00040004 | \
                                   rev 2: 4/4 1002 00043fff 3002 00040004 | \
                                   rev 2: 4/4 5002 00043fff 7002 00040004
no ORD          | 10 02 00043fff | rev 2: 4/4 5002 3fff0004 7002 00040004 | \
                                   rev 2: 4/4 1002 3fff0004 3002 00040004 | \
                                   rev 2: 4/4 5002 3fff0004 7002 00040004
Write or Read   | 10 02 8004c004 | rev 2: 4/4 Read 5002 80044004 7002 80044004 | \
                                   rev 2: 4/4 Write 1002 80048004 3002 80048004 | \
                                   rev 2: 4/4 Read 5002 80044004 7002 80044004
Send            | 10 02 c0040004 | rev 2: 4/4 Send 5002 c0040004 7002 c0040004 | \
                                   rev 2: 4/4 Write 1002 80048004 3002 80048004 | \
                                   rev 2: 4/4 Send 5002 c0040004 7002 c0040004
no kind         | 10 02 80040004 | rev 2: 4/4 Read 5002 80044004 7002 80044004 | \
                                   rev 2: 4/4 Write 1002 80048004 3002 80048004 | \
                                   rev 2: 4/4 Read 5002 80044004 7002 80044004";

#[test]
fn every_request_to_every_responder() {
    for (expected, [_, frame]) in no_frames() {
        let outcomes = responders().map(|responder| of_request(&responder, &frame));
        assert_eq!(outcomes, [expected; 3]);
    }
    for columns in rows(REQUESTS) {
        let bytes = hex(columns[1]);
        let frame = request_frame(bytes[0], bytes[1], &bytes[2..]);
        let outcomes = responders().map(|responder| of_request(&responder, &frame));
        assert_eq!(outcomes, columns[2..], "{}", columns[0]);
    }
}
