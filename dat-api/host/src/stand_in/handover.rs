//! The handover: how the processes that share a program's end start to send bytes through the pair.
//!
//! After a `fork` several processes hold the program's end. One of them, the owner, holds the
//! library's end and the connection. As long as only the owner uses the connection, the pair is
//! steered and costs nothing more. The first other process that uses it asks for the bytes. The
//! pair then stops carrying signals, the signal bytes are removed from it, and from then on it
//! carries the bytes of the connection.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use rustix::thread::futex;

/// The stage of a pair between carrying signals and carrying bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Stage {
    /// The pair carries signals, and only the owner uses the connection.
    Steered = 0,
    /// A process wants to use the connection and is about to wake the owner by a byte in the pair.
    Waking = 1,
    /// The wake-up byte is in the pair. The owner responds only from this stage on: a byte sent
    /// later would be taken for one of the connection.
    Asked = 2,
    /// The owner sends no more signals.
    SignalsStopped = 3,
    /// A user removes the signals from the program's end.
    Draining = 4,
    /// The signals are removed from the program's end. The owner removes those that users have sent
    /// from its own end.
    Drained = 5,
    /// The pair carries bytes, for the rest of its life.
    Carrying = 6,
    /// The connection has ended; the pair holds bytes, and no more are sent.
    Ended = 7,
    /// The connection has ended before its pair carried bytes; the pair holds signals.
    Dropped = 8,
    /// The owner is about to stop the signals, because bytes were sent past the library.
    Claimed = 9,
}

/// A transition of the pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Move {
    /// A user requests bytes, for the first time or again.
    Ask,
    /// The user has sent the byte that wakes the owner.
    Wake,
    /// The owner starts the change without a request.
    Claim,
    /// The owner has stopped sending signals.
    StopSignals,
    /// A user begins to remove the signals.
    Drain,
    /// A user has removed the signals.
    FinishDraining,
    /// The owner begins to carry bytes.
    Carry,
    /// The owner steers again, because the user that asked has ended.
    Revoke,
    /// The owner ends the connection.
    End,
}

impl Stage {
    const ALL: [Self; 10] = [
        Self::Steered,
        Self::Waking,
        Self::Asked,
        Self::SignalsStopped,
        Self::Draining,
        Self::Drained,
        Self::Carrying,
        Self::Ended,
        Self::Dropped,
        Self::Claimed,
    ];

    /// Returns the stage after a move, or `None` if the move is not permitted at this stage.
    #[must_use]
    pub fn after(self, made: Move) -> Option<Self> {
        match (self, made) {
            (Self::Steered | Self::Asked, Move::Ask) => Some(Self::Waking),
            (Self::Waking, Move::Wake) => Some(Self::Asked),
            (Self::Steered, Move::Claim) => Some(Self::Claimed),
            (Self::Asked | Self::Claimed, Move::StopSignals) => Some(Self::SignalsStopped),
            (Self::SignalsStopped, Move::Drain) => Some(Self::Draining),
            (Self::Draining, Move::FinishDraining) => Some(Self::Drained),
            (Self::Drained, Move::Carry) => Some(Self::Carrying),
            (Self::Asked | Self::Claimed | Self::SignalsStopped | Self::Draining, Move::Revoke) => {
                Some(Self::Steered)
            }
            (
                Self::Steered
                | Self::Waking
                | Self::Asked
                | Self::Claimed
                | Self::SignalsStopped
                | Self::Draining,
                Move::End,
            ) => Some(Self::Dropped),
            (Self::Drained | Self::Carrying, Move::End) => Some(Self::Ended),
            _ => None,
        }
    }
}

/// The number of bits that hold the stage. The other bits count the connections that have used the
/// word.
const STAGE_BITS: u32 = 4;
const STAGE_MASK: u32 = (1 << STAGE_BITS) - 1;

/// The word that the owner and the users of a pair share, and wait on.
///
/// The value holds no pointer and is stored in memory that forked processes share. It is used for
/// one connection after another; a [`Ticket`] names the connection that a user means.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Handover {
    word: AtomicU32,
    /// The process that wakes the owner, or was the last to do so.
    waker: AtomicU32,
}

/// The connection of a word that a call is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket(u32);

impl Handover {
    /// Begins to serve a connection. Only the owner calls this, for a word that serves no
    /// connection.
    pub fn issue(&self) -> Ticket {
        let turn = (self.word.load(Ordering::Acquire) >> STAGE_BITS).wrapping_add(1);
        let turn = turn & (u32::MAX >> STAGE_BITS);
        self.word.store(turn << STAGE_BITS, Ordering::Release);
        Ticket(turn)
    }

    /// Returns the stage of the connection. A connection that the word no longer serves has ended.
    pub fn stage(&self, ticket: Ticket) -> Stage {
        let word = self.word.load(Ordering::Acquire);
        if word >> STAGE_BITS != ticket.0 {
            return Stage::Ended;
        }
        let number = word & STAGE_MASK;
        let found = Stage::ALL.into_iter().find(|s| *s as u32 == number);
        found.unwrap_or(Stage::Ended)
    }

    /// Makes a move if the stage permits it, and wakes the processes that wait for it. Returns
    /// false otherwise.
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
                // Waking cannot fail, because the word is valid memory of this process.
                let _ = futex::wake(&self.word, futex::Flags::empty(), u32::MAX >> 1);
                return true;
            }
        }
    }

    /// Asks for bytes; `wake` sends the byte that wakes the owner. Does nothing if the stage does
    /// not permit asking.
    ///
    /// The caller makes sure that no signal handler runs meanwhile: a handler that used the same
    /// connection would wait for the call that it interrupted.
    pub fn ask(&self, ticket: Ticket, wake: impl FnOnce()) {
        if !self.make(ticket, Move::Ask) {
            return;
        }
        let me = rustix::process::getpid().as_raw_nonzero().get();
        self.waker.store(me.unsigned_abs(), Ordering::Release);
        wake();
        self.make(ticket, Move::Wake);
    }

    /// Completes the move of a user that was killed while it woke the owner. The wake-up byte may
    /// or may not have been sent, so a process that waits for the owner sends its request again.
    pub fn complete_wake(&self, ticket: Ticket) {
        let waker = self.waker.load(Ordering::Acquire);
        let waker = i32::try_from(waker).ok().and_then(Pid::from_raw);
        let is_gone = |waker| test_kill_process(waker) == Err(Errno::SRCH);
        if waker.is_none_or(is_gone) {
            self.make(ticket, Move::Wake);
        }
    }

    /// Waits while the connection is at this stage, but at most for `at_most`. Returns false after
    /// a timeout.
    pub fn wait(&self, ticket: Ticket, while_at: Stage, at_most: Duration) -> bool {
        let word = (ticket.0 << STAGE_BITS) | while_at as u32;
        let timeout = futex::Timespec {
            tv_sec: i64::try_from(at_most.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: at_most.subsec_nanos().into(),
        };
        let flags = futex::Flags::empty();
        // After a signal, or a change of the word, the caller checks the stage again.
        futex::wait(&self.word, flags, word, Some(&timeout)) != Err(Errno::TIMEDOUT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOVES: [Move; 9] = [
        Move::Ask,
        Move::Wake,
        Move::Claim,
        Move::StopSignals,
        Move::Drain,
        Move::FinishDraining,
        Move::Carry,
        Move::Revoke,
        Move::End,
    ];

    /// For each stage the stage after every move of `MOVES`; a dot marks a move that is not
    /// permitted.
    const TABLE: [(Stage, &str); 10] = [
        (Stage::Steered, "1.9.....8"),
        (Stage::Waking, ".2......8"),
        (Stage::Asked, "1..3...08"),
        (Stage::SignalsStopped, "....4..08"),
        (Stage::Draining, ".....5.08"),
        (Stage::Drained, "......6.7"),
        (Stage::Carrying, "........7"),
        (Stage::Ended, "........."),
        (Stage::Dropped, "........."),
        (Stage::Claimed, "...3...08"),
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
    fn the_owner_sleeps_only_when_no_byte_is_in_flight() {
        let handover = Handover::default();
        let ticket = handover.issue();
        for _ in 0..2 {
            handover.ask(ticket, || {
                assert!(!handover.make(ticket, Move::StopSignals))
            });
            assert_eq!(handover.stage(ticket), Stage::Asked);
        }
        assert!(handover.make(ticket, Move::StopSignals));
        handover.ask(ticket, || panic!("a byte among those of the connection"));
    }

    #[test]
    fn a_dead_waker_is_replaced() {
        let handover = Handover::default();
        let ticket = handover.issue();
        handover.make(ticket, Move::Ask);
        let me = std::process::id();
        handover.waker.store(me, Ordering::Relaxed);
        handover.complete_wake(ticket);
        assert_eq!(handover.stage(ticket), Stage::Waking, "it lives");
        let mut child = std::process::Command::new("true").spawn().unwrap();
        handover.waker.store(child.id(), Ordering::Relaxed);
        child.wait().unwrap();
        handover.complete_wake(ticket);
        assert_eq!(handover.stage(ticket), Stage::Asked);
    }
}
