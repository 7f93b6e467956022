//! MPA start-up: both sides judge arbitrary bytes, and each can parse the other's answers.
//!
//! Input: one byte of flags, initiator IRD, its limit, ORD, responder IRD and ORD (two bytes
//! each), the longest private data (two), a byte `n` of answering private data, then the stream.

use std::fmt::Debug;

use iwarp_proto::{
    Peer,
    mpa::{
        AcceptParams, Initiator, InitiatorConfig, Progress, ReplyOutcome, RequestInfo, Responder,
        ResponderConfig,
    },
    wire::mpa::{DEPTH_MAX, DEPTH_UNSPECIFIED, FRAME_MAX, HEADER_LEN, RtrKinds},
};

use crate::input::Input;

/// Runs one input.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let flags = Flags(input.byte());
    let config = InitiatorConfig {
        enhanced: flags.is_set(0),
        crc: flags.is_set(1),
        can_insert_markers: flags.is_set(2),
        markers: false,
        ird: input.short(),
        ird_max: input.short(),
        ord: input.short(),
        peer_to_peer: flags.is_set(3).then_some(RtrKinds::WRITE_READ),
        pd_length_max: 256,
        peer: Peer::Unknown,
    };
    let ird = input.short();
    let params = AcceptParams {
        ird,
        ord: input.short(),
        ird_max: ird,
    };
    let responder = Responder::new(ResponderConfig {
        crc: flags.is_set(4),
        can_insert_markers: flags.is_set(5),
        markers: false,
        rtr_kinds: RtrKinds {
            send: flags.is_set(6),
            write: true,
            read: flags.is_set(7),
        },
        pd_length_max: input.short(),
        // A siw peer is recognised by its Request.
        peer: Peer::Unknown,
    });
    let answer_len = usize::from(input.byte());
    let stream = input.rest();
    let stream = &stream[..stream.len().min(2 * FRAME_MAX)];

    let (initiator, request) =
        Initiator::request(config, b"").expect("no private data always fits");
    let progress = judge(request.as_bytes(), |front| responder.handle_input(front));
    assert!(
        matches!(progress, Progress::Frame { .. }),
        "a Request of ours is {progress:?}"
    );
    let reply = judge(stream, |front| initiator.handle_input(front));
    if let Progress::Frame { value, .. } = reply {
        check_outcome(&config, value);
    }
    let progress = judge(stream, |front| responder.handle_input(front));
    if let Progress::Frame { value, .. } = progress {
        check_answers(&responder, &value, params, &vec![7; answer_len], &config);
    }
}

/// The bits of the first byte.
struct Flags(u8);

impl Flags {
    fn is_set(&self, bit: u8) -> bool {
        self.0 >> bit & 1 == 1
    }
}

/// Prefixes of a stream up to this length are all checked: they end in a header or shortly after
/// it.
const DENSE: usize = HEADER_LEN + 12;
/// The step between checked prefixes that are longer, except near the end, where all are checked.
const STRIDE: usize = 29;

/// The verdict over `stream`. Before that, checks that shorter prefixes ask for more bytes until a
/// verdict is reached, and that the verdict never changes.
fn judge<T: Debug + PartialEq>(
    stream: &[u8],
    handle_input: impl Fn(&[u8]) -> Progress<T>,
) -> Progress<T> {
    let verdict = handle_input(stream);
    let mut asked = 0;
    let mut decided = false;
    let frame_end = match &verdict {
        Progress::Frame { consumed, .. } => *consumed,
        _ => stream.len(),
    };
    let is_looked_at = |len: &usize| {
        let near = |end: usize| len.abs_diff(end) <= 2;
        *len <= DENSE || len.is_multiple_of(STRIDE) || near(frame_end) || near(stream.len())
    };
    for len in (0..=stream.len()).filter(is_looked_at) {
        match handle_input(&stream[..len]) {
            Progress::NeedMore(need) => {
                assert!(!decided, "undecided again with {len} bytes");
                assert!(need > len, "{len} bytes are there, {need} are asked for");
                assert!(need >= asked, "{asked} bytes were asked for, now {need}");
                assert!(need <= FRAME_MAX, "no frame is as long as {need}");
                asked = need;
            }
            early => {
                decided = true;
                assert_eq!(early, verdict, "with {len} bytes of {}", stream.len());
            }
        }
    }
    assert_eq!(exact_reader(stream, &handle_input), verdict);
    if let Progress::Frame {
        consumed,
        private_data,
        ..
    } = &verdict
    {
        assert!(*consumed <= stream.len() && *consumed >= HEADER_LEN);
        assert!(private_data.start >= HEADER_LEN && private_data.start <= private_data.end);
        assert_eq!(private_data.end, *consumed);
        assert!(
            *consumed >= asked,
            "the frame is shorter than what was asked for"
        );
    }
    verdict
}

/// Reads exactly the bytes that are asked for, like an engine that must not read beyond them.
fn exact_reader<T>(stream: &[u8], handle_input: impl Fn(&[u8]) -> Progress<T>) -> Progress<T> {
    let mut len = 0;
    loop {
        match handle_input(&stream[..len]) {
            Progress::NeedMore(need) if need <= stream.len() => len = need,
            Progress::NeedMore(_) => return handle_input(stream),
            verdict => return verdict,
        }
    }
}

fn check_outcome(config: &InitiatorConfig, outcome: ReplyOutcome) {
    let ReplyOutcome::Accepted { negotiated, peer } = outcome else {
        return;
    };
    assert!(negotiated.crc || !config.crc, "CRC was asked for");
    assert!(negotiated.ord <= config.ord.min(DEPTH_MAX));
    assert!(!negotiated.markers_tx || config.can_insert_markers);
    assert_eq!(peer.is_some(), config.enhanced);
    let Some(peer) = peer else { return };
    assert!(peer.ird == DEPTH_UNSPECIFIED || negotiated.ord <= peer.ird);
    assert!(peer.ord == DEPTH_UNSPECIFIED || negotiated.ird >= peer.ord);
    if let Some(kind) = negotiated.rtr {
        let both = config.peer_to_peer.zip(peer.peer_to_peer);
        assert!(both.is_some_and(|(ours, theirs)| ours.contains(kind) && theirs.contains(kind)));
    }
}

/// Checks that, whatever the Request was, an initiator can parse every Reply that can be made.
fn check_answers(
    responder: &Responder,
    request: &RequestInfo,
    params: AcceptParams,
    private_data: &[u8],
    config: &InitiatorConfig,
) {
    let fits = private_data.len() <= responder.private_data_max(request);
    let reader = InitiatorConfig {
        enhanced: request.rev == 2,
        ..*config
    };
    let (reader, _) = Initiator::request(reader, b"").expect("no private data always fits");
    if let Ok((frame, negotiated)) = responder.accept(request, params, private_data) {
        assert!(fits);
        assert!(negotiated.crc || !request.crc);
        assert!(negotiated.ird <= DEPTH_MAX && negotiated.ord <= DEPTH_MAX);
        let read = judge(frame.as_bytes(), |front| reader.handle_input(front));
        check_read_back(&read, frame.as_bytes(), private_data, false);
    }
    let rejection = responder.reject(request, params, private_data);
    assert_eq!(rejection.is_ok(), fits);
    if let Ok(frame) = rejection {
        let read = judge(frame.as_bytes(), |front| reader.handle_input(front));
        check_read_back(&read, frame.as_bytes(), private_data, true);
    }
}

fn check_read_back(read: &Progress<ReplyOutcome>, frame: &[u8], private_data: &[u8], reject: bool) {
    let Progress::Frame {
        consumed,
        private_data: range,
        value,
    } = read
    else {
        panic!("a Reply of ours is {read:?}");
    };
    assert_eq!(*consumed, frame.len());
    assert_eq!(&frame[range.clone()], private_data);
    assert_eq!(matches!(value, ReplyOutcome::Rejected { .. }), reject);
}
