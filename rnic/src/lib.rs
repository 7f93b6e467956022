//! The RNIC-PI: the interface between an RDMA API and an RNIC, in verbs terms.
//!
//! Calls go down through [`Rnic`], events come up through [`Upcall`]. There is no other path. The
//! objects of an API are written once against these two traits, and an RNIC is an implementation of
//! [`Rnic`]. The *client* below is the crate that implements the API: `access-layer` for DAT,
//! `verbs-api` for verbs.
//!
//! | Module | Contents |
//! |---|---|
//! | `macros` | `Debug` of objects |
//! | `arbiter` | which thread serves the descriptor of an RNIC |
//! | `blocking` | [`Rnic::wait`], composed of the calls for progress |
//! | `attr` | configuration, identity and limits |
//! | `cm` `cq` `memory` `qp` | parameters and results of the calls |
//! | `upcall` `upcall_queue` | events, and their order |
//! | `traffic` | payload by transport |
//! | `waker` | waking a thread that sleeps in [`Rnic::wait`] |
//! | [`socket`] | sockets that a consumer passes to an RNIC, and their owner |
//! | [`net_device`] | network devices and addresses of this host |
//! | `error` | the reasons why a call was refused |
//!
//! # The contract
//!
//! * **Ownership.** An object returned by a `create_*` call lives until its drop, which destroys
//!   it. An object keeps alive all objects that it needs (a `Qp` its `Pd` and its `Cq`s), so the
//!   client may drop them in any order.
//! * **Tokens.** The client names its own objects to the RNIC by opaque tokens. A token may
//!   outlive its object. The client checks each token of an upcall, so a late upcall is
//!   harmless.
//! * **No lock across the interface.** The client holds none of its locks while it calls a
//!   method marked *may call up*. While the RNIC calls [`Upcall`], it holds no lock except one
//!   by which [`Rnic::disarm_socket`] waits for the end of the upcall. An upcall may call all other
//!   methods of the RNIC.
//! * **Completions stay in the CQ** until [`Rnic::poll_cq`] takes them.
//!   [`EventUpcall::cq_ready`] is a notification without data and follows only [`Rnic::arm_cq`].
//! * **Progress.** A layer above polls and blocks by [`Rnic::descriptor`], [`Rnic::arm`] and
//!   [`Rnic::drive`] alone: polling is *drive* in a loop, blocking is *arm*, sleep, *drive*. The
//!   RNIC's own thread serves the connections that no consumer drives.
//! * **Exactly one ending.** Each accepted `connect`, `connect_socket` or `accept` ends in exactly
//!   one of the failures of [`ConnectionEvent`], or in `Established` followed by exactly one
//!   `Disconnected` or `Broken`. Every posted work request ends in exactly one completion, unless
//!   it was suppressed and succeeded. All completions of a connection are in their CQs before the
//!   event that ends the connection is delivered.

#[macro_use]
mod macros;

mod arbiter;
mod attr;
mod blocking;
mod cm;
mod cq;
mod error;
mod memory;
pub mod net_device;
mod qp;
pub mod socket;
mod traffic;
mod upcall;
mod upcall_queue;
mod waker;

pub use arbiter::{Arbiter, Phase, Todo};
pub use attr::{NamedAttr, RnicAttr, RnicConfig};
pub use cm::{
    AcceptParams, ConnectParams, ConnectionEvent, ListenAddress, RequestInfo, SocketFault,
};
pub use cq::{Completion, CqToken, Notify, WcOpcode, WcStatus};
pub use error::{Resource, RnicError};
pub use memory::{Access, BindMw, MrKeys, RegisterMr};
pub use qp::{QpAttr, QpToken, ReceiveWaits, RecvWr, RemoteRange, SendOp, SendWr, Sge};
pub use traffic::{Amount, Flow, Traffic, WhyTcp};
pub use upcall::{AsyncEvent, EventUpcall, ListenToken, SrqToken, Upcall};
pub use upcall_queue::UpcallQueue;
pub use waker::{Slept, Waker};

use std::os::fd::{BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

/// The result of [`Rnic::arm`]: the descriptors on which a thread may sleep, if any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arm {
    /// Work is pending: the thread drives instead of sleeping.
    HasWork,
    /// The thread sleeps on the RNIC's descriptor and its waker.
    Sleep,
    /// The thread sleeps on its waker alone. Another thread serves the descriptor and makes an
    /// upcall for a completion in an armed CQ.
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
    /// Shared receive queue. An RNIC without this feature uses [`std::convert::Infallible`].
    type Srq: Send + Sync + 'static;
    /// Reliable connected queue pair.
    type Qp: Send + Sync + 'static;
    /// Memory region.
    type Mr: Send + Sync + 'static;
    /// Memory window. An RNIC without this feature uses [`std::convert::Infallible`].
    type Mw: Send + Sync + 'static;
    /// A listening service; the drop stops listening. Requests that were delivered stay valid.
    type Listener: Send + Sync + 'static;
    /// A consumer's socket armed for one connection request (Socket Service Point).
    type ArmedSocket: Send + Sync + 'static;
    /// A connection request that waits for `accept` or `reject`. The drop refuses the peer in the
    /// same way as a service that does not exist.
    type ConnReq: Send + Sync + 'static;

    /// Opens the interface that `config` names.
    ///
    /// Fails fast and without side effect when the device or address does not exist.
    fn open(config: &RnicConfig, upcall: Arc<dyn Upcall<Self>>) -> Result<Self, RnicError>;

    /// Identity, address and limits; constant while the RNIC is open.
    fn attr(&self) -> &RnicAttr;

    /// Ends all background work of this RNIC, and returns after its end. No upcall follows.
    ///
    /// Called once, when the client has dropped every object. The drop of the RNIC follows.
    fn shutdown(&self);

    /// Creates a protection domain.
    fn create_pd(&self) -> Result<Self::Pd, RnicError>;

    /// Creates a completion queue for at least `depth` completions.
    fn create_cq(&self, depth: u32, token: CqToken) -> Result<Self::Cq, RnicError>;

    /// Changes the depth of a completion queue. Queued completions are kept in order.
    fn resize_cq(&self, cq: &Self::Cq, depth: u32) -> Result<(), RnicError>;

    /// Takes up to `out.len()` completions in order and returns their number. Never blocks, never
    /// calls up.
    fn poll_cq(&self, cq: &Self::Cq, out: &mut [Completion]) -> usize;

    /// Returns false if `cq` is certainly empty. Costs no system call.
    fn may_have_completions(&self, _cq: &Self::Cq) -> bool {
        true
    }

    /// Returns true if one of `cqs`, which are armed, may have completions that no upcall has
    /// announced. Called before a sleep, and in place of a sleep. *May call up.*
    fn has_unannounced(&self, cqs: &[&Self::Cq]) -> bool {
        cqs.iter().any(|cq| self.may_have_completions(cq))
    }

    /// Makes progress on every connection that may have work, on the calling thread, without
    /// blocking. *May call up.*
    ///
    /// Does nothing if the device works without the host's processor.
    fn drive(&self) {}

    /// The descriptor that becomes readable when [`Self::drive`] has work; `None` for an RNIC whose
    /// [`Self::arm`] never returns [`Arm::Sleep`]. The descriptor does not change.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Prepares a sleep of the calling thread, whose CQs are armed ([`Self::arm_cq`]), on `waker`.
    /// *May call up.* Unless the result is [`Arm::HasWork`], [`Self::end_sleep`] follows.
    fn arm(&self, _waker: &Arc<Waker>) -> Arm {
        Arm::Attended
    }

    /// Ends the sleep on `waker`, before the thread drives. `is_ready` is true if the descriptor
    /// of the RNIC was ready. *May call up.*
    fn end_sleep(&self, _waker: &Arc<Waker>, _is_ready: bool) {}

    /// Requests one [`EventUpcall::cq_ready`] for the next completion that wakes a waiter
    /// ([`Notify`]).
    ///
    /// With `solicited_only`, only solicited and failed completions wake a waiter. Returns `true`
    /// if the queue has completions already. No upcall announces these, so the caller polls instead
    /// of sleeping. The queue is armed in either case.
    fn arm_cq(&self, cq: &Self::Cq, solicited_only: bool) -> bool;

    /// Blocks until one of `cqs`, which are armed, may have completions, `waker` is woken, or
    /// `timeout` expires (`None`: no limit). Makes progress meanwhile. *May call up.*
    ///
    /// The call may return spuriously; the caller then polls its queues and calls again. A wake-up
    /// before the call is not lost: the call returns at once. Returns `true` if a signal handler of
    /// the program ran on the calling thread and ended the wait.
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

    /// Ends an idle queue pair as if a connection had ended: receives are flushed, and so are later
    /// posts, until [`Self::reset_qp`]. No event follows. The call has no effect on a queue pair
    /// that is not idle. *May call up.*
    fn flush_idle(&self, _qp: &Self::Qp) -> Result<(), RnicError> {
        Err(RnicError::NotSupported("flushing an idle queue pair"))
    }

    /// Posts one send-queue work request. If the queue is idle, the calling thread sends. *May call
    /// up.*
    ///
    /// On a disconnected queue pair the request completes as flushed.
    fn post_send(&self, qp: &Self::Qp, wr: &SendWr<'_>) -> Result<(), RnicError>;

    /// Posts one receive, in any state; on a disconnected queue pair it completes as flushed.
    fn post_recv(&self, qp: &Self::Qp, wr: &RecvWr<'_>) -> Result<(), RnicError>;

    /// Limits the time for which messages wait for receives. Without this call they wait as long as
    /// the RNIC's own settings say.
    fn set_receive_waits(&self, _qp: &Self::Qp, _waits: ReceiveWaits) -> Result<(), RnicError> {
        Err(RnicError::NotSupported("limits of waits for receives"))
    }

    /// Sets the rights of the peer, which do not exceed those of the memory that it accesses.
    /// Without this call the peer has the rights that the memory grants.
    fn set_remote_access(&self, _qp: &Self::Qp, _granted: Access) -> Result<(), RnicError> {
        Err(RnicError::NotSupported(
            "rights of the peer of a queue pair",
        ))
    }

    /// Called when the consumer has taken a completion that [`Self::poll_cq`] returned, with the
    /// queue pair to which `completion` belongs. A request or receive that completes keeps its
    /// place in its queue until then, so that a consumer that takes no completions cannot post more
    /// than its completion queues hold. The caller serializes the calls for each completion queue.
    ///
    /// Does nothing if the RNIC frees the places when the completions are polled.
    fn on_taken(&self, _qp: &Self::Qp, _completion: &Completion) {}

    /// Returns the number of receives that are posted and not consumed, and the number of
    /// send-queue requests that have not completed.
    fn pending(&self, qp: &Self::Qp) -> (u32, u32);

    /// Returns the payload of a queue pair's connections by transport, including connections before
    /// a reset; `None` for an RNIC that has one transport only. *May call up.*
    fn traffic(&self, _qp: &Self::Qp) -> Option<Traffic> {
        None
    }

    /// Registers memory. A device pins the memory; an RNIC in software need not even touch it.
    fn register_mr(&self, pd: &Self::Pd, request: &RegisterMr) -> Result<Self::Mr, RnicError>;

    /// Registers other memory under the keys of a region, or changes its rights or its domain. Once
    /// the call has returned, no byte of the former memory is read or written. After a failure the
    /// region is as before.
    fn reregister_mr(
        &self,
        _mr: &Self::Mr,
        _pd: &Self::Pd,
        _request: &RegisterMr,
    ) -> Result<(), RnicError> {
        Err(RnicError::NotSupported("registering a region anew"))
    }

    /// The keys of a region. Once the drop of `mr` has returned, no byte of the region is read or
    /// written.
    fn mr_keys(&self, mr: &Self::Mr) -> MrKeys;

    /// Listens for connection requests. Port 0 lets the RNIC choose; the port is returned.
    fn listen(
        &self,
        address: &ListenAddress,
        token: ListenToken,
    ) -> Result<(Self::Listener, u16), RnicError>;

    /// Starts connecting. [`EventUpcall::connection`] delivers the outcome.
    fn connect(&self, qp: &Self::Qp, params: &ConnectParams<'_>) -> Result<(), RnicError>;

    /// Starts connecting over a stream socket that the consumer has connected
    /// (DAT 2.0 iWARP extensions 3.1.4). `params.remote` is ignored.
    ///
    /// After `Ok` the socket belongs to the queue pair. If the outcome is a failure, the consumer
    /// owns the socket again before the upcall that reports it, and all bytes after the MPA reply
    /// are unread. After `Err` the consumer has kept the socket.
    fn connect_socket(
        &self,
        qp: &Self::Qp,
        socket: RawFd,
        params: &ConnectParams<'_>,
    ) -> Result<(), SocketFault>;

    /// Implements the service side of a consumer's socket (DAT 2.0 iWARP extensions 3.1.1): arms
    /// the reception of an MPA request and then sends all of `final_message`.
    ///
    /// After `Ok` the socket belongs to the result; after `Err` the consumer has kept it. At most
    /// one [`Upcall::connection_request`] or one [`EventUpcall::socket_down`] for `token` follows,
    /// never both.
    fn arm_socket(
        &self,
        socket: RawFd,
        final_message: &[u8],
        token: ListenToken,
    ) -> Result<Self::ArmedSocket, SocketFault>;

    /// Returns the socket of an armed service to its consumer, unread bytes included.
    ///
    /// Returns `false` if the service no longer had the socket, because its request was delivered
    /// or it was down. After the return no upcall for the service's token starts.
    fn disarm_socket(&self, _armed: Self::ArmedSocket) -> bool {
        false
    }

    /// Accepts a request on an idle queue pair. [`EventUpcall::connection`] delivers the outcome.
    fn accept(
        &self,
        request: Self::ConnReq,
        qp: &Self::Qp,
        params: &AcceptParams<'_>,
    ) -> Result<(), RnicError>;

    /// Rejects a request, as the decision of the consumer. The socket of an SSP returns to the
    /// consumer.
    fn reject(&self, request: Self::ConnReq, private_data: &[u8]) -> Result<(), RnicError>;

    /// Hands a request to the service that another process of this host has at `port` of this
    /// RNIC's address. `private_data` replaces that of the request.
    ///
    /// After `Ok` the request belongs to that process, and the drop of `request` has no effect.
    /// After `Err` the request is unchanged. [`RnicError::InvalidArgument`] means that there is no
    /// such service.
    fn hand_off(
        &self,
        _request: &mut Self::ConnReq,
        _port: u16,
        _private_data: &[u8],
    ) -> Result<(), RnicError> {
        Err(RnicError::InvalidArgument("no such service"))
    }

    /// Ends the connection of `qp`, or the attempt to connect. *May call up.*
    ///
    /// Abrupt: on return every posted request has completed (flushed if unfinished), and all events
    /// of the connection have been delivered, so the next call may begin another connection.
    /// Graceful: posted requests finish first, receives are flushed, and the call returns at once.
    /// The call has no effect on a queue pair that is neither connecting nor connected.
    fn disconnect(&self, qp: &Self::Qp, abrupt: bool);

    /// Creates a memory window.
    fn create_mw(&self, _pd: &Self::Pd) -> Result<Self::Mw, RnicError> {
        Err(RnicError::NotSupported("memory windows"))
    }

    /// Returns a key for a memory window whose binds choose their key ([`BindMw::key`]).
    fn mw_key(&self, _mw: &Self::Mw) -> Result<u32, RnicError> {
        Err(RnicError::NotSupported("keys chosen by the client"))
    }

    /// Binds a memory window (unbinds with length 0) as a send-queue work request and returns the
    /// key that is valid once the bind has completed.
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

    /// Changes the depth of a shared receive queue. Posted receives are kept.
    fn resize_srq(&self, _srq: &Self::Srq, _depth: u32) -> Result<(), RnicError> {
        Err(RnicError::NotSupported("resizing a shared receive queue"))
    }

    /// Requests one [`AsyncEvent::SrqLimit`] when fewer than `limit` receives are left in a shared
    /// receive queue; 0 cancels the request.
    fn arm_srq(&self, _srq: &Self::Srq, _limit: u32) -> Result<(), RnicError> {
        Err(RnicError::NotSupported("limits of shared receive queues"))
    }

    /// Returns the number of receives left in a shared receive queue; `None` if the RNIC does not
    /// count them.
    fn srq_available(&self, _srq: &Self::Srq) -> Option<u32> {
        None
    }

    /// Watches the number of receives that a queue pair has taken from its shared receive queue and
    /// not completed. More than `soft`: one [`AsyncEvent::RecvWatermark`]. More than `hard`: the
    /// connection breaks. `None` disables the limit.
    fn set_recv_watermarks(
        &self,
        _qp: &Self::Qp,
        _soft: Option<u32>,
        _hard: Option<u32>,
    ) -> Result<(), RnicError> {
        Err(RnicError::NotSupported("watermarks of receives"))
    }
}
