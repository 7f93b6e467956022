//! The state of a socket that its lock protects.

use std::{collections::VecDeque, fmt, net::SocketAddr, sync::Arc};

use rustix::io::Errno;
use sdp_proto::{AdvertId, Connection, ConnectionState, SendHalf, Transmit, wire::Mid};

use super::{
    attendance::Attendance, link::Link, read_half::ReadHalf, receive_queue::ReceiveQueue,
    send_ring::SendRing, sink_pace::SinkPace, user::User,
};
use crate::{
    Options, Readiness, Watch,
    statistics::{Obstacle, Statistics},
    trace::Trace,
    user_memory::UserMemory,
};

pub(crate) struct Inner {
    pub(super) connection: Connection,
    pub(super) receive: ReceiveQueue,
    pub(super) send: SendRing,
    pub(super) attendance: Attendance,
    /// The number of threads that wait until the thread that sleeps in a dispatcher has handled an
    /// event.
    pub(super) followers: u32,
    pub(super) link: Link,
    /// The number of transports before this one: how often the peer has suspended the connection.
    pub(super) transports_before: u8,
    /// This end's address on the first transport, once there is another one. The Hello of every
    /// further transport contains it, so that the peer recognises this end.
    pub(super) first_local: Option<SocketAddr>,
    pub(super) user: User,
    pub(super) read_half: ReadHalf,
    /// RDMA Reads under way, oldest first.
    pub(super) reads: VecDeque<ReadInProgress>,
    /// The length of a waiting reader's memory, into which RDMA Reads can place the peer's bytes.
    pub(super) reader_room: usize,
    /// True if `reader_room` is that of a reader that is expected and does not wait yet.
    pub(super) expects_reader: bool,
    /// The number of readers of which each waits in a call that its caller can end.
    pub(super) readers_in_place: u32,
    /// The number of bytes that the last read has returned.
    pub(super) last_read: usize,
    /// The number and the length of each completed read into a reader's memory, until its reader
    /// takes the entry. Another reader may begin such a read meanwhile.
    pub(super) read_direct: Vec<(u64, usize)>,
    /// The callers' memory that the peer may read, or that is sent from where it is, in stream
    /// order.
    pub(super) sources: VecDeque<UserWrite>,
    /// The memory of a reader that the peer may write.
    pub(super) sink: Option<UserRead>,
    pub(super) sink_pace: SinkPace,
    /// True if readers of the peer advertise their memory, so that a writer waits for the next
    /// advertisement.
    pub(super) expects_sink: bool,
    /// The number of advertisements that were made, which gives each its identifier.
    pub(super) adverts: u64,
    /// The number of bytes that were posted since the completions were last polled.
    pub(super) posted_since_poll: usize,
    /// The obstacle at which the sending direction stopped last.
    pub(super) obstacle: Option<Obstacle>,
    /// True while a writer waits for room.
    pub(super) has_waiting_writer: bool,
    /// The error that the next call reports, once.
    pub(super) error: Option<Errno>,
    pub(super) is_urgent_announced: bool,
    pub(super) trace: Trace,
    pub(super) watch: Option<Arc<dyn Watch>>,
    /// True if the peer's bytes, its end of the stream or an error arrived since the last report to
    /// the watch.
    pub(super) arrived: bool,
    /// True while the watch is not to be notified.
    pub(super) is_withholding: bool,
    pub(crate) options: Options,
    pub(crate) statistics: Statistics,
}

/// An RDMA Read in progress.
#[derive(Debug)]
pub(super) struct ReadInProgress {
    pub(super) number: u64,
    pub(super) len: u32,
    pub(super) into: ReadInto,
}

#[derive(Debug)]
pub(super) enum ReadInto {
    /// This half of the staging memory.
    Half(usize),
    /// The memory of a reader that waits.
    Reader,
}

/// A write whose bytes are in registered memory.
#[derive(Debug)]
pub(super) struct UserWrite {
    pub(super) id: AdvertId,
    pub(super) memory: UserMemory,
    /// The bytes of a submission, which the socket owns. Declared after the registration, which
    /// ends first.
    pub(super) owned: Option<Vec<u8>>,
    /// The number of bytes that Sends or RDMA Writes of this end carry.
    pub(super) posted: u64,
    /// The number of bytes that the peer has, once the protocol no longer needs the memory.
    pub(super) taken: Option<u32>,
    /// True if the submission was dropped.
    pub(super) is_abandoned: bool,
}

/// A read whose memory is advertised to the peer.
#[derive(Debug)]
pub(super) struct UserRead {
    pub(super) id: AdvertId,
    /// The number of bytes that the peer has written, once it no longer writes.
    pub(super) written: Option<u32>,
}

impl Inner {
    /// Returns the state that `poll` should report.
    pub(crate) fn readiness(&self) -> Readiness {
        let state = self.connection.state();
        let is_open = state.is_established();
        let peer_ended = self.read_half.has_ended() || state.has_ended();
        let read_closed = peer_ended || self.read_half.is_shut();
        let write_closed = !self.connection.send_half().is_open() || state.has_ended();
        Readiness {
            readable: self.receive.has_at_least(self.options.receive_low)
                || read_closed
                || self.error.is_some(),
            writable: (is_open && self.has_room()) || write_closed || self.error.is_some(),
            urgent: self.is_urgent_announced || self.receive.has_urgent(),
            read_closed,
            peer_ended,
            write_closed,
            all_sent: write_closed && self.unsent() == 0,
            failed: matches!(state, ConnectionState::Failed(_)),
            errno: self.error.map(Errno::raw_os_error),
        }
    }

    /// The number of bytes that were written and not sent, plus 1 while the end of the stream is
    /// not sent.
    pub(super) fn unsent(&self) -> usize {
        let half = self.connection.send_half();
        let is_ending = !half.is_open() && half != SendHalf::Finished && !self.link.is_gone();
        self.send.unposted() + usize::from(is_ending)
    }

    /// True if the peer has ended its stream and this end has not.
    pub(super) fn is_half_closed_by_peer(&self) -> bool {
        self.read_half.has_ended() && self.connection.send_half().is_open()
    }

    /// True if enough of the ring is free to call the socket writable.
    fn has_room(&self) -> bool {
        self.send.free() >= self.send.capacity() / 4
    }

    /// True while the protocol is not notified of a transport that has ended in good order: the
    /// peer has ended its stream and has acknowledged everything that was written here. The process
    /// of the peer may end at any time after that. The kernel's TCP keeps such a connection half
    /// closed and reports no error to a reader. The next write, shutdown or close notifies the
    /// protocol.
    pub(super) fn stays_half_closed(&self) -> bool {
        self.link.has_ended_in_order()
            && self.connection.state().is_established()
            && self.is_half_closed_by_peer()
            && self.connection.is_delivered()
            && self.has_room()
    }

    /// The part of a cookie that differs between the transports of a connection.
    pub(super) const fn epoch(&self) -> u64 {
        (self.transports_before as u64) << 48
    }

    /// The cookie of work of this kind on the present transport.
    pub(super) const fn cookie(&self, kind: u64, number: u64) -> u64 {
        kind | self.epoch() | number
    }

    /// Reports the readiness and the counters to the watch.
    pub(super) fn show(&mut self) {
        if self.is_withholding {
            return;
        }
        let mut readiness = self.readiness();
        // The bytes belong to the reader that waits. It shows what it leaves.
        let is_taken = self.readers_in_place > 0 && !readiness.read_closed && !readiness.failed;
        readiness.readable &= !is_taken;
        let arrived = !is_taken && std::mem::take(&mut self.arrived);
        if let Some(watch) = &self.watch {
            watch.count(&self.statistics());
            watch.show(readiness, arrived);
        }
    }

    /// Returns the counters, and the present sizes and credits.
    pub(super) fn statistics(&self) -> Statistics {
        Statistics {
            receive_buffers: self.receive.count(),
            send_ring: self.send.capacity(),
            credits: self.connection.credits(),
            ..self.statistics
        }
    }

    /// Counts a message that was posted.
    pub(super) fn count_posted(&mut self, transmit: &Transmit) {
        let len = u64::from(transmit.payload.len());
        let source = transmit.payload.source();
        if let Some(source) = source.and_then(|id| self.source(id)) {
            source.posted += len;
        }
        let statistics = &mut self.statistics;
        statistics.messages_sent += 1;
        *match (transmit.into, source.is_some()) {
            (Some(_), _) => &mut statistics.bytes_written,
            (None, true) => &mut statistics.bytes_registered,
            (None, false) => &mut statistics.bytes_ring,
        } += len;
        match transmit.header.mid() {
            Mid::SrcAvail => statistics.sources += 1,
            Mid::SrcAvailCancel => statistics.sources_cancelled += 1,
            Mid::SinkAvailCancel => statistics.sinks_cancelled += 1,
            _ => (),
        }
    }

    /// The memory of a write that has not ended.
    pub(super) fn source(&mut self, id: AdvertId) -> Option<&mut UserWrite> {
        self.sources.iter_mut().find(|source| source.id == id)
    }

    /// Counts the bytes of a write whose memory is not in use any more.
    pub(super) fn count_source(&mut self, source: &UserWrite) {
        let taken = u64::from(source.taken.unwrap_or(0));
        let read = taken.saturating_sub(source.posted);
        self.statistics.bytes_read_by_peer += read;
        self.statistics.sources_used += u64::from(read > 0);
    }

    /// Counts the obstacle at which the sending direction has stopped, if it is not the last one.
    pub(super) fn count_obstacle(&mut self) {
        let now = if self.connection.awaits_reader() {
            Some(Obstacle::Reader)
        } else if self.connection.awaits_credits() {
            Some(Obstacle::Credits)
        } else if self.connection.has_unsent() && !self.send.has_slot() {
            Some(Obstacle::Sends)
        } else {
            None
        };
        self.statistics.stalls.on_obstacle(self.obstacle, now);
        self.obstacle = now;
    }

    /// Counts a write for which the ring has no room.
    pub(super) const fn count_full_ring(&mut self) {
        self.statistics.stalls.room += 1;
    }

    /// True if bytes of the peer were not read: received bytes, or bytes in the peer's memory.
    pub(super) fn has_unread(&self) -> bool {
        !self.receive.is_empty() || self.connection.readable() > 0 || !self.reads.is_empty()
    }

    /// True if a read can return without waiting: bytes, the end of the stream, or an error.
    pub(super) fn has_result_for_reader(&self) -> bool {
        !self.receive.is_clear()
            || self.has_unread()
            || self.read_half != ReadHalf::Open
            || self.error.is_some()
            || self.connection.state().has_ended()
    }

    /// True if the stack's thread has to make progress on the connection while no call does: during
    /// the set-up, with a watch, or after the close. A user without a watch makes progress in its
    /// own calls, and the thread would only wake for each message and compete for the processor.
    pub(super) fn wants_service(&self) -> bool {
        let is_answered = self.connection.state() == ConnectionState::HelloAckSent;
        let is_setting_up = !self.link.is_gone() && (is_answered || self.awaits_connection_event());
        is_setting_up || self.watch.is_some() || self.user.is_closing()
    }

    /// True while the next event is expected to be one of the connection.
    pub(super) fn awaits_connection_event(&self) -> bool {
        self.link.awaits_event(self.connection.state().has_ended())
    }

    /// True if completions may be polled. A server may send first, and its message may be received
    /// before the event that establishes the connection is handled. Without that event the message
    /// cannot be decoded. The thread that handles the event polls the completions afterwards.
    pub(super) fn may_poll_messages(&self) -> bool {
        self.link.is_gone() || !matches!(self.connection.state(), ConnectionState::HelloSent)
    }

    /// True once the transport has ended, and the stream does not continue over another one.
    pub(super) const fn has_no_transport(&self) -> bool {
        self.link.is_gone() && self.connection.continues_at().is_none()
    }

    /// True once no more events will occur on the socket.
    pub(crate) fn has_ended(&self) -> bool {
        self.link.is_gone() && self.connection.state().has_ended()
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner")
            .field("connection", &self.connection)
            .field("error", &self.error)
            .field("link", &self.link)
            .finish_non_exhaustive()
    }
}
