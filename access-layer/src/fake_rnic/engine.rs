//! The thread that tells news: upcalls of connections never come from the thread that asked.

use std::io;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::lock;

type Job = Box<dyn FnOnce() + Send>;

enum Order {
    Now(Job),
    At(Instant, Job),
    Stop,
}

/// Handle of the thread.
#[derive(Debug)]
pub(super) struct Engine {
    orders: Sender<Order>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Engine {
    pub(super) fn start() -> io::Result<Self> {
        let (orders, inbox) = channel();
        let thread = std::thread::Builder::new()
            .name("fake-rnic".to_owned())
            .spawn(move || serve(&inbox))?;
        Ok(Self {
            orders,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Runs a job in the thread, after those asked for before. After `stop` it is dropped instead.
    pub(super) fn run(&self, job: impl FnOnce() + Send + 'static) {
        let _ = self.orders.send(Order::Now(Box::new(job)));
    }

    pub(super) fn run_after(&self, delay: Duration, job: impl FnOnce() + Send + 'static) {
        if let Some(at) = Instant::now().checked_add(delay) {
            let _ = self.orders.send(Order::At(at, Box::new(job)));
        }
    }

    /// Returns when everything asked for before has run.
    pub(super) fn settle(&self) {
        let (done, settled) = channel();
        self.run(move || {
            let _ = done.send(());
        });
        let _ = settled.recv();
    }

    pub(super) fn stop(&self) {
        let _ = self.orders.send(Order::Stop);
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stop();
    }
}

fn serve(inbox: &Receiver<Order>) {
    let mut timers: Vec<(Instant, Job)> = Vec::new();
    loop {
        let next = timers.iter().map(|(at, _)| *at).min();
        let patience = next.map(|at| at.saturating_duration_since(Instant::now()));
        let order = match patience {
            Some(patience) => inbox.recv_timeout(patience),
            None => inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match order {
            Ok(Order::Now(job)) => job(),
            Ok(Order::At(at, job)) => timers.push((at, job)),
            Ok(Order::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {}
        }
        let now = Instant::now();
        let (due, later) = timers.into_iter().partition(|(at, _)| *at <= now);
        timers = later;
        for (_, job) in due as Vec<(Instant, Job)> {
            job();
        }
    }
}
