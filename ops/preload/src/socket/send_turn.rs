//! The order of the sends of several threads.
//!
//! A send that waits for room keeps its turn, so that its bytes stay together in the stream, as
//! those of a send over TCP do while they fit into the kernel's buffer. A send that finds no other
//! one pays two atomic exchanges and no system call.
//!
//! A signal handler may leave a send by `siglongjmp`, and the turn would stay taken. So a turn
//! whose holder is asleep although there is room is taken away after [`PATIENCE`], which is far
//! longer than a thread needs to wake.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use crate::events::wait_queue::WaitQueue;

/// The time after which the holder of a turn counts as gone, if it is asleep and there is room.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// The turn of one connection.
#[derive(Debug, Default)]
pub(super) struct SendTurn {
    /// The thread that sends; 0 for none.
    holder: AtomicUsize,
    /// Counts the sleeps of the holders; odd while the holder is asleep.
    sleeps: AtomicU32,
    /// True if another thread waits for the turn.
    is_wanted: AtomicBool,
}

/// The guard of a turn.
pub(super) struct Turn<'a> {
    turn: &'a SendTurn,
    waiting: &'a WaitQueue,
    is_nested: bool,
}

impl SendTurn {
    /// Takes the turn. `None`: another thread has it, and wakes the threads in `waiting`
    /// afterwards. A handler that has interrupted its own thread's send does not wait for it.
    pub(super) fn take<'a>(&'a self, waiting: &'a WaitQueue) -> Option<Turn<'a>> {
        let me = this_thread();
        for _ in 0..2 {
            let taken = self
                .holder
                .compare_exchange(0, me, Ordering::SeqCst, Ordering::SeqCst);
            let is_nested = match taken {
                Ok(_) => false,
                Err(holder) if holder == me => true,
                Err(_) => {
                    // The holder reads this after it has released the turn, or the second attempt
                    // succeeds.
                    self.is_wanted.store(true, Ordering::SeqCst);
                    continue;
                }
            };
            return Some(Turn {
                turn: self,
                waiting,
                is_nested,
            });
        }
        None
    }

    /// Returns a number that names the present sleep of the holder. `None`: it is not asleep.
    pub(super) fn sleep_of_holder(&self) -> Option<u32> {
        let sleeps = self.sleeps.load(Ordering::SeqCst);
        (sleeps % 2 == 1).then_some(sleeps)
    }

    /// Frees the turn if its holder is still in the sleep of this number.
    pub(super) fn take_away(&self, sleep: u32) {
        let ended = sleep.wrapping_add(1);
        let sleeps = &self.sleeps;
        let is_same = sleeps.compare_exchange(sleep, ended, Ordering::SeqCst, Ordering::SeqCst);
        if is_same.is_ok() {
            self.holder.store(0, Ordering::SeqCst);
        }
    }

    /// Sleeps within a turn.
    pub(super) fn while_asleep<T>(&self, sleep: impl FnOnce() -> T) -> T {
        let before = self.sleeps.load(Ordering::SeqCst) & !1;
        self.sleeps.store(before + 1, Ordering::SeqCst);
        let slept = sleep();
        // Fails if the turn was taken away. The send continues, and other bytes may be between its
        // own.
        let _ = self.sleeps.compare_exchange(
            before + 1,
            before.wrapping_add(2),
            Ordering::SeqCst,
            Ordering::SeqCst,
        );
        slept
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if self.is_nested {
            return;
        }
        let (me, turn) = (this_thread(), self.turn);
        let _ = turn
            .holder
            .compare_exchange(me, 0, Ordering::SeqCst, Ordering::SeqCst);
        if turn.is_wanted.load(Ordering::SeqCst) && turn.is_wanted.swap(false, Ordering::SeqCst) {
            self.waiting.wake();
        }
    }
}

fn this_thread() -> usize {
    // SAFETY: the call has no arguments. The id of a thread is never 0.
    unsafe { libc::pthread_self() as usize }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls `work` on another thread.
    fn elsewhere<T: Send>(work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| scope.spawn(work).join().unwrap())
    }

    #[test]
    fn one_thread_at_a_time_has_the_turn() {
        let (turn, waiting) = (SendTurn::default(), WaitQueue::default());
        let before = waiting.seq();
        let own = turn.take(&waiting).unwrap();
        assert!(
            turn.take(&waiting).is_some(),
            "a handler of the same thread"
        );
        drop(own);
        assert_eq!(waiting.seq(), before, "no thread waited");
        let own = turn.take(&waiting).unwrap();
        assert!(elsewhere(|| turn.take(&waiting).is_none()));
        drop(own);
        assert_ne!(waiting.seq(), before, "a thread waited");
        assert!(elsewhere(|| turn.take(&waiting).is_some()));
    }

    #[test]
    fn a_turn_is_taken_away_only_during_the_same_sleep() {
        let (turn, waiting) = (SendTurn::default(), WaitQueue::default());
        let own = turn.take(&waiting).unwrap();
        assert_eq!(turn.sleep_of_holder(), None);
        let first = turn.while_asleep(|| turn.sleep_of_holder().unwrap());
        assert_eq!(turn.sleep_of_holder(), None);
        turn.while_asleep(|| {
            turn.take_away(first);
            assert!(elsewhere(|| turn.take(&waiting).is_none()));
            turn.take_away(turn.sleep_of_holder().unwrap());
            assert!(elsewhere(|| turn.take(&waiting).is_some()));
        });
        drop(own);
        assert!(elsewhere(|| turn.take(&waiting).is_some()));
    }
}
