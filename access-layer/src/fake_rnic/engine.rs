//! Delivery of upcalls. A call that causes an upcall for a connection never makes that upcall
//! itself.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::held_upcalls::{HeldUpcalls, Job, Owner};
use super::lock;

enum Order {
    Now(Job),
    At(Instant, Job),
    Stop,
}

/// Handle of the thread or test that delivers the events of one RNIC.
#[derive(Debug)]
pub(super) struct Engine {
    delivery: Delivery,
    stopped: AtomicBool,
}

#[derive(Debug)]
enum Delivery {
    /// A thread of the RNIC, immediately.
    Thread {
        orders: Sender<Order>,
        thread: Mutex<Option<JoinHandle<()>>>,
    },
    /// The test, when it calls [`HeldUpcalls::deliver`].
    Held(Arc<HeldUpcalls>, Owner),
}

impl Engine {
    pub(super) fn start() -> io::Result<Self> {
        let (orders, inbox) = channel();
        let thread = std::thread::Builder::new()
            .name("fake-rnic".to_owned())
            .spawn(move || serve(&inbox))?;
        Ok(Self::of(Delivery::Thread {
            orders,
            thread: Mutex::new(Some(thread)),
        }))
    }

    /// Creates an engine whose events wait until [`HeldUpcalls::deliver`].
    pub(super) fn held(events: Arc<HeldUpcalls>) -> Self {
        let owner = events.new_owner();
        Self::of(Delivery::Held(events, owner))
    }

    fn of(delivery: Delivery) -> Self {
        Self {
            delivery,
            stopped: AtomicBool::new(false),
        }
    }

    /// Runs a job, after the jobs requested before. After `stop` the job is dropped instead.
    pub(super) fn run(&self, job: impl FnOnce() + Send + 'static) {
        if self.stopped.load(Ordering::Acquire) {
            return;
        }
        match &self.delivery {
            Delivery::Thread { orders, .. } => {
                let _ = orders.send(Order::Now(Box::new(job)));
            }
            Delivery::Held(events, owner) => events.add(*owner, Box::new(job)),
        }
    }

    pub(super) fn run_after(&self, delay: Duration, job: impl FnOnce() + Send + 'static) {
        if self.stopped.load(Ordering::Acquire) {
            return;
        }
        match &self.delivery {
            Delivery::Thread { orders, .. } => {
                if let Some(at) = Instant::now().checked_add(delay) {
                    let _ = orders.send(Order::At(at, Box::new(job)));
                }
            }
            Delivery::Held(events, owner) => events.add_timer(*owner, Box::new(job)),
        }
    }

    /// Waits until every job requested before has run.
    pub(super) fn settle(&self) {
        if let Delivery::Held(events, _) = &self.delivery {
            events.deliver();
            return;
        }
        let (done, settled) = channel();
        self.run(move || {
            let _ = done.send(());
        });
        let _ = settled.recv();
    }

    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        match &self.delivery {
            Delivery::Thread { orders, thread } => {
                let _ = orders.send(Order::Stop);
                let thread = lock(thread).take();
                if let Some(thread) = thread
                    && thread.thread().id() != std::thread::current().id()
                {
                    let _ = thread.join();
                }
            }
            Delivery::Held(events, owner) => events.forget(*owner),
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
