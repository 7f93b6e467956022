//! Queue pairs: states, posted receives, ends of connections.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use super::cq::CqInner;
use super::{Node, lock};
use crate::rnic::{
    AsyncEvent, Completion, ConnectionEvent, Notify, QpAttr, QpToken, RecvWr, Resource, RnicError,
    Sge, WcOpcode, WcStatus,
};

/// A queue pair.
#[derive(Debug)]
pub struct FakeQp(pub(super) Arc<QpInner>);

/// A shared receive queue.
#[derive(Debug, Clone)]
pub struct FakeSrq(Arc<SrqInner>);

#[derive(Debug)]
pub(super) struct SrqInner {
    depth: AtomicUsize,
    receives: Mutex<VecDeque<Receive>>,
}

#[derive(Debug)]
pub(super) struct QpInner {
    pub(super) node: Arc<Node>,
    pub(super) pd: u64,
    pub(super) token: QpToken,
    pub(super) attr: QpAttr,
    send_cq: Option<Arc<CqInner>>,
    recv_cq: Option<Arc<CqInner>>,
    srq: Option<FakeSrq>,
    state: Mutex<QpState>,
    /// Held while a work request is executed, so that work requests are executed in order.
    pub(super) sending: Mutex<()>,
}

#[derive(Debug)]
struct QpState {
    phase: Phase,
    receives: VecDeque<Receive>,
    /// The number of receives that have completed, and whose completions were not taken.
    untaken: usize,
}

#[derive(Debug)]
enum Phase {
    Idle,
    /// The number distinguishes the attempts.
    Connecting(u64),
    Connected(Weak<QpInner>),
    Ended,
}

#[derive(Debug)]
pub(super) struct Receive {
    pub(super) wr_id: u64,
    pub(super) sgl: Vec<Sge>,
    signalled: bool,
}

/// Destination of a request.
#[derive(Debug)]
pub(super) enum Reach {
    Peer(Arc<QpInner>),
    /// The request completes as flushed.
    Ended,
    /// The request is refused.
    NotYet,
}

impl FakeSrq {
    pub(super) fn new(_pd: u64, depth: u32) -> Self {
        let receives = Mutex::default();
        Self(Arc::new(SrqInner {
            depth: AtomicUsize::new(depth as usize),
            receives,
        }))
    }

    pub(super) fn post(&self, wr: &RecvWr<'_>) -> Result<(), RnicError> {
        let mut receives = lock(&self.0.receives);
        if receives.len() >= self.0.depth.load(Ordering::Relaxed) {
            return Err(RnicError::NoResources(Resource::WorkRequest));
        }
        receives.push_back(Receive::new(wr));
        Ok(())
    }

    pub(super) fn resize(&self, depth: u32) {
        self.0.depth.store(depth as usize, Ordering::Relaxed);
    }

    pub(super) fn available(&self) -> usize {
        lock(&self.0.receives).len()
    }
}

impl Receive {
    fn new(wr: &RecvWr<'_>) -> Self {
        Self {
            wr_id: wr.wr_id,
            sgl: wr.sgl.to_vec(),
            signalled: wr.signalled,
        }
    }
}

impl FakeQp {
    pub(super) fn new(
        node: Arc<Node>,
        pd: u64,
        send_cq: Option<Arc<CqInner>>,
        recv_cq: Option<Arc<CqInner>>,
        srq: Option<&FakeSrq>,
        attr: QpAttr,
        token: QpToken,
    ) -> Self {
        let state = QpState {
            phase: Phase::Idle,
            receives: VecDeque::new(),
            untaken: 0,
        };
        Self(Arc::new(QpInner {
            node,
            pd,
            token,
            attr,
            send_cq,
            recv_cq,
            srq: srq.cloned(),
            state: Mutex::new(state),
            sending: Mutex::new(()),
        }))
    }

    pub(super) fn reset(&self) -> Result<(), RnicError> {
        let mut state = lock(&self.0.state);
        match state.phase {
            Phase::Idle | Phase::Ended => {
                state.phase = Phase::Idle;
                Ok(())
            }
            _ => Err(RnicError::InvalidState("the queue pair is in use")),
        }
    }

    pub(super) fn post_recv(&self, wr: &RecvWr<'_>) -> Result<(), RnicError> {
        let mut state = lock(&self.0.state);
        if matches!(state.phase, Phase::Ended) {
            drop(state);
            self.0.flush([Receive::new(wr)]);
            return Ok(());
        }
        if state.receives.len() + state.untaken >= self.0.attr.recv_wr_max as usize {
            return Err(RnicError::NoResources(Resource::WorkRequest));
        }
        state.receives.push_back(Receive::new(wr));
        Ok(())
    }

    pub(super) fn on_taken(&self, completion: &Completion) {
        if completion.opcode.is_receive() {
            let mut state = lock(&self.0.state);
            state.untaken = state.untaken.saturating_sub(1);
        }
    }

    pub(super) fn receives_posted(&self) -> u32 {
        u32::try_from(lock(&self.0.state).receives.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn disconnect(&self) {
        self.0
            .end_both(ConnectionEvent::Disconnected, ConnectionEvent::Disconnected);
    }
}

impl Drop for FakeQp {
    fn drop(&mut self) {
        self.disconnect();
    }
}

impl QpInner {
    pub(super) fn reach(&self) -> Reach {
        match &lock(&self.state).phase {
            Phase::Connected(peer) => peer.upgrade().map_or(Reach::Ended, Reach::Peer),
            Phase::Ended => Reach::Ended,
            Phase::Idle | Phase::Connecting(_) => Reach::NotYet,
        }
    }

    /// Takes the next receive of a connected queue pair.
    pub(super) fn take_receive(&self) -> Option<Receive> {
        match &self.srq {
            Some(srq) => lock(&srq.0.receives).pop_front(),
            None => {
                let mut state = lock(&self.state);
                let receive = state.receives.pop_front();
                state.untaken += usize::from(receive.is_some());
                receive
            }
        }
    }

    /// Changes the phase from idle to connecting. Returns `false` if it is not idle.
    pub(super) fn begin_attempt(&self, attempt: u64) -> bool {
        self.advance(
            |phase| matches!(phase, Phase::Idle),
            Phase::Connecting(attempt),
        )
    }

    /// Returns true if this attempt has not ended.
    pub(super) fn is_attempting(&self, attempt: u64) -> bool {
        matches!(lock(&self.state).phase, Phase::Connecting(number) if number == attempt)
    }

    /// Changes the phase from this attempt to connected. Returns `false` in another phase.
    pub(super) fn finish_attempt(&self, attempt: u64, peer: &Arc<Self>) -> bool {
        let peer = Phase::Connected(Arc::downgrade(peer));
        self.advance(
            |phase| matches!(phase, Phase::Connecting(number) if *number == attempt),
            peer,
        )
    }

    /// Changes the phase from idle to connected, at the accepting end. Returns `false` if not idle.
    pub(super) fn join(&self, peer: &Arc<Self>) -> bool {
        let peer = Phase::Connected(Arc::downgrade(peer));
        self.advance(|phase| matches!(phase, Phase::Idle), peer)
    }

    fn advance(&self, from: impl Fn(&Phase) -> bool, to: Phase) -> bool {
        let mut state = lock(&self.state);
        let possible = from(&state.phase);
        if possible {
            state.phase = to;
        }
        possible
    }

    /// Called when this attempt has failed.
    pub(super) fn fail_attempt(
        self: &Arc<Self>,
        attempt: u64,
        report: impl FnOnce(&Self) + Send + 'static,
    ) {
        self.end(
            |phase| matches!(phase, Phase::Connecting(number) if *number == attempt),
            report,
        );
    }

    /// Ends a connection at both ends, or an attempt at this end.
    pub(super) fn end_both(self: &Arc<Self>, mine: ConnectionEvent, peers: ConnectionEvent) {
        let peer = match &lock(&self.state).phase {
            Phase::Connected(peer) => peer.upgrade(),
            _ => None,
        };
        self.end_one(mine);
        if let Some(peer) = peer {
            peer.end_one(peers);
        }
    }

    /// Ends the connection or the attempt at this end, if there is one.
    pub(super) fn end_one(self: &Arc<Self>, event: ConnectionEvent) {
        let is_active = |phase: &Phase| matches!(phase, Phase::Connecting(_) | Phase::Connected(_));
        self.end(is_active, move |qp| qp.report(&event));
    }

    /// Flushes first and makes the upcall afterwards.
    fn end(
        self: &Arc<Self>,
        from: impl Fn(&Phase) -> bool,
        report: impl FnOnce(&Self) + Send + 'static,
    ) {
        let receives = {
            let mut state = lock(&self.state);
            if !from(&state.phase) {
                return;
            }
            state.phase = Phase::Ended;
            std::mem::take(&mut state.receives)
        };
        self.flush(receives);
        let qp = self.clone();
        self.node.engine.run(move || {
            report(&qp);
            if qp.srq.is_some() {
                qp.node
                    .upcall
                    .async_event(AsyncEvent::LastWqeReached(qp.token));
            }
        });
    }

    /// Makes the upcall for an event of the connection. Called on the engine's thread.
    pub(super) fn report(&self, event: &ConnectionEvent) {
        self.node.upcall.connection(self.token, event);
    }

    fn flush(&self, receives: impl IntoIterator<Item = Receive>) {
        for receive in receives {
            self.complete_receive(&receive, WcOpcode::Recv, WcStatus::Flushed, 0, |_| {});
        }
    }

    pub(super) fn complete_receive(
        &self,
        receive: &Receive,
        opcode: WcOpcode,
        status: WcStatus,
        byte_len: u32,
        finish: impl FnOnce(&mut Completion),
    ) {
        let notify = if receive.signalled {
            Notify::Always
        } else {
            Notify::Never
        };
        let mut completion = Completion {
            wr_id: receive.wr_id,
            qp: self.token,
            opcode,
            status,
            byte_len,
            notify,
            ..Completion::EMPTY
        };
        finish(&mut completion);
        if let Some(cq) = &self.recv_cq {
            cq.push(completion);
        }
    }

    pub(super) fn complete_request(&self, completion: Completion) {
        if let Some(cq) = &self.send_cq {
            cq.push(completion);
        }
    }
}
