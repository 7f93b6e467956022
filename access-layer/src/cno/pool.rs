//! The threads that call agents.
//!
//! An agent may block for any time, so one thread for all agents would delay the other agents. The
//! pool starts a thread when a call is due and no thread is idle, up to [`THREADS_MAX`]; further
//! calls wait for a thread. One idle thread stays for ever; others end. The pool belongs to the
//! process that made it: the child of a fork has none of its threads, and starts its own.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};

use host::forks::HeldLock;
use host::locks::{IgnorePoison as _, lock};

use crate::handle::Handle;

/// The largest number of threads.
const THREADS_MAX: usize = 16;

type Job = Box<dyn FnOnce() + Send>;

pub(crate) struct Pool {
    pid: u32,
    queue: Arc<Queue>,
}

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    has_more: Condvar,
}

#[derive(Default)]
struct State {
    due: VecDeque<Job>,
    threads: usize,
    /// The number of threads that wait for a job.
    idle: usize,
}

pub(crate) static POOL: HeldLock<Option<Pool>> = HeldLock::new(None);

/// The CNOs whose agents wait for the return of another agent.
pub(crate) static WAITING: HeldLock<Vec<Handle>> = HeldLock::new(Vec::new());

thread_local! {
    /// The CNO whose agent the thread calls now.
    static SERVED: Cell<Option<Handle>> = const { Cell::new(None) };
}

/// Runs `job` on a thread of the pool.
pub(super) fn run(job: Job) {
    let mut pool = POOL.lock();
    let pid = std::process::id();
    if pool.as_ref().is_some_and(|pool| pool.pid != pid) {
        *pool = None;
    }
    let queue = &pool.get_or_insert_with(|| Pool {
        pid,
        queue: Arc::default(),
    });
    Queue::add(&queue.queue, job);
}

impl Queue {
    fn add(this: &Arc<Self>, job: Job) {
        let mut state = lock(&this.state);
        state.due.push_back(job);
        if state.due.len() > state.idle && state.threads < THREADS_MAX {
            match this.start() {
                Ok(()) => state.threads += 1,
                Err(_) if state.threads > 0 => {}
                Err(error) => {
                    tracing::error!(%error, "no thread calls agents: a call is lost");
                    state.due.clear();
                }
            }
        }
        drop(state);
        this.has_more.notify_one();
    }

    fn start(self: &Arc<Self>) -> std::io::Result<()> {
        let queue = Arc::clone(self);
        host::threads::spawn_quiet("dat-agent", move || {
            while let Some(job) = queue.next() {
                host::threads::catch_panic(job);
            }
        })?;
        Ok(())
    }

    /// Returns the next job; `None` if the calling thread must end.
    fn next(&self) -> Option<Job> {
        let mut state = lock(&self.state);
        loop {
            if let Some(job) = state.due.pop_front() {
                return Some(job);
            }
            if state.idle > 0 {
                state.threads -= 1;
                return None;
            }
            state.idle += 1;
            state = self.has_more.wait(state).ignore_poison();
            state.idle -= 1;
        }
    }
}

/// Makes the calling thread one that calls the agent of this CNO, during `call`.
pub(super) fn serve(cno: Handle, call: impl FnOnce()) {
    SERVED.set(Some(cno));
    call();
    SERVED.set(None);
}

/// A wait for the return of an agent.
pub(super) struct Waiting {
    /// The CNO whose agent waits.
    by: Option<Handle>,
}

impl Waiting {
    /// Begins a wait for the agent of `cno`. `None`: that agent itself makes the call.
    pub(super) fn for_agent_of(cno: Handle) -> Option<Self> {
        let by = SERVED.get();
        if by == Some(cno) {
            return None;
        }
        WAITING.lock().extend(by);
        Some(Self { by })
    }

    /// True if the agent of `cno` must not be waited for, because it waits for an agent too. Two
    /// agents that free each other's CNO would wait for ever.
    pub(super) fn would_last(&self, cno: Handle) -> bool {
        self.by.is_some() && WAITING.lock().contains(&cno)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut waiting = WAITING.lock();
        if let Some(at) = waiting.iter().position(|it| Some(*it) == self.by) {
            waiting.swap_remove(at);
        }
    }
}
