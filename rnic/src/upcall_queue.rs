//! Queue of upcalls. Delivers events in order and one at a time.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};

use host::locks::IgnorePoison as _;
use host::threads::ThreadId;

/// The undelivered events of one queue pair.
///
/// An RNIC queues events while it holds its locks. After the release of the locks the same thread
/// delivers the events. The queue keeps the order and delivers one event at a time, so
/// `Established` is never delivered after the event that ended the connection.
#[derive(Debug)]
pub struct UpcallQueue<T> {
    waiting: AtomicBool,
    state: Mutex<State<T>>,
    /// Signalled when the delivering thread has delivered everything.
    delivered: Condvar,
}

#[derive(Debug)]
struct State<T> {
    events: VecDeque<T>,
    /// The thread that delivers, if any.
    deliverer: Option<ThreadId>,
}

impl<T> Default for UpcallQueue<T> {
    fn default() -> Self {
        Self {
            waiting: AtomicBool::new(false),
            state: Mutex::new(State {
                events: VecDeque::new(),
                deliverer: None,
            }),
            delivered: Condvar::new(),
        }
    }
}

impl<T> UpcallQueue<T> {
    /// Adds an event at the end.
    pub fn push(&self, event: T) {
        let mut state = self.lock();
        state.events.push_back(event);
        self.waiting.store(true, Ordering::Release);
    }

    /// Delivers the queued events in order. Returns at once if another thread is delivering,
    /// because that thread delivers these events too.
    pub fn deliver(&self, mut upcall: impl FnMut(&T)) {
        if !self.waiting.load(Ordering::Acquire) {
            return;
        }
        let mut state = self.lock();
        if state.deliverer.is_some() {
            return;
        }
        state.deliverer = Some(ThreadId::current());
        while let Some(event) = state.events.pop_front() {
            drop(state);
            let unwinding = Unwinding(self);
            upcall(&event);
            std::mem::forget(unwinding);
            state = self.lock();
        }
        state.deliverer = None;
        self.waiting.store(false, Ordering::Release);
        self.delivered.notify_all();
    }

    /// Waits until another thread that is delivering has delivered everything. Upcalls run no
    /// consumer code, so the wait is short. A call within an upcall does not wait for its own
    /// thread.
    pub fn wait_for_delivery(&self) {
        let mut state = self.lock();
        let me = ThreadId::current();
        while state.deliverer.is_some_and(|deliverer| deliverer != me) {
            state = self.delivered.wait(state).ignore_poison();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().ignore_poison()
    }
}

/// Dropped only when an upcall panics: the next thread that delivers handles the remaining events.
struct Unwinding<'a, T>(&'a UpcallQueue<T>);

impl<T> Drop for Unwinding<'_, T> {
    fn drop(&mut self) {
        self.0.lock().deliverer = None;
        self.0.delivered.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_thread_that_waits_for_delivery_returns_after_the_last_event() {
        let queue = UpcallQueue::default();
        queue.push('a');
        queue.push('b');
        let (begun, has_begun) = std::sync::mpsc::channel();
        let delivered = Mutex::new(0);
        thread::scope(|scope| {
            scope.spawn(|| {
                queue.deliver(|_| {
                    let _ = begun.send(());
                    thread::sleep(std::time::Duration::from_millis(20));
                    queue.wait_for_delivery();
                    *delivered.lock().unwrap() += 1;
                });
            });
            has_begun.recv().unwrap();
            queue.wait_for_delivery();
            assert_eq!(*delivered.lock().unwrap(), 2);
        });
    }

    #[test]
    fn an_event_queued_by_an_upcall_is_delivered_after_it() {
        let queue = UpcallQueue::default();
        queue.push('a');
        let mut delivered = Vec::new();
        queue.deliver(|event| {
            if delivered.is_empty() {
                queue.push('b');
                queue.deliver(|_| panic!("delivered within an upcall"));
            }
            delivered.push(*event);
        });
        assert_eq!(delivered, ['a', 'b']);
        queue.deliver(|_| panic!("delivered twice"));
    }
}
