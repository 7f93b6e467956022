//! A connection: the machine, its id and its queue pair.
//!
//! Each event is passed to the machine under the lock of the connection: by the engine's thread, by
//! a consumer's call, or by the thread of a request that blocks. The same thread performs the
//! machine's actions under the lock. Events for the consumer are queued meanwhile, and reported
//! after the lock is released. No action waits for the device or the peer under the lock, except
//! the destruction of an id if no thread can be started for it.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::{Duration, Instant};

use rnic::socket::ConsumerSocket;
use rnic::{ConnectParams, ConnectionEvent, QpToken, SocketFault, UpcallQueue};

use super::bound_socket::{BoundSocket, PEER_END, Progress};
use super::frames::{self, Contact, Token};
use super::id::{CmEvent, ConnParam, Depth, Id, Key};
use super::listen::IbListener;
use super::machine::{Action, ConsumerEvent, Event, Machine, Refusal, State};
use super::ready::{self, Depths, agreed};
use super::retries::{self, Retries};
use super::rules::{self, Refused};
use super::{Cm, lock};
use crate::qp::Qp;
use verbs_dl::types::*;

/// The first and the longest interval between two checks of a queue pair that drains or is flushed.
const CHECK_INTERVALS: (Duration, Duration) =
    (Duration::from_micros(100), Duration::from_millis(10));
/// The time for which the id of a connection that this end closed waits for the peer's answer.
/// Meanwhile the disconnect message is sent again if it was lost.
const LINGER: Duration = Duration::from_secs(10);
/// The time in which the peer's device must connect after a Reply on the socket, as a multiple of
/// the time for a Request. The Reply has to reach the peer within this time.
const DEVICE_TURNS: u32 = 2;

#[derive(Debug)]
pub(crate) struct Connection {
    cm: Arc<Cm>,
    qp: Weak<Qp>,
    token: QpToken,
    key: Key,
    is_active: bool,
    inner: Mutex<Inner>,
    events: UpcallQueue<ConnectionEvent>,
}

#[derive(Debug)]
struct Inner {
    machine: Machine,
    /// The address to connect to; `None` at the accepting side, and until it is received.
    remote: Option<SocketAddr>,
    param: ConnParam,
    /// The consumer's socket on which the connection began.
    socket: Option<BoundSocket>,
    /// The service to which the peer's device connects, while it is expected.
    listener: Option<IbListener>,
    /// The time at which the connection ends because the peer's end of the socket has ended.
    peer_end_due: Option<Instant>,
    id: Option<Arc<Id>>,
    /// True if a request was sent and no answer was received.
    is_unanswered: bool,
    /// The time at which the consumer's timeout expires.
    deadline: Option<Instant>,
    retries: Retries,
    /// The time at which the machine's own wait ends, or its next check is due.
    due: Option<Instant>,
    /// The interval to the next check of a queue pair that drains or is flushed.
    check_interval: Duration,
    /// The time by which the device must have flushed posted work.
    flush_until: Instant,
    /// The private data of the peer's consumer.
    private_data: Vec<u8>,
}

impl Connection {
    /// Begins to connect. On an error nothing has changed.
    pub(super) fn connect(
        cm: &Arc<Cm>,
        qp: &Arc<Qp>,
        remote: SocketAddr,
        param: ConnParam,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        let now = Instant::now();
        let mut inner = Inner::new(Machine::connect(), param);
        inner.remote = Some(remote);
        inner.deadline = timeout.and_then(|timeout| now.checked_add(timeout));
        let key = cm.new_key();
        let connection = Self::new(cm, qp, key, true, inner);
        // The lock is taken before other threads can find the connection. Otherwise the removal of
        // the device could end the connection while it has no id, and the device would wait for the
        // id that is created later.
        let mut inner = lock(&connection.inner);
        cm.register(key, connection.clone());
        if let Err(error) = connection.resolve_address(&mut inner) {
            // Nothing was sent, and receives stay posted.
            inner.machine.on(Event::Unresolved);
            inner.machine.on(Event::Flushed);
            drop(inner);
            cm.forget(key);
            return Err(error);
        }
        connection.reschedule(&inner);
        Ok(())
    }

    /// Begins to connect on a consumer's socket. The engine's thread sends the Request, so that
    /// each outcome is an event.
    pub(super) fn connect_on_socket(
        cm: &Arc<Cm>,
        qp: &Arc<Qp>,
        socket: ConsumerSocket,
        params: &ConnectParams<'_>,
    ) -> Result<(), SocketFault> {
        let (now, key) = (Instant::now(), cm.new_key());
        let (device, short) = (&cm.shared.device, |_| SocketFault::NoResources);
        let contact = Contact {
            token: Token::draw().map_err(short)?,
            address: device.address,
            transport: device.transport,
        };
        // The limit of the adapter's private data is below that of the frames.
        let frame = frames::request(&contact, params.private_data);
        let frame = frame.ok_or(SocketFault::NoResources)?;
        let bound = BoundSocket::new(&cm.shared, Arc::new(socket), key, contact.token, frame);
        let param = ConnParam::of(qp, own_depth(qp), &[]);
        let mut inner = Inner::new(Machine::connect_on_socket(), param);
        inner.socket = Some(bound.map_err(short)?);
        inner.deadline = params.timeout.and_then(|timeout| now.checked_add(timeout));
        inner.due = Some(now);
        let connection = Self::new(cm, qp, key, true, inner);
        let inner = lock(&connection.inner);
        cm.register(key, connection.clone());
        connection.reschedule(&inner);
        Ok(())
    }

    /// Waits for the peer's device, which connects to `listener` after the Reply on the socket.
    /// Every outcome is reported as an event.
    pub(super) fn accept_on_socket(
        cm: &Arc<Cm>,
        qp: &Arc<Qp>,
        key: Key,
        socket: BoundSocket,
        listener: IbListener,
        param: ConnParam,
    ) -> Arc<Self> {
        let mut inner = Inner::new(Machine::accept_on_socket(), param);
        let limit = cm.shared.config.request_timeout;
        inner.due = limit.and_then(|limit| Instant::now().checked_add(limit * DEVICE_TURNS));
        inner.socket = Some(socket);
        inner.listener = Some(listener);
        let connection = Self::new(cm, qp, key, false, inner);
        let inner = lock(&connection.inner);
        cm.register(key, connection.clone());
        connection.reschedule(&inner);
        drop(inner);
        connection
    }

    /// Accepts the request of `id`. Every outcome is reported as an event, including a failure.
    pub(super) fn accept(cm: &Arc<Cm>, qp: &Arc<Qp>, id: Arc<Id>, param: ConnParam) {
        let key = cm.new_key();
        id.set_key(key);
        let mut inner = Inner::new(Machine::accept(), param);
        inner.id = Some(id.clone());
        let connection = Self::new(cm, qp, key, false, inner);
        // The lock is taken before other threads can find the connection, which is not accepted
        // yet.
        let mut inner = lock(&connection.inner);
        cm.register(key, connection.clone());
        if let Err(error) = connection.send_reply(&inner.param, qp, &id) {
            tracing::info!(%error, "reply not sent");
            // The engine's thread reports this, because the caller must not make an upcall.
            inner.due = Some(Instant::now());
            connection.reschedule(&inner);
        }
    }

    /// Ends an accepted attempt, on the engine's thread, because the caller must not make an
    /// upcall.
    pub(super) fn fail_soon(&self) {
        let mut inner = lock(&self.inner);
        inner.due = Some(Instant::now());
        self.reschedule(&inner);
    }

    fn new(cm: &Arc<Cm>, qp: &Arc<Qp>, key: Key, is_active: bool, inner: Inner) -> Arc<Self> {
        Arc::new(Self {
            cm: cm.clone(),
            qp: Arc::downgrade(qp),
            token: qp.token,
            key,
            is_active,
            inner: Mutex::new(inner),
            events: UpcallQueue::default(),
        })
    }

    pub(super) fn token(&self) -> QpToken {
        self.token
    }

    pub(super) fn is_of(&self, qp: &Arc<Qp>) -> bool {
        Weak::ptr_eq(&self.qp, &Arc::downgrade(qp))
    }

    pub(super) fn disconnect(self: &Arc<Self>, abrupt: bool) {
        self.handle(Event::Disconnect { graceful: !abrupt });
        if abrupt {
            self.finish_flush();
        }
        self.deliver_events();
        if abrupt {
            // An event that another thread reports late would be taken for an event of the next
            // connection.
            self.events.wait_for_delivery();
        }
    }

    /// Called on the engine's thread when the queue pair failed.
    pub(super) fn on_failed(self: &Arc<Self>) {
        let failed = self.qp_has_failed();
        self.handle(Event::Reported { failed });
        self.deliver_events();
    }

    pub(super) fn on_device_removed(self: &Arc<Self>) {
        self.handle(Event::DeviceRemoved);
        self.deliver_events();
    }

    pub(super) fn on_cm(self: &Arc<Self>, event: CmEvent) {
        tracing::debug!(
            qp = self.token.0,
            kind = event.kind,
            status = event.status,
            "event of the connection manager"
        );
        let transport = self.cm.shared.device.transport;
        let mut inner = lock(&self.inner);
        let (event, private_data) = match event.kind {
            RDMA_CM_EVENT_CONNECT_RESPONSE => (Some(Event::Replied), event.private_data),
            RDMA_CM_EVENT_ESTABLISHED if event.status == 0 => {
                (Some(Event::Established), event.private_data)
            }
            RDMA_CM_EVENT_REJECTED => {
                let quirks = self.cm.shared.device.quirks();
                let refused = transport.rejected(quirks, event.status, &event.private_data);
                let event = refused.event(inner.has_time_to_retry());
                (Some(event), refused.private_data.to_vec())
            }
            kind => (rules::plain_event(kind, self.qp_has_failed()), Vec::new()),
        };
        let Some(event) = event else { return };
        if let Event::Replied | Event::Established | Event::Refused { .. } = event {
            inner.is_unanswered = false;
        }
        let event = self.with_private_data(&mut inner, event, private_data);
        self.advance(&mut inner, event);
        drop(inner);
        self.deliver_events();
    }

    /// Stores the private data for the peer's consumer. On a consumer's socket the Reply has
    /// carried it, and the device's private data is the proof that the peer has the other end.
    fn with_private_data(&self, inner: &mut Inner, event: Event, private_data: Vec<u8>) -> Event {
        let Some(socket) = &inner.socket else {
            // On InfiniBand the reply carries the private data, not the confirmation that follows.
            if self.is_active && !private_data.is_empty() {
                inner.private_data = private_data;
            }
            return event;
        };
        let is_answer = inner.machine.state() == State::Requesting
            && matches!(event, Event::Replied | Event::Established);
        match event {
            _ if is_answer && !socket.is_proven_by(&private_data) => {
                tracing::warn!(qp = self.token.0, "another end has answered: no token");
                Event::Failed
            }
            // No consumer receives a request of the device, so none has rejected it.
            Event::Refused {
                refusal: Refusal::Consumer,
                again,
            } => Event::Refused {
                refusal: Refusal::Service,
                again,
            },
            event => event,
        }
    }

    /// Handles the readiness of the consumer's socket, on the engine's thread.
    pub(super) fn on_socket(self: &Arc<Self>) {
        let mut inner = lock(&self.inner);
        match self.socket_event(&mut inner) {
            Some(event) => self.advance(&mut inner, event),
            None => self.reschedule(&inner),
        }
        drop(inner);
        self.deliver_events();
    }

    fn socket_event(&self, inner: &mut Inner) -> Option<Event> {
        let state = inner.machine.state();
        let socket = inner.socket.as_mut()?;
        match state {
            State::AwaitingReply => match socket.advance() {
                Progress::Waiting => None,
                Progress::Accepted {
                    contact,
                    private_data,
                } => {
                    inner.remote = Some(contact.reached_from(self.cm.shared.device.address));
                    inner.param.private_data = contact.token.0.to_vec();
                    inner.private_data = private_data;
                    Some(Event::AcceptedOnSocket)
                }
                Progress::Refused {
                    refusal,
                    private_data,
                } => {
                    inner.private_data = private_data;
                    let again = false;
                    Some(Event::Refused { refusal, again })
                }
            },
            State::AwaitingRequest if socket.has_ended() => Some(Event::Failed),
            State::Established | State::Draining => {
                inner.note_peer_end();
                None
            }
            State::Flushing(_) | State::Lingering | State::Over => None,
            // The peer's consumer streams again.
            _ if socket.has_bytes() => Some(Event::Failed),
            _ => {
                inner.note_peer_end();
                None
            }
        }
    }

    /// Handles a request of a device to the service of this connection.
    pub(super) fn on_device_request(self: &Arc<Self>, id: Id, depth: Depth, private_data: &[u8]) {
        let mut inner = lock(&self.inner);
        let is_proven = |socket: &BoundSocket| socket.is_proven_by(private_data);
        let is_expected = inner.machine.state() == State::AwaitingRequest
            && inner.socket.as_ref().is_some_and(is_proven);
        let Some(qp) = self.qp.upgrade().filter(|_| is_expected) else {
            tracing::warn!(qp = self.token.0, "a request without the token is refused");
            return;
        };
        id.set_key(self.key);
        inner.id = Some(Arc::new(id));
        inner.param.depth = agreed(depth, own_depth(&qp), self.cm.shared.device.transport);
        self.advance(&mut inner, Event::Requested);
        drop(inner);
        self.deliver_events();
    }

    pub(super) fn on_time(self: &Arc<Self>, now: Instant) {
        let mut inner = lock(&self.inner);
        match self.due_event(&mut inner, now) {
            Some(event) => self.advance(&mut inner, event),
            None => self.reschedule(&inner),
        }
        drop(inner);
        self.deliver_events();
    }

    fn due_event(&self, inner: &mut Inner, now: Instant) -> Option<Event> {
        if inner.consumers_deadline().is_some_and(|time| time <= now) {
            return Some(Event::TimedOut);
        }
        if inner.peer_end_due.take_if(|time| *time <= now).is_some() {
            return Some(Event::Failed);
        }
        inner.due.filter(|time| *time <= now)?;
        inner.due = None;
        match inner.machine.state() {
            State::Pausing => Some(Event::PauseOver),
            State::AwaitingReply => self.socket_event(inner),
            State::AwaitingRequest | State::Accepting => Some(Event::Failed),
            State::Draining => self.poll_drained(inner),
            State::Flushing(_) => self.poll_flushed(inner),
            State::Lingering => Some(Event::LingerOver),
            _ => None,
        }
    }

    fn handle(self: &Arc<Self>, event: Event) {
        self.advance(&mut lock(&self.inner), event);
    }

    /// Passes an event to the machine and performs its actions, until no further event follows.
    fn advance(self: &Arc<Self>, inner: &mut Inner, event: Event) {
        let mut next = Some(event);
        while let Some(event) = next.take() {
            let before = inner.machine.state();
            let (report, actions) = inner.machine.on(event);
            let after = inner.machine.state();
            tracing::debug!(qp = self.token.0, ?event, ?before, ?after, "connection");
            if let Some(report) = report {
                self.queue_event(inner, report);
            }
            for action in actions {
                // Actions with a result are the last of their lists.
                next = self.perform(inner, *action);
            }
        }
        self.reschedule(inner);
    }

    fn perform(self: &Arc<Self>, inner: &mut Inner, action: Action) -> Option<Event> {
        match action {
            Action::ResolveAddress => {
                let failed = self.resolve_address(inner).err()?;
                tracing::info!(error = %failed, "address not resolved");
                Some(Event::Unresolved)
            }
            Action::ResolveRoute => self.resolve_route(inner),
            Action::Request => self.request(inner),
            Action::Confirm => Some(self.confirm(inner)),
            Action::Reply => {
                let (qp, id) = (self.qp.upgrade()?, inner.id.clone()?);
                let failed = self.send_reply(&inner.param, &qp, &id).err()?;
                tracing::info!(error = %failed, "reply not sent");
                Some(Event::Failed)
            }
            Action::Pause => {
                inner.due = Some(Instant::now() + retries::PAUSE);
                None
            }
            Action::Drain => {
                inner.check_interval = CHECK_INTERVALS.0;
                self.poll_drained(inner)
            }
            Action::Disconnect => {
                if let Some(Err(error)) = inner.id.as_ref().map(|id| id.disconnect()) {
                    tracing::debug!(%error, "disconnect not sent");
                }
                None
            }
            Action::Flush => {
                if let Some(until) = self.qp.upgrade().and_then(|qp| qp.begin_flush()) {
                    inner.flush_until = until;
                    inner.check_interval = CHECK_INTERVALS.0;
                }
                self.poll_flushed(inner)
            }
            Action::Linger => {
                inner.due = Some(Instant::now() + LINGER);
                None
            }
            Action::Retire => {
                self.retire(inner);
                None
            }
        }
    }

    fn resolve_address(self: &Arc<Self>, inner: &mut Inner) -> io::Result<()> {
        let remote = inner.remote.ok_or(io::ErrorKind::NotConnected)?;
        let id = self.cm.channel()?.new_id(self.key)?;
        id.resolve_address(self.cm.shared.device.address, remote)?;
        inner.id = Some(Arc::new(id));
        Ok(())
    }

    fn resolve_route(&self, inner: &Inner) -> Option<Event> {
        let id = inner.id.as_ref()?;
        if id.device_name().as_ref() != Some(&self.cm.shared.device.name) {
            tracing::info!(remote = ?inner.remote, "the route leads through another device");
            return Some(Event::Unresolved);
        }
        let error = id.resolve_route().err()?;
        tracing::info!(%error, "route not resolved");
        Some(Event::Unresolved)
    }

    /// Sends the request, on a separate thread if the call may block.
    fn request(self: &Arc<Self>, inner: &mut Inner) -> Option<Event> {
        let id = inner.id.clone()?;
        let sent = match self.qp.upgrade() {
            Some(qp) => ready::to_connect(&qp, &id),
            None => Err(io::ErrorKind::NotConnected.into()),
        };
        if let Err(error) = sent {
            return Some(inner.call_refused(&error));
        }
        inner.is_unanswered = true;
        if !self.cm.shared.device.transport.blocks() {
            return id
                .connect(&inner.param)
                .err()
                .map(|error| inner.call_refused(&error));
        }
        let (this, param) = (self.clone(), inner.param.clone());
        let job = move || {
            // The attempt may have ended while the call was queued.
            let is_own = |own: &Arc<Id>| Arc::ptr_eq(own, &id);
            let is_due = lock(&this.inner).id.as_ref().is_some_and(is_own);
            if is_due && let Err(error) = id.connect(&param) {
                let mut inner = lock(&this.inner);
                let event = inner.call_refused(&error);
                this.advance(&mut inner, event);
                drop(inner);
                this.deliver_events();
            }
            // The id must be dropped before the last reference to the connection.
            drop(id);
        };
        let called = self.cm.blocking.call(job);
        called.err().map(|error| inner.call_refused(&error))
    }

    /// Readies the queue pair after the peer accepted, and confirms.
    fn confirm(&self, inner: &Inner) -> Event {
        let confirmed = match (self.qp.upgrade(), &inner.id) {
            (Some(qp), Some(id)) => {
                let requested = inner.param.depth;
                ready::to_run(&qp, id, Depths::Replied { requested }).and_then(|()| id.establish())
            }
            _ => Err(io::ErrorKind::NotConnected.into()),
        };
        match confirmed {
            Ok(()) => Event::Established,
            Err(error) => {
                tracing::warn!(%error, "the queue pair could not be readied");
                Event::Failed
            }
        }
    }

    fn send_reply(&self, param: &ConnParam, qp: &Qp, id: &Id) -> io::Result<()> {
        ready::to_connect(qp, id)?;
        if !self.cm.shared.device.transport.kernel_confirms() {
            ready::to_run(qp, id, Depths::Agreed(param.depth))?;
        }
        id.accept(param)
    }

    fn poll_drained(&self, inner: &mut Inner) -> Option<Event> {
        let left = self.qp.upgrade().map_or(0, |qp| qp.requests_left());
        inner.check_again(left == 0, Event::Drained)
    }

    fn poll_flushed(&self, inner: &mut Inner) -> Option<Event> {
        let qp = self.qp.upgrade();
        let is_flushed = qp.is_none_or(|qp| qp.poll_flush(inner.flush_until));
        inner.check_again(is_flushed, Event::Flushed)
    }

    /// Continues a flush on the calling thread until it is complete. The lock is released in the
    /// pauses, so that the engine's thread does not wait for it.
    fn finish_flush(self: &Arc<Self>) {
        loop {
            let mut inner = lock(&self.inner);
            if !matches!(inner.machine.state(), State::Flushing(_)) {
                return;
            }
            if let Some(event) = self.poll_flushed(&mut inner) {
                return self.advance(&mut inner, event);
            }
            let pause = inner.check_interval;
            drop(inner);
            thread::sleep(pause);
        }
    }

    fn queue_event(&self, inner: &mut Inner, event: ConsumerEvent) {
        if event == ConsumerEvent::Established
            && !self.qp.upgrade().is_some_and(|qp| qp.establish())
        {
            return;
        }
        let own = inner.socket.as_ref().and_then(BoundSocket::addresses);
        inner.change_owner(event);
        let address = self.cm.shared.device.address;
        let id = inner.id.as_deref();
        let local = own
            .map(|(local, _)| local)
            .or_else(|| id.and_then(Id::local));
        let remote = own.map(|(_, remote)| remote);
        let remote = remote.or_else(|| id.and_then(Id::remote)).or(inner.remote);
        let private_data = std::mem::take(&mut inner.private_data);
        self.events.push(match event {
            ConsumerEvent::Established => ConnectionEvent::Established {
                local: local.unwrap_or(address),
                remote: remote.unwrap_or(address),
                private_data,
            },
            ConsumerEvent::PeerRejected => ConnectionEvent::PeerRejected { private_data },
            ConsumerEvent::NonPeerRejected => ConnectionEvent::NonPeerRejected,
            ConsumerEvent::Unreachable => ConnectionEvent::Unreachable,
            ConsumerEvent::TimedOut => ConnectionEvent::TimedOut,
            ConsumerEvent::AcceptFailed => ConnectionEvent::AcceptFailed,
            ConsumerEvent::Disconnected => ConnectionEvent::Disconnected,
            ConsumerEvent::Broken => ConnectionEvent::Broken,
        });
    }

    /// Destroys the id, on a separate thread if that waits for an answer.
    fn retire(self: &Arc<Self>, inner: &mut Inner) {
        if inner.machine.state() == State::Over {
            inner.due = None;
            self.cm.forget(self.key);
        }
        let Some(id) = inner.id.take() else { return };
        if !(inner.is_unanswered && self.cm.shared.device.transport.blocks()) {
            return;
        }
        inner.is_unanswered = false;
        // If no thread can be started, the id is destroyed here, and this thread waits.
        let _ = self.cm.blocking.call(move || drop(id));
    }

    fn qp_has_failed(&self) -> bool {
        self.qp.upgrade().is_some_and(|qp| qp.is_in_error())
    }

    fn reschedule(&self, inner: &Inner) {
        let time = [inner.consumers_deadline(), inner.due, inner.peer_end_due]
            .into_iter()
            .flatten()
            .min();
        self.cm.set_timer(self.key, time);
    }

    fn deliver_events(&self) {
        self.events.deliver(|event| {
            self.cm.shared.upcall.connection(self.token, event);
        });
    }
}

impl Inner {
    fn new(machine: Machine, param: ConnParam) -> Self {
        Self {
            machine,
            remote: None,
            param,
            socket: None,
            listener: None,
            peer_end_due: None,
            id: None,
            is_unanswered: false,
            deadline: None,
            retries: Retries::default(),
            due: None,
            check_interval: CHECK_INTERVALS.0,
            flush_until: Instant::now(),
            private_data: Vec::new(),
        }
    }

    /// Changes the owner of the consumer's socket, before the event is delivered: the connection
    /// keeps the socket, or the consumer owns it again, or it is closed.
    fn change_owner(&mut self, event: ConsumerEvent) {
        self.listener = None;
        if event == ConsumerEvent::Established {
            if let Some(socket) = &self.socket {
                socket.keep();
                self.due = None;
            }
            self.note_peer_end();
        } else {
            self.socket = None;
            self.peer_end_due = None;
        }
    }

    /// Begins the wait for the device's report, if the peer's end of the socket has ended.
    fn note_peer_end(&mut self) {
        let has_ended = self.socket.as_ref().is_some_and(BoundSocket::has_ended);
        if has_ended && self.peer_end_due.is_none() {
            self.peer_end_due = Some(Instant::now() + PEER_END);
        }
    }

    /// Returns `event` if a check found what it waits for, and otherwise sets the time of the next
    /// check.
    fn check_again(&mut self, is_over: bool, event: Event) -> Option<Event> {
        if is_over {
            return Some(event);
        }
        self.due = Some(Instant::now() + self.check_interval);
        self.check_interval = (self.check_interval * 2).min(CHECK_INTERVALS.1);
        None
    }

    /// The consumer's deadline, which applies until the outcome of the attempt is reported.
    fn consumers_deadline(&self) -> Option<Instant> {
        self.deadline.filter(|_| self.machine.is_connecting())
    }

    fn has_time_to_retry(&mut self) -> bool {
        self.retries.may_retry(Instant::now(), self.deadline)
    }

    /// The event for a failure of the call that sends the request.
    fn call_refused(&mut self, error: &io::Error) -> Event {
        tracing::debug!(%error, "request not sent");
        self.is_unanswered = false;
        let refused: Refused<'_> = rules::call_failed(error);
        refused.event(self.has_time_to_retry())
    }
}

/// The read depths of a queue pair: the values for which it was created, limited to the range of
/// the message field.
pub(super) fn own_depth(qp: &Qp) -> Depth {
    let byte = |depth: u32| u8::try_from(depth).unwrap_or(u8::MAX);
    Depth {
        inbound: byte(qp.attr.ird),
        outbound: byte(qp.attr.ord),
    }
}

#[cfg(test)]
mod tests;
