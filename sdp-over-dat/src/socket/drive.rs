//! Event handling, message sending and waiting.

use std::{
    io,
    sync::{MutexGuard, atomic::Ordering},
    time::{Duration, Instant},
};

use dat_api::{
    Close, CompletionFlags, ConnectionEvent, ConnectionKind, DtoCompletion, DtoStatus, Evd, Event,
    RemoteRegion, Segment,
    abi::{DAT_INTERRUPTED_CALL, DAT_INVALID_STATE},
};
use host::locks::IgnorePoison as _;
use rustix::io::Errno;
use sdp_proto::{ConnectionState, Payload, PeerMemory, Read, Transmit, wire::HEADER_MAX};

use super::{
    Inner, Socket,
    attendance::{Attendance, Queue},
    inner::{ReadInProgress, ReadInto},
    link::{Failure, Opening},
};
use crate::adapter::TICK;
use crate::errors;

/// The kind of work that completed, in the highest byte of its cookie.
const RECEIVE: u64 = 1 << 56;
const SEND: u64 = 2 << 56;
pub(super) const READ: u64 = 3 << 56;
const WRITE: u64 = 4 << 56;
const KIND: u64 = 0xff << 56;
/// The transport that the work was posted on, in the next byte of its cookie.
const EPOCH: u64 = 0xff << 48;

impl Socket {
    /// Makes progress without blocking: handles the events of the dispatchers in which no thread
    /// sleeps, and sends what can be sent.
    pub(crate) fn progress(&self, inner: &mut Inner) {
        self.poll_events(inner, |_| false);
        self.pump(inner);
    }

    /// Handles the events of the dispatchers in which no thread sleeps, until `is_enough`. Returns
    /// true if there were any.
    pub(super) fn poll_events(
        &self,
        inner: &mut Inner,
        is_enough: impl Fn(&Inner) -> bool,
    ) -> bool {
        let mut has_any = false;
        // Connection events are polled first: all messages before the end are in the completion
        // queue by then. A poll costs a system call in the provider, so only expected events are.
        if inner.awaits_connection_event() || inner.link.is_gone() {
            has_any |= self.drain(inner, Queue::Connections, |_| false);
        }
        if inner.may_poll_messages() && !inner.attendance.sleeps_in(Queue::Completions) {
            inner.posted_since_poll = 0;
            has_any |= self.drain(inner, Queue::Completions, is_enough);
            self.check_gone(inner);
        }
        has_any
    }

    /// Handles the events of a dispatcher in which no thread sleeps, until `is_enough`. Returns
    /// true if there were any.
    pub(super) fn drain(
        &self,
        inner: &mut Inner,
        queue: Queue,
        is_enough: impl Fn(&Inner) -> bool,
    ) -> bool {
        let mut has_any = false;
        while !inner.attendance.sleeps_in(queue) && !is_enough(inner) {
            match self.dispatcher(queue).dequeue() {
                Ok(Some(event)) => self.on_event(inner, event),
                Ok(None) => break,
                Err(error) => {
                    tracing::error!(%error, "a socket's events cannot be read");
                    break;
                }
            }
            has_any = true;
        }
        has_any
    }

    /// Begins a call without polling the completions, which would cost one more system call in the
    /// provider. A reader waits for them, which returns at once if there is an event.
    pub(super) fn begin(&self, inner: &mut Inner) {
        if !self.poll_end(inner) {
            self.pump(inner);
        }
    }

    /// Makes progress if the next event is expected to be one of the connection, or if the
    /// connection has ended. Returns true if so.
    pub(super) fn poll_end(&self, inner: &mut Inner) -> bool {
        let is_expected = inner.link.is_gone() || inner.awaits_connection_event();
        if is_expected {
            self.progress(inner);
        }
        is_expected
    }

    /// Ends a connection that stays half closed without a transport, because the user writes.
    pub(super) fn end_half_closed(&self, inner: &mut Inner) {
        if inner.stays_half_closed() {
            self.end_gone(inner);
            inner.show();
        }
    }

    /// Calls `end_gone` after the last message, unless the connection stays half closed.
    fn check_gone(&self, inner: &mut Inner) {
        if !inner.stays_half_closed() {
            self.end_gone(inner);
        }
    }

    /// Notifies the protocol if the transport has ended.
    fn end_gone(&self, inner: &mut Inner) {
        if inner.link.is_gone() && !self.resume_if_suspended(inner) {
            inner.connection.handle_disconnected();
            inner.send.on_gone();
            inner.reads.clear();
            self.handle_protocol_events(inner);
        }
    }

    pub(super) fn on_event(&self, inner: &mut Inner, event: Event) {
        match event {
            Event::Dto(dto) => self.on_completion(inner, dto),
            Event::Connection(event) => self.on_connection(inner, &event),
            other => tracing::debug!(?other, "a socket ignores an event"),
        }
        self.handle_protocol_events(inner);
    }

    fn on_connection(&self, inner: &mut Inner, event: &ConnectionEvent) {
        match event.kind {
            ConnectionKind::Established => match inner.link.on_established() {
                Some(Opening::Active { hello, .. })
                    if inner.connection.state() == ConnectionState::HelloSent =>
                {
                    inner.trace.setup(&hello, &event.private_data);
                    // An invalid HelloAck ends the connection; the protocol reports an event.
                    let _ = inner.connection.handle_hello_ack(&event.private_data);
                }
                Some(Opening::Active { .. } | Opening::Passive) => {
                    inner.connection.handle_established();
                }
                Some(Opening::PassiveAwaitsMessage) | None => (),
            },
            kind => {
                if inner.connection.state() == ConnectionState::HelloSent {
                    let errno = if inner.link.continues() {
                        // The user sees an established connection, so its calls report a reset.
                        Errno::CONNRESET
                    } else if errors::names_version(&event.private_data) {
                        Errno::PROTONOSUPPORT
                    } else {
                        errors::of_connection(kind)
                    };
                    inner.error = Some(errno);
                }
                inner.link.on_end(kind == ConnectionKind::Broken);
            }
        }
    }

    fn on_completion(&self, inner: &mut Inner, dto: DtoCompletion) {
        if dto.cookie & EPOCH != inner.epoch() {
            // It was posted before the peer suspended the connection.
            return;
        }
        if dto.status != DtoStatus::Success {
            // The connection event that follows gives the cause.
            tracing::debug!(status = %dto.status, "work of a socket did not complete");
            inner.link.on_failure(match dto.status {
                DtoStatus::Transport => Failure::Unanswered,
                _ => Failure::Flushed,
            });
            return;
        }
        let number = dto.cookie & !(KIND | EPOCH);
        match dto.cookie & KIND {
            RECEIVE => self.on_message(inner, number as usize, dto.transferred as usize),
            SEND if inner.send.on_completed(number).is_fin => {
                inner.connection.handle_fin_completed();
            }
            SEND => (),
            READ => self.on_read(inner, number),
            // An RDMA Write, whose Send reports for both.
            _ => (),
        }
    }

    fn on_message(&self, inner: &mut Inner, index: usize, len: usize) {
        let mut head = [0; HEADER_MAX];
        let Ok(head) = inner.receive.head(index, len, &mut head) else {
            return;
        };
        inner.statistics.messages_received += 1;
        inner.trace.received(head, len);
        inner.user.on_message(|| self.close_deadline());
        let inbound = inner.connection.handle_message(head, len);
        let inbound = inbound.unwrap_or_default();
        if inbound.payload_len > 0 && !inner.connection.state().has_ended() {
            let (at, len) = (inbound.payload_at as usize, inbound.payload_len as usize);
            if inbound.urgent && inner.receive.take_urgent(false).is_some() {
                // The watch sees the former urgent byte disappear before the new one appears.
                inner.is_urgent_announced = false;
                inner.show();
            }
            inner.arrived = true;
            inner.statistics.bytes_received += len as u64;
            if let Err(error) = inner.receive.push(index, at, len, inbound.urgent) {
                tracing::error!(%error, "received bytes cannot be stored");
            }
        }
        inner.receive.on_handled(index);
    }

    /// Posts receive buffer `index`.
    pub(super) fn post_buffer(&self, inner: &Inner, index: usize) -> dat_api::Result<()> {
        let segment = inner.receive.segment(index)?;
        self.ep
            .post_recv(&[segment], inner.cookie(RECEIVE, index as u64))
    }

    /// Posts a receive buffer again. An ended connection refuses it, which is harmless.
    pub(super) fn post_receive(&self, inner: &mut Inner, index: usize) {
        match self.post_buffer(inner, index) {
            Ok(()) => inner.connection.handle_posted(),
            Err(error) => tracing::debug!(%error, "a receive buffer is not posted again"),
        }
    }

    /// Posts the receive buffers that hold no bytes any more, and adds buffers if the queue has to
    /// grow. Posts nothing after the last message of the peer. Returns true if it posted any.
    ///
    /// A provider may not complete a Receive that is posted after the transport has ended. OFA's
    /// provider on siw then never returns from `dat_ep_disconnect`, which waits for all Receives.
    /// So the completions of a drain are handled before any buffer is posted: DisConn and the end
    /// of the transport may follow the completed message at once.
    pub(super) fn post_emptied(&self, inner: &mut Inner) -> bool {
        if !inner.connection.expects_messages() {
            return false;
        }
        let mut has_posted = false;
        while let Some(index) = inner.receive.next_emptied() {
            self.post_receive(inner, index);
            has_posted = true;
        }
        let most = usize::from(self.config.receive_buffers);
        for index in inner.receive.grow(most) {
            match self.post_buffer(inner, index) {
                Ok(()) => inner.connection.handle_added(1),
                Err(error) => tracing::debug!(%error, "a receive buffer is not posted"),
            }
            has_posted = true;
        }
        has_posted
    }

    fn on_read(&self, inner: &mut Inner, number: u64) {
        let is_it = |read: &mut ReadInProgress| read.number == number;
        let Some(read) = inner.reads.pop_front_if(is_it) else {
            return;
        };
        inner.connection.finish_read(read.len);
        inner.statistics.bytes_received += u64::from(read.len);
        inner.statistics.bytes_read += u64::from(read.len);
        match read.into {
            ReadInto::Half(half) => {
                inner.arrived = true;
                inner.receive.on_staged(half, read.len as usize);
            }
            ReadInto::Reader => inner.read_direct.push((number, read.len as usize)),
        }
    }

    fn handle_protocol_events(&self, inner: &mut Inner) {
        while let Some(event) = inner.connection.poll_event() {
            match event {
                sdp_proto::Event::Established => tracing::info!(peer = %self.peer(), "connected"),
                sdp_proto::Event::UrgentComing => inner.is_urgent_announced = true,
                sdp_proto::Event::EndOfStream => {
                    inner.read_half.on_end();
                    inner.arrived = true;
                }
                sdp_proto::Event::AdvertDone { id, taken } => {
                    if let Some(source) = inner.source(id) {
                        source.taken = Some(taken);
                    }
                }
                sdp_proto::Event::SinkDone { id, written } => {
                    if let Some(sink) = inner.sink.as_mut().filter(|sink| sink.id == id) {
                        sink.written = Some(written);
                    }
                }
                sdp_proto::Event::SinkOffered => inner.expects_sink = true,
                // This end asks for no other buffers and refuses such requests of the peer.
                sdp_proto::Event::BuffersAnswered(_) | sdp_proto::Event::BuffersKnown(_) => (),
                sdp_proto::Event::BuffersAsked(_) => {
                    inner.connection.answer_buffers(self.config.buffer_size);
                }
                sdp_proto::Event::Disconnect => self.disconnect(inner),
                sdp_proto::Event::Failed(failure) => {
                    tracing::info!(peer = %self.peer(), %failure, "a connection failed");
                    let errno = errors::of_protocol(failure.error_kind());
                    let errno = match errno {
                        // No reset was received: the peer is unreachable.
                        Errno::CONNRESET if inner.link.has_timed_out() => Errno::TIMEDOUT,
                        // Linux reports EPIPE for a reset after the peer's end of stream.
                        Errno::CONNRESET if inner.is_half_closed_by_peer() => Errno::PIPE,
                        errno => errno,
                    };
                    inner.error.get_or_insert(errno);
                    inner.arrived = true;
                }
                sdp_proto::Event::Closed => tracing::info!(peer = %self.peer(), "closed"),
            }
        }
    }

    fn disconnect(&self, inner: &Inner) {
        let how = match inner.connection.state() {
            ConnectionState::Failed(_) => Close::Abrupt,
            _ => Close::Graceful,
        };
        if let Err(error) = self.ep.disconnect(how) {
            // The peer has disconnected first.
            tracing::debug!(%error, "a connection is not disconnected");
        }
    }

    /// Sends the protocol's messages, starts the reads that no waiting reader starts, and posts the
    /// receive buffers that were read.
    ///
    /// Buffers are posted after the messages, because the peer may wait for the bytes of a
    /// message, and seldom waits for buffers. The next message announces them, or one of their own.
    pub(super) fn pump(&self, inner: &mut Inner) {
        self.pump_and_post(inner, true);
    }

    /// As [`Self::pump`] at the end of a read: leaves a few buffers to the next call, so that a
    /// read does not delay the answer that follows it.
    pub(super) fn pump_after_read(&self, inner: &mut Inner) {
        let has_many = inner.receive.has_many_emptied();
        self.pump_and_post(inner, has_many);
    }

    fn pump_and_post(&self, inner: &mut Inner, posts: bool) {
        // A command of this end may have caused an event for which no message follows.
        self.handle_protocol_events(inner);
        self.stage(inner);
        self.transmit(inner);
        if posts && self.post_emptied(inner) {
            self.transmit(inner);
        }
        if inner.connection.wants_tick() && !inner.link.is_gone() {
            self.adapter.want_tick();
        }
        self.end_abandoned(inner);
        inner.count_obstacle();
        inner.show();
    }

    /// Sends the protocol's messages.
    fn transmit(&self, inner: &mut Inner) {
        while inner.link.may_post()
            && !inner.link.is_gone()
            && inner.send.has_slot()
            && let Some(transmit) = inner.connection.poll_transmit()
        {
            if let Err(error) = self.post(inner, &transmit) {
                tracing::warn!(%error, "a message cannot be sent");
                self.abort_connection(inner);
            }
            self.handle_protocol_events(inner);
        }
    }

    fn post(&self, inner: &mut Inner, transmit: &Transmit) -> dat_api::Result<()> {
        let payload_len = transmit.payload.len() as usize;
        let head = transmit.header.as_bytes();
        let carried = match transmit.into {
            Some(_) => 0,
            None => payload_len,
        };
        inner.trace.sent(head, head.len() + carried);
        let from_user = transmit.payload.source();
        let ring_bytes = if from_user.is_some() { 0 } else { payload_len };
        let waits = transmit.fin || from_user.is_some() || inner.has_waiting_writer;
        let is_signaled = inner.send.wants_completion(ring_bytes, waits);
        let mut flags = if is_signaled {
            CompletionFlags::DEFAULT
        } else {
            CompletionFlags::SUPPRESS
        };
        if transmit.solicited {
            flags = flags | CompletionFlags::SOLICITED_WAIT;
        }
        let cookie = inner.cookie(SEND, inner.send.next_number());
        let header = inner.send.header(&transmit.header)?;
        let (first, second) = match transmit.payload {
            Payload::Nothing => (None, None),
            Payload::Stream(_) => {
                let (first, second) = inner.send.next(payload_len)?;
                (Some(first), second)
            }
            Payload::Advert { id, offset, .. } => {
                let sources = &mut inner.sources.iter();
                let source = sources.find(|source| source.id == id && source.taken.is_none());
                let lmr = &source.ok_or(dat_api::Error::TimedOut)?.memory;
                (Some(lmr.segment(offset as usize, payload_len)?), None)
            }
        };
        match (transmit.into, first, second) {
            (Some(into), Some(first), second) => {
                let cookie_of_write = inner.cookie(WRITE, 0);
                self.post_write(into, &first, cookie_of_write)?;
                if let Some(second) = second {
                    let address = into.address.wrapping_add(u64::from(first.len()));
                    self.post_write(PeerMemory { address, ..into }, &second, cookie_of_write)?;
                }
                self.ep.post_send(&[header], cookie, flags)?;
                inner
                    .send
                    .on_writes_posted(1 + usize::from(second.is_some()));
            }
            (_, None, _) => self.ep.post_send(&[header], cookie, flags)?,
            (None, Some(first), None) => {
                let flags = flags | self.adapter.inline;
                self.ep.post_send(&[header, first], cookie, flags)?;
            }
            (None, Some(first), Some(second)) => {
                let flags = flags | self.adapter.inline;
                self.ep.post_send(&[header, first, second], cookie, flags)?;
            }
        }
        inner
            .send
            .on_posted(ring_bytes, transmit.fin, from_user, is_signaled);
        inner.count_posted(transmit);
        inner.posted_since_poll += payload_len;
        Ok(())
    }

    /// Writes into the memory of the peer's reader. The Send that follows on the same queue
    /// completes after the write, so the write reports only its failure. An endpoint need not take
    /// two segments in a write, so each segment is a write of its own.
    fn post_write(
        &self,
        into: PeerMemory,
        segment: &Segment<'_>,
        cookie: u64,
    ) -> dat_api::Result<()> {
        let remote = RemoteRegion {
            addr: into.address,
            len: segment.len(),
            context: into.stag,
        };
        self.ep
            .post_rdma_write(&[*segment], remote, cookie, CompletionFlags::SUPPRESS)
    }

    /// Reads advertised memory that no waiting reader takes itself.
    fn stage(&self, inner: &mut Inner) {
        let room = inner.reader_room.saturating_sub(inner.receive.readable());
        if !inner.link.may_post() || self.suits_reader(inner, room) {
            if inner.expects_reader {
                // A tick stages the bytes if there is no read.
                self.adapter.want_tick();
            }
            return;
        }
        while inner.connection.readable() > 0
            && let Some((half, max)) = inner.receive.free_half()
            && let Some(read) = inner.connection.begin_read(max as u32)
        {
            inner.receive.on_staging(half);
            let number = self.next_read(inner, read.len, ReadInto::Half(half));
            let cookie = inner.cookie(READ, number);
            let posted = inner
                .receive
                .half(half, read.len as usize)
                .and_then(|sink| self.post_read(&sink, read, cookie));
            self.check_read(inner, posted);
        }
    }

    /// True if a reader that waits with `room` bytes is to read the advertised memory itself: both
    /// must be worth a registration. Half of the advertising threshold is enough, because the first
    /// bytes were sent with the advertisement, and part of the reader's memory may be full.
    pub(super) fn suits_reader(&self, inner: &Inner, room: usize) -> bool {
        let worth_it = self.config.zcopy_threshold / 2;
        inner.link.may_post()
            && inner.connection.state().is_established()
            && inner.reads.is_empty()
            && room.min(inner.connection.readable() as usize) >= worth_it.max(1)
    }

    pub(super) fn next_read(&self, inner: &mut Inner, len: u32, into: ReadInto) -> u64 {
        inner.statistics.reads += 1;
        let number = inner.statistics.reads;
        inner.reads.push_back(ReadInProgress { number, len, into });
        number
    }

    pub(super) fn post_read(
        &self,
        sink: &dat_api::Segment<'_>,
        read: Read,
        cookie: u64,
    ) -> dat_api::Result<()> {
        let remote = RemoteRegion {
            addr: read.address,
            len: read.len,
            context: read.stag,
        };
        let flags = CompletionFlags::DEFAULT;
        self.ep.post_rdma_read(&[*sink], remote, cookie, flags)
    }

    /// Aborts the connection if a read was not posted, because the stream would have a gap.
    pub(super) fn check_read(&self, inner: &mut Inner, posted: dat_api::Result<()>) {
        if let Err(error) = posted {
            tracing::warn!(%error, "advertised memory cannot be read");
            inner.reads.pop_back();
            self.abort_connection(inner);
        }
    }

    /// Aborts the connection, so that the peer sees a reset.
    pub(super) fn abort_connection(&self, inner: &mut Inner) {
        inner.connection.abort();
        self.handle_protocol_events(inner);
    }

    /// Aborts the connection to a peer that does not answer. This end reports ETIMEDOUT.
    pub(super) fn abort_unanswered(&self, inner: &mut Inner) {
        if !inner.connection.state().has_ended() {
            inner.error.get_or_insert(Errno::TIMEDOUT);
        }
        self.abort_connection(inner);
    }

    /// Blocks until an event was handled. Returns `TimedOut` at `deadline`. The thread sleeps
    /// in `dat_evd_wait`, in which the provider arms its queues, sleeps and makes progress.
    pub(super) fn wait<'a>(
        &'a self,
        mut inner: MutexGuard<'a, Inner>,
        deadline: Option<Instant>,
    ) -> io::Result<MutexGuard<'a, Inner>> {
        let left = match deadline {
            None => None,
            Some(deadline) => match deadline.checked_duration_since(Instant::now()) {
                None | Some(Duration::ZERO) => return Err(io::ErrorKind::TimedOut.into()),
                left => left,
            },
        };
        if inner.attendance.has_sleeper() {
            let pause = left.unwrap_or(Duration::MAX).min(Duration::from_secs(3600));
            inner.followers += 1;
            let waited = self.changed.wait_timeout(inner, pause);
            let mut inner = waited.ignore_poison().0;
            inner.followers -= 1;
            return Ok(inner);
        }
        let wants_tick = inner.connection.wants_tick();
        let tick = wants_tick.then_some(TICK);
        let pause = tick.into_iter().chain(left).min();
        let queue = match inner.awaits_connection_event() {
            true => Queue::Connections,
            false => Queue::Completions,
        };
        if inner.attendance.on_begin_sleep(queue) {
            self.attach(false);
        }
        inner.posted_since_poll = 0;
        drop(inner);
        let event = self.dispatcher(queue).wait_many(1, pause);
        let mut inner = self.lock();
        if inner.attendance.on_end_sleep() {
            self.set_waitable(queue, true);
        }
        match event {
            Ok(Some((event, more))) => {
                self.on_event(&mut inner, event);
                self.take_more(&mut inner, queue, more);
            }
            Ok(None) if wants_tick && pause == tick => inner.connection.handle_tick(),
            Ok(None) => (),
            // A signal, or a kick by another thread.
            Err(error) if error.is(DAT_INTERRUPTED_CALL) || error.is(DAT_INVALID_STATE) => (),
            Err(error) => {
                self.wake_followers(&inner);
                return Err(errors::of_dat(&error));
            }
        }
        self.begin(&mut inner);
        self.wake_followers(&inner);
        Ok(inner)
    }

    /// Handles the further events that a wait has counted. Dequeuing beyond that count would cost a
    /// system call in the provider.
    fn take_more(&self, inner: &mut Inner, queue: Queue, more: u32) {
        for _ in 0..more {
            match self.dispatcher(queue).dequeue() {
                Ok(Some(event)) => self.on_event(inner, event),
                _ => return,
            }
        }
    }

    /// Wakes the thread that sleeps in a dispatcher after a change that causes no event.
    pub(super) fn kick(&self, inner: &mut Inner) {
        if let Some(queue) = inner.attendance.on_kick() {
            self.set_waitable(queue, false);
        }
        self.wake_followers(inner);
    }

    /// Wakes the threads that wait until the sleeper has handled an event. Costs no system call if
    /// there are none.
    pub(super) fn wake_followers(&self, inner: &Inner) {
        if inner.followers > 0 {
            self.changed.notify_all();
        }
    }

    const fn dispatcher(&self, queue: Queue) -> &Evd {
        match queue {
            Queue::Completions => &self.evd,
            Queue::Connections => &self.connections,
        }
    }

    fn set_waitable(&self, queue: Queue, waitable: bool) {
        if let Err(error) = self.dispatcher(queue).set_waitable(waitable) {
            tracing::error!(%error, "a waiting thread cannot be woken");
        }
    }

    /// Ends a call: the stack's thread takes over the call's unfinished work, and is not woken if
    /// there is none.
    pub(crate) fn hand_over(&self, inner: &mut Inner) {
        if !inner.connection.is_drained() {
            // The next call most likely sends the rest. If there is none, the tick does.
            self.adapter.want_tick();
        }
        if inner.user.is_closing() {
            inner.attendance.on_end_polling();
        }
        let Some(attached) = inner.attendance.on_hand_over(inner.wants_service()) else {
            return;
        };
        self.attach(attached);
        if attached {
            // Events that occurred before the attachment have not triggered the CNO.
            self.progress(inner);
        }
    }

    /// Polls until the socket is readable, `polls` times at most. Returns true if it is.
    ///
    /// The stack's thread is not woken for events meanwhile, nor afterwards, until
    /// [`Self::end_polling`], a close, or two ticks without a poll.
    pub(crate) fn poll_readable(&self, polls: u32) -> bool {
        let mut inner = self.lock();
        if inner.user.is_closing() || !inner.connection.state().is_established() {
            return false;
        }
        match inner.attendance.on_begin_polling() {
            None => return false,
            Some(Attendance::Pollers { .. }) => {}
            Some(before) => {
                if before == Attendance::Stack {
                    self.attach(false);
                }
                self.adapter.want_tick();
                self.is_polled.store(true, Ordering::Relaxed);
            }
        }
        for _ in 0..polls {
            let has_events = self.poll_events(&mut inner, |_| false);
            if inner.readiness().readable {
                return true;
            }
            if has_events {
                self.pump(&mut inner);
            }
            drop(inner);
            inner = self.lock();
        }
        false
    }

    /// Reports to the watch what [`Self::poll_readable`] has found.
    pub(crate) fn show_polled(&self) {
        let mut inner = self.lock();
        self.pump(&mut inner);
    }

    /// True from [`Self::poll_readable`] until [`Self::end_polling`].
    pub(crate) fn is_polled(&self) -> bool {
        // Relaxed is sufficient: the thread that polls asks before it sleeps, and the polls of
        // other threads end at the ticks.
        self.is_polled.load(Ordering::Relaxed)
    }

    /// Ends the effect of [`Self::poll_readable`]: the stack's thread serves the socket.
    pub(crate) fn end_polling(&self) {
        if !self.is_polled() {
            return;
        }
        let mut inner = self.lock();
        self.is_polled.store(false, Ordering::Relaxed);
        if matches!(inner.attendance, Attendance::Pollers { .. }) {
            inner.attendance.on_end_polling();
            self.hand_over(&mut inner);
        }
    }

    /// Attaches the dispatchers to the CNO of the stack's thread, or detaches them.
    fn attach(&self, attached: bool) {
        let cno = attached.then_some(&self.adapter.cno);
        for evd in [&self.evd, &self.connections] {
            if let Err(error) = evd.set_cno(cno) {
                tracing::error!(%error, "a dispatcher cannot change its CNO");
            }
        }
    }

    /// Serves the socket on the stack's thread: a dispatcher has triggered, or a tick is due
    /// (`ticks`). Returns true if no more events will occur.
    ///
    /// The watch is notified once, at the end, and wakes threads only after the lock is free.
    pub(crate) fn serve(&self, ticks: bool) -> bool {
        let mut inner = self.lock();
        inner.is_withholding = true;
        if ticks && inner.connection.wants_tick() {
            inner.connection.handle_tick();
        }
        if ticks && inner.attendance.on_tick() {
            self.adapter.want_tick();
        }
        if ticks && std::mem::take(&mut inner.expects_reader) {
            inner.reader_room = 0;
        }
        if inner.user.is_due(Instant::now()) {
            self.end_close(&mut inner);
        }
        self.drain(&mut inner, Queue::Connections, |_| false);
        self.progress(&mut inner);
        self.hand_over(&mut inner);
        self.wake_followers(&inner);
        inner.is_withholding = false;
        let watch = inner.watch.clone();
        if let Some(watch) = &watch {
            watch.hold();
        }
        inner.show();
        let has_ended = inner.has_ended();
        drop(inner);
        if let Some(watch) = &watch {
            watch.release();
        }
        has_ended
    }
}
