//! Queue of upcalls, which delivers events in order and one at a time.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::thread::{self, ThreadId};

use host::locks::IgnorePoison as _;

/// The undelivered events of one queue pair.
///
/// An RNIC queues events while it holds its locks. After it has released them, the thread that held
/// them delivers the events. The queue keeps the order and delivers one event at a time, so
/// `Established` is never delivered after the event that ended the connection.
#[derive(Debug)]
pub struct UpcallQueue<T> {
    waiting: AtomicBool,
    state: Mutex<State<T>>,
    /// Signalled when the delivering thread has delivered everything.
    told: Condvar,
}

#[derive(Debug)]
struct State<T> {
    news: VecDeque<T>,
    /// The thread that delivers, if any.
    teller: Option<ThreadId>,
}

impl<T> Default for UpcallQueue<T> {
    fn default() -> Self {
        Self {
            waiting: AtomicBool::new(false),
            state: Mutex::new(State {
                news: VecDeque::new(),
                teller: None,
            }),
            told: Condvar::new(),
        }
    }
}

impl<T> UpcallQueue<T> {
    /// Adds an event at the end.
    pub fn push(&self, news: T) {
        let mut state = self.lock();
        state.news.push_back(news);
        self.waiting.store(true, Ordering::Release);
    }

    /// Delivers the queued events in order. Returns at once when another thread is delivering,
    /// because that thread delivers these events too.
    pub fn tell(&self, mut upcall: impl FnMut(&T)) {
        if !self.waiting.load(Ordering::Acquire) {
            return;
        }
        let mut state = self.lock();
        if state.teller.is_some() {
            return;
        }
        state.teller = Some(thread::current().id());
        while let Some(news) = state.news.pop_front() {
            drop(state);
            let unwinding = Unwinding(self);
            upcall(&news);
            std::mem::forget(unwinding);
            state = self.lock();
        }
        state.teller = None;
        self.waiting.store(false, Ordering::Release);
        self.told.notify_all();
    }

    /// Returns when another thread that is delivering has delivered everything. Upcalls run no
    /// consumer code, so the wait is short. Within an upcall the call does not wait for its own
    /// thread.
    pub fn wait_for_teller(&self) {
        let mut state = self.lock();
        let me = thread::current().id();
        while state.teller.is_some_and(|teller| teller != me) {
            state = self.told.wait(state).ignore_poison();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().ignore_poison()
    }
}

/// Dropped only when an upcall panics: the next thread that delivers continues with the rest.
struct Unwinding<'a, T>(&'a UpcallQueue<T>);

impl<T> Drop for Unwinding<'_, T> {
    fn drop(&mut self) {
        self.0.lock().teller = None;
        self.0.told.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_the_teller_returns_when_all_is_told() {
        let queue = UpcallQueue::default();
        queue.push('a');
        queue.push('b');
        let (begun, has_begun) = std::sync::mpsc::channel();
        let told = Mutex::new(0);
        thread::scope(|scope| {
            scope.spawn(|| {
                queue.tell(|_| {
                    let _ = begun.send(());
                    thread::sleep(std::time::Duration::from_millis(20));
                    queue.wait_for_teller();
                    *told.lock().unwrap() += 1;
                });
            });
            has_begun.recv().unwrap();
            queue.wait_for_teller();
            assert_eq!(*told.lock().unwrap(), 2);
        });
    }

    #[test]
    fn news_queued_by_an_upcall_comes_after_it() {
        let queue = UpcallQueue::default();
        queue.push('a');
        let mut told = Vec::new();
        queue.tell(|news| {
            if told.is_empty() {
                queue.push('b');
                queue.tell(|_| panic!("told within an upcall"));
            }
            told.push(*news);
        });
        assert_eq!(told, ['a', 'b']);
        queue.tell(|_| panic!("told twice"));
    }
}
