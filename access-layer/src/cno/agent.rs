//! The consumer's wait-proxy agent and the thread that calls it.
//!
//! The agent is consumer code: it may block, and it may call any DAT function, closing the IA
//! included. So it never runs in a thread that carries the RNIC's work, nor under a lock. One
//! thread serves all CNOs of the process; it starts with the first agent that is due and then
//! stays.

use std::cell::Cell;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};

use dat_abi::*;

use crate::handle::Handle;

/// An agent that is there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Agent {
    func: DatAgentFunc,
    instance_data: DatPvoid,
}

// SAFETY: the data pointer is never dereferenced here; the consumer, who gave it to be passed to
// its function in a thread of the provider, vouches for that use (DAT 2.0 section 6.3.3.1).
unsafe impl Send for Agent {}

impl Agent {
    /// `None` for the null agent.
    pub(super) fn from_dat(agent: &DatOsWaitProxyAgent) -> Option<Self> {
        let func = agent.proxy_agent_func?;
        Some(Self {
            func,
            instance_data: agent.instance_data,
        })
    }

    /// Calls the consumer.
    pub(super) fn call(self, evd: Handle) {
        // SAFETY: function and data came from the consumer together, to be called in just this way.
        unsafe { (self.func)(self.instance_data, evd.as_dat()) }
    }
}

/// An agent is used up by the first trigger and has to be set again.
#[derive(Debug)]
pub(super) struct AgentState {
    armed: Option<Agent>,
    due: Option<(Agent, Handle)>,
    running: bool,
}

impl AgentState {
    pub(super) fn new(armed: Option<Agent>) -> Self {
        Self {
            armed,
            due: None,
            running: false,
        }
    }

    /// `true`: a call is due now.
    pub(super) fn on_trigger(&mut self, evd: Handle) -> bool {
        let Some(agent) = self.armed.take() else {
            return false;
        };
        self.due = Some((agent, evd));
        true
    }

    pub(super) fn on_begin_call(&mut self) -> Option<(Agent, Handle)> {
        let due = self.due.take();
        self.running = due.is_some();
        due
    }

    pub(super) fn on_end_call(&mut self) {
        self.running = false;
    }

    /// A call that is due and has not begun goes with the former agent.
    pub(super) fn on_modify(&mut self, agent: Option<Agent>) {
        self.armed = agent;
        self.due = None;
    }

    pub(super) fn is_running(&self) -> bool {
        self.running
    }

    pub(super) fn as_dat(&self) -> DatOsWaitProxyAgent {
        self.armed
            .map_or(DatOsWaitProxyAgent::zeroed(), |agent| DatOsWaitProxyAgent {
                instance_data: agent.instance_data,
                proxy_agent_func: Some(agent.func),
            })
    }
}

type Job = Box<dyn FnOnce() + Send>;

/// The process that started the thread: after a fork the child has to start its own.
struct Runner {
    pid: u32,
    jobs: Sender<Job>,
}

static RUNNER: Mutex<Option<Runner>> = Mutex::new(None);

thread_local! {
    static IS_AGENT_THREAD: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread is the one that calls agents.
pub(super) fn is_agent_thread() -> bool {
    IS_AGENT_THREAD.get()
}

/// Runs `job` in the agent thread.
pub(super) fn run(job: Job) {
    let mut runner = RUNNER.lock().unwrap_or_else(PoisonError::into_inner);
    let pid = std::process::id();
    if runner.as_ref().is_none_or(|runner| runner.pid != pid) {
        *runner = start(pid);
    }
    if runner
        .as_ref()
        .is_none_or(|runner| runner.jobs.send(job).is_err())
    {
        tracing::error!("no thread for wait-proxy agents: a call is lost");
    }
}

fn start(pid: u32) -> Option<Runner> {
    let (jobs, due) = channel::<Job>();
    let thread = std::thread::Builder::new()
        .name("dat-agent".to_owned())
        .spawn(move || {
            IS_AGENT_THREAD.set(true);
            for job in due {
                job();
            }
        });
    thread.ok().map(|_| Runner { pid, jobs })
}
