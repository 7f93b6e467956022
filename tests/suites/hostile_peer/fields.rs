//! Every field of every message with other values, one row per value.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use stack_tests::frame_writer::Fpdu;
use stack_tests::rows;

use super::arena::pattern;
use super::attack::{Attack, Shot, Verdict, run};
use super::kinds::Kind::{self, *};
use super::kinds::{PAYLOAD, TARGET_AT, Target, harmless};
use super::victim::{RECEIVE_AT, SINK_AT, Victim};

/// The new value of a field.
#[derive(Clone, Copy)]
enum Value {
    Is(u128),
    /// The field's value plus this number, modulo its width.
    Plus(i128),
    Of(fn(&Target<'_>) -> u128),
}
use Value::{Is, Of, Plus};

/// The effect on the stream.
#[derive(Clone, Copy)]
enum Outcome {
    /// The effect of the unchanged message.
    Same,
    /// A Terminate of this layer, type and code.
    Ends(u8, u8, u8),
    /// The message remains incomplete; the part that was received is placed at this offset.
    Partial(usize),
    /// The message is complete, and these bytes are placed.
    Places(fn() -> (usize, Vec<u8>)),
}
use Outcome::{Ends, Partial, Places, Same};

/// A field of a message, its new value, and the effect.
type Row = (Kind, &'static str, Value, Outcome);

const INVALID_STAG: Outcome = Ends(1, 1, 0);
const BOUNDS: Outcome = Ends(1, 1, 1);
const REMOTE_INVALID_STAG: Outcome = Ends(0, 1, 0);
const REMOTE_BOUNDS: Outcome = Ends(0, 1, 1);
const UNEXPECTED: Outcome = Ends(0, 2, 6);
const TOO_LONG: Outcome = Ends(1, 2, 5);

/// Fields with a separate meaning in one message. Sources of the verdicts: RFC 5041 section 7.1 and
/// 8.2, RFC 5040 section 4.8 and 7.1, RFC 7306 section 8.2.
const ROWS: &[Row] = &rows! {
    Write, "l", Is(0), Partial(TARGET_AT);
    Write, "stag", Plus(1), INVALID_STAG;
    Write, "stag", Plus(0x100), INVALID_STAG;
    Write, "stag", Is(0), INVALID_STAG;
    Write, "stag", Is(u32::MAX as u128), INVALID_STAG;
    Write, "stag", Of(foreign), Ends(1, 1, 2);
    Write, "stag", Of(gone), INVALID_STAG;
    Write, "stag", Of(private), INVALID_STAG;
    Write, "stag", Of(readable), INVALID_STAG;
    Write, "to", Is(0), BOUNDS;
    Write, "to", Of(|t| open_start(t) - 1), BOUNDS;
    Write, "to", Of(|t| open_end(t) - PAYLOAD.len() as u128 + 1), BOUNDS;
    Write, "to", Of(open_end), BOUNDS;
    Write, "to", Of(|t| open_end(t) - PAYLOAD.len() as u128), Places(at_the_end);
    Write, "to", Is(u64::MAX as u128 - 3), Ends(1, 1, 3);
    ReadResponse, "l", Is(0), Partial(SINK_AT);
    ReadResponse, "stag", Plus(1), INVALID_STAG;
    ReadResponse, "stag", Is(0), INVALID_STAG;
    ReadResponse, "stag", Of(open), INVALID_STAG;
    ReadResponse, "stag", Of(foreign), INVALID_STAG;
    ReadResponse, "to", Plus(1), BOUNDS;
    ReadResponse, "to", Plus(-1), BOUNDS;
    ReadResponse, "to", Is(0), BOUNDS;
    ReadResponse, "to", Is(u64::MAX as u128), BOUNDS;
    ReadResponse, "to", Of(|t| t.address(TARGET_AT).into()), BOUNDS;
    Send, "l", Is(0), Partial(RECEIVE_AT);
    SendInvalidate, "l", Is(0), Partial(RECEIVE_AT);
    SendSolicited, "l", Is(0), Partial(RECEIVE_AT);
    SendSolicitedInvalidate, "l", Is(0), Partial(RECEIVE_AT);
    Send, "opcode", Is(5), Same;
    Send, "opcode", Is(4), REMOTE_INVALID_STAG;
    Send, "opcode", Is(8), TOO_LONG;
    SendSolicited, "opcode", Is(3), Same;
    SendSolicited, "opcode", Is(6), REMOTE_INVALID_STAG;
    SendInvalidate, "opcode", Is(3), Same;
    SendSolicitedInvalidate, "opcode", Is(4), Same;
    SendInvalidate, "rsvd_ulp", Is(0), REMOTE_INVALID_STAG;
    SendInvalidate, "rsvd_ulp", Plus(1), REMOTE_INVALID_STAG;
    SendInvalidate, "rsvd_ulp", Of(gone), REMOTE_INVALID_STAG;
    SendInvalidate, "rsvd_ulp", Of(foreign), Ends(0, 1, 3);
    SendInvalidate, "rsvd_ulp", Of(open), Ends(0, 1, 9);
    SendSolicitedInvalidate, "rsvd_ulp", Plus(1), REMOTE_INVALID_STAG;
    SendSolicitedInvalidate, "rsvd_ulp", Of(foreign), Ends(0, 1, 3);
    SendSolicitedInvalidate, "rsvd_ulp", Of(private), Ends(0, 1, 9);
    ReadRequest, "l", Is(0), TOO_LONG;
    ReadRequest, "opcode", Is(10), Ends(2, 0, 3);
    ReadRequest, "sink_stag", Is(0), Same;
    ReadRequest, "sink_stag", Is(u32::MAX as u128), Same;
    ReadRequest, "sink_to", Is(0), Same;
    ReadRequest, "sink_to", Is(u64::MAX as u128), Same;
    ReadRequest, "read_len", Is(0), Same;
    ReadRequest, "read_len", Is(0x401), REMOTE_BOUNDS;
    ReadRequest, "read_len", Is(u32::MAX as u128), REMOTE_BOUNDS;
    ReadRequest, "source_stag", Is(0), REMOTE_INVALID_STAG;
    ReadRequest, "source_stag", Plus(1), REMOTE_INVALID_STAG;
    ReadRequest, "source_stag", Of(gone), REMOTE_INVALID_STAG;
    ReadRequest, "source_stag", Of(foreign), Ends(0, 1, 3);
    ReadRequest, "source_stag", Of(private), Ends(0, 1, 2);
    ReadRequest, "source_stag", Of(writable), Ends(0, 1, 2);
    ReadRequest, "source_to", Is(0), REMOTE_BOUNDS;
    ReadRequest, "source_to", Of(|t| open_start(t) - 1), REMOTE_BOUNDS;
    ReadRequest, "source_to", Of(|t| open_end(t) - 15), REMOTE_BOUNDS;
    ReadRequest, "source_to", Of(|t| open_end(t) - 16), Same;
    ReadRequest, "source_to", Is(u64::MAX as u128 - 3), Ends(0, 1, 4);
    Terminate, "l", Is(0), Same;
    Terminate, "layer", Is(15), Same;
    Terminate, "etype", Is(15), Same;
    Terminate, "code", Is(255), Same;
    Terminate, "header_control", Is(7), Same;
    Terminate, "terminate_reserved", Is(0x1fff), Same;
    Immediate, "l", Is(0), TOO_LONG;
    Immediate, "opcode", Is(9), Same;
    Immediate, "immediate", Is(u64::MAX as u128), Same;
    ImmediateSolicited, "l", Is(0), TOO_LONG;
    ImmediateSolicited, "opcode", Is(8), Same;
    ImmediateSolicited, "immediate", Is(0), Same;
    AtomicRequest, "l", Is(0), TOO_LONG;
    AtomicRequest, "opcode", Is(1), TOO_LONG;
    AtomicRequest, "atomic_reserved", Is(0x0fff_ffff), Same;
    AtomicRequest, "operation", Is(1), UNEXPECTED;
    AtomicRequest, "operation", Is(3), UNEXPECTED;
    AtomicRequest, "operation", Is(15), UNEXPECTED;
    AtomicRequest, "request_id", Is(u32::MAX as u128), Same;
    AtomicRequest, "remote_stag", Plus(1), REMOTE_INVALID_STAG;
    AtomicRequest, "remote_stag", Of(gone), REMOTE_INVALID_STAG;
    AtomicRequest, "remote_stag", Of(foreign), Ends(0, 1, 3);
    AtomicRequest, "remote_stag", Of(writable), Ends(0, 1, 2);
    AtomicRequest, "remote_to", Plus(1), Ends(0, 2, 7);
    AtomicRequest, "remote_to", Plus(4), Ends(0, 2, 7);
    AtomicRequest, "remote_to", Plus(-1), Ends(0, 2, 7);
    AtomicRequest, "remote_to", Is(0), REMOTE_BOUNDS;
    AtomicRequest, "remote_to", Of(|t| open_start(t) - 8), REMOTE_BOUNDS;
    AtomicRequest, "remote_to", Of(open_end), REMOTE_BOUNDS;
    AtomicRequest, "data", Is(u64::MAX as u128), Places(|| changed(|old| old.wrapping_sub(1)));
    AtomicRequest, "mask", Is(u64::MAX as u128), Places(|| changed(|old| old ^ 1));
    AtomicRequest, "compare", Is(u64::MAX as u128), Same;
    AtomicRequest, "compare_mask", Is(u64::MAX as u128), Same;
    AtomicResponse, "l", Is(0), TOO_LONG;
    AtomicResponse, "response_id", Plus(1), Ends(0, 2, 7);
    AtomicResponse, "response_id", Plus(-1), Ends(0, 2, 7);
    AtomicResponse, "original", Is(0), Places(|| (SINK_AT, vec![0; 8]));
};

/// Declares the STags of parts of the arena.
macro_rules! stags {
    ($($part:ident)+) => {$(
        fn $part(target: &Target<'_>) -> u128 {
            target.victim.parts.$part.stag.into()
        }
    )+};
}

stags! { open foreign gone private readable writable }

fn open_start(target: &Target<'_>) -> u128 {
    target.address(target.victim.parts.open.at).into()
}

fn open_end(target: &Target<'_>) -> u128 {
    open_start(target) + target.victim.parts.open.len as u128
}

fn at_the_end() -> (usize, Vec<u8>) {
    let end = super::victim::OPEN_AT + super::victim::OPEN_LEN;
    (end - PAYLOAD.len(), PAYLOAD.to_vec())
}

/// The target of atomics after a change.
fn changed(change: fn(u64) -> u64) -> (usize, Vec<u8>) {
    let old = std::array::from_fn(|at| pattern(TARGET_AT + at));
    let new = change(u64::from_ne_bytes(old));
    (TARGET_AT, new.to_ne_bytes().to_vec())
}

fn control_rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for kind in Kind::ALL {
        let version = if kind.is_tagged() {
            Ends(1, 1, 4)
        } else {
            Ends(1, 2, 6)
        };
        for value in [0, 2, 3] {
            rows.push((kind, "dv", Is(value), version));
            rows.push((kind, "rv", Is(value), Ends(0, 2, 5)));
        }
        for value in 12..16 {
            rows.push((kind, "opcode", Is(value), UNEXPECTED));
        }
        // A Send in a tagged segment, a Write in an untagged segment.
        rows.push((kind, "t", Is((!kind.is_tagged()).into()), UNEXPECTED));
        rows.push((kind, "ddp_reserved", Is(15), Same));
        rows.push((kind, "rdmap_reserved", Is(3), Same));
    }
    rows
}

/// Fields of the untagged header.
fn untagged_rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for kind in Kind::ALL {
        let Some(home) = kind.queue() else { continue };
        for queue in [4, 5, 0x0100_0000, 0x8000_0000, 0xffff_ffff] {
            rows.push((kind, "qn", Is(queue), Ends(1, 2, 1)));
        }
        for queue in (0..4).filter(|queue| *queue != home) {
            rows.push((kind, "qn", Is(queue.into()), UNEXPECTED));
        }
        // A Terminate, the last message of a peer, is reported rather than refused.
        let is_last = kind == Terminate;
        for value in [0, 2, 0x7fff_ffff, 0xffff_ffff] {
            let outcome = if is_last { Same } else { Ends(1, 2, 3) };
            rows.push((kind, "msn", Is(value), outcome));
        }
        for value in [1, 0x8000_0000, 0xffff_ffff] {
            let outcome = if is_last { Same } else { Ends(1, 2, 4) };
            rows.push((kind, "mo", Is(value), outcome));
        }
        if !matches!(kind, SendInvalidate | SendSolicitedInvalidate) {
            rows.push((kind, "rsvd_ulp", Is(0xffff_ffff), Same));
        }
    }
    rows
}

fn attack((kind, field, value, outcome): Row) -> Attack {
    let (unchanged, mut placed) = harmless(kind);
    let verdict = match outcome {
        Same => unchanged,
        Ends(layer, etype, code) => {
            placed.clear();
            Verdict::Terminate(layer, etype, code)
        }
        Partial(at) => {
            placed = vec![(at, PAYLOAD.to_vec())];
            Verdict::Cut
        }
        Places(place) => {
            placed = vec![place()];
            unchanged
        }
    };
    let text = match value {
        Is(value) => format!("= {value:#x}"),
        Plus(by) => format!("{by:+}"),
        Of(_) => "of the victim's".to_owned(),
    };
    Attack {
        name: format!("{kind:?} with {field} {text}"),
        scene: kind.scene(),
        act: Box::new(move |target| {
            let frame = target.frame(kind);
            let value = match value {
                Is(value) => value,
                Plus(by) => frame.get(field).wrapping_add_signed(by),
                Of(value) => value(target),
            };
            Shot::of(&[Fpdu::new(&frame.with(field, value))])
        }),
        verdict,
        placed,
    }
}

fn rows() -> Vec<Row> {
    let mut rows = control_rows();
    rows.extend(untagged_rows());
    rows.extend_from_slice(ROWS);
    rows
}

#[test]
fn every_field_of_every_message_with_another_value() -> Result<()> {
    let victim = Victim::new()?;
    let attacks: Vec<Attack> = rows().into_iter().map(attack).collect();
    run(&victim, &attacks)
}

#[test]
fn valid_messages() -> Result<()> {
    let victim = Victim::new()?;
    let attack = |kind: Kind| {
        let (verdict, placed) = harmless(kind);
        Attack {
            name: format!("{kind:?}"),
            scene: kind.scene(),
            act: Box::new(move |target| Shot::of(&[Fpdu::new(&target.frame(kind))])),
            verdict,
            placed,
        }
    };
    run(&victim, &Kind::ALL.map(attack))
}

#[test]
fn no_field_is_left_out() -> Result<()> {
    let victim = Victim::new()?;
    let target = Target::blind(&victim);
    for kind in Kind::ALL {
        let attacked: BTreeSet<&str> = rows()
            .iter()
            .filter_map(|row| (row.0 == kind).then_some(row.1))
            .collect();
        for field in target.frame(kind).names() {
            ensure!(attacked.contains(field), "no row for {field} of {kind:?}");
        }
    }
    Ok(())
}
