//! Connections by address and port, which `rdma_cm` manages.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use host::locks::lock;
use provider_iwarp_soft::SoftRequest;
use rnic::{AcceptParams, ConnectParams, Rnic as _, RnicError};
use rustix::io::Errno;
use verbs_dl::types::*;

use crate::fault::{Fault, errno_of};

use super::meeting::Meeting;
use super::{Observer, Qp};

impl Qp {
    /// Enters the state INIT, in which receives are posted. Requests by number are refused from now
    /// on.
    pub(crate) fn prepare(&self) -> ibv_qp_state {
        self.expect_address();
        self.is_prepared.store(true, Ordering::Relaxed);
        self.state.store(IBV_QPS_INIT, Ordering::Release);
        IBV_QPS_INIT
    }

    /// Refuses requests by number from now on, because the program connects the queue pair by
    /// address and changes its states itself.
    pub(super) fn expect_address(&self) {
        *lock(&self.meeting) = Meeting::Met;
    }

    /// Stores the timeout that the program has set for the connection.
    pub(crate) fn note_timeout(&self, timeout: u8) {
        lock(&self.attr).timeout = timeout;
    }

    /// Reports the events of the connection to `observer`.
    pub(crate) fn observe(&self, observer: Arc<dyn Observer>) {
        *lock(&self.observer) = Some(observer);
    }

    /// Connects to a service. An event reports the outcome.
    pub(crate) fn connect_to(&self, remote: SocketAddr, private_data: &[u8]) -> Result<(), Fault> {
        let params = ConnectParams {
            remote,
            timeout: None,
            private_data,
        };
        self.start(|| self.adapter.rnic.connect(&self.hw, &params))
    }

    /// Accepts the request of a peer. An event reports the outcome.
    pub(crate) fn accept_from(
        &self,
        request: SoftRequest,
        private_data: &[u8],
    ) -> Result<(), Fault> {
        let params = AcceptParams { private_data };
        self.start(|| self.adapter.rnic.accept(request, &self.hw, &params))
    }

    /// Enters the state RTS and starts a connection by `start`. The states of a queue pair that is
    /// not one of an identifier are the program's.
    fn start(&self, start: impl FnOnce() -> Result<(), RnicError>) -> Result<(), Fault> {
        if !self.is_prepared.load(Ordering::Relaxed) {
            self.expect_address();
            return start().map_err(|error| errno_of(&error));
        }
        let (from, to) = (IBV_QPS_INIT, IBV_QPS_RTS);
        let entered = self
            .state
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
        entered.map_err(|_| Errno::INVAL)?;
        start().map_err(|error| {
            self.state.store(from, Ordering::Release);
            errno_of(&error)
        })
    }
}
