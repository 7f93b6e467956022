//! News on its way up, in order and one at a time.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

/// The news of one queue pair that have not been told.
///
/// An RNIC queues them while it holds its locks and tells them after that, by whichever thread held
/// them. The queue keeps the order and makes sure that one at a time is told: `Established` never
/// comes after the ending that followed it.
#[derive(Debug)]
pub struct UpcallQueue<T> {
    waiting: AtomicBool,
    state: Mutex<State<T>>,
    /// The thread that told has told everything.
    told: Condvar,
}

#[derive(Debug)]
struct State<T> {
    news: VecDeque<T>,
    /// Who tells.
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
    /// Adds news behind what waits.
    pub fn push(&self, news: T) {
        let mut state = self.lock();
        state.news.push_back(news);
        self.waiting.store(true, Ordering::Release);
    }

    /// Tells what waits, in order. Returns at once when another thread is telling: it goes on.
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

    /// Returns when another thread that is telling has told everything. Upcalls run no consumer
    /// code, so it does not take long; within an upcall it does not wait for itself.
    pub fn wait_for_teller(&self) {
        let mut state = self.lock();
        let me = thread::current().id();
        while state.teller.is_some_and(|teller| teller != me) {
            state = self
                .told
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Dropped only when an upcall panics: the next one to tell goes on.
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
