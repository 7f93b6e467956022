//! How the processes that share a program's end agree to send bytes through the pair.
//!
//! After a `fork` several processes hold the program's end, and one of them, the owner, holds the
//! library's end and the connection. As long as only the owner uses it, the pair is steered and
//! costs nothing more. The first of the others that uses it asks for the bytes: the pair is brought
//! to rest, the signal bytes are taken out of it, and from then on it carries what the connection
//! carries.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use rustix::thread::futex;

/// Where the pair is on its way from signals to bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Stage {
    /// It carries signals, and only the owner uses the connection.
    Steered = 0,
    /// A process wants to use it.
    Asked = 1,
    /// The owner sends no more signals and has read those of the program's end.
    AtRest = 2,
    /// A user takes the signals out of the program's end.
    Draining = 3,
    /// They are out.
    Drained = 4,
    /// It carries bytes, for good.
    Carrying = 5,
    /// The connection is over; what lies in the pair is bytes, and all that there is.
    Ended = 6,
    /// The connection is over and its pair never carried bytes; what lies in it is signals.
    Dropped = 7,
}

/// What a process does to the pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Move {
    /// A user asks for bytes.
    Ask,
    /// The owner has come to rest.
    Rest,
    /// A user begins to take the signals out.
    Drain,
    /// A user has taken them out.
    FinishDraining,
    /// The owner begins to carry bytes.
    Carry,
    /// The owner steers again, because the user that asked is gone.
    Revoke,
    /// The owner ends the connection.
    End,
}

impl Stage {
    const ALL: [Self; 8] = [
        Self::Steered,
        Self::Asked,
        Self::AtRest,
        Self::Draining,
        Self::Drained,
        Self::Carrying,
        Self::Ended,
        Self::Dropped,
    ];

    /// Where a move leads; `None`: it cannot be made here.
    #[must_use]
    pub fn after(self, made: Move) -> Option<Self> {
        match (self, made) {
            (Self::Steered, Move::Ask) => Some(Self::Asked),
            (Self::Asked, Move::Rest) => Some(Self::AtRest),
            (Self::AtRest, Move::Drain) => Some(Self::Draining),
            (Self::Draining, Move::FinishDraining) => Some(Self::Drained),
            (Self::Drained, Move::Carry) => Some(Self::Carrying),
            (Self::Asked | Self::AtRest | Self::Draining, Move::Revoke) => Some(Self::Steered),
            (Self::Steered | Self::Asked | Self::AtRest | Self::Draining, Move::End) => {
                Some(Self::Dropped)
            }
            (Self::Drained | Self::Carrying, Move::End) => Some(Self::Ended),
            _ => None,
        }
    }
}

/// Bits of the word that hold the stage; the rest count the connections that have used it.
const STAGE_BITS: u32 = 3;
const STAGE_MASK: u32 = (1 << STAGE_BITS) - 1;

/// One word that the owner and the users of a pair share, and sleep on.
///
/// It holds no pointer and lies in memory that forked processes share. A word is used for one
/// connection after another, and a user names the one it means by its [`Ticket`].
#[repr(transparent)]
#[derive(Debug, Default)]
pub struct Handover {
    word: AtomicU32,
}

/// Which connection of a word is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket(u32);

impl Handover {
    /// Begins to serve a connection. The owner calls it, for a word that serves none.
    pub fn issue(&self) -> Ticket {
        let turn = (self.word.load(Ordering::Acquire) >> STAGE_BITS).wrapping_add(1);
        let turn = turn & (u32::MAX >> STAGE_BITS);
        self.word.store(turn << STAGE_BITS, Ordering::Release);
        Ticket(turn)
    }

    /// Where the connection is. One that the word serves no more has ended.
    pub fn stage(&self, ticket: Ticket) -> Stage {
        let word = self.word.load(Ordering::Acquire);
        if word >> STAGE_BITS != ticket.0 {
            return Stage::Ended;
        }
        let number = word & STAGE_MASK;
        let found = Stage::ALL.into_iter().find(|s| *s as u32 == number);
        found.unwrap_or(Stage::Ended)
    }

    /// Makes a move if it can be made now, and wakes those who wait for it.
    pub fn make(&self, ticket: Ticket, made: Move) -> bool {
        loop {
            let stage = self.stage(ticket);
            let Some(next) = stage.after(made) else {
                return false;
            };
            let turn = ticket.0 << STAGE_BITS;
            let (from, to) = (turn | stage as u32, turn | next as u32);
            if self
                .word
                .compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
                .is_ok()
            {
                // Waking cannot fail for a word of ours.
                let _ = futex::wake(&self.word, futex::Flags::empty(), u32::MAX >> 1);
                return true;
            }
        }
    }

    /// Sleeps while the connection is at this stage, but no longer than told. `false`: that long.
    pub fn wait(&self, ticket: Ticket, while_at: Stage, at_most: Duration) -> bool {
        let word = (ticket.0 << STAGE_BITS) | while_at as u32;
        let timeout = futex::Timespec {
            tv_sec: i64::try_from(at_most.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: at_most.subsec_nanos().into(),
        };
        let flags = futex::Flags::empty();
        // A signal, or a word that has changed, is a reason to look again.
        futex::wait(&self.word, flags, word, Some(&timeout)) != Err(Errno::TIMEDOUT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOVES: [Move; 7] = [
        Move::Ask,
        Move::Rest,
        Move::Drain,
        Move::FinishDraining,
        Move::Carry,
        Move::Revoke,
        Move::End,
    ];

    /// For each stage what every move of `MOVES` leads to; a dot: it cannot be made.
    const TABLE: [(Stage, &str); 8] = [
        (Stage::Steered, "1.....7"),
        (Stage::Asked, ".2...07"),
        (Stage::AtRest, "..3..07"),
        (Stage::Draining, "...4.07"),
        (Stage::Drained, "....5.6"),
        (Stage::Carrying, "......6"),
        (Stage::Ended, "......."),
        (Stage::Dropped, "......."),
    ];

    #[test]
    fn every_move_at_every_stage() {
        for (stage, row) in TABLE {
            for (made, expected) in MOVES.into_iter().zip(row.chars()) {
                let expected = expected
                    .to_digit(10)
                    .map(|number| Stage::ALL[number as usize]);
                assert_eq!(stage.after(made), expected, "{stage:?} {made:?}");
                let handover = Handover::default();
                let ticket = handover.issue();
                let turn = ticket.0 << STAGE_BITS;
                handover.word.store(turn | stage as u32, Ordering::Relaxed);
                assert_eq!(handover.make(ticket, made), expected.is_some());
                assert_eq!(handover.stage(ticket), expected.unwrap_or(stage));
            }
        }
    }

    #[test]
    fn an_old_ticket_moves_nothing() {
        let handover = Handover::default();
        let old = handover.issue();
        let new = handover.issue();
        assert_eq!(handover.stage(old), Stage::Ended);
        assert!(!handover.make(old, Move::Ask));
        assert_eq!(handover.stage(new), Stage::Steered);
    }

    #[test]
    fn a_wait_ends_with_the_move_or_with_the_time() {
        let handover = Handover::default();
        let ticket = handover.issue();
        assert!(!handover.wait(ticket, Stage::Steered, Duration::from_millis(5)));
        std::thread::scope(|scope| {
            scope.spawn(|| handover.make(ticket, Move::Ask));
            while handover.stage(ticket) == Stage::Steered {
                handover.wait(ticket, Stage::Steered, Duration::from_secs(10));
            }
        });
        assert_eq!(handover.stage(ticket), Stage::Asked);
    }
}
