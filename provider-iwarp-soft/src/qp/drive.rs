//! Makes progress on a connection, and ends it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use host::threads::catch_panic;
use iwarp_proto::wire::rdmap::Opcode;
use iwarp_proto::{
    PeerTerminate, RemoteOperation, RemoteProtection, StreamState, TerminateCode, UntaggedError,
};
use rnic::{AsyncEvent, QpToken, WcStatus, WhyTcp};

use crate::carrier::End;
use crate::conn::{Conn, Due, LAST_PASSES, Lifecycle, Move, Owner};
use crate::lingering::LingeringSocket;
use crate::progress::Place;
use crate::progress::conn_set::Ready;
use crate::progress::conn_socket::{Arming, ConnSocket, Driver, Service};
use crate::work::{Outstanding, RecvSlot, SendSlot};
use rnic::ConnectionEvent;

use super::{Effects, Link, Mode, Qp, lock};

/// The number of passes of one step over a connection whose peer works at the same time.
const STEPS_MAX: usize = 8;

impl Qp {
    /// Does work and contains its panic, so that the engine's thread continues. A panic ends the
    /// connection: it may be between two states, and no thread would poll its socket again.
    pub(super) fn or_fail(
        &self,
        socket: &Arc<ConnSocket>,
        work: impl FnOnce() -> Option<Effects>,
    ) -> Option<Effects> {
        let mut done = None;
        catch_panic(|| done = Some(work()));
        done.unwrap_or_else(|| Some(self.fail(socket)))
    }

    pub(super) fn try_drive(
        &self,
        socket: &Arc<ConnSocket>,
        driver: Driver,
        ready: Ready,
    ) -> Option<Effects> {
        let mut link = self.try_lock_link()?;
        let mut effects = Effects::default();
        let Link::Up(conn) = &mut *link else {
            return Some(effects);
        };
        if !Arc::ptr_eq(&conn.socket, socket) {
            return Some(effects);
        }
        conn.on_ready(ready);
        conn.burst.on_release(driver == Driver::Engine);
        if let Err(end) = self.step(conn, true, &mut effects) {
            self.finish(&mut link, end, &mut effects);
        }
        Some(effects)
    }

    fn try_arm(&self, socket: &Arc<ConnSocket>) -> Option<(Effects, bool)> {
        let mut link = self.try_lock_link()?;
        let mut effects = Effects::default();
        let Link::Up(conn) = &mut *link else {
            return Some((effects, false));
        };
        if !Arc::ptr_eq(&conn.socket, socket) {
            return Some((effects, false));
        }
        let mut result = Ok(());
        if conn.burst.on_release(true) {
            result = self.transmit(conn);
            self.settle(conn, &mut effects);
        }
        let armed = result.and_then(|()| conn.arm());
        let has_work = matches!(armed, Ok(true));
        if matches!(armed, Ok(false)) {
            effects.former = socket.progress.remove_polled(socket);
        }
        if let Err(end) = armed {
            self.finish(&mut link, end, &mut effects);
        }
        Some((effects, has_work))
    }

    /// Makes a pass over both directions, and more passes while an armed connection has work for
    /// which its peer would not ring. Completions are in their queues afterwards. Pollers then
    /// check the next record, because a record that was taken may look unpublished once its memory
    /// is free.
    pub(super) fn step(
        &self,
        conn: &mut Conn,
        receive: bool,
        effects: &mut Effects,
    ) -> Result<(), End> {
        let stepped = self.step_until_armed(conn, receive, effects);
        conn.update_watch();
        stepped
    }

    fn step_until_armed(
        &self,
        conn: &mut Conn,
        receive: bool,
        effects: &mut Effects,
    ) -> Result<(), End> {
        self.step_once(conn, receive, effects)?;
        if !conn.place.is_armed() {
            return Ok(());
        }
        for _ in 0..STEPS_MAX {
            if !conn.arm_local()? {
                return Ok(());
            }
            self.step_once(conn, true, effects)?;
        }
        // The peer produces work without a pause. From now on a polling consumer or the engine
        // drives the connection.
        if !(self.shared.progress.can_adopt() && conn.start_polling()) {
            conn.socket.drive_soon();
        }
        Ok(())
    }

    fn step_once(&self, conn: &mut Conn, receive: bool, effects: &mut Effects) -> Result<(), End> {
        let result = self.pass(conn, receive);
        let moved = !matches!(result, Ok(false));
        if moved || conn.lifecycle == Lifecycle::AwaitsFrame {
            self.settle(conn, effects);
        }
        result?;
        if conn.inbox.is_unready() || conn.waits_for_receive {
            self.update_wait(conn, effects)?;
        }
        if conn.wants_to_move() {
            self.move_on(conn)?;
        }
        if let Some(next) = conn.close_when_idle(self.shared.config.close_timeout) {
            self.set_deadline(conn, Some(next));
        }
        Ok(())
    }

    /// Makes a pass over both directions. Returns false if there was no work.
    fn pass(&self, conn: &mut Conn, receive: bool) -> Result<bool, End> {
        // A bind has nothing to send, and is done once it is submitted.
        let mut moved = self.take_submitted(conn)?;
        if conn.burst.defers_receive() {
            self.transmit(conn)?;
            return Ok(true);
        }
        if receive {
            conn.burst.must_receive = false;
            moved |= conn.receive(self)?;
            moved |= conn.pass_fence(self.stream(), &self.shared.memory)?;
        }
        if conn.wants_transmit() || conn.burst.is_held {
            self.transmit(conn)?;
            moved = true;
        }
        Ok(moved)
    }

    /// Sends as much as the transport takes. If the socket takes nothing any more, data from before
    /// its end is received: a peer that has sent everything and closed answers later data by a
    /// reset.
    pub(super) fn transmit(&self, conn: &mut Conn) -> Result<(), End> {
        let end = loop {
            match conn.transmit(self.stream(), &self.shared.memory) {
                // Reads may complete without a byte on the wire.
                Ok(()) if conn.pass_fence(self.stream(), &self.shared.memory)? => {}
                Err(end @ (End::Broken | End::Unanswered)) if !conn.has_sent_fin() => {
                    break end;
                }
                result => return result,
            }
        };
        // A peer that has broken the transport may still write to shared memory.
        for _ in 0..LAST_PASSES {
            match conn.receive(self) {
                Ok(true) => {}
                Err(better @ (End::Fault(_) | End::Terminated(_))) => return Err(better),
                Ok(false) | Err(_) => break,
            }
        }
        Err(end)
    }

    /// Publishes the completions, and detects that the connection was established.
    pub(super) fn settle(&self, conn: &mut Conn, effects: &mut Effects) {
        self.publish_done(conn, effects);
        if conn.lifecycle == Lifecycle::AwaitsFrame
            && conn.proto.state() != StreamState::AwaitFirstFpdu
        {
            self.establish(conn, Vec::new());
        }
    }

    fn publish_done(&self, conn: &mut Conn, effects: &mut Effects) {
        let sent = conn.reap(self.token);
        if sent > 0 {
            self.sends.finish(sent, sent - conn.send_done.len() as u32);
        }
        let received = conn.recv_done.len() as u32;
        if received > 0 {
            self.recvs.finish(received, 0);
        }
        if sent > 0 || received > 0 {
            self.publish(&mut conn.send_done, &mut conn.recv_done, effects);
        }
    }

    /// Queues `Established`, once.
    fn establish(&self, conn: &mut Conn, private_data: Vec<u8>) {
        conn.lifecycle.on_established();
        conn.socket.keep_socket();
        self.set_deadline(conn, None);
        tracing::info!(qp = self.token.0, remote = %conn.remote, "connection up");
        let (local, remote) = (conn.local, conn.remote);
        self.gate.on_established();
        self.queue_event(ConnectionEvent::Established {
            local,
            remote,
            private_data,
        });
    }

    pub(super) fn set_deadline(&self, conn: &mut Conn, next: Option<(Duration, Due)>) {
        let deadline = next.map(|(after, due)| (Instant::now() + after, due));
        if deadline.is_some() || conn.deadline.is_some() {
            conn.deadline = deadline;
            let at = deadline.map(|(at, _)| at);
            self.shared.engine.set_deadline(conn.socket.key, at);
        }
    }

    /// Begins full operation. `private_data` is the peer's, for `Established`. With `None` the
    /// first FPDU, which must be received within `timeout`, causes `Established`.
    pub(crate) fn on_connected(
        &self,
        link: &mut Link,
        mut conn: Box<Conn>,
        private_data: Option<Vec<u8>>,
        timeout: Option<Duration>,
    ) {
        self.gate.on_connected();
        lock(&self.submitted).mode = Mode::Open;
        lock(&self.receives).mode = Mode::Open;
        self.announce_waits(&mut conn);
        match private_data {
            Some(private_data) => self.establish(&mut conn, private_data),
            None => self.set_deadline(&mut conn, timeout.map(|after| (after, Due::Abort))),
        }
        *link = Link::Up(conn);
    }

    /// Makes the first pass of a new connection: the initiator sends first.
    pub(crate) fn drive_new(&self, link: &mut Link, effects: &mut Effects) {
        let Link::Up(conn) = link else { return };
        let stepped = self.step(conn, false, effects);
        let next = conn.await_first_message();
        self.set_deadline(conn, next);
        if let Err(end) = stepped {
            self.finish(link, end, effects);
        }
    }

    fn check_deadline(&self, socket: &Arc<ConnSocket>) -> Effects {
        let mut link = self.lock_link();
        let mut effects = Effects::default();
        if let Link::Up(conn) = &mut *link
            && Arc::ptr_eq(&conn.socket, socket)
        {
            let now = Instant::now();
            let due = match conn.deadline {
                Some((deadline, due)) if deadline <= now => Some(due),
                Some((deadline, _)) => {
                    self.shared.engine.set_deadline(socket.key, Some(deadline));
                    None
                }
                None => None,
            };
            // A step may set the timer to "now", so the step is last.
            let stepped = match (conn.place, &conn.moving, due) {
                (Place::Unwatched, ..) => Err(End::Fault(conn.proto.fail_local())),
                (.., Some(due)) => self.on_due(conn, due, &mut effects),
                (_, Move::Local { .. }, None) => self.step(conn, true, &mut effects),
                (.., None) if conn.waits_for_receive => self.step(conn, true, &mut effects),
                (.., None) => Ok(()),
            };
            if let Err(end) = stepped {
                self.finish(&mut link, end, &mut effects);
            }
        }
        effects
    }

    /// Ends a connection whose socket is not watched, or whose drive failed: a local catastrophic
    /// error (RFC 5040 section 4.8).
    pub(crate) fn fail(&self, socket: &Arc<ConnSocket>) -> Effects {
        let mut link = self.lock_link();
        let mut effects = Effects::default();
        if let Link::Up(conn) = &mut *link
            && Arc::ptr_eq(&conn.socket, socket)
        {
            let end = End::Fault(conn.proto.fail_local());
            self.finish(&mut link, end, &mut effects);
        }
        // The notifications of a drive that failed are lost, so both queues are notified.
        effects.send.must_notify = true;
        effects.recv.must_notify = true;
        effects
    }

    /// Handles the expiry of a connection's timer.
    fn on_due(&self, conn: &mut Conn, due: Due, effects: &mut Effects) -> Result<(), End> {
        conn.deadline = None;
        match due {
            Due::Abort => return Err(End::Disconnected),
            Due::Repeat { left } => {
                let next = conn.repeat_first_frame(left);
                self.set_deadline(conn, next);
            }
            Due::CheckProgress { since } if conn.distance() == since => {
                tracing::warn!(
                    qp = self.token.0, remote = %conn.remote,
                    "the peer does not finish the work for which a graceful disconnect waits; it \
                     is made abrupt (close_timeout_ms in dat.conf is the limit)"
                );
                return Err(End::Disconnected);
            }
            Due::Receive => {
                tracing::warn!(
                    qp = self.token.0, remote = %conn.remote,
                    "no receive was posted for a message (receive_wait_ms in dat.conf is the limit)"
                );
                conn.proto.wait_for_receives(false);
                return self.step(conn, true, effects);
            }
            Due::CheckProgress { .. } | Due::Finish => {}
        }
        self.step(conn, false, effects)
    }

    /// Ends the connection, or the attempt to connect. If abrupt, all work has ended and all events
    /// are delivered on return.
    pub(crate) fn disconnect(&self, abrupt: bool) {
        let mut link = self.lock_link();
        let mut effects = Effects::default();
        if abrupt {
            self.queue_deferred();
        }
        match &mut *link {
            Link::Idle | Link::Down => {}
            Link::Connecting(_) => {
                self.abandon(&mut link, ConnectionEvent::Disconnected, &mut effects)
            }
            Link::Up(conn) if abrupt => {
                conn.lifecycle.on_disconnect();
                self.finish(&mut link, End::Disconnected, &mut effects);
            }
            Link::Up(conn) => {
                let end = self.close_gracefully(conn, &mut effects).err();
                if let Some(end) = end {
                    self.finish(&mut link, end, &mut effects);
                }
            }
        }
        drop(link);
        self.after(&effects);
        if abrupt {
            // An event that another thread delivers late would be taken for an event of the next
            // connection.
            self.wait_for_delivery();
        }
    }

    fn close_gracefully(&self, conn: &mut Conn, effects: &mut Effects) -> Result<(), End> {
        if !conn.lifecycle.is_open() {
            return Ok(());
        }
        let taken = self.take_submitted(conn);
        conn.lifecycle.on_disconnect();
        taken?;
        self.step(conn, conn.waits_for_receive, effects)
    }

    /// Ends the attempt to connect; a disconnected queue pair flushes its receives.
    pub(crate) fn abandon(&self, link: &mut Link, event: ConnectionEvent, effects: &mut Effects) {
        // Dropping the attempt closes its socket, or returns it to its consumer.
        *link = Link::Down;
        self.flush(Vec::new(), None, effects);
        self.queue_event(event);
    }

    /// Ends a queue pair that has never connected; its receives are flushed.
    pub(crate) fn flush_idle(&self) {
        let mut link = self.lock_link();
        let mut effects = Effects::default();
        if matches!(*link, Link::Idle) {
            *link = Link::Down;
            self.flush(Vec::new(), None, &mut effects);
        }
        drop(link);
        self.after(&effects);
    }

    /// Ends the connection: sends the bytes that remain, flushes everything, then queues the event.
    pub(super) fn finish(&self, link: &mut Link, end: End, effects: &mut Effects) {
        let old = std::mem::replace(link, Link::Down);
        let Link::Up(mut conn) = old else {
            *link = old;
            return;
        };
        let event = ending_event(&conn, &end);
        if let Move::Offered { token } = conn.moving {
            self.shared.offer_listener.withdraw(token);
        }
        conn.reap_last(matches!(end, End::Disconnected) && conn.lifecycle.is_open());
        effects.violation = violation_of(self.token, &end);
        conn.close_local(&self.shared.memory);
        effects.former = conn.socket.close(&mut conn.place);
        self.start_lingering(&mut conn, &end);
        conn.proto.on_llp_closed();
        self.publish_done(&mut conn, effects);
        self.account(&conn, &end);
        let is_blamed = fail_request(&mut conn.outstanding, &end);
        let outstanding = std::iter::from_fn(|| conn.outstanding.pop());
        let failed = outstanding.chain(conn.fenced.drain(..)).collect();
        let first = match end {
            End::Unanswered => WcStatus::Transport,
            End::Terminated(Some(terminate)) if conn.acknowledged && !is_blamed => {
                refusal_of(terminate.code)
            }
            _ => WcStatus::Flushed,
        };
        self.flush(failed, Some((&mut conn, first)), effects);
        self.gate
            .on_finished(|send, recv| self.push_to_queues(send, recv, effects));
        self.queue_disconnect(event, conn.lifecycle.is_open());
    }

    /// Adds up the payload of a connection by carrier, and logs it.
    fn account(&self, conn: &Conn, end: &End) {
        let traffic = self.traffic_of(conn);
        *lock(&self.ended_traffic) += traffic;
        let on_tcp = traffic.on_tcp.iter().position(|count| *count > 0);
        let why = on_tcp.map_or("", |index| WhyTcp::ALL[index].words());
        tracing::info!(
            qp = self.token.0,
            remote = %conn.remote,
            ?end,
            sent_tcp = traffic.tcp.sent.bytes,
            sent_ring = traffic.ring.sent.bytes,
            sent_reference = traffic.reference.sent.bytes,
            written = traffic.direct.sent.bytes,
            read = traffic.direct.received.bytes,
            received_tcp = traffic.tcp.received.bytes,
            received_ring = traffic.ring.received.bytes,
            received_reference = traffic.reference.received.bytes,
            why_tcp = why,
            "connection down"
        );
    }

    /// Sends the remaining bytes, then a FIN. The engine reads and discards until the peer's FIN,
    /// so that unread data does not turn the close into a reset.
    fn start_lingering(&self, conn: &mut Conn, end: &End) {
        let fault = match end {
            End::Fault(fault) => Some(fault),
            End::Disconnected | End::Terminated(_) => None,
            End::Broken | End::Unanswered => return,
        };
        if conn.has_sent_fin() {
            return LingeringSocket::start(conn.socket.clone(), Vec::new(), None);
        }
        let memory = &self.shared.memory;
        if let Some(rest) = conn.last_bytes(self.stream(), memory, fault) {
            let late = match end {
                End::Disconnected if rest.is_empty() => conn.late_frame(self.stream(), memory),
                _ => None,
            };
            LingeringSocket::start(conn.socket.clone(), rest, late);
        }
    }

    /// Ends all posted work: framed requests first, then `failed`, then requests that were never
    /// submitted, then the receives. For a connection, the first flushed request reports the given
    /// failure instead; if there is none, the first flushed receive does.
    fn flush(
        &self,
        failed: Vec<SendSlot>,
        conn: Option<(&mut Conn, WcStatus)>,
        effects: &mut Effects,
    ) {
        let mut send_done = Vec::new();
        let mut recv_done = Vec::new();
        let mut sends = 0;
        let mut first = WcStatus::Flushed;
        let (current, batch) = match conn {
            Some((conn, status)) => {
                first = status;
                for report in conn.take_unfinished() {
                    sends += 1;
                    send_done.extend(report.completion(self.token, WcStatus::Flushed));
                }
                conn.tcp.close();
                conn.inbox.take_receives()
            }
            None => Default::default(),
        };

        let mut submitted = lock(&self.submitted);
        submitted.mode = Mode::Flushing;
        for slot in failed.into_iter().chain(submitted.slots.drain(..)) {
            sends += 1;
            let status = match slot.status {
                WcStatus::Success => WcStatus::Flushed,
                failed => failed,
            };
            send_done.extend(slot.report().completion(self.token, status));
        }
        self.has_submitted.store(false, Ordering::Release);
        self.sends.finish(sends, 0);

        let mut receives = lock(&self.receives);
        receives.mode = Mode::Flushing;
        recv_done.extend(current.map(|(slot, status)| slot.failed(self.token, status)));
        let flushed = |slot: RecvSlot| slot.failed(self.token, WcStatus::Flushed);
        recv_done.extend(
            batch
                .into_iter()
                .chain(receives.slots.drain(..))
                .map(flushed),
        );
        self.recvs.finish(recv_done.len() as u32, 0);
        // The peer refuses requests, and not receives.
        let receives: &mut [_] = match first {
            WcStatus::Transport => &mut recv_done,
            _ => &mut [],
        };
        let mut all = send_done.iter_mut().chain(receives);
        if let Some(done) = all.find(|done| done.status == WcStatus::Flushed) {
            done.status = first;
        }
        // Still under the locks of both queues, so a post that finds the queues flushing completes
        // after these requests.
        self.publish(&mut send_done, &mut recv_done, effects);
    }
}

impl Service for Qp {
    fn drive(&self, socket: &Arc<ConnSocket>, driver: Driver, ready: Ready) -> bool {
        let effects = match driver {
            Driver::Consumer => self.try_drive(socket, driver, ready),
            Driver::Engine => self.or_fail(socket, || self.try_drive(socket, driver, ready)),
        };
        let Some(effects) = effects else { return false };
        self.after(&effects);
        true
    }

    fn start_polling(&self, socket: &Arc<ConnSocket>) {
        if let Some(mut link) = self.try_lock_link()
            && let Link::Up(conn) = &mut *link
            && Arc::ptr_eq(&conn.socket, socket)
        {
            conn.start_polling();
            drop(link);
            self.catch_up();
        }
    }

    fn arm(&self, socket: &Arc<ConnSocket>) -> Arming {
        let mut has_work = false;
        let armed = self.or_fail(socket, || {
            let (effects, again) = self.try_arm(socket)?;
            has_work = again;
            Some(effects)
        });
        let Some(effects) = armed else {
            return Arming::HasWork;
        };
        self.after(&effects);
        match has_work {
            true => Arming::HasWork,
            false => Arming::Done,
        }
    }

    fn rouse_peer(&self, socket: &Arc<ConnSocket>) {
        if let Some(mut link) = self.try_lock_link()
            && let Link::Up(conn) = &mut *link
            && Arc::ptr_eq(&conn.socket, socket)
        {
            if let Some(local) = conn.local() {
                local.rouse_peer();
            }
            drop(link);
            self.catch_up();
        }
    }

    fn on_deadline(&self, socket: &Arc<ConnSocket>) {
        let effects = self.or_fail(socket, || Some(self.check_deadline(socket)));
        self.after(&effects.unwrap_or_default());
    }
}

/// The event for the end of a connection.
fn ending_event(conn: &Conn, end: &End) -> ConnectionEvent {
    match end {
        _ if conn.lifecycle == Lifecycle::AwaitsFrame => ConnectionEvent::AcceptFailed,
        End::Disconnected => ConnectionEvent::Disconnected,
        End::Broken | End::Unanswered | End::Fault(_) | End::Terminated(_) => {
            ConnectionEvent::Broken
        }
    }
}

/// Fails the read or atomic to which the peer's Terminate refers. Returns true if there is one.
fn fail_request(outstanding: &mut Outstanding, end: &End) -> bool {
    let End::Terminated(Some(terminate)) = end else {
        return false;
    };
    let Some(status) = failure_of(terminate) else {
        return false;
    };
    let slot = terminate
        .request
        .and_then(|token| outstanding.get_mut(token))
        .filter(|slot| slot.status == WcStatus::Success);
    slot.map(|slot| slot.status = status).is_some()
}

/// The status of the Send or Write that the peer has refused with this code. The requests before it
/// are acknowledged, so that it is the oldest one.
fn refusal_of(code: TerminateCode) -> WcStatus {
    match code {
        TerminateCode::Untagged(UntaggedError::NoBuffer) => WcStatus::ReceiverNotReady,
        TerminateCode::Untagged(_) => WcStatus::RemoteInvalidRequest,
        TerminateCode::Tagged(_) | TerminateCode::RemoteProtection(_) => WcStatus::RemoteAccess,
        TerminateCode::RemoteOperation(_)
        | TerminateCode::RdmapCatastrophic
        | TerminateCode::DdpCatastrophic => WcStatus::RemoteOperation,
        TerminateCode::Mpa(_) | TerminateCode::Other { .. } => WcStatus::Flushed,
    }
}

/// The event for a violation of the peer, which is the reason for the end of the connection. A
/// message that is longer than its receive completes the receive instead.
fn violation_of(qp: QpToken, end: &End) -> Option<AsyncEvent> {
    let End::Fault(fault) = end else {
        return None;
    };
    match fault.code {
        TerminateCode::Tagged(_) | TerminateCode::RemoteProtection(_) => {
            Some(AsyncEvent::AccessViolation(qp))
        }
        TerminateCode::RemoteOperation(_) => Some(AsyncEvent::InvalidRequest(qp)),
        _ => None,
    }
}

/// The status with which a read or an atomic fails by this Terminate; `None` if the Terminate
/// refers to another request. A Send or Write that the peer refused has completed before the peer
/// received it, so no request fails with it.
fn failure_of(terminate: &PeerTerminate) -> Option<WcStatus> {
    match terminate.about {
        None | Some(Opcode::ReadRequest | Opcode::AtomicRequest) => {}
        Some(_) => return None,
    }
    match terminate.code {
        // Only a Send invalidates, whether or not a quoted header shows it.
        TerminateCode::RemoteProtection(RemoteProtection::NotInvalidatable)
        | TerminateCode::RemoteOperation(RemoteOperation::NotInvalidatable) => None,
        TerminateCode::RemoteProtection(RemoteProtection::Unspecified)
        | TerminateCode::RemoteOperation(_) => Some(WcStatus::RemoteOperation),
        TerminateCode::RemoteProtection(_) => Some(WcStatus::RemoteAccess),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use rnic::Sge;

    use super::*;
    use crate::support::{Event, HELLO, Node, SEND, hex, raw_peer, send_wr};
    use crate::work::SegmentList;

    /// A request that no consumer can post: carrying it out panics.
    fn impossible() -> SendSlot {
        SendSlot {
            sgl: SegmentList::Inline(u8::MAX, [Sge::default(); 4]),
            ..SendSlot::new(&send_wr(1, SEND, &[]), 1)
        }
    }

    #[test]
    fn a_panic_of_the_engine_ends_the_connection_and_completes_all_work() {
        type Begin = fn(&Qp, &Arc<ConnSocket>, &mut std::net::TcpStream);
        let arming: Begin = |_, socket, _| {
            // The engine arms connections that no thread polls.
            socket.service.arm(socket);
        };
        let arrival: Begin = |_, _, raw| drop(raw.write(&hex(HELLO)));
        let deadline: Begin = |qp, socket, _| {
            let now = Instant::now();
            if let Link::Up(conn) = &mut *qp.lock_link() {
                conn.deadline = Some((now, Due::Finish));
            }
            socket.progress.engine().set_deadline(socket.key, Some(now));
        };
        for begin in [arming, arrival, deadline] {
            let node = Node::new("lo 0");
            let client = node.side(10);
            let (mut raw, _) = raw_peer(&client);
            let qp = &client.qp.qp;
            let socket = match &*qp.lock_link() {
                Link::Up(conn) => conn.socket.clone(),
                other => panic!("{other:?}"),
            };
            client.recv(7, &[]);
            // Queued as by a poster that finds the connection busy. The engine may be about to
            // submit the request, after the drive that delivered the event of the connection.
            qp.sends.add_by_queue();
            lock(&qp.submitted).slots.push_back(impossible());
            qp.has_submitted.store(true, Ordering::Release);
            begin(qp, &socket, &mut raw);
            assert_eq!(client.event(), Event::Broken);
            let flushed = client.received();
            assert_eq!((flushed.wr_id, flushed.status), (7, WcStatus::Flushed));
            let _ = raw.read_to_end(&mut Vec::new());
        }
    }
}
