//! A socket: its states, the events of its connection, sleeping threads.
//!
//! ```text
//!   IDLE ── listen ──> LISTENING ── a request is accepted ──> another socket, CONNECTED
//!     \
//!      '── connect ──> CONNECTING ── established ──> CONNECTED
//!                           '──── refused ────> FAILED
//! ```
//!
//! Any number of threads may use a socket. A thread that makes progress takes events that others
//! sleep for, so it rings the bell of the socket, which stays readable until the last sleeper has
//! woken.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use host::locks::lock;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use verbs_dl::types::*;

use crate::cm;
use crate::fault::{self, Fault};

use super::options::Options;
use super::stream::Stream;
use super::wire::{Hello, Message};

/// The longest time for which the end of a connection waits for the last Writes.
const LINGER: Duration = Duration::from_secs(10);
/// The limit of `rdma_resolve_addr`, in milliseconds, which needs no time.
const RESOLVE_MS: libc::c_int = 2000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Idle,
    Listening,
    Connecting,
    Connected,
    Failed(Errno),
}

/// A connection request that the program has not accepted.
struct Request {
    id: *mut rdma_cm_id,
    hello: Option<Hello>,
}

/// The part of a socket behind its lock.
pub(super) struct Inner {
    id: *mut rdma_cm_id,
    channel: *mut rdma_event_channel,
    state: State,
    pub(super) stream: Option<Stream>,
    pub(super) options: Options,
    requests: VecDeque<Request>,
    /// The program sends no more data, or receives none.
    is_write_shut: bool,
    is_read_shut: bool,
    /// The number of threads that sleep.
    sleepers: u32,
    is_ringing: bool,
}

// SAFETY: the pointers are those of objects that belong to the socket, and their functions may be
// called on every thread.
unsafe impl Send for Inner {}

/// A socket.
pub(super) struct Socket {
    set: OwnedFd,
    bell: OwnedFd,
    pub(super) domain: libc::c_int,
    inner: Mutex<Inner>,
}

impl Socket {
    /// A socket that is not connected.
    pub(super) fn new(domain: libc::c_int) -> Result<Self, Fault> {
        let channel = cm::rdma_create_event_channel();
        if channel.is_null() {
            return Err(fault::errno());
        }
        let mut id = std::ptr::null_mut();
        // SAFETY: the channel is alive.
        let code =
            unsafe { cm::rdma_create_id(channel, &raw mut id, std::ptr::null_mut(), RDMA_PS_TCP) };
        if code != 0 {
            let fault = fault::errno();
            // SAFETY: nothing uses the channel.
            unsafe { cm::rdma_destroy_event_channel(channel) };
            return Err(fault);
        }
        Self::of(domain, Options::default(), id, channel)
    }

    /// A socket of these objects, which end with it.
    fn of(
        domain: libc::c_int,
        options: Options,
        id: *mut rdma_cm_id,
        channel: *mut rdma_event_channel,
    ) -> Result<Self, Fault> {
        let inner = Inner {
            id,
            channel,
            state: State::Idle,
            stream: None,
            options,
            requests: VecDeque::new(),
            is_write_shut: false,
            is_read_shut: false,
            sleepers: 0,
            is_ringing: false,
        };
        let set = epoll::create(CreateFlags::CLOEXEC)?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        // SAFETY: the channel is alive.
        let events = unsafe { BorrowedFd::borrow_raw((*channel).fd) };
        for descriptor in [bell.as_fd(), events] {
            epoll::add(&set, descriptor, EventData::new_u64(0), EventFlags::IN)?;
        }
        Ok(Self {
            set,
            bell,
            domain,
            inner: Mutex::new(inner),
        })
    }

    pub(super) fn descriptor(&self) -> RawFd {
        self.set.as_raw_fd()
    }

    /// The descriptor that is readable when a sleeping thread has to look.
    pub(super) fn sleep_on(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }

    /// Makes progress. Threads that sleep look again if anything has happened.
    pub(super) fn progress(&self) -> MutexGuard<'_, Inner> {
        let mut inner = lock(&self.inner);
        self.progress_with(&mut inner);
        inner
    }

    fn progress_with(&self, inner: &mut Inner) -> bool {
        let has_happened = inner.progress();
        if has_happened && inner.sleepers > 0 && !inner.is_ringing {
            inner.is_ringing = true;
            let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
        }
        has_happened
    }

    /// Announces that this thread will sleep. Returns false if it must look again instead.
    pub(super) fn begin_sleep(&self) -> bool {
        let mut inner = lock(&self.inner);
        if let Some(stream) = &inner.stream {
            stream.arm();
        }
        if self.progress_with(&mut inner) {
            return false;
        }
        inner.sleepers += 1;
        true
    }

    /// Called after [`begin_sleep`](Self::begin_sleep) has returned true and the thread has woken.
    pub(super) fn end_sleep(&self) {
        let mut inner = lock(&self.inner);
        inner.sleepers -= 1;
        if inner.sleepers == 0 && inner.is_ringing {
            inner.is_ringing = false;
            let mut count = [0; size_of::<u64>()];
            let _ = rustix::io::read(&self.bell, &mut count);
        }
    }

    /// Makes progress until `ready` returns a value. Fails with `EAGAIN` if it must not wait, or
    /// has waited until `deadline`.
    pub(super) fn wait<R>(
        &self,
        may_wait: bool,
        deadline: Option<Instant>,
        mut ready: impl FnMut(&mut Inner) -> Result<Option<R>, Fault>,
    ) -> Result<R, Fault> {
        loop {
            if let Some(found) = ready(&mut self.progress())? {
                return Ok(found);
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if !may_wait || left.is_some_and(|left| left.is_zero()) {
                return Err(Errno::AGAIN);
            }
            if !self.begin_sleep() {
                continue;
            }
            let left = left.and_then(|left| Timespec::try_from(left).ok());
            let mut set = [PollFd::from_borrowed_fd(self.sleep_on(), PollFlags::IN)];
            let slept = poll(&mut set, left.as_ref());
            self.end_sleep();
            slept?;
        }
    }

    /// Calls `f` with the state of the socket, without progress.
    pub(super) fn with<R>(&self, f: impl FnOnce(&mut Inner) -> R) -> R {
        f(&mut lock(&self.inner))
    }

    /// Makes the queue pair, and lets its completions wake the threads of the socket.
    fn make_stream(&self, inner: &mut Inner) -> Result<Hello, Fault> {
        // SAFETY: the socket ends the stream before the identifier.
        let stream = unsafe { Stream::new(inner.id, inner.options.sizes) }?;
        // SAFETY: the descriptor lives as long as the stream.
        let completions = unsafe { BorrowedFd::borrow_raw(stream.descriptor()) };
        epoll::add(
            &self.set,
            completions,
            EventData::new_u64(0),
            EventFlags::IN,
        )?;
        let hello = stream.hello();
        inner.stream = Some(stream);
        Ok(hello)
    }

    /// Begins to connect.
    pub(super) fn connect(&self, to: *mut sockaddr) -> Result<(), Fault> {
        let mut inner = lock(&self.inner);
        match inner.state {
            State::Idle => {}
            State::Connected => return Err(Errno::ISCONN),
            State::Connecting => return Err(Errno::ALREADY),
            State::Listening | State::Failed(_) => return Err(Errno::INVAL),
        }
        let id = inner.id;
        // SAFETY: the identifier is alive, and the program passes an address.
        let code = unsafe {
            match cm::rdma_resolve_addr(id, std::ptr::null_mut(), to, RESOLVE_MS) {
                0 => cm::rdma_resolve_route(id, RESOLVE_MS),
                code => code,
            }
        };
        if code != 0 {
            return Err(fault::errno());
        }
        let hello = self.make_stream(&mut inner)?.bytes();
        let mut param = parameters(&hello);
        // SAFETY: the identifier is alive and has a queue pair; the data is read during the call.
        if unsafe { cm::rdma_connect(id, &raw mut param) } != 0 {
            return Err(fault::errno());
        }
        inner.state = State::Connecting;
        Ok(())
    }

    /// Accepts a connection. Returns its socket.
    pub(super) fn accept(&self) -> Result<Self, Fault> {
        let may_wait = self.with(|inner| inner.options.may_wait());
        loop {
            let (request, options) = self.wait(may_wait, None, |inner| {
                if inner.state != State::Listening {
                    return Err(Errno::INVAL);
                }
                let options = inner.options.of_accepted();
                Ok(inner.requests.pop_front().map(|request| (request, options)))
            })?;
            // A peer that does not use this protocol is no reason to fail.
            match request.hello {
                Some(hello) => return Self::accepted(self.domain, options, request.id, hello),
                None => refuse(request.id),
            }
        }
    }

    fn accepted(
        domain: libc::c_int,
        options: Options,
        id: *mut rdma_cm_id,
        hello: Hello,
    ) -> Result<Self, Fault> {
        let channel = cm::rdma_create_event_channel();
        // SAFETY: the identifier of a request is alive until the library destroys it, and the
        // channel is alive if there is one.
        if channel.is_null() || unsafe { cm::rdma_migrate_id(id, channel) } != 0 {
            let fault = fault::errno();
            refuse(id);
            return Err(fault);
        }
        let socket = Self::of(domain, options, id, channel)?;
        let mut inner = lock(&socket.inner);
        let own = socket.make_stream(&mut inner)?.bytes();
        let mut param = parameters(&own);
        // SAFETY: the identifier is alive and has a queue pair; the data is read during the call.
        if unsafe { cm::rdma_accept(id, &raw mut param) } != 0 {
            return Err(fault::errno());
        }
        if let Some(stream) = &mut inner.stream {
            stream.on_hello(hello);
        }
        inner.state = State::Connected;
        drop(inner);
        Ok(socket)
    }

    /// Ends one direction or both.
    pub(super) fn shut_down(&self, how: libc::c_int) -> Result<(), Fault> {
        if !matches!(how, libc::SHUT_RD | libc::SHUT_WR | libc::SHUT_RDWR) {
            return Err(Errno::INVAL);
        }
        let mut inner = self.progress();
        if inner.state != State::Connected {
            return Err(Errno::NOTCONN);
        }
        let former = (inner.is_read_shut, inner.is_write_shut);
        inner.is_read_shut |= how != libc::SHUT_WR;
        inner.is_write_shut |= how != libc::SHUT_RD;
        let now = (inner.is_read_shut, inner.is_write_shut);
        drop(inner);
        if now == former || !now.1 {
            return Ok(());
        }
        let ends_both = now == (true, true);
        let message = match ends_both {
            true => Message::Disconnect,
            false => Message::Shutdown,
        };
        let deadline = Some(Instant::now() + LINGER);
        let posted = self.wait(true, deadline, |inner| match &mut inner.stream {
            Some(stream) if stream.can_write() => match stream.has_control() {
                true => stream.control(message).map(Some),
                false => Ok(None),
            },
            _ => Ok(Some(())),
        });
        let sent = posted.and_then(|()| {
            self.wait(true, deadline, |inner| {
                let ends = |stream: &Stream| stream.is_broken || stream.is_idle();
                Ok(inner.stream.as_ref().is_none_or(ends).then_some(()))
            })
        });
        if ends_both {
            let id = self.with(|inner| inner.id);
            // SAFETY: the identifier is alive while the socket is. A connection that has ended
            // needs no end.
            unsafe { cm::rdma_disconnect(id) };
        }
        sent
    }

    /// Ends the connection, if there is one that the program has not ended.
    pub(super) fn close(&self) {
        if !self.with(|inner| inner.is_read_shut && inner.is_write_shut) {
            // There is nobody to report a failure to.
            let _ = self.shut_down(libc::SHUT_RDWR);
        }
    }
}

impl Inner {
    pub(super) fn id(&self) -> *mut rdma_cm_id {
        self.id
    }

    /// Binds to an address.
    pub(super) fn bind(&mut self, address: *mut sockaddr) -> Result<(), Fault> {
        // SAFETY: the identifier is alive, and the program passes an address.
        match unsafe { cm::rdma_bind_addr(self.id, address) } {
            0 => Ok(()),
            _ => Err(fault::errno()),
        }
    }

    pub(super) fn listen(&mut self, backlog: libc::c_int) -> Result<(), Fault> {
        // SAFETY: the identifier is alive.
        match unsafe { cm::rdma_listen(self.id, backlog) } {
            0 => {
                self.state = State::Listening;
                Ok(())
            }
            _ => Err(fault::errno()),
        }
    }

    /// Takes events and completions. Returns true if anything happened.
    fn progress(&mut self) -> bool {
        let mut has_happened = self.stream.as_mut().is_some_and(Stream::progress);
        // SAFETY: the channel is alive.
        while let Some(event) = unsafe { cm::take_event(self.channel) } {
            self.on_event(event);
            has_happened = true;
        }
        has_happened
    }

    fn on_event(&mut self, event: *mut rdma_cm_event) {
        // SAFETY: the event was just received, and is not used after its acknowledgement. Events of
        // connections have this member, whose data is as long as it says.
        let (kind, id, data) = unsafe {
            let conn = &(*event).param.conn;
            let data = match conn.private_data.is_null() {
                true => &[],
                false => std::slice::from_raw_parts(
                    conn.private_data.cast::<u8>(),
                    conn.private_data_len.into(),
                ),
            };
            ((*event).event, (*event).id, Hello::parse(data))
        };
        // SAFETY: as above.
        unsafe { cm::rdma_ack_cm_event(event) };
        match kind {
            RDMA_CM_EVENT_CONNECT_REQUEST => self.requests.push_back(Request { id, hello: data }),
            RDMA_CM_EVENT_ESTABLISHED if self.state == State::Connecting => {
                match (data, &mut self.stream) {
                    (Some(hello), Some(stream)) => {
                        stream.on_hello(hello);
                        self.state = State::Connected;
                    }
                    _ => self.state = State::Failed(Errno::PROTO),
                }
            }
            RDMA_CM_EVENT_REJECTED => self.state = State::Failed(Errno::CONNREFUSED),
            RDMA_CM_EVENT_UNREACHABLE => self.state = State::Failed(Errno::TIMEDOUT),
            RDMA_CM_EVENT_CONNECT_ERROR => self.state = State::Failed(Errno::CONNRESET),
            RDMA_CM_EVENT_DISCONNECTED => self.on_disconnected(),
            _ => {}
        }
    }

    /// Called when the connection has ended. What the peer sent before is read first.
    fn on_disconnected(&mut self) {
        match &mut self.stream {
            Some(stream) if self.state == State::Connected => {
                stream.progress();
                stream.is_broken = true;
            }
            _ => self.state = State::Failed(Errno::CONNRESET),
        }
    }

    /// True once a connection is established. Fails if it cannot be.
    pub(super) fn is_connected(&self) -> Result<bool, Fault> {
        match self.state {
            State::Connected => Ok(true),
            State::Connecting => Ok(false),
            State::Failed(fault) => Err(fault),
            State::Idle | State::Listening => Err(Errno::NOTCONN),
        }
    }

    /// Returns the error of the socket, for `SO_ERROR`.
    pub(super) fn error(&self) -> libc::c_int {
        match self.state {
            State::Failed(fault) => fault.raw_os_error(),
            _ => 0,
        }
    }

    /// Returns the stream for a send; `None` while there is none.
    pub(super) fn sending(&mut self) -> Result<Option<&mut Stream>, Fault> {
        if !self.is_connected()? {
            return Ok(None);
        }
        let is_shut = self.is_write_shut;
        match &mut self.stream {
            Some(stream) if !is_shut && stream.can_write() => Ok(Some(stream)),
            _ => Err(Errno::PIPE),
        }
    }

    /// Receives by `take`, which returns the number of bytes that it has taken of the stream.
    /// Returns `None` while there is nothing, and 0 at the end.
    pub(super) fn receiving(
        &mut self,
        take: impl FnOnce(&mut Stream) -> usize,
    ) -> Result<Option<usize>, Fault> {
        if !self.is_connected()? {
            return Ok(None);
        }
        match &mut self.stream {
            Some(_) if self.is_read_shut => Ok(Some(0)),
            Some(stream) if stream.is_readable() => Ok(Some(take(stream))),
            Some(stream) if stream.is_finished => Ok(Some(0)),
            Some(stream) if stream.is_broken => Err(Errno::CONNRESET),
            _ => Ok(None),
        }
    }

    /// The events of poll(2) that are ready.
    pub(super) fn readiness(&mut self) -> libc::c_short {
        match (self.state, &mut self.stream) {
            (State::Listening, _) if !self.requests.is_empty() => libc::POLLIN,
            (State::Failed(_), _) => libc::POLLIN | libc::POLLOUT | libc::POLLERR | libc::POLLHUP,
            (State::Connected, Some(stream)) => {
                let ends = stream.is_finished || stream.is_broken || self.is_read_shut;
                let mut ready = 0;
                if stream.is_readable() || ends {
                    ready |= libc::POLLIN;
                }
                if !stream.can_write() || stream.is_writable() {
                    ready |= libc::POLLOUT;
                }
                if stream.is_broken && !stream.is_finished {
                    ready |= libc::POLLERR | libc::POLLHUP;
                }
                ready
            }
            (State::Idle, _) => libc::POLLOUT | libc::POLLHUP,
            _ => 0,
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The queue pair ends before its identifier.
        self.stream = None;
        for request in self.requests.drain(..) {
            refuse(request.id);
        }
        // SAFETY: the socket has no user any more, and all events were acknowledged.
        unsafe {
            cm::rdma_destroy_id(self.id);
            cm::rdma_destroy_event_channel(self.channel);
        }
    }
}

/// Refuses a connection request.
fn refuse(id: *mut rdma_cm_id) {
    // SAFETY: the identifier of a request is alive until the library destroys it.
    unsafe {
        cm::rdma_reject(id, std::ptr::null(), 0);
        cm::rdma_destroy_id(id);
    }
}

/// The parameters of a connection with this private data.
fn parameters(data: &[u8]) -> rdma_conn_param {
    rdma_conn_param {
        private_data: data.as_ptr().cast(),
        private_data_len: data.len() as u8,
        responder_resources: 1,
        initiator_depth: 1,
        flow_control: 1,
        retry_count: 7,
        rnr_retry_count: 7,
        srq: 0,
        qp_num: 0,
    }
}

/// The local and the remote address of a socket.
pub(super) fn addresses(inner: &Inner) -> (Option<SocketAddr>, Option<SocketAddr>) {
    // SAFETY: the identifier is alive.
    unsafe { cm::addresses_of(inner.id()) }
}
