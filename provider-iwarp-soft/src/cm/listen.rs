//! Services, and inbound connections until their request is complete.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dat_conf::limits::Resource as Limited;
use host::locks::IgnorePoison as _;
use iwarp_proto::mpa::Progress;
use rnic::{ListenToken, Resource, RnicError};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with, sockopt};

use super::request::{RequestFrame, deliver};
use crate::adapter::Shared;
use crate::engine::io::{self, Received};
use crate::engine::{Interest, Key, NotWatched, Source, deadline_after};
use crate::half_open::{HalfOpen, Room};
use crate::policing::Permit;
use crate::socket::Socket;
use crate::startup::{STARTUP_MAX, own_socket, pieces_pause, responder};
use rnic::socket::NotInherited;

/// Maximum number of connections that the kernel queues for the listener.
const BACKLOG: i32 = 1024;
/// The pause of a listener that found no descriptor for a connection, no permit, or whose socket
/// the engine cannot watch.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Maximum number of connections accepted in one pass.
const ACCEPTS_MAX: usize = 64;

/// A listening service.
pub(crate) struct Listener {
    pub(super) shared: Arc<Shared>,
    key: Key,
    socket: NotInherited,
    /// The address of the service.
    pub(super) address: SocketAddr,
    pub(super) token: ListenToken,
    is_open: AtomicBool,
    half_open: HalfOpen<Inbound>,
    _permit: Permit,
}

impl Listener {
    /// Listens on a port of the adapter's address, and returns the port.
    pub(crate) fn open(
        shared: &Arc<Shared>,
        port: u16,
        token: ListenToken,
    ) -> Result<(Arc<Self>, u16), RnicError> {
        let permit = shared.police.permit(Limited::Services)?;
        let address = shared.config.socket_address(port);
        let socket = own_socket(&shared.config, &address).map_err(listen_error)?;
        sockopt::set_socket_reuseaddr(&socket, true).map_err(listen_error)?;
        rustix::net::bind(&socket, &address).map_err(listen_error)?;
        rustix::net::listen(&socket, BACKLOG).map_err(listen_error)?;
        let port = io::local_address(&socket)
            .ok_or(RnicError::BadAddress("the socket has no address"))?
            .port();
        let listener = Arc::new(Self {
            shared: shared.clone(),
            key: shared.engine.new_key(),
            socket: NotInherited::new(socket),
            address: shared.config.socket_address(port),
            token,
            is_open: AtomicBool::new(true),
            half_open: HalfOpen::new(),
            _permit: permit,
        });
        shared.engine.enlist(listener.key, listener.clone())?;
        if let Err(error) =
            shared
                .engine
                .watch(listener.key, listener.socket.as_fd(), Interest::Readable)
        {
            shared.engine.delist(listener.key);
            return Err(error.into());
        }
        Ok((listener, port))
    }

    /// Stops listening. Connections that have not sent their request are dropped at their next
    /// event.
    pub(crate) fn close(&self) {
        self.is_open.store(false, Ordering::Release);
        self.shared.engine.unwatch(self.socket.as_fd());
        self.shared.engine.delist(self.key);
        // Peers are refused from now on, even while another reference to the listener exists.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }

    pub(super) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }

    fn accept_some(self: &Arc<Self>) {
        for _ in 0..ACCEPTS_MAX {
            let config = &self.shared.config;
            match (self.half_open).room(config.half_open_max, config.half_open_grace) {
                Room::Free => {}
                // No connection is waiting, so none has to be closed for it.
                _ if !io::is_readable(self.socket.as_fd()) => break,
                Room::InsteadOf(oldest) => oldest.evict(),
                Room::At(at) => return self.shared.engine.set_deadline(self.key, Some(at)),
            }
            let permit = match self.shared.police.permit(Limited::HalfOpen) {
                Ok(permit) => permit,
                Err(_) if !io::is_readable(self.socket.as_fd()) => break,
                Err(_) if self.evict_oldest() => continue,
                // Another service or process may end one of its connections.
                Err(_) => return self.pause(),
            };
            match accept_with(&self.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => Inbound::start(self, Socket::own(socket), permit),
                Err(Errno::CONNABORTED | Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(Errno::MFILE | Errno::NFILE) if self.evict_oldest() => {}
                Err(error) => {
                    // The connection stays in the backlog, so the socket stays readable.
                    tracing::warn!(%error, "accept failed");
                    return self.pause();
                }
            }
        }
        self.arm();
    }

    /// Accepts no connection for a while.
    fn pause(&self) {
        let again = Instant::now() + ACCEPT_PAUSE;
        self.shared.engine.set_deadline(self.key, Some(again));
    }

    /// Closes the oldest connection that has been silent for long, because a new one lacks a
    /// descriptor or a permit. Returns false if there is none.
    fn evict_oldest(&self) -> bool {
        match self.half_open.oldest(self.shared.config.half_open_grace) {
            Some(Room::InsteadOf(oldest)) => {
                oldest.evict();
                true
            }
            Some(Room::Free) => true,
            Some(Room::At(_)) | None => false,
        }
    }

    fn arm(&self) {
        let engine = &self.shared.engine;
        if self.is_open()
            && engine
                .rearm(self.key, self.socket.as_fd(), Interest::Readable)
                .is_err()
        {
            self.pause();
        }
    }
}

impl Source for Listener {
    fn on_ready(self: Arc<Self>, _key: Key, _readable: bool, _writable: bool) {
        self.accept_some();
    }

    fn on_deadline(self: Arc<Self>, _key: Key) {
        self.accept_some();
    }
}

/// The origin of an inbound connection.
enum Origin {
    /// A service.
    Listener(Arc<Listener>),
    /// A consumer's socket.
    Armed(ListenToken),
}

/// A connection that must send an MPA Request.
pub(crate) struct Inbound {
    shared: Arc<Shared>,
    origin: Origin,
    key: Key,
    state: Mutex<State>,
    /// Held from the removal of the socket until its event has been delivered.
    delivery: Mutex<()>,
}

struct State {
    /// `None` after the socket was passed on.
    socket: Option<Socket>,
    /// The time by which the Request must be complete.
    deadline: Option<Instant>,
    /// The number of times that an incomplete Request was checked.
    checks: u32,
    /// True until the final streaming message is sent. The stream is not checked before that.
    is_held: bool,
}

/// The result of a check of the front of the stream.
enum Peeked {
    /// Nothing yet, or an incomplete Request.
    Waiting { is_begun: bool },
    /// A complete Request, which was taken from the stream.
    Request(RequestFrame),
    /// Certainly not an MPA Request.
    Unusable,
}

impl Inbound {
    fn start(listener: &Arc<Listener>, socket: Socket, permit: Permit) {
        socket.hold(permit);
        let shared = &listener.shared;
        let deadline = deadline_after(shared.config.request_timeout);
        let origin = Origin::Listener(listener.clone());
        let Ok(inbound) = Self::open(shared, origin, socket, deadline, false) else {
            return;
        };
        listener.half_open.add(inbound.key, &inbound);
        // On a fast network the Request may have been received already.
        inbound.check();
    }

    /// Waits without a time limit for a Request on a consumer's socket. No event is delivered
    /// before [`release`](Self::release).
    pub(super) fn arm(
        shared: &Arc<Shared>,
        socket: Socket,
        token: ListenToken,
    ) -> Result<Arc<Self>, RnicError> {
        Self::open(shared, Origin::Armed(token), socket, None, true)
    }

    fn open(
        shared: &Arc<Shared>,
        origin: Origin,
        socket: Socket,
        deadline: Option<Instant>,
        is_held: bool,
    ) -> Result<Arc<Self>, RnicError> {
        let key = shared.engine.new_key();
        let state = Mutex::new(State {
            socket: Some(socket),
            deadline,
            checks: 0,
            is_held,
        });
        let inbound = Arc::new(Self {
            shared: shared.clone(),
            origin,
            key,
            state,
            delivery: Mutex::new(()),
        });
        let state = inbound.lock();
        shared.engine.enlist(key, inbound.clone())?;
        let watched = match &state.socket {
            Some(socket) => shared.engine.watch(key, socket.as_fd(), Interest::Readable),
            None => Ok(()),
        };
        shared.engine.set_deadline(key, deadline);
        drop(state);
        if let Err(error) = watched {
            shared.engine.delist(key);
            return Err(error.into());
        }
        Ok(inbound)
    }

    /// Called when the final streaming message has been sent. Data that the peer has sent meanwhile
    /// is checked from now on.
    pub(super) fn release(&self) {
        self.lock().is_held = false;
        // The engine's one-shot readiness may have been consumed.
        let now = Some(Instant::now());
        self.shared.engine.set_deadline(self.key, now);
    }

    /// Closes the connection in favour of another, unless its Request has been received but not yet
    /// checked.
    fn evict(&self) {
        self.check();
        if self.take().is_some() {
            tracing::debug!("too many connections without a request, one is closed");
        }
    }

    /// Takes the socket, if it was not passed on. Otherwise its event has been delivered on return,
    /// and no upcall starts any more.
    pub(super) fn take_or_wait(&self) -> Option<Socket> {
        let socket = self.take();
        if socket.is_none() {
            drop(self.delivery.lock());
        }
        socket
    }

    /// Takes the socket, if it was not passed on.
    pub(super) fn take(&self) -> Option<Socket> {
        let socket = self.lock().socket.take()?;
        self.deregister(&socket);
        Some(socket)
    }

    fn deregister(&self, socket: &Socket) {
        self.shared.engine.unwatch(socket.as_fd());
        self.shared.engine.delist(self.key);
        if let Origin::Listener(listener) = &self.origin
            && listener.half_open.remove(self.key)
        {
            let now = Some(Instant::now());
            self.shared.engine.set_deadline(listener.key, now);
        }
    }

    /// Checks the front of the stream, and delivers the event once the result is final.
    fn check(&self) {
        let mut state = self.lock();
        if state.is_held {
            return;
        }
        let Some(socket) = &state.socket else { return };
        let late = state
            .deadline
            .is_some_and(|deadline| Instant::now() >= deadline);
        let front = if late {
            Peeked::Unusable
        } else {
            self.front(socket)
        };
        let request = match front {
            Peeked::Waiting { is_begun } => return self.wait_on(&mut state, is_begun),
            Peeked::Request(frame) => Some(frame),
            Peeked::Unusable => None,
        };
        let Some(socket) = state.socket.take() else {
            return;
        };
        // No other thread takes this lock before the socket was taken, so the lock is free.
        let delivery = self.delivery.lock();
        self.deregister(&socket);
        drop(state);
        match (request, &self.origin) {
            (Some(frame), _) => self.deliver_request(socket, frame),
            (None, Origin::Listener(_)) => drop(socket),
            (None, Origin::Armed(token)) => {
                drop(socket);
                self.shared.upcall.socket_down(*token);
            }
        }
        drop(delivery);
    }

    fn front(&self, socket: &Socket) -> Peeked {
        let mut front = [0; STARTUP_MAX];
        let count = match io::peek(socket.as_fd(), &mut front) {
            Received::Bytes(count) => count,
            Received::WouldBlock => return Peeked::Waiting { is_begun: false },
            Received::Eof | Received::Failed(_) => return Peeked::Unusable,
        };
        match responder(&self.shared.config).handle_input(&front[..count]) {
            Progress::NeedMore(_) if !io::is_hung_up(socket.as_fd()) => {
                Peeked::Waiting { is_begun: true }
            }
            Progress::Frame {
                consumed,
                private_data,
                value,
            } => {
                let frame = RequestFrame::new(value, &front[..consumed], private_data);
                if io::discard(socket.as_fd(), consumed) {
                    Peeked::Request(frame)
                } else {
                    Peeked::Unusable
                }
            }
            Progress::NeedMore(_) | Progress::NotMpa | Progress::Malformed(_) => Peeked::Unusable,
        }
    }

    fn wait_on(&self, state: &mut State, is_begun: bool) {
        let engine = &self.shared.engine;
        if is_begun {
            // A Request that has begun must be complete in time, also on a consumer's socket.
            if state.deadline.is_none() {
                state.deadline = deadline_after(self.shared.config.request_timeout);
            }
            self.schedule_check(state);
        } else if let Some(socket) = &state.socket {
            match engine.rearm(self.key, socket.as_fd(), Interest::Readable) {
                Ok(()) => engine.set_deadline(self.key, state.deadline),
                Err(NotWatched) => self.schedule_check(state),
            }
        }
    }

    /// Schedules the next check, with a growing pause, for cases in which readiness gives no event.
    fn schedule_check(&self, state: &mut State) {
        let again = Instant::now() + pieces_pause(state.checks);
        state.checks = state.checks.saturating_add(1);
        let next = state.deadline.map_or(again, |deadline| deadline.min(again));
        self.shared.engine.set_deadline(self.key, Some(next));
    }

    fn deliver_request(&self, socket: Socket, frame: RequestFrame) {
        let token = match &self.origin {
            Origin::Listener(listener) if !listener.is_open() => return,
            Origin::Listener(listener) => listener.token,
            Origin::Armed(token) => *token,
        };
        let addresses = io::local_address(&socket).zip(io::remote_address(&socket));
        match (addresses, &self.origin) {
            (Some(addresses), _) => deliver(&self.shared, token, socket, frame, addresses),
            (None, Origin::Listener(_)) => {}
            (None, Origin::Armed(token)) => {
                drop(socket);
                self.shared.upcall.socket_down(*token);
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().ignore_poison()
    }
}

impl Source for Inbound {
    fn on_ready(self: Arc<Self>, _key: Key, _readable: bool, _writable: bool) {
        self.check();
    }

    fn on_deadline(self: Arc<Self>, _key: Key) {
        self.check();
    }
}

fn listen_error(error: Errno) -> RnicError {
    match error {
        Errno::ADDRINUSE => RnicError::AddressInUse,
        Errno::ACCESS | Errno::PERM => RnicError::NotPermitted("listening on this port"),
        Errno::ADDRNOTAVAIL => RnicError::BadAddress("the device has lost the adapter's address"),
        Errno::MFILE | Errno::NFILE => RnicError::NoResources(Resource::Descriptor),
        other => RnicError::Os(other.into()),
    }
}
