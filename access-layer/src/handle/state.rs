//! The state word of a slot: pins, phase, kind and generation in one atomic.

use super::Kind;

/// How far a slot's life has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Phase {
    /// Nobody's, or reserved for an object that is being made.
    Empty = 0,
    /// Its handle is good.
    Live = 1,
    /// Its handle is dead; the object waits for the last pin.
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

/// One value of the state word. Bits 0-23 pins, 24-25 phase, 26-33 kind, 34-63 generation.
///
/// A pin is the addition of one, whatever the phase; 2^24 threads inside this library at once would
/// be needed to reach the phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct State(pub(super) u64);

impl State {
    pub(super) fn pins(self) -> u64 {
        self.0 & PIN_MASK
    }

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

    /// Which of the slot's provider words is the handle in this life.
    pub(super) fn ordinal(self) -> usize {
        ((self.0 >> GENERATION_SHIFT) & 0xF) as usize
    }

    /// Alive, of this kind, and in a life whose handle is this one. One comparison.
    pub(super) fn is_live(self, kind: Kind, ordinal: usize) -> bool {
        let wanted = (ordinal as u64) << GENERATION_SHIFT
            | (kind as u64) << KIND_SHIFT
            | (Phase::Live as u64) << PHASE_SHIFT;
        self.0 & (0xF << GENERATION_SHIFT | KIND_MASK | PHASE_MASK) == wanted
    }

    pub(super) fn with_phase(self, phase: Phase) -> Self {
        Self(self.0 & !PHASE_MASK | (phase as u64) << PHASE_SHIFT)
    }

    pub(super) fn with_kind(self, kind: Kind) -> Self {
        Self(self.0 & !KIND_MASK | (kind as u64) << KIND_SHIFT)
    }

    /// Empty, in the next generation; pins of passers-by stay.
    pub(super) fn next_life(self) -> Self {
        Self(self.0.wrapping_add(1 << GENERATION_SHIFT)).with_phase(Phase::Empty)
    }
}
