//! Connecting, accepting and ending, and the RNIC's events for them.
//!
//! Every start has three steps: change the state under the lock, call the RNIC without the lock,
//! and undo the change if the RNIC refuses. The RNIC may report an event before its call returns.

use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

use dat_abi::*;

use super::private_data::PrivateData;
use super::state::{CrId, Creator, DisconnectStep, Ending, State};
use super::{Ep, Inner, QueuePair};
use crate::addr::{port_of, with_port};
use crate::consumer_socket::{ConsumerSocket, inherit};
use crate::error::{DatError, DatResult};
use crate::rnic::{AcceptParams, ConnectParams, ConnectionEvent, Rnic, RnicError};

/// Arguments of `dat_ep_connect`.
#[derive(Debug, Clone, Copy)]
pub struct ConnectArgs<'a> {
    /// Address of the peer's IA; its port is ignored.
    pub remote: SocketAddr,
    /// Service on that IA.
    pub conn_qual: u64,
    /// Timeout of the whole attempt in microseconds; `DAT_TIMEOUT_INFINITE` for no limit.
    pub timeout_us: DatTimeout,
    /// Private data for the peer's consumer.
    pub private_data: &'a [u8],
    /// Quality of service.
    pub qos: DatQos,
    /// `DAT_CONNECT_FLAGS`.
    pub flags: DatConnectFlags,
}

/// Numbers of the arguments that a connect call may reject, counted from 1.
#[derive(Debug, Clone, Copy)]
struct ArgumentNumbers {
    timeout: u32,
    private_data: u32,
}

/// The numbers of calls that have no connection qualifier.
const WITHOUT_QUALIFIER: ArgumentNumbers = ArgumentNumbers {
    timeout: 3,
    private_data: 4,
};

/// Arguments of `dat_iw_socket_connect`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SocketConnectArgs<'a> {
    pub(crate) socket: RawFd,
    pub(crate) timeout_us: DatTimeout,
    pub(crate) private_data: &'a [u8],
}

/// Data of the connection request that an accept needs.
#[derive(Debug)]
pub(crate) struct Acceptance {
    pub(crate) cr: CrId,
    /// True if the endpoint belongs to the request, false if the consumer passed another endpoint.
    pub(crate) own: bool,
    pub(crate) remote: SocketAddr,
    pub(crate) socket: Option<ConsumerSocket>,
}

impl<R: Rnic> Ep<R> {
    /// Implements `dat_ep_connect`.
    pub fn connect(&self, args: &ConnectArgs<'_>) -> DatResult {
        self.connect_as(
            args,
            ArgumentNumbers {
                timeout: 4,
                private_data: 5,
            },
        )
    }

    /// Common part of all calls that connect by address.
    fn connect_as(&self, args: &ConnectArgs<'_>, numbers: ArgumentNumbers) -> DatResult {
        if self.lock().parts.connect_evd.is_none() {
            return Err(DatError::invalid_handle(DAT_INVALID_HANDLE_EVD_CONN));
        }
        if args.timeout_us == 0 {
            return Err(DatError::invalid_arg(numbers.timeout));
        }
        self.check_private_data(args.private_data, numbers.private_data)?;
        let queue_pair = self.begin(|inner| {
            if inner.parts.pz.is_none() {
                return Err(NOT_READY);
            }
            // The state machine changes last, because no later step may fail.
            inner.check_unconnected()?;
            if args.qos != DAT_QOS_BEST_EFFORT || args.flags != DAT_CONNECT_DEFAULT_FLAG {
                return Err(DatError::of(DAT_MODEL_NOT_SUPPORTED));
            }
            self.ensure_queue_pair(inner)?;
            self.start_active(inner, args.remote, args.conn_qual)
        })?;
        let params = ConnectParams {
            remote: with_port(args.remote, port_of(args.conn_qual)),
            timeout: timeout(args.timeout_us),
            private_data: args.private_data,
        };
        tracing::debug!(ep = ?self.handle, remote = %params.remote, "connect");
        match self.ia.rnic().connect(&queue_pair.qp, &params) {
            Ok(()) => {
                self.count_connect();
                self.after_start(queue_pair);
                Ok(())
            }
            Err(error) if is_unreachable(&error) => {
                self.change_and_post(|inner| inner.machine.on_ended(Ending::Unreachable));
                Ok(())
            }
            Err(error) => {
                self.after_refusal();
                Err(error.into())
            }
        }
    }

    /// Implements `dat_ep_dup_connect`: connects to the service to which `dup` is connected.
    pub fn dup_connect(
        &self,
        dup: &Self,
        timeout_us: DatTimeout,
        private_data: &[u8],
        qos: DatQos,
    ) -> DatResult {
        if timeout_us == 0 {
            return Err(DatError::invalid_arg(3));
        }
        if !Arc::ptr_eq(&self.ia, &dup.ia) {
            return Err(DatError::invalid_handle(DAT_INVALID_HANDLE_EP));
        }
        let (remote, conn_qual) = {
            let dup = dup.lock();
            match (dup.machine.state(), dup.remote_address) {
                (State::Connected, Some(remote)) => (remote, dup.remote_port),
                (state, _) => return Err(super::WrongState(state).into()),
            }
        };
        let args = ConnectArgs {
            remote,
            conn_qual,
            timeout_us,
            private_data,
            qos,
            flags: DAT_CONNECT_DEFAULT_FLAG,
        };
        self.connect_as(&args, WITHOUT_QUALIFIER)
    }

    /// Implements `dat_ep_common_connect`: connects to an address with its port, on which a common
    /// service point or any other iWARP stack listens.
    pub fn common_connect(
        &self,
        remote: SocketAddr,
        timeout_us: DatTimeout,
        private_data: &[u8],
    ) -> DatResult {
        if remote.port() == 0 {
            return Err(DatError::new(
                DAT_INVALID_ADDRESS,
                DAT_INVALID_ADDRESS_MALFORMED,
            ));
        }
        let args = ConnectArgs {
            remote,
            conn_qual: u64::from(remote.port()),
            timeout_us,
            private_data,
            qos: DAT_QOS_BEST_EFFORT,
            flags: DAT_CONNECT_DEFAULT_FLAG,
        };
        self.connect_as(&args, WITHOUT_QUALIFIER)
    }

    /// Implements `dat_iw_socket_connect` (DAT 2.0 iWARP extensions 3.1.4).
    pub(crate) fn socket_connect(&self, args: &SocketConnectArgs<'_>) -> DatResult {
        // "If timeout=0 is specified the DAT_INVALID_PARAMETER is returned"
        if args.timeout_us == 0 {
            return Err(DatError::invalid_arg(3));
        }
        self.check_private_data(args.private_data, 4)?;
        let inherited = inherit::from_socket(args.socket);
        let queue_pair = self.begin(|inner| {
            inner.check_unconnected()?;
            // "If the local Endpoint does not have a Protection Zone defined or one of its EVDs is
            // not defined then the operation fails with DAT_INVALID_STATE return."
            if !inner.parts.are_complete() || self.queue_pair.get().is_none() {
                return Err(NOT_READY);
            }
            self.start_over_socket(inner, args.socket, inherited.as_ref())
        })?;
        let params = ConnectParams {
            remote: inherited
                .as_ref()
                .map_or(UNSPECIFIED, |inherited| inherited.remote),
            timeout: timeout(args.timeout_us),
            private_data: args.private_data,
        };
        tracing::debug!(ep = ?self.handle, socket = args.socket, "connect over a socket");
        match self
            .ia
            .rnic()
            .connect_socket(&queue_pair.qp, args.socket, &params)
        {
            Ok(()) => {
                self.count_connect();
                self.after_start(queue_pair);
                Ok(())
            }
            Err(fault) => {
                self.after_refusal();
                Err(fault.into())
            }
        }
    }

    fn count_connect(&self) {
        self.counters.bump(DCNT_EP_CONNECT);
        self.ia.counters().bump(DCNT_IA_CM_REQ_TX);
    }

    /// Binds the endpoint to a connection request that is being accepted, and takes over the socket
    /// of the request. `Ok` contains the creator of the endpoint; the caller then calls the RNIC
    /// with [`accept_on`](Self::accept_on).
    pub(crate) fn begin_accept(&self, acceptance: &mut Acceptance) -> DatResult<Creator> {
        self.begin(|inner| {
            if inner.parts.pz.is_none() || inner.parts.connect_evd.is_none() {
                return Err(DatError::invalid_handle(DAT_INVALID_HANDLE_EP));
            }
            self.ensure_queue_pair(inner)?;
            let entered = if acceptance.own {
                inner.machine.on_accept_own(acceptance.cr)
            } else {
                inner.machine.on_accept_chosen().map(|()| Creator::Consumer)
            };
            // OFA's providers omit the class bit and the subtype here.
            let creator = entered.map_err(|_| DatError::bare(DAT_INVALID_STATE, DAT_NO_SUBTYPE))?;
            self.replace_private_data(inner, PrivateData::EMPTY);
            inner.socket = acceptance.socket.take();
            if let Some(socket) = &mut inner.socket {
                socket.on_accepted();
            }
            inner.remote_port = u64::from(acceptance.remote.port());
            inner.remote_address = Some(acceptance.remote);
            self.remote.set(acceptance.remote);
            Ok(creator)
        })
    }

    /// Asks the RNIC to accept on this endpoint; called after [`begin_accept`](Self::begin_accept).
    pub(crate) fn accept_on(&self, request: R::ConnReq, private_data: &[u8]) -> DatResult {
        let queue_pair = self.queue_pair.get().ok_or(NOT_READY)?;
        match self
            .ia
            .rnic()
            .accept(request, &queue_pair.qp, &AcceptParams { private_data })
        {
            Ok(()) => {
                self.after_start(queue_pair);
                Ok(())
            }
            Err(error) => {
                self.after_refusal();
                Err(error.into())
            }
        }
    }

    /// Implements `dat_ep_disconnect`.
    pub fn disconnect(&self, flags: DatCloseFlags) -> DatResult {
        let graceful = match flags {
            DAT_CLOSE_ABRUPT_FLAG => false,
            DAT_CLOSE_GRACEFUL_FLAG => true,
            _ => return Err(DatError::invalid_arg(2)),
        };
        let step = self.begin(|inner| {
            inner
                .machine
                .on_disconnect(graceful)
                .map_err(|wrong| wrong.map_or(DatError::invalid_arg(2), DatError::from))
        })?;
        let Some(queue_pair) = self.queue_pair.get() else {
            return Ok(());
        };
        if step != DisconnectStep::AlreadyOver {
            self.counters.bump(DCNT_EP_DISCONNECT);
            self.ia.counters().bump(DCNT_IA_CM_DREQ_TX);
        }
        match step {
            DisconnectStep::AlreadyOver => {}
            DisconnectStep::Graceful => self.ia.rnic().disconnect(&queue_pair.qp, false),
            DisconnectStep::Abrupt => {
                self.ia.rnic().disconnect(&queue_pair.qp, true);
                self.change_and_post(|inner| {
                    let event = inner.machine.on_abrupt_done();
                    // Otherwise the RNIC's report has released the socket, and the endpoint may
                    // connect over another one already.
                    if event.is_some() {
                        inner.end_socket();
                    }
                    event
                });
            }
        }
        Ok(())
    }

    /// Implements `dat_ep_reset`. Receives posted on an unconnected endpoint stay posted.
    pub fn reset(&self) -> DatResult {
        self.begin(|inner| {
            if !inner.machine.on_reset()? {
                return Ok(());
            }
            let queue_pair = self.queue_pair.get().ok_or(NOT_READY)?;
            if let Err(error) = self.ia.rnic().reset_qp(&queue_pair.qp) {
                inner.machine.on_reset_failed();
                return Err(error.into());
            }
            // Private data is kept, because an unread event may point at it.
            self.forget_addresses(inner);
            Ok(())
        })
    }

    /// Handles a connection event of the RNIC.
    pub(crate) fn on_connection(&self, event: &ConnectionEvent) {
        match event {
            ConnectionEvent::Established {
                local,
                remote,
                private_data,
            } => {
                self.on_established(*local, *remote, private_data);
            }
            ConnectionEvent::PeerRejected { private_data } => {
                self.on_ended(Ending::PeerRejected, private_data);
            }
            ConnectionEvent::NonPeerRejected => self.on_ended(Ending::NonPeerRejected, &[]),
            ConnectionEvent::Unreachable => self.on_ended(Ending::Unreachable, &[]),
            ConnectionEvent::TimedOut => self.on_ended(Ending::TimedOut, &[]),
            ConnectionEvent::AcceptFailed => self.on_ended(Ending::AcceptFailed, &[]),
            ConnectionEvent::Disconnected => self.on_ended(Ending::Disconnected, &[]),
            ConnectionEvent::Broken => self.on_ended(Ending::Broken, &[]),
        }
    }

    fn on_established(&self, local: SocketAddr, remote: SocketAddr, private_data: &[u8]) {
        self.change_and_post(|inner| {
            let is_active = inner.machine.state() == State::Active;
            let event = inner.machine.on_established()?;
            self.count_established(is_active);
            tracing::info!(ep = ?self.handle, %local, %remote, "connected");
            self.replace_private_data(inner, PrivateData::new(private_data));
            inner.local_port = u64::from(local.port());
            inner.remote_address = Some(remote);
            self.local.set(local);
            self.remote.set(remote);
            if let Some(socket) = &mut inner.socket {
                socket.on_established();
            }
            Some(event)
        });
    }

    fn on_ended(&self, ending: Ending, private_data: &[u8]) {
        self.change_and_post(|inner| {
            let is_requested = inner.machine.state() == State::DisconnectPending;
            let event = inner.machine.on_ended(ending)?;
            self.count_ending(ending, is_requested);
            let text = match ending {
                Ending::NonPeerRejected => "connection refused: no service answers there",
                _ => "connection over",
            };
            tracing::info!(ep = ?self.handle, ?ending, "{text}");
            if ending == Ending::PeerRejected {
                self.replace_private_data(inner, PrivateData::new(private_data));
            }
            inner.end_socket();
            Some(event)
        });
    }

    fn count_established(&self, is_active: bool) {
        let counters = self.ia.counters();
        if is_active {
            counters.bump(DCNT_IA_CM_REP_RX);
            counters.bump(DCNT_IA_CM_ACTIVE_EST);
        } else {
            counters.bump(DCNT_IA_CM_PASSIVE_EST);
        }
    }

    /// Counts the end of a connection or attempt. `is_requested` is true if the consumer of this
    /// end requested it.
    fn count_ending(&self, ending: Ending, is_requested: bool) {
        let counters = self.ia.counters();
        let error = match ending {
            Ending::Disconnected if is_requested => return,
            Ending::Disconnected => return counters.bump(DCNT_IA_CM_DREQ_RX),
            Ending::PeerRejected => return counters.bump(DCNT_IA_CM_USER_REJ_RX),
            Ending::NonPeerRejected => Some(DCNT_IA_CM_ERR_REFUSED),
            Ending::TimedOut => Some(DCNT_IA_CM_ERR_TIMEOUT),
            Ending::Broken => Some(DCNT_IA_CM_ERR_RESET),
            Ending::Unreachable | Ending::AcceptFailed => None,
        };
        counters.bump(DCNT_IA_CM_ERR);
        if let Some(index) = error {
            counters.bump(index);
        }
    }

    fn start_active(
        &self,
        inner: &mut Inner<R>,
        remote: SocketAddr,
        conn_qual: u64,
    ) -> DatResult<&QueuePair<R>> {
        let queue_pair = self.queue_pair.get().ok_or(NOT_READY)?;
        inner.machine.on_connect()?;
        self.replace_private_data(inner, PrivateData::EMPTY);
        inner.remote_port = conn_qual;
        inner.remote_address = Some(remote);
        self.remote.set(with_port(remote, 0));
        Ok(queue_pair)
    }

    /// Starts to connect over a socket. From the specification of `dat_iw_socket_connect`: "If the
    /// Endpoint Communicator is DAT_COMM_DEFAULT then the Endpoint inherits socket's domain, type
    /// and protocol parameters. Analogously, the Endpoint inherits socket's addressing information
    /// including IP Address, and port."
    fn start_over_socket(
        &self,
        inner: &mut Inner<R>,
        id: RawFd,
        inherited: Option<&inherit::Inherited>,
    ) -> DatResult<&QueuePair<R>> {
        let is_default = inner.comm == DatComm::zeroed();
        if inherited.is_some_and(|inherited| !is_default && inherited.comm != inner.comm) {
            return Err(DatError::invalid_arg(2));
        }
        let remote = inherited.map_or(UNSPECIFIED, |inherited| inherited.remote);
        let queue_pair = self.start_active(inner, remote, u64::from(remote.port()))?;
        let mut socket = ConsumerSocket::new(id);
        socket.on_connecting();
        inner.socket = Some(socket);
        if let Some(inherited) = inherited {
            inner.inherited_comm = Some(inherited.comm);
            inner.local_port = u64::from(inherited.local.port());
            self.local.set(inherited.local);
            self.remote.set(inherited.remote);
        }
        Ok(queue_pair)
    }

    /// Called when the RNIC has accepted a start. A disconnect or a free before that found no
    /// connection to end, so this method ends the connection.
    fn after_start(&self, queue_pair: &QueuePair<R>) {
        let is_due = {
            let inner = self.lock();
            inner.abandoned || inner.machine.disconnect_is_due()
        };
        if is_due {
            self.ia.rnic().disconnect(&queue_pair.qp, true);
        }
    }

    /// Called when the RNIC has refused a start.
    fn after_refusal(&self) {
        self.change_and_post(|inner| {
            let event = inner.machine.on_start_refused();
            inner.end_socket();
            self.forget_addresses(inner);
            event
        });
    }

    fn forget_addresses(&self, inner: &mut Inner<R>) {
        inner.inherited_comm = None;
        inner.local_port = 0;
        inner.remote_port = 0;
        inner.remote_address = None;
        self.local.set(self.ia.attr().address);
        self.remote.clear();
    }

    fn check_private_data(&self, private_data: &[u8], argument: u32) -> DatResult {
        check_private_data(private_data, self.ia.attr().private_data_len_max, argument)
    }
}

impl<R: Rnic> Inner<R> {
    fn check_unconnected(&self) -> DatResult {
        match self.machine.state() {
            State::Unconnected => Ok(()),
            other => Err(super::WrongState(other).into()),
        }
    }
}

/// Refuses private data that the RNIC cannot carry.
pub(crate) fn check_private_data(private_data: &[u8], limit: u32, argument: u32) -> DatResult {
    if u32::try_from(private_data.len()).is_ok_and(|len| len <= limit) {
        Ok(())
    } else {
        Err(DatError::invalid_arg(argument))
    }
}

pub(super) const NOT_READY: DatError = DatError::invalid_state(DAT_INVALID_STATE_EP_NOTREADY);

const UNSPECIFIED: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0);

fn timeout(timeout_us: DatTimeout) -> Option<Duration> {
    (timeout_us != DAT_TIMEOUT_INFINITE).then(|| Duration::from_micros(u64::from(timeout_us)))
}

/// Returns true for an error that OFA's providers report by an event after a successful call.
/// Consumers expect the event.
fn is_unreachable(error: &RnicError) -> bool {
    let RnicError::Os(error) = error else {
        return false;
    };
    matches!(
        error.kind(),
        io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable
    )
}
