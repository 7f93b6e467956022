//! The state word of a slot: pins, phase, kind and generation in one atomic.

use super::Kind;

/// The phase of a slot's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Phase {
    /// Not in use, or reserved for an object that is being created.
    Empty = 0,
    /// The handle is valid.
    Live = 1,
    /// The handle is retired; the object waits for the end of the last pin.
    Retired = 2,
    /// The object is being dropped by the one thread that moved the slot here.
    Dropping = 3,
}

const PIN_BITS: u32 = 24;
const PIN_MASK: u64 = (1 << PIN_BITS) - 1;
const PHASE_SHIFT: u32 = PIN_BITS;
const PHASE_MASK: u64 = 0b11 << PHASE_SHIFT;
const KIND_SHIFT: u32 = PHASE_SHIFT + 2;
const KIND_MASK: u64 = 0xFF << KIND_SHIFT;
const GENERATION_SHIFT: u32 = KIND_SHIFT + 8;

/// Value of the state word. Bits 0-23 pins, 24-25 phase, 26-33 kind, 34-63 generation.
/// A pin adds one in any phase. The pins overflow into the phase only if 2^24 threads are inside
/// this library at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct State(pub(super) u64);

impl State {
    #[inline]
    pub(super) fn pins(self) -> u64 {
        self.0 & PIN_MASK
    }

    #[inline]
    pub(super) fn phase(self) -> Phase {
        match (self.0 & PHASE_MASK) >> PHASE_SHIFT {
            0 => Phase::Empty,
            1 => Phase::Live,
            2 => Phase::Retired,
            _ => Phase::Dropping,
        }
    }

    pub(super) fn kind(self) -> Option<Kind> {
        Kind::from_bits(((self.0 & KIND_MASK) >> KIND_SHIFT) as u8)
    }

    /// Returns the index of the provider word that is the handle in this life.
    pub(super) fn ordinal(self) -> usize {
        ((self.0 >> GENERATION_SHIFT) & 0xF) as usize
    }

    /// Returns true if the slot is live, of this kind, and in a life with this handle. The check is
    /// a single comparison.
    #[inline]
    pub(super) fn is_live(self, kind: Kind, ordinal: usize) -> bool {
        let wanted = (ordinal as u64) << GENERATION_SHIFT
            | (kind as u64) << KIND_SHIFT
            | (Phase::Live as u64) << PHASE_SHIFT;
        self.0 & (0xF << GENERATION_SHIFT | KIND_MASK | PHASE_MASK) == wanted
    }

    /// Called when a reserved slot gets its object; the handle becomes valid.
    pub(super) fn on_publish(self, kind: Kind) -> Option<Self> {
        (self.phase() == Phase::Empty).then(|| self.with_kind(kind).with_phase(Phase::Live))
    }

    /// Called when the handle is retired.
    pub(super) fn on_retire(self) -> Option<Self> {
        (self.phase() == Phase::Live).then(|| self.with_phase(Phase::Retired))
    }

    /// Called by a thread that has found no announced pin in the life of `seen` and drops the
    /// object: only for a retired slot without counted pins, and only in that life.
    pub(super) fn on_reclaim(self, seen: Self) -> Option<Self> {
        (self.is_life_of(seen) && self.phase() == Phase::Retired && self.pins() == 0)
            .then(|| self.with_phase(Phase::Dropping))
    }

    /// Called in the child of a fork, where the handles of its parent are invalid. The object is
    /// never dropped there, and the slot is not used again.
    pub(super) fn on_fork(self) -> Option<Self> {
        (self.phase() != Phase::Empty).then(|| self.next_life())
    }

    /// True if this state is of the life of `seen`.
    pub(super) fn is_life_of(self, seen: Self) -> bool {
        self.0 >> GENERATION_SHIFT == seen.0 >> GENERATION_SHIFT
    }

    /// Called after the object was dropped or the reservation ended.
    pub(super) fn on_release(self) -> Option<Self> {
        matches!(self.phase(), Phase::Empty | Phase::Dropping).then(|| self.next_life())
    }

    fn with_phase(self, phase: Phase) -> Self {
        Self(self.0 & !PHASE_MASK | (phase as u64) << PHASE_SHIFT)
    }

    fn with_kind(self, kind: Kind) -> Self {
        Self(self.0 & !KIND_MASK | (kind as u64) << KIND_SHIFT)
    }

    /// Returns the empty state of the next generation, with the pins of concurrent look-ups.
    fn next_life(self) -> Self {
        Self(self.0.wrapping_add(1 << GENERATION_SHIFT)).with_phase(Phase::Empty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the state of an endpoint's slot in its third life, with `pins` pins.
    fn slot(phase: Phase, pins: u64) -> State {
        State(3 << GENERATION_SHIFT | pins)
            .with_kind(Kind::Ep)
            .with_phase(phase)
    }

    /// Returns the phase after an event, and checks that the event changes nothing else in this
    /// life.
    fn phase_after(before: State, after: Option<State>) -> Option<Phase> {
        after.map(|after| {
            assert_eq!(after.pins(), before.pins());
            if after.ordinal() == before.ordinal() {
                assert_eq!(after.with_phase(before.phase()), before);
            }
            after.phase()
        })
    }

    #[test]
    fn every_event_in_every_state() {
        use Phase::{Dropping, Empty, Live, Retired};
        let events: [fn(State) -> Option<State>; 5] = [
            |state| state.on_publish(Kind::Ep),
            State::on_retire,
            |state| state.on_reclaim(state),
            State::on_release,
            State::on_fork,
        ];
        let rows = [
            // (phase, pins, results of publish, retire, reclaim, release and fork)
            (Empty, 0, [Some(Live), None, None, Some(Empty), None]),
            (Empty, 1, [Some(Live), None, None, Some(Empty), None]),
            (Live, 0, [None, Some(Retired), None, None, Some(Empty)]),
            (Live, 1, [None, Some(Retired), None, None, Some(Empty)]),
            (Retired, 0, [None, None, Some(Dropping), None, Some(Empty)]),
            (Retired, 1, [None, None, None, None, Some(Empty)]),
            (Dropping, 0, [None, None, None, Some(Empty), Some(Empty)]),
            (Dropping, 1, [None, None, None, Some(Empty), Some(Empty)]),
        ];
        for (phase, pins, expected) in rows {
            let before = slot(phase, pins);
            for (number, (event, next)) in events.into_iter().zip(expected).enumerate() {
                let got = phase_after(before, event(before));
                assert_eq!(got, next, "event {number} in {phase:?}, {pins} pins");
            }
        }
    }

    #[test]
    fn a_reclaim_that_saw_another_life_drops_nothing() {
        let earlier = slot(Phase::Retired, 0);
        let next = slot(Phase::Dropping, 0).on_release();
        let next = next.and_then(|it| it.on_publish(Kind::Ep));
        let retired = next.and_then(State::on_retire).unwrap();
        assert_eq!(retired.on_reclaim(earlier), None);
        let dropping = retired.on_reclaim(retired);
        assert_eq!(dropping.map(State::phase), Some(Phase::Dropping));
    }

    #[test]
    fn a_pin_is_valid_in_one_phase_of_one_life_of_one_kind() {
        for phase in [Phase::Empty, Phase::Live, Phase::Retired, Phase::Dropping] {
            for kind in Kind::ALL {
                for ordinal in 0..16 {
                    let good = phase == Phase::Live && kind == Kind::Ep && ordinal == 3;
                    assert_eq!(slot(phase, 5).is_live(kind, ordinal), good);
                }
            }
        }
    }

    #[test]
    fn the_next_life_has_another_handle_and_keeps_concurrent_pins() {
        let next = slot(Phase::Dropping, 2).on_release().unwrap();
        assert_eq!((next.ordinal(), next.pins()), (4, 2));
        let last = State(u64::MAX).with_phase(Phase::Dropping);
        assert_eq!(last.on_release().unwrap().ordinal(), 0);
    }
}
