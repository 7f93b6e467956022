//! Endpoints, their dispatchers, and the events that dispatchers deliver.
//!
//! The types of this file refer to each other: an endpoint holds its dispatchers, a dispatcher
//! stores skipped events and refers weakly to the objects that it notifies, an event may contain a
//! request, and a request holds the endpoint that was reserved for it.
//!
//! | File | Contents |
//! |---|---|
//! | `ep` | calls of an endpoint |
//! | `evd` | calls of a dispatcher, and waits for a particular event |
//! | `cr` | answers to a request |
//! | `decode` | translation of `DAT_EVENT` |
//! | `reservation` | an endpoint that a service point has reserved |
//! | `bindings` | the regions to which a memory window may be bound |

mod bindings;
mod cr;
mod decode;
mod ep;
mod evd;
mod reservation;

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, Weak};

pub(crate) use self::bindings::Bindings;
pub use self::cr::AnswerError;
use self::ep::{Attempts, Reserved};
pub use self::ep::{
    Close, CompletionFlags, ConnectError, ConnectFailure, EpAttr, EpEvds, EpInfo, EpState,
    EpStatus, SocketRefused,
};
pub use self::evd::EvdFlags;
pub(crate) use self::reservation::Reservation;
use crate::cno::Cno;
use crate::event::{AsyncError, BindCompletion, ConnectionEvent, DtoCompletion};
use crate::handle::{Handle, SpId};
use crate::ia::Ia;
use crate::posted_regions::PostedRegions;
use crate::pz::Pz;
use crate::socket::PassedSocket;
use crate::srq::Srq;

/// An event dispatcher. Clones share the dispatcher; endpoints and service points hold clones.
/// Dropping the last clone frees the dispatcher.
#[derive(Clone)]
pub struct Evd {
    pub(crate) inner: Arc<EvdInner>,
}

pub(crate) struct EvdInner {
    handle: Handle,
    ia: Ia,
    /// False for the dispatcher that the IA created, which is freed together with the IA.
    is_owned: bool,
    cno: Mutex<Option<Cno>>,
    /// The objects that are notified of their events when these are decoded, by handle.
    routes: Mutex<HashMap<usize, Route>>,
    /// Events that were skipped by a wait for a particular event, oldest first.
    skipped: Mutex<VecDeque<Event>>,
    /// Number of events in `skipped`, so that the usual case costs one load.
    skipped_len: AtomicUsize,
}

/// An event that was read from a dispatcher.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// A Send, Receive, RDMA Read or RDMA Write has completed.
    Dto(DtoCompletion),
    /// A bind of a memory window has completed.
    Bind(BindCompletion),
    /// A peer requests a connection. Dropping the request unanswered rejects it.
    ConnectionRequest(Cr),
    /// The state of a connection has changed.
    Connection(ConnectionEvent),
    /// The socket of a Socket Service Point is no longer connected, or the bytes received over it
    /// were not a request for RDMA (DAT 2.0 iWARP extensions 3.1.1).
    /// [`Ssp::free`](crate::Ssp::free) returns the socket.
    SocketDown(SpId),
    /// An error or a warning that is not related to posted work.
    Async(AsyncError),
    /// A number posted with [`Evd::post_software`].
    Software(usize),
    /// An event of an extension, or an event that this crate does not define.
    Other {
        /// The event number.
        number: u32,
        /// The extension data.
        data: [u64; 8],
    },
}

/// A peer's request for a connection. Dropping an unanswered request rejects it.
pub struct Cr {
    /// Null after the request has been answered.
    handle: Handle,
    ia: Ia,
    sp: SpId,
    conn_qual: u64,
    is_truncated: bool,
    remote: Option<SocketAddr>,
    private_data: Vec<u8>,
    /// The endpoint that the service point reserved.
    ep: Option<Ep>,
    /// The reserved endpoint while the request is queued in its dispatcher. The reference is weak,
    /// because the endpoint may hold the dispatcher.
    skipped_ep: Weak<EpInner>,
    /// The consumer's socket over which the request was received.
    socket: Option<PassedSocket>,
}

/// One end of a connection. Clones share the endpoint; dropping the last clone ends the connection
/// and frees the endpoint.
///
/// Posted regions stay alive until the endpoint is freed.
#[derive(Clone)]
pub struct Ep {
    pub(crate) inner: Arc<EpInner>,
}

pub(crate) struct EpInner {
    pub(crate) handle: Handle,
    pub(crate) pz: Pz,
    recv: Evd,
    request: Evd,
    connect: Evd,
    srq: Option<Srq>,
    pub(crate) posted_regions: PostedRegions,
    attempts: Mutex<Attempts>,
    reserved: Mutex<Option<Reserved>>,
}

/// The objects that are notified of an event, by the handle in the event.
pub(crate) enum Route {
    /// An endpoint whose connection events are delivered here.
    Ep(Weak<EpInner>),
    /// The service point that reserved an endpoint, and whose request is delivered here.
    Reservation(Weak<Reservation>),
    /// The bindings of a window whose bind completions are delivered here.
    Bindings(Weak<Mutex<Bindings>>),
    /// The objects of a queued request whose service point was freed before the request was read.
    Orphan {
        /// The socket over which the request was received, which belongs to the request.
        socket: Option<PassedSocket>,
        /// The endpoint of the request. The reference is weak, because the endpoint may hold this
        /// dispatcher.
        ep: Weak<EpInner>,
    },
}
