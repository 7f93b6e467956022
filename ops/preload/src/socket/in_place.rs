//! Long sends and receives without a copy in this process (zero copy).
//!
//! A blocking send of at least [`ops::OffloadStream::in_place_threshold`] bytes lets the protocol
//! use the program's memory for the duration of the call, and so does a blocking receive for which
//! [`ops::OffloadStream::receives_in_place`]. When the call returns, nothing uses the memory any
//! more: the program may change or unmap it. So a send waits for the peer, which a send over TCP
//! does only when the buffers are full. The call takes the memory back, and continues with copies,
//! when
//!
//! - a signal is pending, the time limit has passed, the direction was ended, another process
//!   requests the connection, or the thread is cancelled. The call then ends where it would wait;
//! - no byte is transferred for a while: for long ([`STALLED`]), or, if the peer of a send has sent
//!   something that the program must read, for a moment ([`STALLED_BOTH`]). The following calls
//!   copy. Programs at both ends may send before they receive, as the buffers permit.
//!
//! The program's signals are blocked meanwhile, because a handler may leave the call by
//! `siglongjmp` while the memory is in use. They are delivered a few milliseconds later, or as soon
//! as the peer has answered. The first thread of a process with several threads cannot block them
//! ([`SignalsBlocked::begin_polling`]), and copies.
//!
//! In addition to the system calls of the stream, such a call makes six: two for the signal mask,
//! two that read the pending signals, one that reads the descriptor's flags and one that maps the
//! pages of the memory ([`is_readable`], [`is_writable`]). It makes one more every few
//! milliseconds.

use std::io::IoSlice;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use ops::{Half, MemoryDecision};
use rustix::io::Errno;

use crate::process::cancellation::{self, CANCELLED};
use crate::process::memory::{is_readable, is_writable};
use crate::process::signals_blocked::SignalsBlocked;
use crate::process::{guard, termination};
use crate::socket::calls::HANDED_OVER;
use crate::socket::receive::{Destination, ReceiveCall};
use crate::socket::send::SendCall;
use crate::socket::{Patience, Socket};

/// The most bytes in use at a time. An adapter pins them.
const PIECE_MAX: usize = 16 << 20;

/// The time without progress after which bytes are copied.
const STALLED: Duration = Duration::from_millis(250);

/// The time without progress after which bytes are copied while the program has bytes to read.
const STALLED_BOTH: Duration = Duration::from_millis(2);

/// The time before the end of a receive at which it takes its memory back. The peer of another
/// implementation may answer late.
const ANSWER: Duration = Duration::from_secs(1);

/// The most calls in succession that copy after a stall.
const PAUSE_MAX: u32 = 64;

/// The frequency of calls in place in one direction of a connection: after each stall in
/// succession, twice as many calls copy.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// The number of calls that are to copy.
    skip: AtomicU32,
    /// The number of calls that were to copy after the last stall.
    pause: AtomicU32,
}

impl Pace {
    /// Called before a call. Returns true if it need not copy.
    fn on_call(&self) -> bool {
        let less = |skip: u32| skip.checked_sub(1);
        // Relaxed is sufficient, because the numbers guard no other memory.
        let skipped = self
            .skip
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        skipped.is_err()
    }

    /// Called after a call in place.
    fn on_end(&self, has_stalled: bool) {
        let pause = match has_stalled {
            true => (2 * self.pause.load(Ordering::Relaxed) + 1).min(PAUSE_MAX),
            false => 0,
        };
        self.pause.store(pause, Ordering::Relaxed);
        self.skip.store(pause, Ordering::Relaxed);
    }
}

/// The wait of a call whose memory is in use.
struct Wait<'a> {
    socket: &'a Socket,
    blocked: &'a SignalsBlocked,
    half: Half,
    limits: Limits,
    /// The number of bytes transferred so far, and the time of the last change.
    progress: (usize, Instant),
    has_stalled: bool,
}

/// The times at which a call with memory in use ends.
#[derive(Debug, Clone, Copy, Default)]
struct Limits {
    /// The call may wait no more.
    call: Option<Instant>,
    /// The memory must be taken back, because the peer's answer may take until the end of the call.
    memory: Option<Instant>,
}

/// The result of a call with memory in use, and how it ended.
struct Ended<T> {
    result: T,
    /// The error with which the call ends as soon as it would wait.
    ends_with: Option<Errno>,
    has_stalled: bool,
}

impl Wait<'_> {
    fn decide(&mut self, transferred: usize) -> MemoryDecision {
        let now = Instant::now();
        let state = self.socket.observer.state();
        let has_ended = match self.half {
            Half::Read => state.has_reading_ended(),
            _ => state.refuses_writes(),
        };
        if has_ended || self.reason_to_return(now).is_some() || self.blocked.has_pending() {
            return MemoryDecision::Return;
        }
        if transferred != self.progress.0 {
            self.progress = (transferred, now);
        }
        // A reader has nothing to receive meanwhile.
        let limit = match self.half == Half::Write && self.socket.stream.readiness().readable {
            true => STALLED_BOTH,
            false => STALLED,
        };
        self.has_stalled |= now.duration_since(self.progress.1) > limit
            || self.limits.memory.is_some_and(|limit| limit <= now);
        match self.has_stalled {
            true => MemoryDecision::TakeBack,
            false => MemoryDecision::Continue,
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
        } else if self.limits.call.is_some_and(|limit| limit <= now) {
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
        let call_limit = match self.patience(fd, call) {
            Patience::None => return None,
            Patience::Until(deadline) => Some(deadline),
            Patience::Endless => None,
        };
        let part = &part[..part.len().min(PIECE_MAX)];
        if !self.send_pace.on_call() || !is_readable(part) {
            call.must_copy = true;
            return None;
        }
        if let Err(error) = self.refuse_ended(fd) {
            return Some(Err(error));
        }
        let limits = Limits {
            call: call_limit,
            memory: None,
        };
        let ends_by_any = |sent: &_| call.done > 0 || matches!(sent, Ok(Some(1..)));
        let ended = self.run_in_place(Half::Write, limits, ends_by_any, |decide| {
            self.stream.send_in_place(part, decide)
        })?;
        let sent = match ended.result {
            Ok(sent) => sent,
            Err(error) => return Some(Err(self.observer.take_error(fd).unwrap_or(error))),
        };
        self.send_pace.on_end(ended.has_stalled);
        call.ends_with = ended.ends_with;
        let has_moved = matches!(sent, Some(1..));
        call.must_copy = !has_moved || ended.has_stalled || ended.ends_with.is_some();
        sent.map(Ok)
    }

    /// Receives into the first of the call's parts, which the peer or this end fills without a
    /// copy. `None`: the bytes must be copied.
    pub(super) fn receive_in_place(
        &self,
        fd: BorrowedFd<'_>,
        call: &mut ReceiveCall<'_>,
    ) -> Option<Result<usize, Errno>> {
        if call.must_copy || call.ends_with.is_some() || call.is_peek {
            return None;
        }
        let (wait_all, done) = (call.is_wait_all, call.done);
        let Destination::Parts(parts) = &mut call.destination else {
            return None;
        };
        let part = parts.iter_mut().find(|part| !part.is_empty())?;
        let len = part.len().min(PIECE_MAX);
        if !self.stream.receives_in_place(len, wait_all) {
            return None;
        }
        let part = &mut part[..len];
        let of_socket = || Patience::of(fd, call.flags, self.options().receive_timeout);
        let patience = *call.patience.get_or_insert_with(of_socket);
        let memory = match patience {
            Patience::None => return None,
            Patience::Until(deadline) => deadline.checked_sub(ANSWER),
            Patience::Endless => None,
        };
        let is_late = memory.is_some_and(|limit| limit <= Instant::now());
        let may_use = !is_late && self.receive_pace.on_call();
        if !may_use || !is_writable(part) {
            call.must_copy = true;
            if may_use && !is_writable(&mut part[..1]) {
                // The call fails with `EFAULT` once a byte has arrived.
                call.destination = Destination::None;
            }
            return None;
        }
        let limits = Limits { call: None, memory };
        let may_be_last = done > 0 || memory.is_some();
        let ends_by_any = |received: &_| may_be_last || received != &Err(Errno::AGAIN);
        let ended = self.run_in_place(Half::Read, limits, ends_by_any, |decide| {
            self.stream.receive_in_place(part, wait_all, decide)
        })?;
        self.receive_pace.on_end(ended.has_stalled);
        call.must_copy = ended.has_stalled;
        call.ends_with = ended.ends_with;
        if let Ok(count) = ended.result {
            call.advance(count);
        }
        Some(ended.result)
    }

    /// Makes a call with memory in use, while signals are blocked. Runs their handlers afterwards.
    /// `ends_by_any`: the kernel would end a sleep after this result for any handler. `None`: the
    /// signals of this thread cannot be blocked.
    fn run_in_place<T>(
        &self,
        half: Half,
        limits: Limits,
        ends_by_any: impl FnOnce(&T) -> bool,
        call: impl FnOnce(&mut dyn FnMut(usize) -> MemoryDecision) -> T,
    ) -> Option<Ended<T>> {
        let blocked = SignalsBlocked::begin_polling()?;
        self.stream.end_polling();
        let mut wait = Wait {
            socket: self,
            blocked: &blocked,
            half,
            limits,
            progress: (0, Instant::now()),
            has_stalled: false,
        };
        let result = call(&mut |transferred| wait.decide(transferred));
        let reason = wait.reason_to_return(Instant::now());
        let has_stalled = wait.has_stalled;
        let is_interrupted = blocked.will_interrupt(ends_by_any(&result));
        // A handler may leave the call by `siglongjmp`, so the call counts as asleep meanwhile.
        let run = || {
            let _asleep = guard::fall_asleep();
            drop(blocked);
            Ok(())
        };
        let released = match half {
            Half::Read => self.calls.while_asleep(run),
            _ => self.turn.while_asleep(|| self.calls.while_asleep(run)),
        };
        let ends_with = reason
            .or_else(|| is_interrupted.then_some(Errno::INTR))
            .or_else(|| released.err());
        Some(Ended {
            result,
            ends_with,
            has_stalled,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_after_stalls_in_succession_copy() {
        let pace = Pace::default();
        let mut copied = Vec::new();
        for _ in 0..8 {
            copied.push((0..).take_while(|_| !pace.on_call()).count());
            pace.on_end(true);
        }
        assert_eq!(copied, [0, 1, 3, 7, 15, 31, 63, 64]);
        assert!(!pace.on_call());
        pace.on_end(false);
        assert!(pace.on_call() && pace.on_call());
    }
}
