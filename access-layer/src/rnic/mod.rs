//! The RNIC-PI: what the access layer asks of an RNIC, in verbs words.
//!
//! Calls go down through [`Rnic`], news comes up through [`Upcall`], nothing else crosses. The DAT
//! objects of this crate are written once against these two traits; a provider crate is an
//! implementation of [`Rnic`] and a line that exports it.
//!
//! # The contract
//!
//! * **Ownership.** An object handed out by a `create_*` call lives until it is dropped; dropping
//!   is destroying. An object keeps alive whatever it needs (a `Qp` its `Pd` and its `Cq`s), so the
//!   order in which the access layer drops them cannot hurt.
//! * **Tokens.** The access layer names its own objects to the RNIC by opaque tokens. A token may
//!   outlive its object: the access layer checks it when it comes back, so a late upcall is
//!   harmless.
//! * **No lock across the border.** The access layer holds none of its locks while it calls a
//!   method marked *may call up*; the RNIC holds none of its locks while it calls [`Upcall`]. An
//!   upcall may call down again.
//! * **Completions rest in the CQ** until [`Rnic::poll_cq`] takes them; [`Upcall::cq_ready`] is a
//!   nudge without data and comes only after [`Rnic::arm_cq`].
//! * **Progress.** [`Rnic::descriptors`], [`Rnic::arm`] and [`Rnic::drive`] are all that a layer
//!   above needs to poll or to block: polling is *drive* in a loop, blocking is *arm*, sleep,
//!   *drive*. What no consumer drives the RNIC's own thread serves.
//! * **Exactly one ending.** Each accepted `connect`, `connect_socket` or `accept` ends in exactly
//!   one of the failures of [`ConnectionEvent`], or in `Established` followed by exactly one
//!   `Disconnected` or `Broken`. Every posted work request ends in exactly one completion (unless
//!   it was suppressed and succeeded), and those of a connection that ends are in their CQs before
//!   its ending is told.

mod adaptive_spin;
mod attr;
mod blocking;
mod cm;
mod cq;
mod error;
mod memory;
mod qp;
mod traffic;
mod upcall;
mod upcall_queue;
mod waker;

pub use attr::{NamedAttr, RnicAttr, RnicConfig};
pub use cm::{
    AcceptParams, ConnectParams, ConnectionEvent, ListenAddress, RequestInfo, SocketFault,
};
pub use cq::{Completion, CqToken, Notify, WcOpcode, WcStatus};
pub use error::{Resource, RnicError};
pub use memory::{Access, BindMw, MrKeys, RegisterMr};
pub use qp::{QpAttr, QpToken, RecvWr, RemoteRange, SendOp, SendWr, Sge};
pub use traffic::{Amount, Flow, Traffic, WhyTcp};
pub use upcall::{AsyncEvent, ListenToken, SrqToken, Upcall};
pub use upcall_queue::UpcallQueue;
pub use waker::{Slept, Waker};

use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

/// The answer of [`Rnic::arm`]: the descriptors on which a thread may sleep, if any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arm {
    /// There is work already: drive instead.
    LookAgain,
    /// On the RNIC's descriptors and its waker.
    Sleep,
    /// On its waker alone: another thread serves the descriptors, and a completion in an armed CQ
    /// becomes an upcall.
    Attended,
}

/// An RDMA network interface controller, in software or in hardware.
///
/// Methods take `&self` and are called from any thread at any time.
pub trait Rnic: Send + Sync + Sized + 'static {
    /// Protection domain.
    type Pd: Send + Sync + 'static;
    /// Completion queue.
    type Cq: Send + Sync + 'static;
    /// Shared receive queue. An RNIC without them uses [`std::convert::Infallible`].
    type Srq: Send + Sync + 'static;
    /// Reliable connected queue pair.
    type Qp: Send + Sync + 'static;
    /// Memory region.
    type Mr: Send + Sync + 'static;
    /// Memory window. An RNIC without them uses [`std::convert::Infallible`].
    type Mw: Send + Sync + 'static;
    /// A listening service; dropping it stops listening. Requests it already told stay valid.
    type Listener: Send + Sync + 'static;
    /// A consumer's socket armed for one connection request (Socket Service Point).
    type ArmedSocket: Send + Sync + 'static;
    /// A connection request that waits for `accept` or `reject`. Dropping it refuses the peer the
    /// way a service that does not exist would.
    type ConnReq: Send + Sync + 'static;

    /// Opens the interface that `config` names.
    ///
    /// Fails fast and without side effect when the device or address does not exist.
    fn open(config: &RnicConfig, upcall: Arc<dyn Upcall<Self>>) -> Result<Self, RnicError>;

    /// Identity, address and limits; constant while the RNIC is open.
    fn attr(&self) -> &RnicAttr;

    /// Ends all background work of this RNIC and returns when it has ended: no upcall comes after
    /// it.
    ///
    /// Called once, when the access layer has dropped every object. The drop of the RNIC follows.
    fn shutdown(&self);

    /// Creates a protection domain.
    fn create_pd(&self) -> Result<Self::Pd, RnicError>;

    /// Creates a completion queue for at least `depth` completions.
    fn create_cq(&self, depth: u32, token: CqToken) -> Result<Self::Cq, RnicError>;

    /// Changes the depth of a completion queue; completions in it stay, in order.
    fn resize_cq(&self, cq: &Self::Cq, depth: u32) -> Result<(), RnicError>;

    /// Takes up to `out.len()` completions in order and returns how many. Never blocks, never calls
    /// up.
    fn poll_cq(&self, cq: &Self::Cq, out: &mut [Completion]) -> usize;

    /// Returns false if `cq` is certainly empty. Costs no system call.
    fn may_have_completions(&self, _cq: &Self::Cq) -> bool {
        true
    }

    /// Returns true if one of `cqs`, which are armed, may have completions that no upcall has
    /// announced. Asked before a sleep and instead of one. *May call up.*
    fn has_unannounced(&self, cqs: &[&Self::Cq]) -> bool {
        cqs.iter().any(|cq| self.may_have_completions(cq))
    }

    /// Makes progress on every connection that may have work, on the calling thread, without
    /// blocking. *May call up.*
    ///
    /// An RNIC whose device works by itself has nothing to do here.
    fn drive(&self) {}

    /// Appends the descriptors that become readable when [`Self::drive`] has work. They are open,
    /// and the same, as long as the RNIC is open.
    fn descriptors(&self, _fds: &mut Vec<RawFd>) {}

    /// Prepares a sleep of the calling thread, whose CQs are armed ([`Self::arm_cq`]), on `waker`.
    /// *May call up.* Unless the answer is [`Arm::LookAgain`], [`Self::end_sleep`] follows.
    fn arm(&self, _waker: &Arc<Waker>) -> Arm {
        Arm::Attended
    }

    /// Ends the sleep on `waker`, before the thread drives. `is_ready`: one of the RNIC's
    /// descriptors was ready. *May call up.*
    fn end_sleep(&self, _waker: &Arc<Waker>, _is_ready: bool) {}

    /// Asks for one [`Upcall::cq_ready`] at the next completion that deserves it ([`Notify`]).
    ///
    /// With `solicited_only`, only solicited and failed completions deserve it. Returns `true` when
    /// completions are in the queue already, which call nobody: then the caller looks again instead
    /// of sleeping. The queue is armed in either case.
    fn arm_cq(&self, cq: &Self::Cq, solicited_only: bool) -> bool;

    /// Blocks until one of `cqs`, which are armed, may have completions, `waker` was woken or
    /// `timeout` has passed (`None`: no limit), and makes progress meanwhile. *May call up.*
    ///
    /// The call may return early for no reason; the caller then polls its queues and calls again. A
    /// wake-up before the call is not lost: the call returns at once. Returns `true` if a signal
    /// handler of the program ran on the calling thread and ended the wait.
    fn wait(&self, cqs: &[&Self::Cq], waker: &Arc<Waker>, timeout: Option<Duration>) -> bool {
        blocking::wait(self, cqs, waker, timeout)
    }

    /// Creates a queue pair in the idle state.
    fn create_qp(
        &self,
        pd: &Self::Pd,
        send_cq: Option<&Self::Cq>,
        recv_cq: Option<&Self::Cq>,
        srq: Option<&Self::Srq>,
        attr: &QpAttr,
        token: QpToken,
    ) -> Result<Self::Qp, RnicError>;

    /// Returns a disconnected queue pair to the idle state; receives posted while idle stay posted.
    fn reset_qp(&self, qp: &Self::Qp) -> Result<(), RnicError>;

    /// Posts one send-queue work request, on an idle queue writing from the calling thread. *May
    /// call up.*
    ///
    /// On a disconnected queue pair it completes flushed.
    fn post_send(&self, qp: &Self::Qp, wr: &SendWr<'_>) -> Result<(), RnicError>;

    /// Posts one receive, in any state; on a disconnected queue pair it completes flushed.
    fn post_recv(&self, qp: &Self::Qp, wr: &RecvWr<'_>) -> Result<(), RnicError>;

    /// Returns the number of receives that are posted and not consumed, and the number of
    /// send-queue requests that have not completed.
    fn pending(&self, qp: &Self::Qp) -> (u32, u32);

    /// Returns how the payload of the connections of a queue pair travelled, those before a reset
    /// included; `None` for an RNIC that has one way only. *May call up.*
    fn traffic(&self, _qp: &Self::Qp) -> Option<Traffic> {
        None
    }

    /// Registers memory. A device pins it; an RNIC in software need not even touch it.
    fn register_mr(&self, pd: &Self::Pd, request: &RegisterMr) -> Result<Self::Mr, RnicError>;

    /// The keys of a region. After the drop of `mr` returns no byte of it is read or written any
    /// more.
    fn mr_keys(&self, mr: &Self::Mr) -> MrKeys;

    /// Listens for connection requests. Port 0 lets the RNIC choose; the port is returned.
    fn listen(
        &self,
        address: &ListenAddress,
        token: ListenToken,
    ) -> Result<(Self::Listener, u16), RnicError>;

    /// Starts connecting. The outcome comes through [`Upcall::connection`].
    fn connect(&self, qp: &Self::Qp, params: &ConnectParams<'_>) -> Result<(), RnicError>;

    /// Starts connecting over a stream socket that the consumer has connected
    /// (DAT 2.0 iWARP extensions 3.1.4). `params.remote` is ignored.
    ///
    /// When `Ok` is returned the socket belongs to the queue pair; when the outcome is a failure it
    /// is the consumer's again before the upcall tells so, with every byte that is not part of the
    /// MPA reply unread. When `Err` is returned it was never taken.
    fn connect_socket(
        &self,
        _qp: &Self::Qp,
        _socket: RawFd,
        _params: &ConnectParams<'_>,
    ) -> Result<(), SocketFault> {
        Err(SocketFault::NotSupported)
    }

    /// The service side of a consumer's socket (DAT 2.0 iWARP extensions 3.1.1): arms the reception
    /// of an MPA request and then sends `final_message` whole.
    ///
    /// When `Ok` is returned the socket belongs to the result; when `Err`, it was never taken. Ends
    /// in at most one [`Upcall::connection_request`] or one [`Upcall::socket_down`] for `token`,
    /// never both.
    fn arm_socket(
        &self,
        _socket: RawFd,
        _final_message: &[u8],
        _token: ListenToken,
    ) -> Result<Self::ArmedSocket, SocketFault> {
        Err(SocketFault::NotSupported)
    }

    /// Gives the socket of an armed service back to its consumer, unread bytes included.
    ///
    /// `false` when it had left the service already (request told, or down). After the return no
    /// upcall for its token starts.
    fn disarm_socket(&self, _armed: Self::ArmedSocket) -> bool {
        false
    }

    /// Accepts a request on an idle queue pair. The outcome comes through [`Upcall::connection`].
    fn accept(
        &self,
        request: Self::ConnReq,
        qp: &Self::Qp,
        params: &AcceptParams<'_>,
    ) -> Result<(), RnicError>;

    /// Rejects a request as its consumer's decision. The socket of an SSP goes back to the
    /// consumer.
    fn reject(&self, request: Self::ConnReq, private_data: &[u8]) -> Result<(), RnicError>;

    /// Ends the connection of `qp`, or the attempt to make one. *May call up.*
    ///
    /// Abrupt: when it returns, everything posted has completed (flushed where unfinished), and no
    /// news of the connection is still to come: the next call may begin another one.
    /// Graceful: posted requests finish first, receives are flushed, and the call returns at once.
    /// On a queue pair that is neither connecting nor connected nothing happens.
    fn disconnect(&self, qp: &Self::Qp, abrupt: bool);

    /// Creates a memory window.
    fn create_mw(&self, _pd: &Self::Pd) -> Result<Self::Mw, RnicError> {
        Err(RnicError::NotSupported("memory windows"))
    }

    /// Binds (or with length 0 unbinds) a memory window as a send-queue work request and returns
    /// the key that it has once the bind has completed.
    fn bind_mw(
        &self,
        _qp: &Self::Qp,
        _mw: &Self::Mw,
        _bind: &BindMw<'_, Self>,
    ) -> Result<u32, RnicError> {
        Err(RnicError::NotSupported("memory windows"))
    }

    /// Creates a shared receive queue for `depth` receives of up to `max_sge` segments.
    fn create_srq(
        &self,
        _pd: &Self::Pd,
        _depth: u32,
        _max_sge: u32,
        _token: SrqToken,
    ) -> Result<Self::Srq, RnicError> {
        Err(RnicError::NotSupported("shared receive queues"))
    }

    /// Posts one receive to a shared receive queue.
    fn post_srq_recv(&self, _srq: &Self::Srq, _wr: &RecvWr<'_>) -> Result<(), RnicError> {
        Err(RnicError::NotSupported("shared receive queues"))
    }

    /// Changes how many receives a shared receive queue takes; those in it stay.
    fn resize_srq(&self, _srq: &Self::Srq, _depth: u32) -> Result<(), RnicError> {
        Err(RnicError::NotSupported("resizing a shared receive queue"))
    }

    /// Asks for one [`AsyncEvent::SrqLimit`] when fewer than `limit` receives are left in a shared
    /// receive queue; 0 takes the wish back.
    fn arm_srq(&self, _srq: &Self::Srq, _limit: u32) -> Result<(), RnicError> {
        Err(RnicError::NotSupported("limits of shared receive queues"))
    }

    /// Returns the number of receives left in a shared receive queue; `None` if the RNIC does not
    /// count them.
    fn srq_available(&self, _srq: &Self::Srq) -> Option<u32> {
        None
    }

    /// Watches how many receives a queue pair holds that it took from its shared receive queue and
    /// has not completed. More than `soft`: one [`AsyncEvent::RecvWatermark`]. More than `hard`:
    /// the connection breaks. `None` does not watch.
    fn set_recv_watermarks(
        &self,
        _qp: &Self::Qp,
        _soft: Option<u32>,
        _hard: Option<u32>,
    ) -> Result<(), RnicError> {
        Err(RnicError::NotSupported("watermarks of receives"))
    }
}
