//! Threads for calls of the connection manager that block in the kernel.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};

use host::locks::lock;
use host::threads::{catch_panic, spawn_quiet};

/// The largest number of threads. A call waits in the queue only while that many calls block.
const THREADS_MAX: usize = 64;

type Call = Box<dyn FnOnce() + Send>;

/// The calls of one adapter. Each thread takes calls until none is left, and then ends.
#[derive(Default)]
pub(super) struct Blocking(Mutex<State>);

#[derive(Default)]
struct State {
    queue: VecDeque<Call>,
    threads: usize,
}

impl Blocking {
    /// Makes a call on another thread. If there is none, the call is dropped here.
    pub(super) fn call(self: &Arc<Self>, call: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let mut state = lock(&self.0);
        state.queue.push_back(Box::new(call));
        if state.threads == THREADS_MAX {
            return Ok(());
        }
        let this = self.clone();
        match spawn_quiet("dat-ib-connect", move || this.run()) {
            Ok(_) => state.threads += 1,
            // A thread ends only when the queue is empty, so a running thread makes this call.
            Err(_) if state.threads > 0 => {}
            Err(why) => {
                let refused = state.queue.pop_back();
                drop(state);
                drop(refused);
                return Err(why);
            }
        }
        Ok(())
    }

    fn run(&self) {
        loop {
            let mut state = lock(&self.0);
            let Some(call) = state.queue.pop_front() else {
                state.threads -= 1;
                return;
            };
            drop(state);
            catch_panic(call);
        }
    }
}

rnic::opaque_debug!(Blocking {});

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// Makes a call that reports its start and then blocks until the returned sender is dropped.
    fn block(blocking: &Arc<Blocking>, begun: &Sender<usize>, number: usize) -> Sender<()> {
        let (end, is_over): (Sender<()>, Receiver<()>) = channel();
        let begun = begun.clone();
        let call = move || {
            begun.send(number).unwrap();
            let _ = is_over.recv();
        };
        blocking.call(call).unwrap();
        end
    }

    #[test]
    fn calls_that_block_delay_others_only_at_the_limit() {
        let blocking = Arc::new(Blocking::default());
        let (sender, begun) = channel();
        let mut ends: Vec<_> = (0..THREADS_MAX + 2)
            .map(|number| block(&blocking, &sender, number))
            .collect();
        let mut first: Vec<usize> = (0..THREADS_MAX).map(|_| begun.recv().unwrap()).collect();
        first.sort_unstable();
        assert!(first.into_iter().eq(0..THREADS_MAX));
        assert!(begun.try_recv().is_err(), "more threads than the limit");
        drop(ends.remove(0));
        assert_eq!(begun.recv().unwrap(), THREADS_MAX);
        ends.clear();
        assert_eq!(begun.recv().unwrap(), THREADS_MAX + 1);
    }
}
