//! Keeps completions out of the completion queues until `Established` has been delivered.
//!
//! The access layer refuses posts on an endpoint that is not connected, and the `Established`
//! upcall informs it that an endpoint is connected. Work of a connection may complete before that
//! upcall has returned: the peer's first message is received by one thread while another thread
//! makes the upcall. A consumer that polled such a completion, and answered it at once, would be
//! refused.
//!
//! The gate is closed when a connection begins. Completions are stored in the gate until the upcall
//! has returned, then they are pushed to the queues in their order, and later completions are
//! pushed directly, at the cost of one atomic load.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use rnic::Completion;

use host::locks::lock;

/// The upcall for which the completions of a queue pair wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// No upcall: completions are pushed to the queues.
    Open,
    /// `Established`, which is not queued yet.
    Connecting,
    /// `Established`, which is queued, or whose upcall is being made.
    Notifying,
}

/// Completions of one queue pair that wait for the `Established` upcall.
#[derive(Debug)]
pub(super) struct CompletionGate {
    /// True in [`Phase::Open`]. Written under `state`.
    is_open: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    send: Vec<Completion>,
    recv: Vec<Completion>,
}

impl Default for CompletionGate {
    fn default() -> Self {
        let state = State {
            phase: Phase::Open,
            send: Vec::new(),
            recv: Vec::new(),
        };
        Self {
            is_open: AtomicBool::new(true),
            state: Mutex::new(state),
        }
    }
}

impl CompletionGate {
    /// Stores completions while the gate is closed. Returns false, and takes nothing, while the
    /// gate is open.
    pub(super) fn hold(&self, send: &mut Vec<Completion>, recv: &mut Vec<Completion>) -> bool {
        if self.is_open.load(Ordering::Acquire) {
            return false;
        }
        let mut state = lock(&self.state);
        // Completions that were stored before have been pushed by now, so the order is kept.
        if state.phase == Phase::Open {
            return false;
        }
        state.send.append(send);
        state.recv.append(recv);
        true
    }

    /// Called when a connection begins.
    pub(super) fn on_connected(&self) {
        let mut state = lock(&self.state);
        state.phase = Phase::Connecting;
        self.is_open.store(false, Ordering::Release);
    }

    /// Called when `Established` is queued.
    pub(super) fn on_established(&self) {
        let mut state = lock(&self.state);
        if state.phase == Phase::Connecting {
            state.phase = Phase::Notifying;
        }
    }

    /// Called when the connection has ended. Opens the gate, unless `Established` is still to be
    /// delivered, which precedes all completions even then.
    pub(super) fn on_finished(
        &self,
        push: impl FnOnce(&mut Vec<Completion>, &mut Vec<Completion>),
    ) {
        self.open_from(Phase::Connecting, push);
    }

    /// Called when the `Established` upcall has returned: opens the gate. `push` receives the
    /// stored completions, send completions first.
    pub(super) fn on_notified(
        &self,
        push: impl FnOnce(&mut Vec<Completion>, &mut Vec<Completion>),
    ) {
        self.open_from(Phase::Notifying, push);
    }

    /// Pushes under the lock, so that no later completion overtakes the stored ones.
    fn open_from(
        &self,
        phase: Phase,
        push: impl FnOnce(&mut Vec<Completion>, &mut Vec<Completion>),
    ) {
        let mut state = lock(&self.state);
        if state.phase != phase {
            return;
        }
        let State { send, recv, .. } = &mut *state;
        push(&mut std::mem::take(send), &mut std::mem::take(recv));
        state.phase = Phase::Open;
        self.is_open.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Event = fn(&CompletionGate, &mut Vec<u64>);

    fn push(pushed: &mut Vec<u64>) -> impl FnOnce(&mut Vec<Completion>, &mut Vec<Completion>) {
        |send, recv| pushed.extend(send.iter().chain(recv.iter()).map(|done| done.wr_id))
    }

    fn completion(wr_id: u64) -> Completion {
        Completion {
            wr_id,
            ..Completion::EMPTY
        }
    }

    #[test]
    fn every_event_in_every_phase() {
        use Phase::{Connecting, Notifying, Open};
        let connected: Event = |gate, _| gate.on_connected();
        let established: Event = |gate, _| gate.on_established();
        let finished: Event = |gate, pushed| gate.on_finished(push(pushed));
        let notified: Event = |gate, pushed| gate.on_notified(push(pushed));
        let phases: [(Phase, &[Event]); 3] = [
            (Open, &[]),
            (Connecting, &[connected]),
            (Notifying, &[connected, established]),
        ];
        let table = [
            (connected, [Connecting; 3]),
            (established, [Open, Notifying, Notifying]),
            (finished, [Open, Open, Notifying]),
            (notified, [Open, Connecting, Open]),
        ];
        for (event, results) in table {
            for ((before, events), after) in phases.into_iter().zip(results) {
                let gate = CompletionGate::default();
                let mut pushed = Vec::new();
                events.iter().for_each(|event| event(&gate, &mut pushed));
                assert_eq!(lock(&gate.state).phase, before);
                let (mut send, mut recv) = (vec![completion(1)], vec![completion(2)]);
                assert_eq!(gate.hold(&mut send, &mut recv), before != Open);
                event(&gate, &mut pushed);
                assert_eq!(lock(&gate.state).phase, after, "{before:?}");
                let has_opened = before != Open && after == Open;
                let expected: &[u64] = if has_opened { &[1, 2] } else { &[] };
                assert_eq!(pushed, expected, "{before:?} to {after:?}");
                assert_eq!(gate.is_open.load(Ordering::Acquire), after == Open);
            }
        }
    }
}
