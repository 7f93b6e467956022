//! Long sends from where their bytes are, without a copy in this process (zero copy).
//!
//! A blocking send of at least [`ops::OffloadStream::in_place_threshold`] bytes lets the protocol
//! use the program's memory for the duration of the call. When the call returns, nothing uses the
//! memory any more: the program may change or unmap it. So the call waits for the peer, which a
//! send over TCP does only when the buffers are full. It takes the bytes back, and copies as many
//! as the buffers take, when
//!
//! - a signal is pending, the time limit has passed, the direction was ended, another process
//!   requests the connection, or the thread is cancelled. The call then ends where it would wait;
//! - the peer takes no byte for a while: for long ([`STALLED`]), or, if the peer itself has sent
//!   something that the program must read, for a moment ([`STALLED_BOTH`]). The following sends are
//!   copied. Programs at both ends may send before they receive, as the buffers permit.
//!
//! The program's signals are blocked meanwhile, because a handler may leave the call by
//! `siglongjmp` while the memory is in use. They are delivered a few milliseconds later. The first
//! thread of a process with several threads cannot block them
//! ([`SignalsBlocked::begin_polling`]), and copies.
//!
//! In addition to the system calls of the stream, such a send makes six: two for the signal mask,
//! two that read the pending signals, one that reads the descriptor's flags and one that maps the
//! pages of the memory ([`is_readable`]). It makes one more every few milliseconds.

use std::io::IoSlice;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use ops::SourceDecision;
use rustix::io::Errno;

use crate::process::cancellation::{self, CANCELLED};
use crate::process::memory::is_readable;
use crate::process::signals_blocked::SignalsBlocked;
use crate::process::{guard, termination};
use crate::socket::calls::HANDED_OVER;
use crate::socket::send::SendCall;
use crate::socket::{Patience, Socket};

/// The most bytes in use at a time. An adapter pins them.
const PIECE_MAX: usize = 16 << 20;

/// The time without progress after which bytes are copied.
const STALLED: Duration = Duration::from_millis(250);

/// The time without progress after which bytes are copied while the program has bytes to read.
const STALLED_BOTH: Duration = Duration::from_millis(2);

/// The most sends in succession that are copied after a stall.
const PAUSE_MAX: u32 = 64;

/// The frequency of sends in place on one connection: after each stall in succession, twice as many
/// sends are copied.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// The number of sends to be copied.
    skip: AtomicU32,
    /// The number of sends that were copied after the last stall.
    pause: AtomicU32,
}

impl Pace {
    /// Called before a send. Returns true if it need not be copied.
    fn on_send(&self) -> bool {
        let less = |skip: u32| skip.checked_sub(1);
        // Relaxed is sufficient, because the numbers guard no other memory.
        let skipped = self
            .skip
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        skipped.is_err()
    }

    /// Called after a send in place.
    fn on_end(&self, has_stalled: bool) {
        let pause = match has_stalled {
            true => (2 * self.pause.load(Ordering::Relaxed) + 1).min(PAUSE_MAX),
            false => 0,
        };
        self.pause.store(pause, Ordering::Relaxed);
        self.skip.store(pause, Ordering::Relaxed);
    }
}

/// The wait of a send whose memory is in use.
struct Wait<'a> {
    socket: &'a Socket,
    blocked: &'a SignalsBlocked,
    deadline: Option<Instant>,
    /// The number of bytes transferred so far, and the time of the last change.
    progress: (usize, Instant),
    has_stalled: bool,
}

impl Wait<'_> {
    fn decide(&mut self, transferred: usize) -> SourceDecision {
        let now = Instant::now();
        let is_over = self.reason_to_return(now).is_some()
            || self.socket.observer.state().refuses_writes()
            || self.blocked.has_pending();
        if is_over {
            return SourceDecision::Return;
        }
        if transferred != self.progress.0 {
            self.progress = (transferred, now);
        }
        let limit = match self.socket.stream.readiness().readable {
            true => STALLED_BOTH,
            false => STALLED,
        };
        self.has_stalled |= now.duration_since(self.progress.1) > limit;
        match self.has_stalled {
            true => SourceDecision::TakeBack,
            false => SourceDecision::Continue,
        }
    }

    /// The result of a call that may wait no more, apart from signals.
    fn reason_to_return(&self, now: Instant) -> Option<Errno> {
        if self.socket.calls.is_stopped() {
            Some(HANDED_OVER)
        } else if termination::is_by_another_thread() {
            Some(Errno::CONNRESET)
        } else if cancellation::is_cancelled() {
            Some(CANCELLED)
        } else if self.deadline.is_some_and(|deadline| deadline <= now) {
            Some(Errno::AGAIN)
        } else {
            None
        }
    }
}

impl Socket {
    /// Sends the first of `parts` from where it is. `None`: it must be copied.
    pub(super) fn send_in_place(
        &self,
        fd: BorrowedFd<'_>,
        call: &mut SendCall,
        parts: &[IoSlice<'_>],
    ) -> Option<Result<usize, Errno>> {
        let part = parts.iter().find(|part| !part.is_empty())?;
        if part.len() < self.stream.in_place_threshold() || call.must_copy {
            return None;
        }
        let deadline = match self.patience(fd, call) {
            Patience::None => return None,
            Patience::Until(deadline) => Some(deadline),
            Patience::Endless => None,
        };
        let part = &part[..part.len().min(PIECE_MAX)];
        if !self.pace.on_send() || !is_readable(part) {
            call.must_copy = true;
            return None;
        }
        if let Err(error) = self.refuse_ended(fd) {
            return Some(Err(error));
        }
        let blocked = SignalsBlocked::begin_polling()?;
        self.stream.end_polling();
        let mut wait = Wait {
            socket: self,
            blocked: &blocked,
            deadline,
            progress: (0, Instant::now()),
            has_stalled: false,
        };
        let sent = self
            .stream
            .send_in_place(part, &mut |transferred| wait.decide(transferred));
        let reason = wait.reason_to_return(Instant::now());
        let has_stalled = wait.has_stalled;
        let is_interrupted = blocked.will_interrupt(call.done > 0 || matches!(sent, Ok(Some(1..))));
        let released = self.let_handlers_run(blocked);
        let sent = match sent {
            Ok(sent) => sent,
            Err(error) => return Some(Err(self.observer.take_error(fd).unwrap_or(error))),
        };
        self.pace.on_end(has_stalled);
        call.ends_with = reason
            .or_else(|| is_interrupted.then_some(Errno::INTR))
            .or_else(|| released.err());
        let is_complete = sent == Some(part.len()) && call.ends_with.is_none();
        call.must_copy = !is_complete || has_stalled;
        sent.map(Ok)
    }

    /// Runs the handlers of the signals that were blocked. A handler may leave the call by
    /// `siglongjmp`, so the call counts as asleep meanwhile.
    fn let_handlers_run(&self, blocked: SignalsBlocked) -> Result<(), Errno> {
        let run = || {
            let _asleep = guard::fall_asleep();
            drop(blocked);
            Ok(())
        };
        self.turn.while_asleep(|| self.calls.while_asleep(run))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sends_after_stalls_in_succession_are_copied() {
        let pace = Pace::default();
        let mut copied = Vec::new();
        for _ in 0..8 {
            copied.push((0..).take_while(|_| !pace.on_send()).count());
            pace.on_end(true);
        }
        assert_eq!(copied, [0, 1, 3, 7, 15, 31, 63, 64]);
        assert!(!pace.on_send());
        pace.on_end(false);
        assert!(pace.on_send() && pace.on_send());
    }
}
