//! The end of the process, during which the other threads return from no call on an offloaded
//! connection.
//!
//! A process without this library ends at once, and the kernel continues to send what the process
//! wrote to TCP sockets. Here the thread that ends the process closes the offloaded connections and
//! waits until their bytes are delivered. The other threads run meanwhile. They would find their
//! connections closed, which no thread of a TCP program does: a send would raise `SIGPIPE`, and a
//! program that handles errors would end with another status. So their calls do not return.

use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use host::clock::Clock;
use rustix::thread::{futex, gettid};

use crate::process::guard;

/// The time that the other threads stay in their calls after the connections are closed, in
/// milliseconds. By then the process has ended, unless a destructor of a library waits for one of
/// these threads.
const AFTER_CLOSE_MS: u64 = 1000;

/// The thread that ends the process; 0 for none.
static ENDING_THREAD: AtomicI32 = AtomicI32::new(0);
/// 1 once the connections are closed and [`HELD_UNTIL_MS`] is set; a futex word.
static ARE_CLOSED: AtomicU32 = AtomicU32::new(0);
/// The time until which the other threads stay in their calls, in milliseconds.
static HELD_UNTIL_MS: AtomicU64 = AtomicU64::new(0);

/// Begins the end of the process. If another thread has begun it, this thread is held, because that
/// thread determines the exit status.
pub(crate) fn begin() {
    let me = this_thread();
    let _ = ENDING_THREAD.compare_exchange(0, me, Ordering::SeqCst, Ordering::SeqCst);
    hold_others();
}

/// Records that the connections are closed. Called by the thread that ends the process.
pub(crate) fn connections_are_closed() {
    HELD_UNTIL_MS.store(now_ms() + AFTER_CLOSE_MS, Ordering::SeqCst);
    ARE_CLOSED.store(1, Ordering::SeqCst);
    let _ = futex::wake(&ARE_CLOSED, futex::Flags::PRIVATE, u32::MAX >> 1);
}

/// Resets the state in the child of a fork, which does not end with its parent.
pub(super) fn reset_after_fork() {
    ENDING_THREAD.store(0, Ordering::SeqCst);
    ARE_CLOSED.store(0, Ordering::SeqCst);
}

/// Returns true if another thread ends the process.
#[inline]
pub(crate) fn is_by_another_thread() -> bool {
    let ending = ENDING_THREAD.load(Ordering::SeqCst);
    ending != 0 && ending != this_thread()
}

/// Holds the calling thread in its call if another thread ends the process. Handlers of signals run
/// meanwhile. A handler that has interrupted a call of the stack is not held, because the other
/// thread may need a lock of that call. Calls that the kernel alone answers are not held.
#[inline]
pub(crate) fn hold_others() {
    if is_by_another_thread() && !guard::is_inside() {
        hold();
    }
}

#[cold]
fn hold() {
    loop {
        let are_closed = ARE_CLOSED.load(Ordering::SeqCst);
        let timeout = match are_closed {
            0 => None,
            _ => match HELD_UNTIL_MS.load(Ordering::SeqCst).checked_sub(now_ms()) {
                None | Some(0) => return,
                Some(left) => Some(futex::Timespec {
                    tv_sec: (left / 1000).cast_signed(),
                    tv_nsec: (left % 1000 * 1_000_000).cast_signed(),
                }),
            },
        };
        let flags = futex::Flags::PRIVATE;
        let _ = futex::wait(&ARE_CLOSED, flags, are_closed, timeout.as_ref());
    }
}

fn this_thread() -> i32 {
    gettid().as_raw_nonzero().get()
}

fn now_ms() -> u64 {
    u64::try_from(Clock::Monotonic.now().as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// One test, because the state belongs to the process.
    #[test]
    fn other_threads_are_held_while_one_thread_ends_the_process() {
        hold_others();
        begin();
        begin();
        hold_others();
        assert!(!is_by_another_thread());
        let (sender, released) = mpsc::channel();
        for held in [hold_others, begin] {
            let sender = sender.clone();
            thread::spawn(move || {
                assert!(is_by_another_thread());
                held();
                sender.send(()).unwrap();
            });
        }
        let none = released.recv_timeout(Duration::from_millis(50));
        assert!(none.is_err(), "a thread continued");
        connections_are_closed();
        for _ in 0..2 {
            released.recv().expect("both threads continue in the end");
        }
        thread::spawn(hold_others).join().unwrap();
        thread::spawn(|| {
            let _inside = guard::enter();
            hold_others();
        })
        .join()
        .unwrap();
        reset_after_fork();
        thread::spawn(|| assert!(!is_by_another_thread()))
            .join()
            .unwrap();
    }
}
