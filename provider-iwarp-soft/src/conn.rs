//! A connection in full operation: the protocol machine between its two directions.

mod closing;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use access_layer::rnic::{Completion, RemoteRange, SendOp, SendWr, Sge, WcStatus};
use iwarp_proto::mpa::Negotiated;
use iwarp_proto::peer;
use iwarp_proto::wire::fpdu;
use iwarp_proto::wire::mpa::RtrKind;
use iwarp_proto::wire::rdmap::AtomicOp;
use iwarp_proto::{Config, Connection, ProtocolError, Role, Stag, WorkKind, WorkRequest};
use rustix::io::Errno;

use crate::engine::io::{self, Sent};
use crate::memory::{MemoryAccess, MemoryTable, Stream, WindowBind};
use crate::progress::Place;
use crate::progress::conn_socket::ConnSocket;
use crate::qp::Qp;
use crate::rx::{Lent, Rx, RxEnd, immediate_bytes};
use crate::tx::{Flow, Sources, Tx, TxFault};
use crate::work::{BindTask, Outstanding, Pieces, Report, SendSlot, Task};

pub(crate) use closing::Closing;
use closing::Progress;

/// What a connection's timer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    /// A start-up or a disconnect that hangs is given up.
    GivingUp,
    /// A peer that has said nothing may have missed the first frame.
    Repeating,
    /// Our FIN may go when everything before it is acknowledged.
    Finishing,
    /// A graceful disconnect that has come no further meanwhile is given up.
    ComingFurther,
}

/// How often the first frame is repeated, and when: each time four times as long after the last.
const REPEATS: u32 = 3;
const REPEAT_AFTER: Duration = Duration::from_millis(20);
/// Why a connection is over.
#[derive(Debug)]
pub(crate) enum End {
    /// In good order, by either side.
    Disconnected,
    /// The socket is broken, or was closed within a frame.
    Broken,
    /// TCP has given up: no answer came in time.
    Unanswered,
    /// Somebody violated the protocol; a Terminate message goes out if it still may.
    Fault(ProtocolError),
    /// The peer has sent a Terminate message.
    Terminated(Option<iwarp_proto::PeerTerminate>),
}

impl End {
    /// What a failed socket says of the connection.
    fn of_socket(error: Errno) -> Self {
        match error {
            // The last two are what TCP has heard of the way while it waited.
            Errno::TIMEDOUT | Errno::HOSTUNREACH | Errno::NETUNREACH => Self::Unanswered,
            _ => Self::Broken,
        }
    }
}

/// A connection in full operation.
#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) socket: Arc<ConnSocket>,
    /// Where the connection waits for the threads that make progress.
    pub(crate) place: Place,
    /// Posted requests are held back so that later ones are sent with them.
    pub(crate) is_held: bool,
    /// Bytes wait for room in the socket.
    pub(crate) is_blocked: bool,
    pub(crate) proto: Connection,
    pub(crate) tx: Tx,
    pub(crate) rx: Rx,
    pub(crate) outstanding: Outstanding,
    /// A bind that waits for reads in `outstanding`, and what was posted behind it.
    pub(crate) fenced: VecDeque<SendSlot>,
    pub(crate) closing: Closing,
    /// Whether `Established` was told.
    pub(crate) told: bool,
    pub(crate) role: Role,
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    /// Completions of this drive, handed to the queues in one piece.
    pub(crate) send_done: Vec<Completion>,
    pub(crate) recv_done: Vec<Completion>,
    pub(crate) burst: Burst,
    /// The last pass sent something and left the receiving to the next one.
    pub(crate) owes_receive: bool,
    pub(crate) deadline: Option<(Instant, Due)>,
    /// How often the first frame may still be repeated while the peer says nothing.
    repeats: u32,
    /// How often the acknowledgement of the last data has been looked for.
    fin_looks: u32,
    /// How far a graceful disconnect had come when it was looked at last.
    closing_at: Progress,
    /// The longest ULPDU toward a peer of another make, whatever TCP's segments hold.
    ulpdu_max: usize,
    /// Whether they leave with markers.
    markers_tx: bool,
    /// How many bytes are sent when the size of TCP's segments is looked at next.
    refresh_at: u64,
}

/// The decision to hold requests back so that they are sent together.
///
/// A request that is posted while its consumer has completions to take, or right behind another one
/// without a poll between, is followed by more or by a poll; both send it. So is the first one after
/// a poll where the one before it was followed by more. Only a consumer that polls is trusted so
/// far, because the engine takes over a tick after the last poll. A consumer that made the engine
/// send what was held is not trusted again for a while.
#[derive(Debug, Default)]
pub(crate) struct Burst {
    /// Polls of the adapter when the consumer posted last.
    polls: u32,
    /// Posts since that poll, and between the two polls before it.
    posts: u32,
    posts_before: u32,
    /// Payload bytes posted since the last transmission.
    pub(crate) bytes: u32,
    /// Posts that are sent at once because trust was lost.
    pub(crate) penalty: u32,
    /// How many times in a row the engine had to send.
    losses: u32,
}

impl Burst {
    /// A request is posted after so many polls. Returns true if it is likely to be one of several
    /// without a poll between.
    pub(crate) fn on_post(&mut self, polls: u32) -> bool {
        if polls == self.polls {
            self.posts = self.posts.saturating_add(1);
        } else {
            (self.posts_before, self.posts) = (self.posts, 1);
            self.polls = polls;
        }
        self.posts > 1 || self.posts_before > 1
    }

    /// What is held back goes out now. A consumer that was merely late once loses little trust, one
    /// that never looks loses nearly all.
    pub(crate) fn on_release(&mut self, by_engine: bool) {
        self.losses = if by_engine {
            (self.losses + 1).min(PENALTY_STEPS)
        } else {
            0
        };
        if by_engine {
            self.penalty = PENALTY << (PENALTY_FACTOR_LOG * (self.losses - 1));
        }
    }
}

/// Bytes between two looks at the size of TCP's segments: at first a few windows, later rarely.
const REFRESH_MIN: u64 = 128 * 1024;
const REFRESH_MAX: u64 = 256 << 20;

/// Posts that are not held back after the engine had to send once; for each time in a row more.
const PENALTY: u32 = 16;
const PENALTY_FACTOR_LOG: u32 = 2;
const PENALTY_STEPS: u32 = 4;

impl Conn {
    pub(crate) fn new(
        socket: Arc<ConnSocket>,
        config: Config,
        negotiated: &Negotiated,
        settings: &crate::config::Config,
    ) -> Option<Box<Self>> {
        let local = io::local_address(&*socket)?;
        let remote = io::remote_address(&*socket)?;
        Some(Box::new(Self {
            socket,
            place: Place::Armed { wants_room: false },
            is_held: false,
            is_blocked: false,
            role: config.role,
            proto: Connection::new(config),
            tx: Tx::new(negotiated, settings.own_ulpdu_max(negotiated)),
            rx: Rx::new(negotiated),
            outstanding: Outstanding::default(),
            fenced: VecDeque::new(),
            closing: Closing::No,
            told: false,
            local,
            remote,
            send_done: Vec::new(),
            recv_done: Vec::new(),
            burst: Burst::default(),
            owes_receive: false,
            deadline: None,
            repeats: 0,
            fin_looks: 0,
            closing_at: Progress::default(),
            ulpdu_max: settings.ulpdu_max(),
            markers_tx: negotiated.markers_tx,
            refresh_at: REFRESH_MIN,
        }))
    }

    /// Hands a work request to the protocol, unless it has to wait at a fence of a bind.
    ///
    /// `Err` when it can never be carried out; it keeps its status, and the connection ends then.
    pub(crate) fn submit(
        &mut self,
        qp: &Qp,
        table: &MemoryTable,
        slot: SendSlot,
    ) -> Result<(), End> {
        if !self.fenced.is_empty() || self.outstanding.holds_up(&slot) {
            self.fenced.push_back(slot);
            return Ok(());
        }
        self.carry_out(qp, table, slot)
    }

    /// Goes on behind the fence, if the reads before it are answered. `false`: there is nothing to
    /// go on with.
    pub(crate) fn pass_fence(&mut self, qp: &Qp, table: &MemoryTable) -> Result<bool, End> {
        if self.fenced.is_empty() {
            return Ok(false);
        }
        self.note_completions();
        let mut has_passed = false;
        while let Some(slot) = self.fenced.pop_front() {
            if self.outstanding.holds_up(&slot) {
                self.fenced.push_front(slot);
                break;
            }
            has_passed = true;
            self.carry_out(qp, table, slot)?;
        }
        Ok(has_passed)
    }

    /// Hands a work request to the protocol. A bind is carried out here.
    fn carry_out(&mut self, qp: &Qp, table: &MemoryTable, mut slot: SendSlot) -> Result<(), End> {
        let token = self.outstanding.next_token();
        let mut status = WcStatus::Success;
        self.burst.bytes = self.burst.bytes.saturating_add(slot.sent_len());
        match slot.task {
            Task::Bind(bind) => {
                if !table.bind_window(qp.pd(), bind.window, window_bind(&bind).as_ref()) {
                    status = WcStatus::BindFailed;
                }
            }
            Task::Wire(op) => match self.post(qp, table, token, &op, &slot) {
                Ok(parts) => slot.parts_left = parts,
                Err(failed) => status = failed,
            },
        }
        slot.status = status;
        if status == WcStatus::Success {
            self.outstanding.push(slot);
            return Ok(());
        }
        // A part that never completes keeps it in the queue, so that it ends in its place.
        slot.parts_left = u32::MAX;
        self.outstanding.push(slot);
        Err(End::Fault(self.proto.fail_local()))
    }

    /// Frames a small Send or Write behind what is framed already, so that nothing of it needs to
    /// be remembered but what is told at its end.
    ///
    /// `false` when it has to be submitted: it is of another kind, too long for one FPDU, or there
    /// is work that it may not overtake; or a segment may not be read, which submitting tells.
    pub(crate) fn frame_at_once(
        &mut self,
        stream: Stream,
        table: &MemoryTable,
        wr: &SendWr<'_>,
        len: u32,
    ) -> bool {
        let kind = match wr.op {
            SendOp::Send {
                solicited,
                invalidate,
            } => send_kind(solicited, invalidate),
            SendOp::Write(to) => write_kind(to),
            _ => return false,
        };
        if wr.fence || !self.outstanding.is_empty() || !self.tx.has_room(len as usize) {
            return false;
        }
        let memory = table.access();
        let Some(pieces) = Pieces::of(&memory, stream.pd, wr.sgl) else {
            return false;
        };
        let Some(fpdu) = self.proto.transmit_now(kind, len) else {
            return false;
        };
        self.burst.bytes = self.burst.bytes.saturating_add(len);
        self.tx
            .frame_at_once(&fpdu, pieces.as_slice(), Report::new(wr, len));
        true
    }

    /// How many requests of the protocol a work request became.
    fn post(
        &mut self,
        qp: &Qp,
        table: &MemoryTable,
        token: u64,
        op: &SendOp,
        slot: &SendSlot,
    ) -> Result<u32, WcStatus> {
        let sgl = slot.sgl.as_slice();
        let mut request = WorkRequest {
            token,
            kind: send_kind(false, None),
            len: slot.len,
            fence: slot.fence,
        };
        request.kind = match *op {
            SendOp::Send {
                solicited,
                invalidate,
            } => send_kind(solicited, invalidate),
            SendOp::Write(to) => write_kind(to),
            SendOp::WriteImmediate {
                to,
                value,
                solicited,
            } => return self.post_write_immediate(request, to, value, solicited),
            SendOp::Read(from) => return self.post_read(qp, table, request, from, sgl),
            SendOp::ReadToWindow { local, remote } => {
                let (from, to) = (remote, local);
                request.len = local.len;
                WorkKind::Read {
                    source_stag: Stag(from.rkey),
                    source_to: from.addr,
                    sink_stag: Stag(to.rkey),
                    sink_to: to.addr,
                }
            }
            SendOp::FetchAdd(at, add) => atomic_kind(at, AtomicOp::FetchAdd { add, mask: 0 }),
            SendOp::CompareSwap {
                remote,
                compare,
                swap,
            } => {
                let op = AtomicOp::CmpSwap {
                    swap,
                    swap_mask: u64::MAX,
                    compare,
                    compare_mask: u64::MAX,
                };
                atomic_kind(remote, op)
            }
        };
        self.queue(request)?;
        Ok(1)
    }

    /// A Write, and the message with its immediate data (RFC 7306 section 6).
    fn post_write_immediate(
        &mut self,
        request: WorkRequest,
        to: RemoteRange,
        value: u32,
        solicited: bool,
    ) -> Result<u32, WcStatus> {
        self.queue(WorkRequest {
            kind: write_kind(to),
            ..request
        })?;
        self.queue(WorkRequest {
            kind: WorkKind::ImmediateData {
                data: immediate_bytes(value),
                solicited,
            },
            fence: false,
            ..request
        })?;
        Ok(2)
    }

    /// One Read Request a segment: the wire knows one sink per request.
    fn post_read(
        &mut self,
        qp: &Qp,
        table: &MemoryTable,
        mut request: WorkRequest,
        from: RemoteRange,
        sgl: &[Sge],
    ) -> Result<u32, WcStatus> {
        let memory = table.access();
        if sgl
            .iter()
            .any(|sge| memory.local(qp.pd(), sge, true).is_none())
        {
            return Err(WcStatus::LocalProtection);
        }
        drop(memory);
        let mut parts = 0;
        let mut source_to = from.addr;
        let nothing = [Sge::default()];
        let sinks = if slot_is_empty(sgl) { &nothing } else { sgl };
        for sge in sinks.iter().filter(|sge| sge.len > 0 || request.len == 0) {
            let kind = WorkKind::Read {
                source_stag: Stag(from.rkey),
                source_to,
                sink_stag: Stag(sge.lkey),
                sink_to: sge.addr,
            };
            parts += self.queue_read(kind, sge.len, request)?;
            request.fence = false;
            source_to = source_to.wrapping_add(u64::from(sge.len));
            if request.len == 0 {
                break;
            }
        }
        Ok(parts)
    }

    /// Queues one Read Request, or two where a rule of [`peer`] says so; returns how many.
    fn queue_read(
        &mut self,
        kind: WorkKind,
        len: u32,
        request: WorkRequest,
    ) -> Result<u32, WcStatus> {
        let WorkKind::Read {
            source_stag,
            source_to,
            sink_stag,
            sink_to,
        } = kind
        else {
            return Ok(0);
        };
        let Some(first) = peer::small_read_cut(source_to, len) else {
            self.queue(WorkRequest {
                kind,
                len,
                ..request
            })?;
            return Ok(1);
        };
        let part = |skip: u32, len, fence| WorkRequest {
            kind: WorkKind::Read {
                source_stag,
                source_to: source_to.wrapping_add(u64::from(skip)),
                sink_stag,
                sink_to: sink_to.wrapping_add(u64::from(skip)),
            },
            len,
            fence,
            ..request
        };
        self.queue(part(0, first, request.fence))?;
        self.queue(part(first, len - first, false))?;
        Ok(2)
    }

    fn queue(&mut self, request: WorkRequest) -> Result<(), WcStatus> {
        self.proto
            .post(request)
            .map_err(|_| WcStatus::LocalQpOperation)
    }

    /// Sends what can be sent.
    pub(crate) fn transmit(&mut self, stream: Stream, table: &MemoryTable) -> Result<(), End> {
        self.refresh_mulpdu();
        self.is_held = false;
        self.burst.bytes = 0;
        let flow = if self.tx.is_all_staged() && !self.proto.has_transmit() {
            self.tx.flush(&mut self.proto, self.socket.as_fd())
        } else {
            self.run_tx(stream, table)
        };
        self.rest_unless_polled();
        match flow {
            Ok(flow) => self.set_blocked(flow == Flow::Blocked),
            Err(TxFault::Socket(error)) => return Err(End::of_socket(error)),
            Err(TxFault::Response(fault)) => return Err(End::Fault(fault)),
            Err(TxFault::Local { token }) => {
                if let Some(slot) = self.outstanding.get_mut(token) {
                    slot.status = WcStatus::LocalProtection;
                }
                return Err(End::Fault(self.proto.fail_local()));
            }
        }
        Ok(())
    }

    /// Notes whether bytes wait for room in the socket, which is an event of the set then.
    fn set_blocked(&mut self, is_blocked: bool) {
        if self.is_blocked != is_blocked {
            self.is_blocked = is_blocked;
            self.socket.want_room(&mut self.place, is_blocked);
        }
    }

    /// Gives empty staging buffers back, unless the connection is polled and needs them again soon.
    fn rest_unless_polled(&mut self) {
        if self.place != Place::Polled {
            self.rest();
        }
    }

    /// Gives empty staging buffers back.
    pub(crate) fn rest(&mut self) {
        self.tx.rest();
        self.rx.rest();
    }

    /// Frames and sends what the queues hold.
    fn run_tx(&mut self, stream: Stream, table: &MemoryTable) -> Result<Flow, TxFault> {
        let memory = table.access();
        let sources = Sources {
            fd: self.socket.as_fd(),
            memory: &memory,
            stream,
            outstanding: &self.outstanding,
        };
        self.tx.run(&mut self.proto, &sources)
    }

    /// Follows the size of TCP's segments, which grows in the first moments of a connection and may
    /// change with its path. Ends that have agreed on longer FPDUs need not know it.
    fn refresh_mulpdu(&mut self) {
        if self.tx.sent() < self.refresh_at || self.proto.agreed_ulpdu().is_some() {
            return;
        }
        let step = self.refresh_at.clamp(REFRESH_MIN, REFRESH_MAX);
        self.refresh_at = self.tx.sent() + step;
        let emss = io::segment_size(self.socket.as_fd());
        let mulpdu = fpdu::mulpdu(emss, self.markers_tx).min(self.ulpdu_max);
        self.proto.set_mulpdu(mulpdu);
    }

    /// Receives what has arrived. `false`: nothing has.
    pub(crate) fn receive(&mut self, qp: &Qp) -> Result<bool, End> {
        let keep = self.place == Place::Polled;
        let mut lent = Lent {
            fd: self.socket.as_fd(),
            qp,
            proto: &mut self.proto,
            outstanding: &mut self.outstanding,
            completions: &mut self.recv_done,
        };
        self.rx.run(keep, &mut lent).map_err(|end| match end {
            RxEnd::Closed => End::Disconnected,
            RxEnd::Broken => End::Broken,
            RxEnd::Socket(error) => End::of_socket(error),
            RxEnd::Fault(fault) => End::Fault(fault),
            RxEnd::Terminated(terminate) => End::Terminated(terminate),
        })
    }

    /// Whether a call of [`Self::transmit`] has something to do.
    pub(crate) fn wants_transmit(&self) -> bool {
        self.tx.is_pending() || self.proto.has_transmit()
    }

    /// Moves finished requests to the list of completions, in the order of submission.
    pub(crate) fn reap(&mut self, qp: &Qp) -> u32 {
        let framed = self.tx.take_finished();
        let mut count = framed.len() as u32;
        // A framed request is older than all that are queued: those wait until it has left, even
        // if there is nothing of them to send.
        let done = framed.filter_map(|report| report.completion(qp.token, WcStatus::Success));
        self.send_done.extend(done);
        if self.outstanding.is_empty() || self.tx.has_unfinished() {
            return count;
        }
        self.note_completions();
        while let Some(slot) = self.outstanding.pop_done() {
            count += 1;
            self.send_done
                .extend(slot.report().completion(qp.token, WcStatus::Success));
        }
        count
    }

    /// Takes account of what the protocol has finished.
    fn note_completions(&mut self) {
        while let Some(done) = self.proto.poll_completion() {
            if let Some(slot) = self.outstanding.get_mut(done.token) {
                slot.parts_left = slot.parts_left.saturating_sub(1);
            }
        }
    }

    /// The start-up is over, and the peer is to be heard of ([`peer::repeats_first_frame`]).
    /// Returns when to look.
    pub(crate) fn await_first_word(&mut self, rtr: Option<RtrKind>) -> Option<(Duration, Due)> {
        if !peer::repeats_first_frame(self.role, rtr) {
            return None;
        }
        self.repeats = REPEATS;
        Some((REPEAT_AFTER, Due::Repeating))
    }

    /// Whether the first frame has still to be repeated once before this side may close.
    fn is_unheard(&self) -> bool {
        self.repeats == REPEATS && self.proto.has_sent() && !self.proto.has_received()
    }

    /// The time has come to repeat the first frame, unless the peer was heard. Returns when to look
    /// again.
    pub(crate) fn repeat_first_frame(&mut self) -> Option<(Duration, Due)> {
        if self.proto.has_received() || self.repeats == 0 {
            self.repeats = 0;
            return None;
        }
        if self.proto.has_sent() && !self.tx.is_pending() {
            self.proto.repeat_first_frame();
        }
        self.repeats -= 1;
        (self.repeats > 0).then(|| {
            (
                REPEAT_AFTER * 4_u32.pow(REPEATS - self.repeats),
                Due::Repeating,
            )
        })
    }

    /// An empty Write for a peer that may have missed the first frame and is not to see our FIN
    /// before; `None` where that cannot be.
    pub(crate) fn late_frame(
        &mut self,
        stream: Stream,
        memory: &MemoryAccess<'_>,
    ) -> Option<Vec<u8>> {
        if !self.is_unheard() {
            return None;
        }
        self.proto.repeat_first_frame();
        let fpdu = self.proto.poll_transmit()?;
        let sources = Sources {
            fd: self.socket.as_fd(),
            memory,
            stream,
            outstanding: &self.outstanding,
        };
        self.tx.frame_last(&fpdu, &sources);
        self.tx.take_all(&sources)
    }

    /// The bytes that have to follow so that the stream ends between two frames, with a Terminate
    /// message at its end if there is one. As many as possible are sent; the rest is returned.
    pub(crate) fn last_bytes(
        &mut self,
        stream: Stream,
        memory: &MemoryAccess<'_>,
        fault: Option<&ProtocolError>,
    ) -> Option<Vec<u8>> {
        let terminate = fault.and_then(|fault| self.proto.terminate(fault));
        let sources = Sources {
            fd: self.socket.as_fd(),
            memory,
            stream,
            outstanding: &self.outstanding,
        };
        let mut bytes = self.tx.take_rest_of_fpdu(&sources)?;
        if let Some(fpdu) = terminate {
            self.tx.frame_last(&fpdu, &sources);
            bytes.extend(self.tx.take_all(&sources)?);
        }
        let sent = match bytes.is_empty() {
            true => 0,
            false => match io::send(self.socket.as_fd(), &bytes) {
                Sent::Bytes(count) => count,
                Sent::WouldBlock => 0,
                Sent::Failed(_) => return None,
            },
        };
        bytes.drain(..sent);
        Some(bytes)
    }
}

fn slot_is_empty(sgl: &[Sge]) -> bool {
    sgl.iter().all(|sge| sge.len == 0)
}

fn send_kind(solicited: bool, invalidate: Option<u32>) -> WorkKind {
    WorkKind::Send {
        solicited,
        invalidate: invalidate.map(Stag),
    }
}

fn write_kind(to: RemoteRange) -> WorkKind {
    WorkKind::Write {
        stag: Stag(to.rkey),
        to: to.addr,
    }
}

fn atomic_kind(at: RemoteRange, op: AtomicOp) -> WorkKind {
    WorkKind::Atomic {
        op,
        stag: Stag(at.rkey),
        to: at.addr,
    }
}

fn window_bind(bind: &BindTask) -> Option<WindowBind> {
    bind.region.map(|region| WindowBind {
        region: region.0,
        range: bind.range,
        access: bind.access,
        zero_based: bind.zero_based,
        only: bind.only,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_that_waited_in_vain_is_told_from_one_that_was_reset() {
        for error in [Errno::TIMEDOUT, Errno::HOSTUNREACH, Errno::NETUNREACH] {
            assert!(matches!(End::of_socket(error), End::Unanswered), "{error}");
        }
        for error in [Errno::CONNRESET, Errno::PIPE, Errno::NOBUFS] {
            assert!(matches!(End::of_socket(error), End::Broken), "{error}");
        }
    }

    #[test]
    fn a_burst_is_expected_where_the_last_one_was_longer_than_one() {
        let mut burst = Burst::default();
        let mut post = |polls| burst.on_post(polls);
        assert!(!post(1), "the first of all");
        assert!(!post(2), "one before it");
        assert!(!post(3));
        assert!(post(3), "a second without a poll");
        assert!(post(5), "the first after two");
        assert!(!post(6), "the first after one");
    }
}
