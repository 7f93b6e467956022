//! What the lock protects.

use std::{collections::VecDeque, fmt, sync::Arc, time::Instant};

use dat_api::Lmr;
use rustix::io::Errno;
use sdp_proto::{AdvertId, Connection, ConnectionState, SendHalf};

use super::{receive_queue::ReceiveQueue, send_ring::SendRing};
use crate::{Options, Readiness, Watch, trace::Trace};

/// What a socket has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Messages, of every kind.
    pub messages_sent: u64,
    /// Messages, of every kind.
    pub messages_received: u64,
    /// Bytes of the stream that were taken from the user.
    pub bytes_sent: u64,
    /// Those of them that were copied into the socket.
    pub bytes_copied: u64,
    /// Bytes of the stream that came.
    pub bytes_received: u64,
    /// Those of them that came by RDMA Read.
    pub bytes_read: u64,
    /// Those of them that went straight into a reader's memory.
    pub bytes_direct: u64,
    /// RDMA Reads.
    pub reads: u64,
}

pub(crate) struct Inner {
    pub(super) connection: Connection,
    pub(super) receive: ReceiveQueue,
    pub(super) send: SendRing,
    /// A thread waits for completions.
    pub(super) driven: bool,
    /// Threads that sleep until that thread wakes them.
    pub(super) sleepers: u32,
    /// That thread was woken without a completion.
    pub(super) kicked: bool,
    /// A thread waits for a connection event.
    pub(super) connecting: bool,
    /// Work was flushed: the event that ends the connection is what comes next.
    pub(super) flushed: bool,
    /// The transport failed work for want of an answer. A peer that goes in good order may leave
    /// some without one, too.
    pub(super) unanswered: bool,
    /// The transport did not end in good order.
    pub(super) is_broken: bool,
    /// The stack's thread is told of events.
    pub(super) served: bool,
    /// RDMA Reads under way, oldest first.
    pub(super) reads: VecDeque<ReadUnderWay>,
    /// The reader that waits with room for so many bytes takes advertised memory itself.
    pub(super) reader_room: usize,
    /// Reads straight into waiting readers' memory that have completed, each until its reader has
    /// seen it: its number, and how many bytes. Another reader may begin one meanwhile.
    pub(super) read_direct: Vec<(u64, usize)>,
    /// The caller's memory that the peer may read.
    pub(super) source: Option<UserWrite>,
    pub(super) adverts: u64,
    /// Bytes that were posted since somebody last looked at the events.
    pub(super) unlooked: usize,
    /// A writer waits for room.
    pub(super) writer_waits: bool,
    /// What the next call reports, once.
    pub(super) error: Option<Errno>,
    /// The transport's end was seen; the protocol hears of it behind the last message.
    pub(super) is_gone: bool,
    pub(super) saw_end: bool,
    pub(super) urgent_coming: bool,
    /// The user is gone; the stack's thread gives up then.
    pub(super) closed_until: Option<Instant>,
    /// Bytes that had not arrived when that time was last counted from.
    pub(super) left_behind: usize,
    /// The user reads no more (SHUT_RD).
    pub(super) read_shut: bool,
    /// The passive side accepts the connection only after the active side's first message: until
    /// then the peer may have given up, although the transport is established.
    pub(super) says_first: bool,
    /// The event that the connection is established was read, so the endpoint may post. The peer's
    /// first message may come before that event.
    pub(super) is_up: bool,
    /// Hello and HelloAck, for the trace.
    pub(super) hello: Vec<u8>,
    pub(super) trace: Trace,
    pub(super) watch: Option<Arc<dyn Watch>>,
    pub(super) arrived: bool,
    pub(crate) options: Options,
    pub(crate) statistics: Statistics,
}

/// An RDMA Read.
#[derive(Debug)]
pub(super) struct ReadUnderWay {
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

/// A write that waits for its memory.
#[derive(Debug)]
pub(super) struct UserWrite {
    pub(super) id: AdvertId,
    pub(super) lmr: Lmr,
    /// Bytes that the peer has, when the protocol needs the memory no more.
    pub(super) taken: Option<u32>,
}

impl Inner {
    /// What `poll` should say.
    pub(crate) fn readiness(&self) -> Readiness {
        let state = self.connection.state();
        let is_open = state.is_established();
        let read_closed = self.saw_end || self.read_shut || state.has_ended();
        let write_closed = !self.connection.send_half().is_open() || state.has_ended();
        let has_room = self.send.free() >= self.send.capacity() / 4;
        Readiness {
            readable: !self.receive.is_empty() || read_closed || self.error.is_some(),
            writable: (is_open && has_room) || write_closed || self.error.is_some(),
            urgent: self.urgent_coming || self.receive.has_urgent(),
            read_closed,
            peer_ended: self.saw_end || state.has_ended(),
            write_closed,
            all_sent: write_closed && self.unsent() == 0,
            failed: matches!(state, ConnectionState::Failed(_)),
            errno: self.error.map(Errno::raw_os_error),
        }
    }

    /// Bytes that were written and have not left, and a last word that has not.
    pub(super) fn unsent(&self) -> usize {
        let half = self.connection.send_half();
        let is_ending = !half.is_open() && half != SendHalf::Finished && !self.is_gone;
        self.send.unposted() + usize::from(is_ending)
    }

    /// The peer has ended its stream, and this end has not.
    pub(super) fn is_half_closed_by_peer(&self) -> bool {
        self.saw_end && self.connection.send_half().is_open()
    }

    /// Tells whoever watches.
    pub(super) fn show(&mut self) {
        let arrived = std::mem::take(&mut self.arrived);
        if let Some(watch) = &self.watch {
            watch.show(self.readiness(), arrived);
        }
    }

    /// Whether bytes that the peer sent were not read, here or in its memory.
    pub(super) fn has_unread(&self) -> bool {
        !self.receive.is_empty() || self.connection.readable() > 0 || !self.reads.is_empty()
    }

    /// Whether the stack's thread has to look after the connection while nobody waits in a call:
    /// somebody watches, or the user is gone. A user that polls looks in its own calls, and the
    /// thread would only wake for each message and take the processor from it.
    pub(super) fn wants_service(&self) -> bool {
        let is_answered = self.connection.state() == ConnectionState::HelloAckSent;
        let is_setting_up = !self.is_gone && (is_answered || self.awaits_connection_event());
        is_setting_up || self.watch.is_some() || self.closed_until.is_some()
    }

    /// Whether the next event concerns the connection.
    pub(super) fn awaits_connection_event(&self) -> bool {
        let is_setting_up = !self.is_up && !self.connection.state().has_ended();
        is_setting_up || self.flushed && !self.is_gone
    }

    /// Whether completions may be looked at. A server may speak first, and its message may be there
    /// while the event that the connection stands, which says what the messages mean, is in the
    /// other queue or in the hand of the thread that waited for it. That one looks afterwards.
    pub(super) fn may_hear_messages(&self) -> bool {
        self.is_gone || !matches!(self.connection.state(), ConnectionState::HelloSent)
    }

    /// Whether nothing will happen any more.
    pub(crate) fn has_ended(&self) -> bool {
        self.is_gone && self.connection.state().has_ended()
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner")
            .field("connection", &self.connection)
            .field("error", &self.error)
            .field("is_gone", &self.is_gone)
            .finish_non_exhaustive()
    }
}
