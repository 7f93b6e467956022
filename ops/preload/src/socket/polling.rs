//! Polling before a thread sleeps, in a blocking receive or in a wait for descriptors.
//!
//! For a thread that sleeps, each message takes two wake-ups: the protocol's thread wakes for the
//! message, and then wakes the program's thread. A thread that polls takes the message itself. So
//! these calls poll before they sleep, as long as such polls find messages:
//!
//! - a blocking receive polls its stream;
//! - `poll`, `select` and `epoll_wait` poll the streams from which the thread has received last,
//!   and ask the kernel for other events between the polls.
//!
//! As [`AdaptiveSpin`] decides, calls after a poll that finds nothing sleep at once.
//!
//! From the first poll of a stream until the thread sleeps, the stream's descriptor shows new
//! events only when the thread polls. So `epoll_ctl`, `fork` and waits through `syscall` call
//! [`end_all`] first. A thread that waits by a system call instruction of its own, or for a
//! descriptor that another thread polls, sees the events some 20 ms late, once. If a poll finds an
//! event that the wait of the thread does not report, another thread waits for it, and the polls
//! end.
//!
//! A call that polls makes these system calls:
//!
//! - two to block and unblock signals;
//! - one in each round of 16 polls, to yield the processor;
//! - in a wait, one more in each round, to ask the kernel for other events, and one to show an
//!   event that a poll has found;
//! - those of the provider's poll. RDMA devices are polled without a system call.
//!
//! A wait that ends polls but does not poll itself makes the two calls to block and unblock signals
//! only.

use std::cell::Cell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use host::adaptive_spin::AdaptiveSpin;
use ops::OffloadStream;
use rustix::io::Errno;

use crate::process::signals_blocked::SignalsBlocked;
use crate::process::{self, errno, guard};
use crate::socket::Socket;

/// The number of polls before a sleep. A wake-up across processors takes longer than most answers
/// of a peer. A number adapts to the processor's speed, which a time would not.
const POLLS: u32 = 1000;

/// The duration after which polls end early. On a busy machine, each yield may take as long as the
/// time slice of another thread.
const LIMIT: Duration = Duration::from_millis(5);

/// The number of polls of a stream between two yields, and between two questions to the kernel.
const POLLS_PER_ROUND: u32 = 16;

/// The maximum number of streams that a wait polls. With more streams in use, the protocol's thread
/// finds several messages for each of its wake-ups.
const STREAMS_MAX: usize = 4;

/// The streams from which a thread has received since it last slept in a wait for descriptors.
struct Used {
    process: i32,
    streams: Vec<Weak<dyn OffloadStream>>,
}

/// True once a thread of this process has received from a stream.
static IS_IN_USE: AtomicBool = AtomicBool::new(false);

/// Returns true once a thread of this process has received from a stream. Until then, waits need
/// not poll or end polls.
#[inline]
pub(crate) fn is_in_use() -> bool {
    IS_IN_USE.load(Ordering::Relaxed)
}

thread_local! {
    static USED: Cell<Option<Used>> = const { Cell::new(None) };
    /// The success of the polls in the thread's waits for descriptors.
    static SPIN: AdaptiveSpin = AdaptiveSpin::default();
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
        let Some(blocked) = SignalsBlocked::begin_polling() else {
            return Ok(false);
        };
        let has_found =
            poll_in_rounds(|| self.stream.poll_readable(POLLS_PER_ROUND).then_some(())).is_some();
        match has_found {
            true => self.spin.on_success(),
            false => self.spin.on_failure(),
        }
        let is_interrupted = !has_found && blocked.will_interrupt(ends_by_any_signal);
        // A handler belongs to the program, and may leave the call by `siglongjmp`.
        self.calls.while_asleep(|| {
            let _asleep = guard::fall_asleep();
            drop(blocked);
            Ok(())
        })?;
        match is_interrupted {
            true => Err(Errno::INTR),
            false => Ok(has_found),
        }
    }

    /// Records that the thread receives from the stream.
    pub(super) fn note_use(&self) {
        let process = process::current();
        // Entries of a parent process are useless in the child of a fork.
        let used = take().filter(|used| used.process == process);
        let mut used = used.unwrap_or_else(|| Used {
            process,
            streams: Vec::with_capacity(STREAMS_MAX + 1),
        });
        used.add(&self.stream);
        let _ = USED.try_with(|it| it.set(Some(used)));
        // Relaxed is sufficient: only a thread that has stored a stream depends on the value. It is
        // written once, because the waits of all threads read it.
        if !is_in_use() {
            IS_IN_USE.store(true, Ordering::Relaxed);
        }
    }
}

/// Polls in rounds until a round has a result.
fn poll_in_rounds<T>(mut round: impl FnMut() -> Option<T>) -> Option<T> {
    let begun = Instant::now();
    for _ in 0..POLLS / POLLS_PER_ROUND {
        if let Some(result) = round() {
            return Some(result);
        }
        if begun.elapsed() > LIMIT {
            break;
        }
        std::thread::yield_now();
    }
    None
}

fn take() -> Option<Used> {
    USED.try_with(Cell::take).ok().flatten()
}

impl Used {
    fn add(&mut self, stream: &Arc<dyn OffloadStream>) {
        let is_it =
            |it: &Weak<dyn OffloadStream>| std::ptr::addr_eq(it.as_ptr(), Arc::as_ptr(stream));
        if self.streams.iter().any(is_it) {
            return;
        }
        // One more than a wait polls shows that there are too many.
        if self.streams.len() > STREAMS_MAX {
            end(self.streams.drain(..1));
        }
        self.streams.push(Arc::downgrade(stream));
    }

    /// Returns true if the wait that begins now should poll.
    fn is_worth_polling(&self) -> bool {
        let has_any = self.streams.iter().any(|it| it.strong_count() > 0);
        has_any
            && self.streams.len() <= STREAMS_MAX
            && SPIN.try_with(AdaptiveSpin::is_worth_it).unwrap_or(false)
    }

    /// Returns true if the end of the polls would lock or free a stream.
    fn must_be_ended(&self) -> bool {
        let is_polled = |it: Arc<dyn OffloadStream>| it.is_polled();
        let mut streams = self.streams.iter().map(Weak::upgrade);
        streams.any(|stream| stream.is_none_or(is_polled))
    }

    /// Polls until `ask` reports events, as [`before_wait`] does.
    ///
    /// # Errors
    /// `EINTR` if a signal has ended the wait.
    fn poll(
        &self,
        blocked: &SignalsBlocked,
        mut ask: impl FnMut() -> c_int,
    ) -> Result<Polled, Errno> {
        let polled = poll_in_rounds(|| {
            let has_found = self.poll_each();
            match ask() {
                ready @ 1.. if has_found => Some(Polled::Found(ready)),
                ready @ 1.. => Some(Polled::Others(ready)),
                0 if !has_found => None,
                _ => Some(Polled::Nothing),
            }
        });
        let _ = SPIN.try_with(|spin| match polled {
            Some(Polled::Found(_)) => spin.on_success(),
            _ => spin.on_failure(),
        });
        match polled.unwrap_or(Polled::Nothing) {
            Polled::Nothing if blocked.will_interrupt(true) => Err(Errno::INTR),
            polled => Ok(polled),
        }
    }

    /// Polls each stream, and shows what the polls find. Returns true if a stream is readable.
    fn poll_each(&self) -> bool {
        let mut has_found = false;
        for stream in self.streams.iter().filter_map(Weak::upgrade) {
            if stream.poll_readable(POLLS_PER_ROUND) {
                stream.show_polled();
                has_found = true;
            }
        }
        has_found
    }
}

/// The result of the polls before a wait.
enum Polled {
    /// The wait reports this many events after a poll has found bytes.
    Found(c_int),
    /// The wait reports this many events, of other descriptors.
    Others(c_int),
    Nothing,
}

fn end(streams: impl Iterator<Item = Weak<dyn OffloadStream>>) {
    for stream in streams.filter_map(|it| it.upgrade()) {
        stream.end_polling();
    }
}

/// Makes the descriptors of all streams that the thread has polled show events again. Called before
/// the thread waits for descriptors in a way that does not poll.
#[inline]
pub(crate) fn end_all() {
    before_wait(false, || 0);
}

/// Polls the streams that the thread uses, before a wait for descriptors. `ask` makes the call of
/// the wait without a timeout; it must not be a cancellation point. Returns the result of the wait
/// if the wait is over. Otherwise the descriptors of all streams show events again.
///
/// `may_poll`: false for a wait with a short timeout, which would become longer, and for a wait
/// with a signal mask, which only the kernel can apply.
#[inline]
pub(crate) fn before_wait(may_poll: bool, ask: impl FnMut() -> c_int) -> Option<c_int> {
    // A signal handler may have interrupted a call that holds locks of the stream. The two ticks
    // without a poll end the polls then.
    if guard::is_inside() {
        return None;
    }
    let used = take()?;
    let is_usable = !used.streams.is_empty() && used.process == process::current();
    let _ = USED.try_with(|it| it.set(Some(used)));
    is_usable.then(|| poll_before_wait(may_poll, ask)).flatten()
}

#[cold]
fn poll_before_wait(may_poll: bool, ask: impl FnMut() -> c_int) -> Option<c_int> {
    if may_poll {
        // The wait that finds an event here makes no call that is a cancellation point.
        guard::test_cancel();
    }
    let mut used = take()?;
    let before = errno::get();
    let polls = may_poll && used.is_worth_polling();
    // A handler that leaves the call must not leave a stream locked. Where signals cannot be
    // blocked, two ticks without a poll end the polls.
    let blocks = polls || used.must_be_ended();
    let blocked = blocks.then(SignalsBlocked::begin_polling).flatten();
    let inside = guard::enter();
    let polled = match &blocked {
        Some(blocked) if polls => used.poll(blocked, ask),
        _ => Ok(Polled::Nothing),
    };
    match (&polled, &blocked) {
        (Ok(Polled::Found(_)), _) => {}
        (_, Some(_)) => end(used.streams.drain(..)),
        (_, None) => used.streams.clear(),
    }
    let _ = USED.try_with(|it| it.set(Some(used)));
    drop(inside);
    // The handlers run here: they belong to the program, and may leave the call by `siglongjmp`.
    drop(blocked);
    errno::set(before);
    match polled {
        Ok(Polled::Found(ready) | Polled::Others(ready)) => Some(ready),
        Ok(Polled::Nothing) => None,
        Err(why) => {
            errno::set(why.raw_os_error());
            Some(-1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polls_end_early_while_other_threads_use_the_processor() {
        let mut rounds = 0;
        let found = poll_in_rounds(|| {
            rounds += 1;
            std::thread::sleep(LIMIT);
            (rounds == 3).then_some(())
        });
        assert_eq!(found, None, "{rounds} rounds");
    }
}
