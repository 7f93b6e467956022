//! Requests and Replies against each other and against those of known peers.

use super::{
    AcceptParams, Initiator, InitiatorConfig, Negotiated, Progress, Refusal, ReplyOutcome,
    RequestInfo, Responder, ResponderConfig, StartupError,
};
use crate::{
    Peer,
    tests::hex,
    wire::mpa::{DEPTH_UNSPECIFIED, Enhanced, FrameKind, HEADER_LEN, Header, RtrKind, RtrKinds},
};

const PARAMS: AcceptParams = AcceptParams {
    ird: 4,
    ord: 4,
    ird_max: 4,
};
pub(super) const PLAIN: InitiatorConfig = InitiatorConfig {
    enhanced: true,
    crc: false,
    can_insert_markers: false,
    markers: false,
    ird: 4,
    ird_max: 4,
    ord: 4,
    peer_to_peer: None,
    pd_length_max: 256,
    peer: Peer::Unknown,
};

fn value<T: std::fmt::Debug>(progress: Progress<T>) -> T {
    match progress {
        Progress::Frame { value, .. } => value,
        other => panic!("a whole frame was expected, not {other:?}"),
    }
}

fn request(frame: &[u8]) -> RequestInfo {
    value(Responder::default().handle_input(frame))
}

fn initiator(config: InitiatorConfig) -> (Initiator, Vec<u8>) {
    let (initiator, frame) = Initiator::request(config, b"").expect("no private data");
    (initiator, frame.as_bytes().to_vec())
}

/// A Reply as a peer might send it.
pub(super) fn reply(flags: u8, rev: u8, rest: &[u8]) -> Vec<u8> {
    let mut frame = FrameKind::Reply.key().to_vec();
    frame.extend([flags, rev]);
    frame.extend((rest.len() as u16).to_be_bytes());
    frame.extend(rest);
    frame
}

pub(super) fn request_frame(flags: u8, rev: u8, rest: &[u8]) -> Vec<u8> {
    let mut frame = reply(flags, rev, rest);
    frame[..16].copy_from_slice(FrameKind::Request.key());
    frame
}

pub(super) fn words(ird: u16, ord: u16, peer_to_peer: Option<RtrKinds>) -> [u8; 4] {
    let mut bytes = [0; 4];
    Enhanced {
        peer_to_peer,
        ird,
        ord,
    }
    .emit(&mut bytes);
    bytes
}

fn agree(config: InitiatorConfig, responder: ResponderConfig) -> (Negotiated, Negotiated) {
    let (initiator, frame) = initiator(config);
    let responder = Responder::new(responder);
    let info = value(responder.handle_input(&frame));
    let (frame, theirs) = responder.accept(&info, PARAMS, b"").expect("acceptable");
    match value(initiator.handle_input(frame.as_bytes())) {
        ReplyOutcome::Accepted { negotiated, .. } => (negotiated, theirs),
        other => panic!("accepted was expected, not {other:?}"),
    }
}

#[test]
fn golden_start_up_of_group_b() {
    let config = InitiatorConfig {
        crc: true,
        peer_to_peer: Some(RtrKinds::WRITE_READ),
        ..PLAIN
    };
    let (initiator, frame) = Initiator::request(config, b"DAT!").expect("four bytes fit");
    let b1 = hex("4d504120 49442052 65712046 72616d65 50020008 8004c004 44415421");
    assert_eq!(frame.as_bytes(), b1);
    let Progress::Frame {
        consumed,
        private_data,
        value: info,
    } = Responder::default().handle_input(&b1)
    else {
        panic!("a whole Request");
    };
    assert_eq!((consumed, &b1[private_data]), (28, &b"DAT!"[..]));
    let responder = Responder::new(ResponderConfig {
        rtr_kinds: RtrKinds::only(RtrKind::Write),
        ..ResponderConfig::default()
    });
    let (reply, theirs) = responder.accept(&info, PARAMS, b"").expect("acceptable");
    let b2 = hex("4d504120 49442052 65702046 72616d65 50020004 80048004");
    assert_eq!(reply.as_bytes(), b2);
    let expected = Negotiated {
        rev: 2,
        crc: true,
        markers_tx: false,
        markers_rx: false,
        ird: 4,
        ord: 4,
        rtr: Some(RtrKind::Write),
        peer: Peer::Unknown,
    };
    assert_eq!(theirs, expected);
    let peer = Some(Enhanced {
        peer_to_peer: Some(RtrKinds::only(RtrKind::Write)),
        ird: 4,
        ord: 4,
    });
    let ours = value(initiator.handle_input(&b2));
    assert_eq!(
        ours,
        ReplyOutcome::Accepted {
            negotiated: expected,
            peer
        }
    );
}

/// A responder of the provider: as much private data as the RFC allows.
fn responder_of_512() -> Responder {
    Responder::new(ResponderConfig {
        pd_length_max: 512,
        ..ResponderConfig::default()
    })
}

#[test]
fn no_reply_to_siw_is_long_enough_to_crash_its_kernel() {
    let siw = request(&hex(
        "4d504120 49442052 65712046 72616d65 10020004 00040004",
    ));
    let other = request(&hex(
        "4d504120 49442052 65712046 72616d65 50020004 00040004",
    ));
    assert_eq!((siw.peer, other.peer), (Peer::Siw, Peer::Unknown));
    let responder = responder_of_512();
    assert_eq!(responder.private_data_max(&siw), 252);
    assert_eq!(responder.private_data_max(&other), 508);
    for (info, fits) in [(&siw, 252), (&other, 508)] {
        let (longest, too_long) = (vec![1; fits], vec![1; fits + 1]);
        let (frame, negotiated) = responder.accept(info, PARAMS, &longest).expect("it fits");
        assert_eq!(negotiated.peer, info.peer);
        assert_eq!(frame.as_bytes().len(), HEADER_LEN + 4 + fits);
        assert!(responder.reject(info, PARAMS, &longest).is_ok());
        let refused = Err(StartupError::PrivateDataTooLong {
            len: fits + 1,
            max: fits,
        });
        assert_eq!(responder.accept(info, PARAMS, &too_long), refused);
        assert!(responder.reject(info, PARAMS, &too_long).is_err());
    }
}

#[test]
fn a_request_to_siw_is_short_and_asks_for_no_first_frame() {
    let config = InitiatorConfig {
        pd_length_max: 512,
        peer: Peer::Siw,
        ..InitiatorConfig::default()
    };
    assert!(config.peer_to_peer.is_some());
    let (_, frame) = Initiator::request(config, &[0; 252]).expect("256 bytes in all");
    assert_eq!(frame.as_bytes()[18..24], [1, 0, 0, 16, 0, 16]);
    assert!(Initiator::request(config, &[0; 253]).is_err());
    let rev1 = InitiatorConfig {
        enhanced: false,
        ..config
    };
    assert!(Initiator::request(rev1, &[0; 255]).is_ok());
    assert!(Initiator::request(rev1, &[0; 256]).is_err());
}

#[test]
fn golden_start_up_of_groups_a_c_d() {
    let rev1 = InitiatorConfig {
        enhanced: false,
        crc: true,
        ..PLAIN
    };
    assert_eq!(
        initiator(rev1).1,
        hex("4d504120 49442052 65712046 72616d65 40010000")
    );
    let c1 = hex("4d504120 49442052 65712046 72616d65 10020004 00040004");
    assert_eq!(initiator(PLAIN).1, c1);
    let crc_off = Responder::new(ResponderConfig {
        crc: false,
        ..ResponderConfig::default()
    });
    let (c2, negotiated) = crc_off
        .accept(&request(&c1), PARAMS, b"")
        .expect("acceptable");
    assert_eq!(
        c2.as_bytes(),
        hex("4d504120 49442052 65702046 72616d65 10020004 00040004")
    );
    assert!(!negotiated.crc && negotiated.rtr.is_none());
    let info = request(&hex("4d504120 49442052 65712046 72616d65 40010000"));
    let d2 = Responder::default()
        .reject(&info, PARAMS, b"no")
        .expect("two bytes fit");
    assert_eq!(
        d2.as_bytes(),
        hex("4d504120 49442052 65702046 72616d65 60010002 6e6f")
    );
}

#[test]
fn frame_arrives_byte_by_byte_and_stops_at_its_end() {
    let (_, frame) = initiator(PLAIN);
    let responder = Responder::default();
    for len in 0..frame.len() {
        let expected = if len < HEADER_LEN {
            HEADER_LEN
        } else {
            frame.len()
        };
        assert_eq!(
            responder.handle_input(&frame[..len]),
            Progress::NeedMore(expected)
        );
    }
    let mut more = frame.clone();
    more.extend_from_slice(b"next");
    let Progress::Frame {
        consumed,
        private_data,
        ..
    } = responder.handle_input(&more)
    else {
        panic!("a whole Request");
    };
    assert_eq!((consumed, private_data), (24, 24..24));
}

#[test]
fn other_protocols_are_recognised_by_their_first_byte() {
    let (initiator, _) = initiator(PLAIN);
    for front in [
        &b"G"[..],
        b"GET / HTTP/1.1\r\n",
        b"MPA ID Rex",
        b"\x16\x03\x01",
    ] {
        assert_eq!(Responder::default().handle_input(front), Progress::NotMpa);
        assert_eq!(initiator.handle_input(front), Progress::NotMpa);
    }
}

#[test]
fn depths_follow_the_peer() {
    // (initiator IRD, ORD, responder IRD, ORD) -> (initiator IRD, ORD, responder IRD, ORD)
    const NONE: u16 = DEPTH_UNSPECIFIED;
    let rows = [
        ((4, 4, 4, 4), (4, 4, 4, 4)),
        ((8, 8, 4, 4), (8, 4, 4, 4)),
        ((2, 8, 16, 16), (2, 8, 16, 2)),
        ((0, 0, 4, 4), (0, 0, 4, 0)),
        // "No automatic negotiation" leaves both values as their consumers set them; the
        // initiator's own limit is used as its IRD.
        ((NONE, 8, 4, 6), (64, 4, 4, 6)),
        ((8, NONE, 4, 6), (8, 0x3FFE, 4, 6)),
    ];
    for ((ird, ord, peer_ird, peer_ord), expected) in rows {
        let (initiator, frame) = initiator(InitiatorConfig {
            ird,
            ord,
            ird_max: 64,
            ..PLAIN
        });
        let params = AcceptParams {
            ird: peer_ird,
            ord: peer_ord,
            ird_max: peer_ird,
        };
        let (frame, theirs) = Responder::default()
            .accept(&request(&frame), params, b"")
            .expect("acceptable");
        let ReplyOutcome::Accepted {
            negotiated: ours, ..
        } = value(initiator.handle_input(frame.as_bytes()))
        else {
            panic!("accepted");
        };
        assert_eq!((ours.ird, ours.ord, theirs.ird, theirs.ord), expected);
    }
}

#[test]
fn initiator_raises_its_ird_within_its_limit_only() {
    let judge = |ird_max, peer_ord| {
        let (initiator, _) = initiator(InitiatorConfig { ird_max, ..PLAIN });
        value(initiator.handle_input(&reply(0x10, 2, &words(4, peer_ord, None))))
    };
    let ReplyOutcome::Accepted { negotiated, .. } = judge(16, 16) else {
        panic!("within")
    };
    assert_eq!(negotiated.ird, 16);
    let refusal = Refusal::InsufficientIrd {
        needed: 17,
        crc: false,
        markers: false,
    };
    assert_eq!(judge(16, 17), ReplyOutcome::Refused(refusal));
}

#[test]
fn responder_picks_read_then_write_then_send() {
    let kinds = |send, write, read| RtrKinds { send, write, read };
    let rows = [
        (kinds(false, true, true), RtrKind::Read),
        (kinds(true, true, true), RtrKind::Read),
        (kinds(true, true, false), RtrKind::Write),
        (kinds(true, false, false), RtrKind::Send),
        (kinds(false, false, true), RtrKind::Read),
    ];
    for (offered, picked) in rows {
        let (ours, theirs) = agree(
            InitiatorConfig {
                peer_to_peer: Some(offered),
                ..PLAIN
            },
            ResponderConfig::default(),
        );
        assert_eq!(
            (ours.rtr, theirs.rtr),
            (Some(picked), Some(picked)),
            "{offered:?}"
        );
    }
}

#[test]
fn nothing_in_common_ends_with_error_7_at_the_initiator() {
    let offered = RtrKinds::only(RtrKind::Send);
    let (initiator, frame) = initiator(InitiatorConfig {
        peer_to_peer: Some(offered),
        ..PLAIN
    });
    let responder = Responder::new(ResponderConfig {
        rtr_kinds: RtrKinds::only(RtrKind::Write),
        ..ResponderConfig::default()
    });
    let (frame, _) = responder
        .accept(&request(&frame), PARAMS, b"")
        .expect("acceptable");
    let outcome = value(initiator.handle_input(frame.as_bytes()));
    assert_eq!(
        outcome,
        ReplyOutcome::Refused(Refusal::NoMatchingRtr {
            crc: true,
            markers: false,
        })
    );
}

#[test]
fn zero_length_read_raises_an_ird_of_zero() {
    let p2p = Some(RtrKinds::only(RtrKind::Read));
    let (_, frame) = initiator(InitiatorConfig {
        ird: 0,
        ord: 0,
        peer_to_peer: p2p,
        ..PLAIN
    });
    let params = AcceptParams::default();
    let (_, negotiated) = Responder::default()
        .accept(&request(&frame), params, b"")
        .expect("acceptable");
    assert_eq!((negotiated.ird, negotiated.ord), (1, 0));
}

#[test]
fn reject_carries_private_data_and_depths() {
    let (initiator, frame) = initiator(PLAIN);
    let frame = Responder::default()
        .reject(
            &request(&frame),
            AcceptParams {
                ird: 1,
                ord: 2,
                ird_max: 1,
            },
            b"busy",
        )
        .expect("four bytes fit");
    let Progress::Frame {
        private_data,
        value,
        ..
    } = initiator.handle_input(frame.as_bytes())
    else {
        panic!("a whole Reply");
    };
    assert_eq!(&frame.as_bytes()[private_data], b"busy");
    let peer = Some(Enhanced {
        peer_to_peer: None,
        ird: 1,
        ord: 2,
    });
    assert_eq!(value, ReplyOutcome::Rejected { peer });
}

#[test]
fn unenhanced_peers_on_either_side() {
    // Revision 1 on both sides: private data raw, depths as the consumers set them.
    let (ours, theirs) = agree(
        InitiatorConfig {
            enhanced: false,
            ird: 7,
            ord: 9,
            ..PLAIN
        },
        ResponderConfig::default(),
    );
    assert_eq!((ours.rev, ours.ird, ours.ord), (1, 7, 9));
    assert_eq!(
        (theirs.rev, theirs.ird, theirs.ord, theirs.rtr),
        (1, 4, 4, None)
    );
    // Flag S is a reserved bit of revision 1.
    let frame = request_frame(0x10, 1, b"abcdef");
    let Progress::Frame {
        private_data,
        value: info,
        ..
    } = Responder::default().handle_input(&frame)
    else {
        panic!("a whole Request");
    };
    assert_eq!(
        (&frame[private_data], info.enhanced),
        (&b"abcdef"[..], None)
    );
    let (frame, _) = Responder::default()
        .accept(&info, PARAMS, b"")
        .expect("acceptable");
    let header = frame
        .as_bytes()
        .first_chunk()
        .map(Header::parse)
        .expect("a header");
    assert_eq!((header.rev, header.enhanced), (1, false));
}

#[test]
fn crc_is_agreed_on_for_both_directions_and_markers_for_each_alone() {
    for (initiator, responder) in [(false, false), (false, true), (true, false), (true, true)] {
        let (ours, theirs) = agree(
            InitiatorConfig {
                can_insert_markers: true,
                markers: initiator,
                crc: initiator,
                ..PLAIN
            },
            ResponderConfig {
                markers: responder,
                crc: responder,
                ..ResponderConfig::default()
            },
        );
        let crc = initiator || responder;
        assert_eq!((ours.crc, theirs.crc), (crc, crc));
        assert_eq!((ours.markers_tx, ours.markers_rx), (responder, initiator));
        assert_eq!(
            (theirs.markers_tx, theirs.markers_rx),
            (initiator, responder)
        );
    }
}

#[test]
fn private_data_is_limited_to_what_the_peer_can_process() {
    let max = InitiatorConfig::default().private_data_max();
    assert_eq!(max, 252);
    let request = |len| Initiator::request(InitiatorConfig::default(), &vec![1; len]).map(|_| ());
    assert_eq!(request(252), Ok(()));
    assert_eq!(
        request(253),
        Err(StartupError::PrivateDataTooLong { len: 253, max: 252 })
    );
    let wide = InitiatorConfig {
        pd_length_max: u16::MAX,
        ..InitiatorConfig::default()
    };
    assert!(Initiator::request(wide, &[1; 508]).is_ok());
    let refused = Initiator::request(wide, &[1; 509]).map(|_| ());
    assert_eq!(
        refused,
        Err(StartupError::PrivateDataTooLong { len: 509, max: 508 })
    );

    let (_, frame) = initiator(PLAIN);
    let info = self::request(&frame);
    let responder = Responder::default();
    assert_eq!(responder.private_data_max(&info), 252);
    assert!(responder.accept(&info, PARAMS, &[1; 252]).is_ok());
    assert!(responder.accept(&info, PARAMS, &[1; 253]).is_err());
    assert!(responder.reject(&info, PARAMS, &[1; 253]).is_err());
}
