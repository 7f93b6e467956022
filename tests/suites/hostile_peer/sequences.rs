//! Frames that are cut, extended, damaged, repeated and out of order.

use anyhow::Result;
use stack_tests::frame_writer::{Fpdu, Frame};

use super::attack::Verdict::{self, Close, Continues, Cut, Terminate};
use super::attack::{Attack, Placed, Scripted, Shot, run, run_scripts, scripts};
use super::kinds::{Kind, PAYLOAD, Scene, TARGET_AT, Target, harmless};
use super::victim::{RECEIVE_AT, RECEIVE_LEN, RECEIVES, SINK_AT, Victim};

const MPA_CRC: Verdict = Terminate(2, 0, 2);
const MPA_LENGTH: Verdict = Terminate(2, 0, 3);
const BOUNDS: Verdict = Terminate(1, 1, 1);
const MSN: Verdict = Terminate(1, 2, 3);
const MO: Verdict = Terminate(1, 2, 4);
const TOO_LONG: Verdict = Terminate(1, 2, 5);
const UNEXPECTED: Verdict = Terminate(0, 2, 6);

/// The offset at which the first half of a message ends.
const HALF: usize = 8;

/// Frames made from a valid frame of this kind.
fn of_one(
    name: String,
    kind: Kind,
    (verdict, placed): (Verdict, Placed),
    change: impl Fn(Frame) -> Shot + 'static,
) -> Attack {
    Attack {
        name: format!("{kind:?} {name}"),
        scene: kind.scene(),
        act: Box::new(move |target| change(target.frame(kind))),
        verdict,
        placed,
    }
}

/// The length of a valid message of this kind, from its DDP header on, and on the wire.
fn lengths(victim: &Victim, kind: Kind) -> (usize, usize) {
    let fpdu = Fpdu::new(&Target::blind(victim).frame(kind));
    (fpdu.ulpdu().len(), fpdu.bytes().len())
}

/// The effect of a segment of `kind` that ends after `len` bytes.
fn fate_of_short(kind: Kind, len: usize) -> (Verdict, Placed) {
    let header_len = if kind.is_tagged() { 14 } else { 18 };
    let (whole, mut placed) = harmless(kind);
    let verdict = match kind {
        _ if len < header_len => MPA_LENGTH,
        Kind::Write
        | Kind::Send
        | Kind::SendInvalidate
        | Kind::SendSolicited
        | Kind::SendSolicitedInvalidate => {
            placed[0].1.truncate(len - header_len);
            return (whole, placed);
        }
        Kind::ReadResponse => BOUNDS,
        Kind::Terminate => Close,
        _ => MPA_LENGTH,
    };
    (verdict, vec![])
}

#[test]
fn segments_that_end_early() -> Result<()> {
    let victim = Victim::new()?;
    let mut attacks = Vec::new();
    for kind in Kind::ALL {
        for len in 0..lengths(&victim, kind).0 {
            let name = format!("of {len} bytes");
            let fate = fate_of_short(kind, len);
            attacks.push(of_one(name, kind, fate, move |frame| {
                Shot::of(&[Fpdu::of(frame.bytes()[..len].to_vec())])
            }));
        }
    }
    run(&victim, &attacks)
}

#[test]
fn segments_that_are_too_long() -> Result<()> {
    let victim = Victim::new()?;
    let mut attacks = Vec::new();
    for kind in Kind::ALL {
        let verdict = match kind {
            Kind::Write => continue,
            Kind::ReadResponse => BOUNDS,
            Kind::Terminate => Close,
            _ => TOO_LONG,
        };
        let is_send = lengths(&victim, kind).0 == 18 + PAYLOAD.len();
        let sizes: &[usize] = match kind {
            Kind::ReadResponse => &[PAYLOAD.len() + 1, 1000, 60_000],
            _ if is_send => &[RECEIVE_LEN + 1, 1000, 60_000],
            _ => &[1, 18, 60_000],
        };
        for &len in sizes {
            attacks.push(of_one(
                format!("with {len} bytes"),
                kind,
                (verdict, vec![]),
                move |frame| Shot::of(&[Fpdu::new(&frame.with_payload(&vec![0xee; len]))]),
            ));
        }
    }
    run(&victim, &attacks)
}

#[test]
fn streams_that_end_within_a_frame() -> Result<()> {
    let victim = Victim::new()?;
    let mut attacks = Vec::new();
    for kind in Kind::ALL {
        for len in 0..lengths(&victim, kind).1 {
            let name = format!("cut after {len} bytes");
            attacks.push(of_one(name, kind, (Cut, vec![]), move |frame| {
                Shot::of(&[Fpdu::new(&frame)]).cut(len)
            }));
        }
    }
    run(&victim, &attacks)
}

#[test]
fn bytes_that_change_while_the_crc_is_computed() -> Result<()> {
    let victim = Victim::new()?;
    let mut attacks = Vec::new();
    for kind in Kind::ALL {
        // Another test changes the length field, because that moves the CRC.
        for at in 2..lengths(&victim, kind).1 {
            let bit = 1 << (at % 8);
            let name = format!("with byte {at} changed");
            attacks.push(of_one(name, kind, (MPA_CRC, vec![]), move |frame| {
                let mut shot = Shot::of(&[Fpdu::new(&frame)]);
                shot.wire[at] ^= bit;
                shot
            }));
        }
        for flip in [1, 0x8000_0000, 0xffff_ffff] {
            let name = format!("with CRC bits {flip:#x} changed");
            attacks.push(of_one(name, kind, (MPA_CRC, vec![]), move |frame| {
                Shot::of(&[Fpdu::new(&frame).crc_flipped(flip)])
            }));
        }
        // Pad bytes are covered by the CRC and have no meaning.
        let name = "with a pad that is not zero".to_owned();
        attacks.push(of_one(name, kind, harmless(kind), |frame| {
            Shot::of(&[Fpdu::new(&frame).padded_with(0xff)])
        }));
    }
    run(&victim, &attacks)
}

#[test]
fn wrong_lengths() -> Result<()> {
    let victim = Victim::new()?;
    let mut attacks = Vec::new();
    for kind in Kind::ALL {
        let true_len = lengths(&victim, kind).0 as u16;
        // A shorter length ends the frame at bytes that are not the CRC. A frame with a longer
        // length is never complete.
        let wrong_lengths = [
            (0, MPA_LENGTH),
            (1, MPA_LENGTH),
            (13, MPA_LENGTH),
            (true_len - 4, MPA_CRC),
            (true_len + 4, Cut),
            (64_769, Cut),
            (u16::MAX, Cut),
        ];
        for (len, verdict) in wrong_lengths {
            // An incomplete frame has no verdict. A header that is too short is detected before the
            // CRC is complete.
            let name = format!("that claims {len} bytes");
            attacks.push(of_one(name, kind, (verdict, vec![]), move |frame| {
                Shot::of(&[Fpdu::new(&frame).claiming(len)])
            }));
        }
    }
    run(&victim, &attacks)
}

#[test]
fn duplicate_messages() -> Result<()> {
    let victim = Victim::new()?;
    let attacks = Kind::ALL.map(|kind| {
        let (once, placed) = harmless(kind);
        let verdict = match kind {
            Kind::Write | Kind::Terminate => once,
            Kind::ReadResponse => UNEXPECTED,
            _ => MSN,
        };
        of_one("twice".to_owned(), kind, (verdict, placed), |frame| {
            Shot::of(&[Fpdu::new(&frame), Fpdu::new(&frame)])
        })
    });
    run(&victim, &attacks)
}

/// A valid message in two segments.
fn halves(frame: &Frame) -> [Frame; 2] {
    let (first, second) = frame.payload.split_at(HALF);
    let (head, tail) = (frame.clone().with("l", 0), frame.clone());
    let tail = if frame.names().any(|name| name == "mo") {
        tail.with("mo", HALF as u128)
    } else {
        let to = frame.get("to") + HALF as u128;
        tail.with("to", to)
    };
    [head.with_payload(first), tail.with_payload(second)]
}

fn first_half() -> (usize, Vec<u8>) {
    (RECEIVE_AT, PAYLOAD[..HALF].to_vec())
}

fn received() -> (usize, Vec<u8>) {
    (RECEIVE_AT, PAYLOAD.to_vec())
}

fn written() -> (usize, Vec<u8>) {
    (TARGET_AT, PAYLOAD.to_vec())
}

fn read() -> (usize, Vec<u8>) {
    (SINK_AT, PAYLOAD.to_vec())
}

fn all_receives() -> Placed {
    (0..RECEIVES)
        .map(|index| (RECEIVE_AT + index * RECEIVE_LEN, PAYLOAD.to_vec()))
        .collect()
}

/// Messages in an order that is wrong, or that is unusual and correct.
const ORDERS: &[Scripted] = scripts! {
    "the second Send before the first" in Idle, |t| vec![t.numbered(Kind::Send, 2)]
        => MSN, || vec![];
    "the second half of a Send first" in Idle, |t| halves(&t.frame(Kind::Send))[1..].to_vec()
        => MO, || vec![];
    "the first half of a Send twice" in Idle, |t| {
        let [first, _] = halves(&t.frame(Kind::Send));
        vec![first.clone(), first]
    } => MO, || vec![first_half()];
    "a gap in a Send" in Idle, |t| {
        let [first, second] = halves(&t.frame(Kind::Send));
        vec![first, second.with("mo", HALF as u128 + 1)]
    } => MO, || vec![first_half()];
    "the next Send before the second half of this one" in Idle, |t| {
        let [first, _] = halves(&t.frame(Kind::Send));
        vec![first, t.numbered(Kind::Send, 2)]
    } => MSN, || vec![first_half()];
    "a Send that becomes another kind" in Idle, |t| {
        let [first, second] = halves(&t.frame(Kind::Send));
        vec![first, second.with("opcode", 5)]
    } => UNEXPECTED, || vec![first_half()];
    "Immediate Data within a Send" in Idle, |t| {
        let [first, _] = halves(&t.frame(Kind::Send));
        vec![first, t.frame(Kind::Immediate)]
    } => UNEXPECTED, || vec![first_half()];
    "a Write within a Send" in Idle, |t| {
        let [first, second] = halves(&t.frame(Kind::Send));
        vec![first, t.frame(Kind::Write), second]
    } => Continues(2), || vec![received(), written()];
    "a Read Request within a Send" in Idle, |t| {
        let [first, second] = halves(&t.frame(Kind::Send));
        vec![first, t.frame(Kind::ReadRequest), second]
    } => Continues(2), || vec![received()];
    "the halves of a Write the wrong way round" in Idle, |t| {
        let [first, second] = halves(&t.frame(Kind::Write));
        vec![second.with("l", 0), first.with("l", 1)]
    } => Continues(1), || vec![written()];
    "a Write within a Read Response" in Reading, |t| {
        let [first, second] = halves(&t.frame(Kind::ReadResponse));
        vec![first, t.frame(Kind::Write), second]
    } => Continues(1), || vec![read(), written()];
    "the second half of a Read Response first" in Reading,
        |t| halves(&t.frame(Kind::ReadResponse))[1..].to_vec() => BOUNDS, || vec![];
    "the first half of a Read Response twice" in Reading, |t| {
        let [first, _] = halves(&t.frame(Kind::ReadResponse));
        vec![first.clone(), first]
    } => BOUNDS, || vec![(SINK_AT, PAYLOAD[..HALF].to_vec())];
    "an Atomic Response to a read" in Reading, |t| vec![t.frame(Kind::AtomicResponse)]
        => UNEXPECTED, || vec![];
    "a Read Response to an atomic" in Adding, |t| vec![t.frame(Kind::ReadResponse)]
        => UNEXPECTED, || vec![];
    "a Send after a Terminate" in Idle, |t| vec![t.frame(Kind::Terminate), t.frame(Kind::Send)]
        => Close, || vec![];
    "a Write after a Terminate" in Idle, |t| vec![t.frame(Kind::Terminate), t.frame(Kind::Write)]
        => Close, || vec![];
    "a Send more than there are receives" in Idle,
        |t| (1..=5).map(|msn| t.numbered(Kind::Send, msn)).collect()
        => Terminate(1, 2, 2), all_receives;
    "a window taken away twice" in WindowBound, |t| {
        (1..=2)
            .map(|msn| t.numbered(Kind::SendInvalidate, msn))
            .collect()
    } => Terminate(0, 1, 0), || vec![received()];
    "a Write to a window, then taking it away" in WindowBound, |t| {
        let write = t.frame(Kind::Write).with("stag", t.window.into());
        vec![write, t.frame(Kind::SendInvalidate)]
    } => Continues(2), || vec![received(), written()];
};

#[test]
fn messages_in_another_order() -> Result<()> {
    run_scripts(ORDERS)
}

#[test]
fn only_the_first_of_two_faults_is_reported() -> Result<()> {
    let victim = Victim::new()?;
    let attack = Attack {
        name: "a bad Write, then a good one and a bad read".to_owned(),
        scene: Scene::Idle,
        act: Box::new(|target| {
            let bad = Fpdu::new(&target.frame(Kind::Write).with("stag", 0));
            let good = Fpdu::new(&target.frame(Kind::Write));
            let read = Fpdu::new(&target.frame(Kind::ReadRequest).with("source_stag", 0));
            let mut shot = Shot::of(std::slice::from_ref(&bad));
            shot.wire.extend(good.bytes());
            shot.wire.extend(read.bytes());
            shot
        }),
        verdict: Terminate(1, 1, 0),
        placed: vec![],
    };
    run(&victim, &[attack])
}
