//! The consumer's wait-proxy agent.
//!
//! The agent is consumer code: it may block, and it may call any DAT function, including a close of
//! the IA. So it never runs on a thread that makes progress for the RNIC, nor under a lock, but on
//! a thread of the [`pool`](super::pool). The calls of one CNO follow one another.

use dat_abi::*;

use crate::handle::Handle;

/// An agent: the consumer's function and its data.
#[derive(Debug, Clone, Copy)]
pub(super) struct Agent {
    func: DatAgentFunc,
    instance_data: DatPvoid,
}

/// Agents are compared by their data, because functions have no identity.
impl PartialEq for Agent {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.instance_data, other.instance_data)
    }
}

impl Eq for Agent {}

// SAFETY: the data pointer is never dereferenced here. The consumer passed it for use by its
// function on a thread of the provider, and guarantees that this is allowed (DAT 2.0 section
// 6.3.3.1).
unsafe impl Send for Agent {}

impl Agent {
    /// Converts an agent from C; `None` for the null agent.
    pub(super) fn from_dat(agent: &DatOsWaitProxyAgent) -> Option<Self> {
        let func = agent.proxy_agent_func?;
        Some(Self {
            func,
            instance_data: agent.instance_data,
        })
    }

    pub(super) fn call(self, evd: Handle) {
        // SAFETY: the consumer passed the function and the data together, for this call.
        unsafe { (self.func)(self.instance_data, evd.as_dat()) }
    }
}

/// The pending step: what the next trigger, or a thread of the pool, must do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// No agent is set, and no call is due.
    Nothing,
    /// The next trigger makes a call of the agent due.
    Armed(Agent),
    /// The call that a thread of the pool must make.
    Due(Agent, Handle),
}

/// State of the agent. The first trigger consumes the agent, and the consumer must set it again.
/// The next agent may be set and become due while a call runs, for example by the agent itself.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AgentState {
    next: Next,
    is_running: bool,
}

impl AgentState {
    pub(super) fn new(armed: Option<Agent>) -> Self {
        Self {
            next: armed.map_or(Next::Nothing, Next::Armed),
            is_running: false,
        }
    }

    /// Returns true if this trigger makes a call due that a thread must begin. The thread whose
    /// call is running begins the next one itself.
    pub(super) fn on_trigger(&mut self, evd: Handle) -> bool {
        match self.next {
            Next::Armed(agent) => {
                self.next = Next::Due(agent, evd);
                !self.is_running
            }
            Next::Nothing | Next::Due(..) => false,
        }
    }

    /// Returns the call that is due, unless another one is running.
    pub(super) fn on_begin_call(&mut self) -> Option<(Agent, Handle)> {
        match self.next {
            Next::Due(agent, evd) if !self.is_running => {
                self.next = Next::Nothing;
                self.is_running = true;
                Some((agent, evd))
            }
            Next::Nothing | Next::Armed(_) | Next::Due(..) => None,
        }
    }

    pub(super) fn on_end_call(&mut self) {
        self.is_running = false;
    }

    /// Sets or removes the agent. Drops a call of the former agent that is due and has not begun.
    pub(super) fn on_modify(&mut self, agent: Option<Agent>) {
        self.next = agent.map_or(Next::Nothing, Next::Armed);
    }

    pub(super) fn is_running(&self) -> bool {
        self.is_running
    }

    pub(super) fn as_dat(&self) -> DatOsWaitProxyAgent {
        match self.next {
            Next::Armed(agent) => DatOsWaitProxyAgent {
                instance_data: agent.instance_data,
                proxy_agent_func: Some(agent.func),
            },
            Next::Nothing | Next::Due(..) => DatOsWaitProxyAgent::zeroed(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    extern "C" fn nothing(_data: DatPvoid, _evd: DatEvdHandle) {}

    fn agent(number: usize) -> Agent {
        Agent {
            func: nothing,
            instance_data: std::ptr::without_provenance_mut(number),
        }
    }

    #[test]
    fn every_event_in_every_state() {
        let evd = Handle::from_token(8).unwrap();
        let (old, new) = (agent(1), agent(2));
        let due = Next::Due(old, evd);
        let state = |next, is_running| AgentState { next, is_running };
        let trigger = |mut state: AgentState| (state.on_trigger(evd), state);
        let begin = |mut state: AgentState| (state.on_begin_call().is_some(), state);
        for running in [false, true] {
            let rows = [
                // (next, results and next states of a trigger and of a thread of the pool)
                (
                    Next::Nothing,
                    (false, Next::Nothing),
                    (false, Next::Nothing),
                ),
                (Next::Armed(old), (!running, due), (false, Next::Armed(old))),
                (
                    due,
                    (false, due),
                    (!running, if running { due } else { Next::Nothing }),
                ),
            ];
            for (next, (becomes_due, triggered), (begins, begun)) in rows {
                let after = (becomes_due, state(triggered, running));
                assert_eq!(trigger(state(next, running)), after, "{next:?}");
                let after = (begins, state(begun, running || begins));
                assert_eq!(begin(state(next, running)), after, "{next:?}");
                let mut ended = state(next, running);
                ended.on_end_call();
                assert_eq!(ended, state(next, false));
                for (given, left) in [(Some(new), Next::Armed(new)), (None, Next::Nothing)] {
                    let mut modified = state(next, running);
                    modified.on_modify(given);
                    assert_eq!(modified, state(left, running), "{next:?}");
                }
            }
        }
    }
}
