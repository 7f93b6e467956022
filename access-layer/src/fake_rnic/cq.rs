//! The completion queue of the fake RNIC.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use super::{FakeRnic, lock};
use crate::rnic::{AsyncEvent, Completion, CqToken, Notify, Upcall, WcStatus};

/// A completion queue.
#[derive(Debug)]
pub struct FakeCq(Arc<CqInner>);

pub(super) struct CqInner {
    token: CqToken,
    upcall: Arc<dyn Upcall<FakeRnic>>,
    state: Mutex<CqState>,
}

opaque_debug!(CqInner { token });

#[derive(Debug)]
struct CqState {
    queue: VecDeque<Completion>,
    depth: usize,
    armed: Option<Arm>,
}

#[derive(Debug, Clone, Copy)]
struct Arm {
    solicited_only: bool,
}

impl FakeCq {
    pub(super) fn new(depth: u32, token: CqToken, upcall: Arc<dyn Upcall<FakeRnic>>) -> Self {
        let state = CqState {
            queue: VecDeque::new(),
            depth: depth as usize,
            armed: None,
        };
        Self(Arc::new(CqInner {
            token,
            upcall,
            state: Mutex::new(state),
        }))
    }

    pub(super) fn share(&self) -> Arc<CqInner> {
        self.0.clone()
    }

    pub(super) fn resize(&self, depth: u32) {
        lock(&self.0.state).depth = depth as usize;
    }

    pub(super) fn poll(&self, out: &mut [Completion]) -> usize {
        let queue = &mut lock(&self.0.state).queue;
        let count = queue.len().min(out.len());
        for (place, completion) in out.iter_mut().zip(queue.drain(..count)) {
            *place = completion;
        }
        count
    }

    pub(super) fn arm(&self, solicited_only: bool) -> bool {
        let mut state = lock(&self.0.state);
        state.armed = Some(Arm { solicited_only });
        !state.queue.is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        lock(&self.0.state).queue.is_empty()
    }
}

impl CqInner {
    /// Adds a completion. Makes an upcall if the queue is armed for it, or full.
    pub(super) fn push(&self, completion: Completion) {
        let mut state = lock(&self.state);
        if state.queue.len() >= state.depth {
            drop(state);
            self.upcall.async_event(AsyncEvent::CqOverflow(self.token));
            return;
        }
        state.queue.push_back(completion);
        let is_ready = state.armed.is_some_and(|arm| arm.is_due(&completion));
        if is_ready {
            state.armed = None;
        }
        drop(state);
        if is_ready {
            self.upcall.cq_ready(self.token);
        }
    }
}

impl Arm {
    fn is_due(self, completion: &Completion) -> bool {
        if completion.status != WcStatus::Success {
            return true;
        }
        match completion.notify {
            Notify::Solicited => true,
            Notify::Always => !self.solicited_only,
            Notify::Never => false,
        }
    }
}
