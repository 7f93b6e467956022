//! Events in, messages out; waiting.

use std::{
    io,
    sync::MutexGuard,
    time::{Duration, Instant},
};

use dat_api::{
    Close, CompletionFlags, ConnectionEvent, ConnectionKind, DtoCompletion, DtoStatus, Evd, Event,
    RemoteRegion,
    abi::{DAT_INTERRUPTED_CALL, DAT_INVALID_STATE},
};
use rustix::io::Errno;
use sdp_proto::{ConnectionState, Payload, Read, Transmit, wire::HEADER_MAX};

use super::{
    Inner, Socket,
    inner::{ReadInto, ReadUnderWay},
};
use crate::errors;

/// What a completion belongs to, in the upper half of its cookie.
const RECEIVE: u64 = 1 << 56;
const SEND: u64 = 2 << 56;
const READ: u64 = 3 << 56;
const KIND: u64 = 0xff << 56;

/// How long a wait sleeps at most when the protocol wants a tick.
const TICK: Duration = Duration::from_millis(10);

impl Socket {
    /// Handles what has happened, unless a waiting thread does, and sends what can be sent.
    pub(crate) fn progress(&self, inner: &mut Inner) {
        // News of the connection first: what it received before its end is in the other queue by
        // then. Looking costs a system call of the provider's, so only when there may be some.
        if !inner.connecting && (inner.awaits_connection_event() || inner.is_gone) {
            self.drain(inner, &self.connections);
        }
        if !inner.driven && inner.may_hear_messages() {
            inner.unlooked = 0;
            if inner.served {
                self.take_at_hand(inner);
            } else {
                self.drain(inner, &self.evd);
            }
            self.check_gone(inner);
        }
        self.pump(inner);
    }

    /// Handles the events that are there, of a dispatcher that triggers when more come. A wait that
    /// does not wait says how many there are, which saves the look at the empty queue.
    fn take_at_hand(&self, inner: &mut Inner) {
        match self.evd.wait_many(1, Some(Duration::ZERO)) {
            Ok(Some((event, more))) => {
                self.on_event(inner, event);
                self.take_more(inner, false, more);
            }
            Ok(None) => (),
            // Not every provider lets a dispatcher be waited on that triggers a CNO.
            Err(_) => self.drain(inner, &self.evd),
        }
    }

    fn drain(&self, inner: &mut Inner, evd: &Evd) {
        loop {
            match evd.dequeue() {
                Ok(Some(event)) => self.on_event(inner, event),
                Ok(None) => return,
                Err(error) => {
                    tracing::error!(%error, "a socket's events cannot be read");
                    return;
                }
            }
        }
    }

    /// Begins a call that looks at the events by itself when it has to: a writer that has no room,
    /// a reader by waiting, which returns at once when something has happened. A look in advance
    /// would cost one more system call in the provider.
    pub(super) fn begin(&self, inner: &mut Inner) {
        if inner.is_gone || inner.awaits_connection_event() {
            self.progress(inner);
        } else {
            self.pump(inner);
        }
    }

    /// The same for a reader that does not wait. It stops at the first event that brings something
    /// to read: one more look, which mostly finds nothing, would delay the program's answer.
    pub(super) fn begin_to_read(&self, inner: &mut Inner) {
        if inner.driven || inner.is_gone || inner.awaits_connection_event() {
            return self.progress(inner);
        }
        while inner.receive.is_empty() {
            match self.evd.dequeue() {
                Ok(Some(event)) => self.on_event(inner, event),
                Ok(None) => break,
                Err(error) => {
                    tracing::error!(%error, "a socket's events cannot be read");
                    break;
                }
            }
        }
        self.check_gone(inner);
        self.pump(inner);
    }

    /// Tells the protocol of the transport's end, once the last message has been handled.
    fn check_gone(&self, inner: &mut Inner) {
        if inner.is_gone {
            inner.connection.handle_disconnected();
            inner.send.on_gone();
            inner.reads.clear();
            self.take_news(inner);
        }
    }

    pub(super) fn on_event(&self, inner: &mut Inner, event: Event) {
        match event {
            Event::Dto(dto) => self.on_completion(inner, dto),
            Event::Connection(event) => self.on_connection(inner, &event),
            other => tracing::debug!(?other, "an event that means nothing to a socket"),
        }
        self.take_news(inner);
    }

    fn on_connection(&self, inner: &mut Inner, event: &ConnectionEvent) {
        match event.kind {
            ConnectionKind::Established => {
                inner.is_up = true;
                if inner.connection.state() == ConnectionState::HelloSent {
                    let hello = std::mem::take(&mut inner.hello);
                    inner.trace.setup(&hello, &event.private_data);
                    // A bad answer has ended the connection; the news say so.
                    let _ = inner.connection.handle_hello_ack(&event.private_data);
                } else if !inner.says_first {
                    inner.connection.handle_established();
                }
            }
            kind => {
                inner.is_broken = kind == ConnectionKind::Broken;
                if inner.connection.state() == ConnectionState::HelloSent {
                    let errno = if errors::names_version(&event.private_data) {
                        Errno::PROTONOSUPPORT
                    } else {
                        errors::of_connection(kind)
                    };
                    inner.error = Some(errno);
                }
                inner.is_gone = true;
            }
        }
    }

    fn on_completion(&self, inner: &mut Inner, dto: DtoCompletion) {
        if dto.status != DtoStatus::Success {
            // The connection's own event follows and says what it means.
            tracing::debug!(status = %dto.status, "work of a socket did not complete");
            inner.flushed = true;
            inner.unanswered |= dto.status == DtoStatus::Transport;
            return;
        }
        let number = dto.cookie & !KIND;
        match dto.cookie & KIND {
            RECEIVE => self.on_message(inner, number as usize, dto.transferred as usize),
            SEND => {
                if inner.send.on_completed(number).fin {
                    inner.connection.handle_fin_completed();
                }
            }
            _ => self.on_read(inner, number),
        }
    }

    fn on_message(&self, inner: &mut Inner, index: usize, len: usize) {
        let mut head = [0; HEADER_MAX];
        let Ok(head) = inner.receive.head(index, len, &mut head) else {
            return;
        };
        inner.statistics.messages_received += 1;
        inner.trace.received(head, len);
        if inner.closed_until.is_some() {
            // A slow reader gets what was written before the close, as long as it says something.
            inner.closed_until = self.close_deadline();
        }
        let inbound = inner.connection.handle_message(head, len);
        let inbound = inbound.unwrap_or_default();
        if inbound.payload_len > 0 && !inner.connection.state().has_ended() {
            let (at, len) = (inbound.payload_at as usize, inbound.payload_len as usize);
            if inbound.urgent && inner.receive.take_urgent(false).is_some() {
                // What watches sees a new one where the one before has gone.
                inner.urgent_coming = false;
                inner.show();
            }
            inner.arrived = true;
            inner.statistics.bytes_received += len as u64;
            if let Err(error) = inner.receive.push(index, at, len, inbound.urgent) {
                tracing::error!(%error, "received bytes cannot be kept");
            }
            // Of urgent bytes that are out of the stream now.
            while let Some(index) = inner.receive.next_emptied() {
                self.post_receive(inner, index);
            }
        }
        if !inner.receive.holds(index) {
            self.post_receive(inner, index);
        }
    }

    /// The cookie of the Receive into buffer `index`.
    pub(super) const fn receive_cookie(index: usize) -> u64 {
        RECEIVE | index as u64
    }

    /// Posts a receive buffer again. On a connection that has ended there is no need to.
    pub(super) fn post_receive(&self, inner: &mut Inner, index: usize) {
        let posted = inner
            .receive
            .segment(index)
            .and_then(|segment| self.ep.post_recv(&[segment], Self::receive_cookie(index)));
        match posted {
            Ok(()) => inner.connection.handle_posted(),
            Err(error) => tracing::debug!(%error, "a receive buffer is not posted again"),
        }
    }

    fn on_read(&self, inner: &mut Inner, number: u64) {
        let is_it = |read: &mut ReadUnderWay| read.number == number;
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

    fn take_news(&self, inner: &mut Inner) {
        while let Some(news) = inner.connection.poll_event() {
            match news {
                sdp_proto::Event::Established => tracing::info!(peer = %self.peer(), "connected"),
                sdp_proto::Event::UrgentComing => inner.urgent_coming = true,
                sdp_proto::Event::EndOfStream => {
                    inner.saw_end = true;
                    inner.arrived = true;
                }
                sdp_proto::Event::AdvertDone { id, taken } => {
                    if let Some(source) = inner.source.as_mut().filter(|source| source.id == id) {
                        source.taken = Some(taken);
                    }
                }
                sdp_proto::Event::Disconnect => self.disconnect(inner),
                sdp_proto::Event::Failed(failure) => {
                    tracing::info!(peer = %self.peer(), %failure, "a connection failed");
                    let errno = errors::of_protocol(failure.error_kind());
                    let errno = match errno {
                        // No reset came; the peer is out of reach.
                        Errno::CONNRESET if inner.is_broken && inner.unanswered => Errno::TIMEDOUT,
                        // Linux calls a reset so that comes behind the peer's end.
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
            // The peer was faster.
            tracing::debug!(%error, "a connection is not disconnected");
        }
    }

    /// Sends what the protocol wants sent and starts the reads that nobody else does.
    pub(super) fn pump(&self, inner: &mut Inner) {
        // What a command of this end has settled at once: no message will tell of it.
        self.take_news(inner);
        self.stage(inner);
        while inner.is_up
            && inner.send.has_slot()
            && let Some(transmit) = inner.connection.poll_transmit()
        {
            if let Err(error) = self.post(inner, &transmit) {
                tracing::warn!(%error, "a message cannot be sent");
                self.give_up(inner);
            }
            self.take_news(inner);
        }
        if inner.connection.wants_tick() {
            self.adapter.want_tick();
        }
        inner.show();
    }

    fn post(&self, inner: &mut Inner, transmit: &Transmit) -> dat_api::Result<()> {
        let payload_len = transmit.payload.len() as usize;
        let head = transmit.header.as_bytes();
        inner.trace.sent(head, head.len() + payload_len);
        let from_user = matches!(transmit.payload, Payload::Advert { .. });
        let ring_bytes = if from_user { 0 } else { payload_len };
        let waits = transmit.fin || from_user || inner.writer_waits;
        let is_loud = inner.send.wants_completion(ring_bytes, waits);
        let mut flags = if is_loud {
            CompletionFlags::DEFAULT
        } else {
            CompletionFlags::SUPPRESS
        };
        if transmit.solicited {
            flags = flags | CompletionFlags::SOLICITED_WAIT;
        }
        let cookie = SEND | inner.send.next_number();
        let header = inner.send.header(&transmit.header)?;
        match transmit.payload {
            Payload::Nothing => self.ep.post_send(&[header], cookie, flags)?,
            Payload::Stream(_) => match inner.send.next(payload_len)? {
                (first, None) => self.ep.post_send(&[header, first], cookie, flags)?,
                (first, Some(second)) => {
                    self.ep.post_send(&[header, first, second], cookie, flags)?;
                }
            },
            Payload::Advert { offset, .. } => {
                let source = inner
                    .source
                    .as_ref()
                    .filter(|source| source.taken.is_none());
                let lmr = &source.ok_or(dat_api::Error::TimedOut)?.lmr;
                let payload = lmr.segment(offset as usize, payload_len)?;
                self.ep.post_send(&[header, payload], cookie, flags)?;
            }
        }
        inner
            .send
            .on_posted(ring_bytes, transmit.fin, from_user, is_loud);
        inner.statistics.messages_sent += 1;
        inner.unlooked += payload_len;
        Ok(())
    }

    /// Reads advertised memory that no waiting reader takes itself.
    fn stage(&self, inner: &mut Inner) {
        let room = inner.reader_room.saturating_sub(inner.receive.readable());
        if !inner.is_up || self.suits_reader(inner, room) {
            return;
        }
        while inner.connection.readable() > 0
            && let Some((half, max)) = inner.receive.free_half()
            && let Some(read) = inner.connection.begin_read(max as u32)
        {
            inner.receive.on_staging(half);
            let number = self.next_read(inner, read.len, ReadInto::Half(half));
            let posted = inner
                .receive
                .half(half, read.len as usize)
                .and_then(|sink| self.post_read(&sink, read, number));
            self.check_read(inner, posted);
        }
    }

    /// Whether a reader that waits with so much room takes what is advertised itself: both must be
    /// long enough to be worth a registration. Half of what is worth an advertisement will do: part
    /// of that came with the advertisement, or goes to the end of the reader's memory.
    pub(super) fn suits_reader(&self, inner: &Inner, room: usize) -> bool {
        let worth_it = self.config.zcopy_threshold / 2;
        inner.is_up
            && inner.connection.state().is_established()
            && inner.reads.is_empty()
            && room.min(inner.connection.readable() as usize) >= worth_it.max(1)
    }

    pub(super) fn next_read(&self, inner: &mut Inner, len: u32, into: ReadInto) -> u64 {
        inner.statistics.reads += 1;
        let number = inner.statistics.reads;
        inner.reads.push_back(ReadUnderWay { number, len, into });
        number
    }

    pub(super) fn post_read(
        &self,
        sink: &dat_api::Segment<'_>,
        read: Read,
        number: u64,
    ) -> dat_api::Result<()> {
        let remote = RemoteRegion {
            addr: read.address,
            len: read.len,
            context: read.stag,
        };
        let flags = CompletionFlags::DEFAULT;
        self.ep
            .post_rdma_read(&[*sink], remote, READ | number, flags)
    }

    /// A read that cannot be posted leaves a hole in the stream.
    pub(super) fn check_read(&self, inner: &mut Inner, posted: dat_api::Result<()>) {
        if let Err(error) = posted {
            tracing::warn!(%error, "advertised memory cannot be read");
            inner.reads.pop_back();
            self.give_up(inner);
        }
    }

    /// Ends the connection so that the peer sees a reset.
    pub(super) fn give_up(&self, inner: &mut Inner) {
        inner.connection.abort();
        self.take_news(inner);
    }

    /// The same of a peer that does not answer.
    pub(super) fn lose_patience(&self, inner: &mut Inner) {
        if !inner.connection.state().has_ended() {
            inner.error.get_or_insert(Errno::TIMEDOUT);
        }
        self.give_up(inner);
    }

    /// Waits until something happens, or until `deadline`. Says `TimedOut` then.
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
        if inner.driven || inner.connecting {
            let pause = left.unwrap_or(Duration::MAX).min(Duration::from_secs(3600));
            inner.sleepers += 1;
            let waited = self.changed.wait_timeout(inner, pause);
            let mut inner = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
            inner.sleepers -= 1;
            return Ok(inner);
        }
        let wants_tick = inner.connection.wants_tick();
        let pause = if wants_tick { Some(TICK) } else { left };
        if inner.served {
            // The stack's thread would wake for the same events.
            self.set_served(&mut inner, false);
        }
        let is_connection = inner.awaits_connection_event();
        (inner.driven, inner.connecting) = (!is_connection, is_connection);
        inner.unlooked = 0;
        drop(inner);
        let event = self.waited_on(is_connection).wait_many(1, pause);
        let mut inner = self.lock();
        (inner.driven, inner.connecting) = (false, false);
        if std::mem::take(&mut inner.kicked) {
            self.set_waitable(is_connection, true);
        }
        match event {
            Ok(Some((event, more))) => {
                self.on_event(&mut inner, event);
                self.take_more(&mut inner, is_connection, more);
            }
            Ok(None) if wants_tick => inner.connection.handle_tick(),
            Ok(None) => (),
            // A signal, or another thread that wants this one to look.
            Err(error) if error.is(DAT_INTERRUPTED_CALL) || error.is(DAT_INVALID_STATE) => (),
            Err(error) => {
                self.tell_sleepers(&inner);
                return Err(errors::of_dat(&error));
            }
        }
        self.begin(&mut inner);
        self.tell_sleepers(&inner);
        Ok(inner)
    }

    /// Handles the events that a wait left behind. Asking for more than it counted would cost a
    /// system call of the provider's.
    fn take_more(&self, inner: &mut Inner, is_connection: bool, more: u32) {
        for _ in 0..more {
            match self.waited_on(is_connection).dequeue() {
                Ok(Some(event)) => self.on_event(inner, event),
                _ => return,
            }
        }
    }

    /// Wakes the thread that waits for completions: something else has changed.
    pub(super) fn kick(&self, inner: &mut Inner) {
        if (inner.driven || inner.connecting) && !inner.kicked {
            inner.kicked = true;
            self.set_waitable(inner.connecting, false);
        }
        self.tell_sleepers(inner);
    }

    /// Wakes the threads that sleep while another one waits for events. Costs no system call when
    /// there are none.
    pub(super) fn tell_sleepers(&self, inner: &Inner) {
        if inner.sleepers > 0 {
            self.changed.notify_all();
        }
    }

    const fn waited_on(&self, is_connection: bool) -> &Evd {
        if is_connection {
            &self.connections
        } else {
            &self.evd
        }
    }

    fn set_waitable(&self, is_connection: bool, waitable: bool) {
        if let Err(error) = self.waited_on(is_connection).set_waitable(waitable) {
            tracing::error!(%error, "a waiting thread cannot be woken");
        }
    }

    /// The end of a call: the stack's thread takes over what the call leaves undone, and is left
    /// in peace when there is nothing.
    pub(crate) fn hand_over(&self, inner: &mut Inner) {
        if !inner.connection.is_drained() {
            // The next call will most likely go on with it; should none come, the thread does.
            self.adapter.want_tick();
        }
        let wanted = inner.wants_service();
        if wanted == inner.served || inner.driven || inner.connecting {
            return;
        }
        self.set_served(inner, wanted);
        if wanted {
            // Events that came before the thread was attached have not triggered for it.
            self.progress(inner);
        }
    }

    fn set_served(&self, inner: &mut Inner, served: bool) {
        let cno = served.then_some(&self.adapter.cno);
        for evd in [&self.evd, &self.connections] {
            if let Err(error) = evd.set_cno(cno) {
                tracing::error!(%error, "the stack's thread cannot be told of events");
            }
        }
        inner.served = served;
    }

    /// The stack's thread: somebody triggered.
    pub(crate) fn serve(&self, ticks: bool) {
        let mut inner = self.lock();
        if ticks && inner.connection.wants_tick() {
            inner.connection.handle_tick();
        }
        if inner
            .closed_until
            .is_some_and(|until| until <= Instant::now())
        {
            self.end_close(&mut inner);
        }
        if !inner.connecting {
            self.drain(&mut inner, &self.connections);
        }
        self.progress(&mut inner);
        self.hand_over(&mut inner);
        self.tell_sleepers(&inner);
    }
}
