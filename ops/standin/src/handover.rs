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
use rustix::process::{Pid, test_kill_process};
use rustix::thread::futex;

/// Where the pair is on its way from signals to bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Stage {
    /// It carries signals, and only the owner uses the connection.
    Steered = 0,
    /// A process wants to use it, and is about to wake the owner by a byte in the pair.
    Waking = 1,
    /// The byte lies there. The owner answers only now: a byte that came later would be taken for
    /// one of the connection.
    Asked = 2,
    /// The owner sends no more signals.
    AtRest = 3,
    /// A user takes the signals out of the program's end.
    Draining = 4,
    /// They are out. The owner takes those that users have sent out of its own.
    Drained = 5,
    /// It carries bytes, for good.
    Carrying = 6,
    /// The connection is over; what lies in the pair is bytes, and all that there is.
    Ended = 7,
    /// The connection is over and its pair never carried bytes; what lies in it is signals.
    Dropped = 8,
}

/// What a process does to the pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Move {
    /// A user asks for bytes, or asks again.
    Ask,
    /// The byte that wakes the owner was sent.
    Wake,
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
    const ALL: [Self; 9] = [
        Self::Steered,
        Self::Waking,
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
            (Self::Steered | Self::Asked, Move::Ask) => Some(Self::Waking),
            (Self::Waking, Move::Wake) => Some(Self::Asked),
            (Self::Asked, Move::Rest) => Some(Self::AtRest),
            (Self::AtRest, Move::Drain) => Some(Self::Draining),
            (Self::Draining, Move::FinishDraining) => Some(Self::Drained),
            (Self::Drained, Move::Carry) => Some(Self::Carrying),
            (Self::Asked | Self::AtRest | Self::Draining, Move::Revoke) => Some(Self::Steered),
            (
                Self::Steered | Self::Waking | Self::Asked | Self::AtRest | Self::Draining,
                Move::End,
            ) => Some(Self::Dropped),
            (Self::Drained | Self::Carrying, Move::End) => Some(Self::Ended),
            _ => None,
        }
    }
}

/// Bits of the word that hold the stage; the rest count the connections that have used it.
const STAGE_BITS: u32 = 4;
const STAGE_MASK: u32 = (1 << STAGE_BITS) - 1;

/// One word that the owner and the users of a pair share, and sleep on.
///
/// It holds no pointer and lies in memory that forked processes share. A word is used for one
/// connection after another, and a user names the one it means by its [`Ticket`].
#[repr(C)]
#[derive(Debug, Default)]
pub struct Handover {
    word: AtomicU32,
    /// The process that wakes the owner, or did last.
    waker: AtomicU32,
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

    /// Asks for bytes; `wake` sends the byte that wakes the owner. Nothing, if they cannot be asked
    /// for now.
    ///
    /// The caller sees to it that no handler of a signal runs meanwhile: one that used the same
    /// connection would wait for the call that it interrupts.
    pub fn ask(&self, ticket: Ticket, wake: impl FnOnce()) {
        if !self.make(ticket, Move::Ask) {
            return;
        }
        let me = rustix::process::getpid().as_raw_nonzero().get();
        self.waker.store(me.unsigned_abs(), Ordering::Release);
        wake();
        self.make(ticket, Move::Wake);
    }

    /// Finishes what a user that was killed while it rang has begun. The byte may be there or not:
    /// whoever waits for the owner asks again.
    pub fn wake_for_the_dead(&self, ticket: Ticket) {
        let waker = self.waker.load(Ordering::Acquire);
        let waker = i32::try_from(waker).ok().and_then(Pid::from_raw);
        let is_gone = |waker| test_kill_process(waker) == Err(Errno::SRCH);
        if waker.is_none_or(is_gone) {
            self.make(ticket, Move::Wake);
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

    const MOVES: [Move; 8] = [
        Move::Ask,
        Move::Wake,
        Move::Rest,
        Move::Drain,
        Move::FinishDraining,
        Move::Carry,
        Move::Revoke,
        Move::End,
    ];

    /// For each stage what every move of `MOVES` leads to; a dot: it cannot be made.
    const TABLE: [(Stage, &str); 9] = [
        (Stage::Steered, "1......8"),
        (Stage::Waking, ".2.....8"),
        (Stage::Asked, "1.3...08"),
        (Stage::AtRest, "...4..08"),
        (Stage::Draining, "....5.08"),
        (Stage::Drained, ".....6.7"),
        (Stage::Carrying, ".......7"),
        (Stage::Ended, "........"),
        (Stage::Dropped, "........"),
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
        assert_eq!(handover.stage(ticket), Stage::Waking);
    }

    #[test]
    fn the_owner_rests_only_when_no_byte_is_on_its_way() {
        let handover = Handover::default();
        let ticket = handover.issue();
        for _ in 0..2 {
            handover.ask(ticket, || assert!(!handover.make(ticket, Move::Rest)));
            assert_eq!(handover.stage(ticket), Stage::Asked);
        }
        assert!(handover.make(ticket, Move::Rest));
        handover.ask(ticket, || panic!("a byte among those of the connection"));
    }

    #[test]
    fn a_waker_that_died_is_stood_in_for() {
        let handover = Handover::default();
        let ticket = handover.issue();
        handover.make(ticket, Move::Ask);
        let me = std::process::id();
        handover.waker.store(me, Ordering::Relaxed);
        handover.wake_for_the_dead(ticket);
        assert_eq!(handover.stage(ticket), Stage::Waking, "it lives");
        let mut child = std::process::Command::new("true").spawn().unwrap();
        handover.waker.store(child.id(), Ordering::Relaxed);
        child.wait().unwrap();
        handover.wake_for_the_dead(ticket);
        assert_eq!(handover.stage(ticket), Stage::Asked);
    }
}
