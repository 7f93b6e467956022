//! Polling before a blocking receive sleeps.
//!
//! For a receiver that sleeps, each message takes two wake-ups: the protocol's thread wakes for the
//! message, and then wakes the receiver. A receiver that polls takes the message itself. So a
//! blocking receive polls before it sleeps, as long as such polls find the message. As
//! [`AdaptiveSpin`](host::adaptive_spin::AdaptiveSpin) decides, receives after a poll that finds
//! nothing sleep at once.
//!
//! While a thread polls, the descriptor does not show new events. The hooks of `poll`, `select`,
//! `epoll_wait` and `epoll_ctl` therefore call [`end_all`] first. A thread that waits by a system
//! call of its own, or for a descriptor that another thread polls, sees the events some 20 ms late,
//! once.
//!
//! System calls of a receive that polls: two for the signal mask, one in 16 polls that yields, and
//! those of the provider's poll. RDMA devices are polled without a system call.

use std::cell::Cell;
use std::sync::{Arc, Weak};

use ops::OffloadStream;
use rustix::io::Errno;

use crate::process::signals_blocked::SignalsBlocked;
use crate::process::{self, errno, guard};
use crate::socket::Socket;

/// The number of polls before a sleep. A wake-up across processors takes longer than most answers
/// of a peer. A number adapts to the processor's speed, which a time would not.
const POLLS: u32 = 1000;

/// The number of streams that a thread polls before it ends the polls of all of them.
const POLLED_MAX: usize = 8;

/// The streams that a thread has polled.
struct Polled {
    process: i32,
    streams: Vec<Weak<dyn OffloadStream>>,
}

thread_local! {
    static POLLED: Cell<Option<Polled>> = const { Cell::new(None) };
}

impl Socket {
    /// Polls before a receive sleeps, if that is worthwhile. Returns true if the stream is
    /// readable. `ends_by_any_signal`: the sleep would end by a handler with `SA_RESTART` too.
    ///
    /// # Errors
    /// `EINTR` if a signal has ended the receive.
    pub(super) fn poll_readable(&self, ends_by_any_signal: bool) -> Result<bool, Errno> {
        // Threads that sleep on the stream need the protocol's thread.
        if self.observer.wait_queue().has_sleepers() || !self.spin.is_worth_it() {
            return Ok(false);
        }
        // The handlers run afterwards, so that none is missed by the sleep that follows.
        let blocked = SignalsBlocked::begin();
        if self.stream.poll_readable(POLLS) {
            self.spin.on_success();
            note(&self.stream);
            return Ok(true);
        }
        self.spin.on_failure();
        match blocked.will_interrupt(ends_by_any_signal) {
            true => Err(Errno::INTR),
            false => Ok(false),
        }
    }
}

/// Records a stream that the thread has polled.
fn note(stream: &Arc<dyn OffloadStream>) {
    let process = process::current();
    // Entries of a parent process are useless in the child of a fork.
    let polled = take().filter(|polled| polled.process == process);
    let mut polled = polled.unwrap_or_else(|| Polled {
        process,
        streams: Vec::new(),
    });
    let is_it = |it: &Weak<dyn OffloadStream>| std::ptr::addr_eq(it.as_ptr(), Arc::as_ptr(stream));
    if !polled.streams.iter().any(is_it) {
        if polled.streams.len() == POLLED_MAX {
            end(polled.streams.drain(..));
        }
        polled.streams.push(Arc::downgrade(stream));
    }
    let _ = POLLED.try_with(|it| it.set(Some(polled)));
}

fn take() -> Option<Polled> {
    POLLED.try_with(Cell::take).ok().flatten()
}

fn end(streams: impl Iterator<Item = Weak<dyn OffloadStream>>) {
    for stream in streams.filter_map(|it| it.upgrade()) {
        stream.end_polling();
    }
}

/// Makes the descriptors of all streams that the thread has polled show events again. Called before
/// the thread waits for descriptors.
#[inline]
pub(crate) fn end_all() {
    // A signal handler may have interrupted a call that holds locks of the stream. The two ticks
    // without a poll end the polls then.
    if !guard::is_inside()
        && let Some(polled) = take()
    {
        end_these(polled);
    }
}

#[cold]
fn end_these(polled: Polled) {
    if polled.process == process::current() {
        let before = errno::get();
        let _inside = guard::enter();
        end(polled.streams.into_iter());
        errno::set(before);
    }
}
