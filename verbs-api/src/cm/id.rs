//! Identifiers, their connections and listeners.
//!
//! ```text
//!          bind            listen
//!   IDLE ────────> BOUND ──────────> LISTENING
//!     \             /
//!      '-- resolve_addr --> RESOLVED -- connect --> JOINED
//!                                                     ^
//!              a peer asks a listener: REQUESTED -- accept
//! ```
//!
//! `destroy` leads from every state to DESTROYED, in which no event is added.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, Weak};

use host::locks::{IgnorePoison as _, lock};
use host::threads::spawn_quiet;
use provider_iwarp_soft::SoftRequest;
use rnic::{ConnectionEvent, RequestInfo, Rnic as _};
use rustix::io::Errno;
use verbs_dl::types::*;

use crate::abi::Gid;
use crate::adapter::{self, Listening, Service};
use crate::events::EventQueue;
use crate::fault::{Fault, errno_of};
use crate::object::Object;
use crate::qp::{Observer, Qp};

use super::route;
use super::sidr::{self, Answer, Point, Question};

/// The reasons of rejects, in the terms of the InfiniBand specification, section 12.6.7.2: no
/// service, and the decision of the program.
const NO_SERVICE: libc::c_int = 8;
const BY_PROGRAM: libc::c_int = 28;

pub(super) type IdObject = Object<rdma_cm_id, Arc<Id>>;

/// An event channel.
pub(super) type Channel = EventQueue<Event>;

/// An event that the program has not received.
pub(super) struct Event {
    pub(super) kind: rdma_cm_event_type,
    pub(super) status: libc::c_int,
    pub(super) private_data: Vec<u8>,
    pub(super) id: Arc<Id>,
    /// The listener, if `id` is a connection request.
    pub(super) listener: Option<Arc<Id>>,
    /// The queue pair of a datagram service that has accepted.
    pub(super) peer: Option<DatagramPeer>,
}

/// The queue pair of a datagram service.
#[derive(Debug, Clone, Copy)]
pub(super) struct DatagramPeer {
    pub(super) gid: Gid,
    pub(super) number: u32,
    pub(super) key: u32,
}

rnic::opaque_debug!(Event { kind, status });

/// The events of an identifier that the program has received and not acknowledged.
#[derive(Debug, Default)]
pub(super) struct Unacknowledged {
    count: Mutex<u32>,
    acknowledged: Condvar,
}

impl Unacknowledged {
    pub(super) fn add(&self) {
        *lock(&self.count) += 1;
    }

    pub(super) fn remove(&self) {
        let mut count = lock(&self.count);
        *count = count.saturating_sub(1);
        self.acknowledged.notify_all();
    }

    /// Waits until the program has acknowledged all events.
    fn wait(&self) {
        let mut count = lock(&self.count);
        while *count > 0 {
            count = self.acknowledged.wait(count).ignore_poison();
        }
    }
}

/// An identifier.
pub(super) struct Id {
    /// The structure that the program uses, once it exists.
    object: AtomicPtr<rdma_cm_id>,
    /// The channel of its events. Migration changes it.
    channel: Mutex<Arc<Channel>>,
    /// True for an identifier without a channel of the program, whose calls wait for their events.
    pub(super) is_synchronous: AtomicBool,
    /// The queue pairs of a listener's requests, if the program wants them to be created.
    pub(super) endpoint: Mutex<Option<Endpoint>>,
    /// The timeout of the queue pair, if the program has set one.
    pub(super) timeout: AtomicU8,
    /// True if the program connects a queue pair of its own, and changes the states of it.
    pub(super) is_external: AtomicBool,
    /// True for an identifier of datagrams (`RDMA_PS_UDP`).
    pub(super) is_datagram: AtomicBool,
    state: Mutex<State>,
    pub(super) unacknowledged: Unacknowledged,
}

rnic::opaque_debug!(Id { state });

/// The attributes with which `rdma_get_request(3)` creates queue pairs.
pub(super) struct Endpoint {
    pub(super) pd: *mut ibv_pd,
    pub(super) init: ibv_qp_init_attr,
}

// SAFETY: the library passes the pointers to the functions that the program calls, and does not
// follow them elsewhere.
unsafe impl Send for Endpoint {}

/// The state of an identifier; see the module's documentation.
enum State {
    Idle,
    Bound(SocketAddr),
    Listening {
        _points: Vec<Listening>,
    },
    /// Listens for questions of datagram clients.
    Answering {
        _point: Point,
    },
    Resolved {
        remote: SocketAddr,
    },
    Requested(Box<Request>),
    /// A connection was started; its events are reported.
    Joined(Arc<Qp>),
    Destroyed,
}

rnic::opaque_debug!(State {});

/// A connection request, or the question of a datagram client.
enum Handle {
    Connection(SoftRequest),
    Question(Question),
}

/// A request, and the device that received it.
struct Request {
    handle: Handle,
    context: AtomicPtr<ibv_context>,
    local: SocketAddr,
    remote: SocketAddr,
}

/// One device's part of a listener.
struct ServicePoint {
    listener: Weak<Id>,
    context: AtomicPtr<ibv_context>,
    /// The most requests that the program has not received.
    backlog: usize,
}

impl Service for ServicePoint {
    fn on_request(&self, handle: SoftRequest, info: &RequestInfo<'_>) {
        let Some(listener) = self.listener.upgrade() else {
            return;
        };
        let request = Request {
            handle: Handle::Connection(handle),
            context: AtomicPtr::new(self.context.load(Ordering::Relaxed)),
            local: info.local,
            remote: info.remote,
        };
        listener.report_request(request, info.private_data.to_vec(), self.backlog);
    }
}

impl Object<rdma_cm_id, Arc<Id>> {
    /// Creates the program's structure of an identifier.
    pub(super) fn of(channel: *mut rdma_event_channel, id: Arc<Id>) -> *mut rdma_cm_id {
        // SAFETY: the structure has only integers and pointers.
        let mut c: rdma_cm_id = unsafe { std::mem::zeroed() };
        c.channel = channel;
        c.qp_type = match id.is_datagram.load(Ordering::Relaxed) {
            true => IBV_QPT_UD,
            false => IBV_QPT_RC,
        };
        let object = Self::create(c, id.clone());
        id.object.store(object, Ordering::Release);
        object
    }

    /// Creates the program's structure of a connection request.
    pub(super) fn of_request(
        channel: *mut rdma_event_channel,
        id: &Arc<Id>,
        listener: &Arc<Id>,
    ) -> *mut rdma_cm_id {
        let object = Self::of(channel, id.clone());
        // SAFETY: both structures are alive: the program has not received the new one, and the
        // destruction of a listener removes its events and waits for those that were received.
        let (c, listener) = unsafe { (&mut *object, &*listener.object()) };
        c.context = listener.context;
        c.ps = listener.ps;
        if let State::Requested(request) = &*lock(&id.state) {
            c.verbs = request.context.load(Ordering::Relaxed);
            c.pd = route::domain_of(c.verbs);
            c.port_num = 1;
            route::store(&mut c.route.addr, Some(request.local), Some(request.remote));
        }
        object
    }
}

impl Id {
    pub(super) fn idle(channel: Arc<Channel>) -> Arc<Self> {
        Self::new(channel, State::Idle)
    }

    fn new(channel: Arc<Channel>, state: State) -> Arc<Self> {
        Arc::new(Self {
            object: AtomicPtr::default(),
            channel: Mutex::new(channel),
            is_synchronous: AtomicBool::new(false),
            endpoint: Mutex::default(),
            timeout: AtomicU8::new(0),
            is_external: AtomicBool::new(false),
            is_datagram: AtomicBool::new(false),
            state: Mutex::new(state),
            unacknowledged: Unacknowledged::default(),
        })
    }

    pub(super) fn object(&self) -> *mut rdma_cm_id {
        self.object.load(Ordering::Acquire)
    }

    fn channel(&self) -> Arc<Channel> {
        lock(&self.channel).clone()
    }

    /// Reports the events of this identifier on another channel from now on, those included that
    /// the program has not received. Waits until it has acknowledged those that it received.
    pub(super) fn migrate(self: &Arc<Self>, to: &Arc<Channel>) {
        let mut channel = lock(&self.channel);
        let is_own = |id: &Arc<Self>| Arc::ptr_eq(id, self);
        let moved = channel
            .extract(|event| is_own(&event.id) || event.listener.as_ref().is_some_and(is_own));
        for event in moved {
            if !is_own(&event.id) {
                *lock(&event.id.channel) = to.clone();
            }
            to.push(event);
        }
        *channel = to.clone();
        drop(channel);
        self.unacknowledged.wait();
    }

    /// Adds the event of a request, unless the program has not received as many as the backlog. The
    /// drop of the request refuses it.
    fn report_request(self: &Arc<Self>, request: Request, private_data: Vec<u8>, backlog: usize) {
        let is_of_listener = |event: &Event| {
            let of = event.listener.as_ref();
            of.is_some_and(|of| Arc::ptr_eq(of, self))
        };
        let channel = self.channel();
        if channel.count(is_of_listener) >= backlog {
            return;
        }
        let id = Self::new(channel, State::Requested(Box::new(request)));
        let is_datagram = self.is_datagram.load(Ordering::Relaxed);
        id.is_datagram.store(is_datagram, Ordering::Relaxed);
        self.report(Event {
            kind: RDMA_CM_EVENT_CONNECT_REQUEST,
            status: 0,
            private_data,
            id,
            listener: Some(self.clone()),
            peer: None,
        });
    }

    /// Adds an event, unless the identifier is destroyed.
    fn report(&self, event: Event) {
        let state = lock(&self.state);
        if !matches!(*state, State::Destroyed) {
            lock(&self.channel).push(event);
        }
    }

    /// Adds an event about this identifier.
    pub(super) fn report_own(self: &Arc<Self>, kind: rdma_cm_event_type) {
        self.report(Event {
            kind,
            status: 0,
            private_data: Vec::new(),
            id: self.clone(),
            listener: None,
            peer: None,
        });
    }

    /// Reserves a local address. Returns the device that has it, if it is one device's.
    pub(super) fn bind(&self, local: SocketAddr) -> Result<Option<*mut ibv_context>, Fault> {
        let context = device_of(local.ip())?;
        let mut state = lock(&self.state);
        let State::Idle = *state else {
            return Err(Errno::INVAL);
        };
        *state = State::Bound(local);
        Ok(context)
    }

    /// Finds the device that leads to `remote`. Returns it and the local address.
    pub(super) fn resolve(
        &self,
        source: Option<SocketAddr>,
        remote: SocketAddr,
    ) -> Result<(*mut ibv_context, SocketAddr), Fault> {
        let mut state = lock(&self.state);
        let bound = match *state {
            State::Idle => None,
            State::Bound(local) => Some(local),
            _ => return Err(Errno::INVAL),
        };
        let named = source
            .or(bound)
            .filter(|local| !local.ip().is_unspecified());
        let local = named.map_or_else(|| route::source_of(remote), Ok)?;
        let context = device_of(local.ip())?.ok_or(Errno::NODEV)?;
        *state = State::Resolved { remote };
        Ok((context, local))
    }

    pub(super) fn is_resolved(&self) -> bool {
        matches!(*lock(&self.state), State::Resolved { .. })
    }

    pub(super) fn is_joined(&self) -> bool {
        matches!(*lock(&self.state), State::Joined(_))
    }

    /// Listens at the bound address. Returns the port.
    pub(super) fn listen(self: &Arc<Self>, backlog: usize) -> Result<u16, Fault> {
        let mut state = lock(&self.state);
        let State::Bound(local) = *state else {
            return Err(Errno::INVAL);
        };
        if self.is_datagram.load(Ordering::Relaxed) {
            let (point, port) = self.answer(local, backlog)?;
            *state = State::Answering { _point: point };
            return Ok(port);
        }
        let contexts = match device_of(local.ip())? {
            Some(context) => vec![context],
            None => route::contexts(None)?,
        };
        let mut port = local.port();
        let mut points = Vec::new();
        for context in contexts {
            let service = Arc::new(ServicePoint {
                listener: Arc::downgrade(self),
                context: AtomicPtr::new(context),
                backlog,
            });
            // SAFETY: the contexts of `route` are never closed.
            let (point, at) = unsafe { adapter::of(context) }.listen(port, service)?;
            port = at;
            points.push(point);
        }
        if points.is_empty() {
            return Err(Errno::NODEV);
        }
        *state = State::Listening { _points: points };
        Ok(port)
    }

    /// Listens for questions of datagram clients. Returns the port.
    fn answer(self: &Arc<Self>, local: SocketAddr, backlog: usize) -> Result<(Point, u16), Fault> {
        let listener = Arc::downgrade(self);
        Point::open(local, move |question: Question, private_data| {
            let local_ip = question.local.ip().to_canonical();
            if let Some(listener) = listener.upgrade()
                && let Ok(Some(context)) = device_of(local_ip)
            {
                let request = Request {
                    context: AtomicPtr::new(context),
                    local: SocketAddr::new(local_ip, question.local.port()),
                    remote: SocketAddr::new(
                        question.remote.ip().to_canonical(),
                        question.remote.port(),
                    ),
                    handle: Handle::Question(question),
                };
                listener.report_request(request, private_data, backlog);
            }
        })
    }

    /// Asks the datagram service at the address that was resolved for its queue pair. An event
    /// reports the answer.
    pub(super) fn ask(self: &Arc<Self>, data: &[u8]) -> Result<(), Fault> {
        let State::Resolved { remote } = *lock(&self.state) else {
            return Err(Errno::INVAL);
        };
        let (own, data) = (Arc::downgrade(self), data.to_vec());
        let ask = move || {
            let answer = sidr::ask(remote, &data);
            if let Some(id) = own.upgrade() {
                id.report_answer(remote, answer);
            }
        };
        let asked = spawn_quiet("verbs-question", ask);
        asked
            .map(drop)
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))
    }

    fn report_answer(self: &Arc<Self>, remote: SocketAddr, answer: std::io::Result<Answer>) {
        let (kind, status, peer, private_data) = match answer {
            Ok(Answer {
                accepted: Some((number, key)),
                private_data,
            }) => {
                let gid = Gid::of(remote.ip().to_canonical());
                let peer = Some(DatagramPeer { gid, number, key });
                (RDMA_CM_EVENT_ESTABLISHED, 0, peer, private_data)
            }
            Ok(answer) => {
                let status = -libc::ECONNREFUSED;
                let data = answer.private_data;
                (RDMA_CM_EVENT_UNREACHABLE, status, None, data)
            }
            Err(error) => {
                let status = -error.raw_os_error().unwrap_or(libc::ETIMEDOUT);
                (RDMA_CM_EVENT_UNREACHABLE, status, None, Vec::new())
            }
        };
        self.report(Event {
            kind,
            status,
            private_data,
            id: self.clone(),
            listener: None,
            peer,
        });
    }

    /// Names a queue pair to the datagram client that has asked.
    pub(super) fn name(&self, number: u32, key: u32, data: &[u8]) -> Result<(), Fault> {
        match self.take_request()?.handle {
            Handle::Question(question) => question.accept(number, key, data),
            Handle::Connection(_) => Err(Errno::INVAL),
        }
    }

    /// Connects to the address that was resolved.
    pub(super) fn connect(self: &Arc<Self>, qp: &Arc<Qp>, data: &[u8]) -> Result<(), Fault> {
        let State::Resolved { remote } = *lock(&self.state) else {
            return Err(Errno::INVAL);
        };
        self.join(qp);
        qp.connect_to(remote, data).inspect_err(|_| {
            *lock(&self.state) = State::Resolved { remote };
        })
    }

    /// Accepts the request of a peer.
    pub(super) fn accept(self: &Arc<Self>, qp: &Arc<Qp>, data: &[u8]) -> Result<(), Fault> {
        let Handle::Connection(request) = self.take_request()?.handle else {
            return Err(Errno::INVAL);
        };
        self.join(qp);
        qp.accept_from(request, data)
    }

    /// Rejects the request of a peer.
    pub(super) fn reject(&self, data: &[u8]) -> Result<(), Fault> {
        let request = self.take_request()?;
        let context = request.context.load(Ordering::Relaxed);
        let handle = match request.handle {
            Handle::Connection(handle) => handle,
            Handle::Question(question) => return question.reject(data),
        };
        // SAFETY: the contexts of `route` are never closed.
        let rejected = unsafe { adapter::of(context) }.rnic.reject(handle, data);
        rejected.map_err(|error| errno_of(&error))
    }

    /// Ends the connection.
    pub(super) fn disconnect(&self) -> Result<(), Fault> {
        let state = lock(&self.state);
        let State::Joined(qp) = &*state else {
            return Err(Errno::INVAL);
        };
        let qp = qp.clone();
        // Not held during the call, which makes an upcall that takes it.
        drop(state);
        qp.end();
        Ok(())
    }

    /// Ends everything before the destruction: no event is added, and those that the program has
    /// not received are removed.
    pub(super) fn destroy(self: &Arc<Self>) {
        let former = std::mem::replace(&mut *lock(&self.state), State::Destroyed);
        drop(former);
        let is_own = |id: &Arc<Self>| Arc::ptr_eq(id, self);
        self.channel()
            .remove(|event| is_own(&event.id) || event.listener.as_ref().is_some_and(is_own));
        self.unacknowledged.wait();
    }

    fn take_request(&self) -> Result<Request, Fault> {
        let mut state = lock(&self.state);
        match std::mem::replace(&mut *state, State::Idle) {
            State::Requested(request) => Ok(*request),
            other => {
                *state = other;
                Err(Errno::INVAL)
            }
        }
    }

    /// Receives the events of a queue pair from now on.
    fn join(self: &Arc<Self>, qp: &Arc<Qp>) {
        *lock(&self.state) = State::Joined(qp.clone());
        let timeout = self.timeout.load(Ordering::Relaxed);
        if timeout > 0 {
            qp.note_timeout(timeout);
        }
        let observer: Arc<dyn Observer> = Arc::new(Joined(Arc::downgrade(self)));
        qp.observe(observer);
    }
}

/// Passes the events of a connection to its identifier.
struct Joined(Weak<Id>);

impl Observer for Joined {
    fn on_connection(&self, event: &ConnectionEvent) {
        let Some(id) = self.0.upgrade() else {
            return;
        };
        let (kind, status, private_data) = match event {
            ConnectionEvent::Established { private_data, .. } => {
                // The program answers by `rdma_establish(3)`.
                let kind = match id.is_external.load(Ordering::Relaxed) {
                    true => RDMA_CM_EVENT_CONNECT_RESPONSE,
                    false => RDMA_CM_EVENT_ESTABLISHED,
                };
                (kind, 0, private_data.clone())
            }
            ConnectionEvent::PeerRejected { private_data } => {
                (RDMA_CM_EVENT_REJECTED, BY_PROGRAM, private_data.clone())
            }
            ConnectionEvent::NonPeerRejected => (RDMA_CM_EVENT_REJECTED, NO_SERVICE, Vec::new()),
            ConnectionEvent::Unreachable | ConnectionEvent::TimedOut => {
                (RDMA_CM_EVENT_UNREACHABLE, -libc::ETIMEDOUT, Vec::new())
            }
            ConnectionEvent::AcceptFailed => {
                (RDMA_CM_EVENT_CONNECT_ERROR, -libc::ECONNRESET, Vec::new())
            }
            ConnectionEvent::Disconnected | ConnectionEvent::Broken => {
                (RDMA_CM_EVENT_DISCONNECTED, 0, Vec::new())
            }
        };
        id.report(Event {
            kind,
            status,
            private_data,
            id: id.clone(),
            listener: None,
            peer: None,
        });
    }
}

/// Returns the device that has a local address; `None` for the address of all devices.
fn device_of(local: IpAddr) -> Result<Option<*mut ibv_context>, Fault> {
    if local.is_unspecified() {
        return Ok(None);
    }
    let contexts = route::contexts(Some(&route::holder(local)?))?;
    contexts.first().copied().map(Some).ok_or(Errno::NODEV)
}
