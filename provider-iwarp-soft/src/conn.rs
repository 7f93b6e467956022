//! A connection in full operation: the protocol machine between its two directions.

mod burst;
mod carriers;
mod lifecycle;
mod moving;
pub(crate) mod offer_listener;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Instant;

use iwarp_proto::mpa::Negotiated;
use iwarp_proto::peer;
use iwarp_proto::wire::rdmap::AtomicOp;
use iwarp_proto::{Access, Config, Connection, ProtocolError, Stag, WorkKind, WorkRequest};
use rnic::{Completion, QpToken, RemoteRange, SendOp, SendWr, Sge, WcStatus};

use crate::carrier::local::direct::{DIRECT_MAX, Places, Remote};
use crate::carrier::tcp::TcpCarrier;
use crate::carrier::{Carrier, End, Flow, Inbox, Payloads, TxFault, immediate_bytes};
use crate::engine::io;
use crate::memory::{MemoryTable, Stream, WindowBind};
use crate::progress::conn_set::Ready;
use crate::progress::conn_socket::ConnSocket;
use crate::progress::{Place, Wants};
use crate::work::{BindTask, Outstanding, Pieces, Report, SendSlot, Task};

pub(crate) use burst::Burst;
pub(crate) use carriers::LAST_PASSES;
pub(crate) use lifecycle::{Due, Lifecycle};
pub(crate) use moving::{Move, OFFER_AFTER, Owner, Request};

/// A connection in full operation.
#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) socket: Arc<ConnSocket>,
    /// The place of the connection among the threads that make progress.
    pub(crate) place: Place,
    /// True while bytes wait for room in the socket.
    pub(crate) is_blocked: bool,
    pub(crate) proto: Connection,
    pub(crate) tcp: TcpCarrier,
    pub(crate) moving: Move,
    pub(crate) inbox: Inbox,
    pub(crate) outstanding: Outstanding,
    /// A bind that waits for reads in `outstanding`, and the requests that were posted after it.
    pub(crate) fenced: VecDeque<SendSlot>,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    /// Completions of this drive. They are added to the queues all at once.
    pub(crate) send_done: Vec<Completion>,
    pub(crate) recv_done: Vec<Completion>,
    pub(crate) burst: Burst,
    pub(crate) deadline: Option<(Instant, Due)>,
    /// True while the next message waits for a receive (`qp::unready`).
    pub(crate) waits_for_receive: bool,
    /// True if Sends and Writes complete once the peer has executed them.
    pub(crate) acknowledged: bool,
}

impl Conn {
    pub(crate) fn new(
        socket: Arc<ConnSocket>,
        config: Config,
        negotiated: &Negotiated,
        settings: &crate::config::Config,
    ) -> Option<Box<Self>> {
        let local = io::local_address(&*socket)?;
        let remote = io::remote_address(&*socket)?;
        let tcp = TcpCarrier::new(socket.clone(), negotiated, settings);
        Some(Box::new(Self {
            socket,
            place: Place::Armed {
                wants: Wants::SEGMENTS,
            },
            is_blocked: false,
            proto: Connection::new(config),
            tcp,
            moving: Move::Tcp,
            inbox: Inbox::default(),
            outstanding: Outstanding::default(),
            fenced: VecDeque::new(),
            lifecycle: Lifecycle::AwaitsFrame,
            local,
            remote,
            send_done: Vec::new(),
            recv_done: Vec::new(),
            burst: Burst::default(),
            deadline: None,
            waits_for_receive: false,
            acknowledged: false,
        }))
    }

    /// Submits a work request to the protocol, unless it must wait for the fence of a bind.
    ///
    /// Fails if the request can never be executed. The request then keeps its status, and the
    /// connection ends.
    pub(crate) fn submit(
        &mut self,
        stream: Stream,
        table: &MemoryTable,
        slot: SendSlot,
    ) -> Result<(), End> {
        if !self.fenced.is_empty() || self.outstanding.must_wait_for(&slot) {
            self.fenced.push_back(slot);
            return Ok(());
        }
        self.execute(stream, table, slot)
    }

    /// Submits the requests after the fence, if the reads before the fence are answered. Returns
    /// `false` if there is nothing to submit.
    pub(crate) fn pass_fence(&mut self, stream: Stream, table: &MemoryTable) -> Result<bool, End> {
        if self.fenced.is_empty() {
            return Ok(false);
        }
        self.note_completions();
        let mut has_passed = false;
        while let Some(slot) = self.fenced.pop_front() {
            if self.outstanding.must_wait_for(&slot) {
                self.fenced.push_front(slot);
                break;
            }
            has_passed = true;
            self.execute(stream, table, slot)?;
        }
        Ok(has_passed)
    }

    /// Submits a work request to the protocol. A bind or a local invalidation is executed here.
    fn execute(
        &mut self,
        stream: Stream,
        table: &MemoryTable,
        mut slot: SendSlot,
    ) -> Result<(), End> {
        let token = self.outstanding.next_token();
        let mut status = WcStatus::Success;
        self.burst.add(slot.sent_len());
        match slot.task {
            Task::Bind(bind) => {
                if !table.bind_window(stream.pd, bind.window, window_bind(&bind).as_ref()) {
                    status = WcStatus::BindFailed;
                }
            }
            Task::Wire(SendOp::LocalInvalidate(key)) => {
                if !table.invalidate_local(stream, Stag(key)) {
                    status = WcStatus::LocalQpOperation;
                }
            }
            Task::Wire(op)
                if self.copy_directly(stream, table, &op, slot.sgl.as_slice(), slot.len) => {}
            Task::Wire(op) => match self.post(stream.pd, table, token, &op, &slot) {
                Ok(parts) => {
                    slot.is_acknowledged = slot.completion
                        && op_is_sent(&op)
                        && self.asks_for_acknowledgements()
                        && self.ask(token).is_ok();
                    slot.parts_left = parts + u32::from(slot.is_acknowledged);
                }
                Err(failed) => status = failed,
            },
        }
        slot.status = status;
        if status == WcStatus::Success {
            self.outstanding.push(slot);
            return Ok(());
        }
        // A part that never completes keeps the request in the queue, so that it completes in its
        // order.
        slot.parts_left = u32::MAX;
        self.outstanding.push(slot);
        Err(End::Fault(self.proto.fail_local()))
    }

    /// Frames a small Send or Write after the bytes that are framed already, so that only its
    /// report must be kept until it is sent.
    ///
    /// Returns `false` if the request must be submitted instead: it is of another kind, is too long
    /// for one FPDU, may not overtake earlier work, or has a segment that may not be read or whose
    /// copy may fail. `submit` then reports the fault.
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
            SendOp::SendImmediate { value, solicited } => {
                WorkKind::SendImmediate { value, solicited }
            }
            SendOp::Write(to) => write_kind(to),
            _ => return false,
        };
        let must_ask = wr.completion && self.asks_for_acknowledgements();
        if wr.fence || must_ask || !self.outstanding.is_empty() || !self.tx().has_room(len as usize)
        {
            return false;
        }
        let memory = table.access();
        let Some(pieces) = Pieces::of(&memory, stream.pd, wr.sgl) else {
            return false;
        };
        let Some(fpdu) = self.proto.transmit_now(kind, len) else {
            return false;
        };
        self.burst.add(len);
        self.tx()
            .submit(&fpdu, pieces.as_slice(), Report::new(wr, len));
        true
    }

    /// Carries out a Write or Read without the peer's processor, and records its completion.
    ///
    /// Returns `false` if the request must be framed or submitted instead.
    pub(crate) fn copy_at_once(
        &mut self,
        stream: Stream,
        table: &MemoryTable,
        wr: &SendWr<'_>,
        len: u32,
    ) -> bool {
        let is_done =
            self.outstanding.is_empty() && self.copy_directly(stream, table, &wr.op, wr.sgl, len);
        if is_done && let Some(local) = self.local() {
            local.note_done(Report::new(wr, len));
        }
        is_done
    }

    /// Copies the bytes of a Write or Read, if the peer permits that and all earlier requests allow
    /// it.
    fn copy_directly(
        &mut self,
        stream: Stream,
        table: &MemoryTable,
        op: &SendOp,
        sgl: &[Sge],
        len: u32,
    ) -> bool {
        let (access, range) = match *op {
            SendOp::Write(to) => (Access::RemoteWrite, to),
            SendOp::Read(from) if self.proto.config().ord > 0 => (Access::RemoteRead, from),
            _ => return false,
        };
        // An idle protocol has sent all earlier requests and has the answers to all reads, so a
        // fence is satisfied.
        let is_free = self.proto.has_tx_moved() && self.proto.is_idle() && self.fenced.is_empty();
        let Move::Local { carrier, .. } = &mut self.moving else {
            return false;
        };
        if !is_free || !(1..=DIRECT_MAX).contains(&len) || !carrier.may_copy(access, len) {
            return false;
        }
        let remote = Remote {
            access,
            stag: Stag(range.rkey),
            to: range.addr,
            len,
        };
        let memory = table.access();
        let Some(places) = Places::of(&memory, stream.pd, sgl, access == Access::RemoteRead) else {
            return false;
        };
        let pinned = table.pin(&memory, sgl.iter().map(|sge| Stag(sge.lkey)));
        drop(memory);
        // SAFETY: the memory table has checked the places, whose registrations are pinned; their
        // total length is that of the request (`Qp::check_send`).
        let is_done = unsafe { carrier.copy_directly(&remote, places.as_slice()) };
        drop(pinned);
        is_done
    }

    /// Posts a work request to the protocol, and returns the resulting number of protocol requests.
    fn post(
        &mut self,
        pd: u32,
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
            SendOp::SendImmediate { value, solicited } => {
                WorkKind::SendImmediate { value, solicited }
            }
            SendOp::Write(to) => write_kind(to),
            SendOp::WriteImmediate {
                to,
                value,
                solicited,
            } => return self.post_write_immediate(request, to, value, solicited),
            SendOp::Read(from) => return self.post_read(pd, table, request, from, sgl),
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
            SendOp::LocalInvalidate(_) => return Err(WcStatus::LocalQpOperation),
        };
        self.queue(request)?;
        Ok(1)
    }

    /// Posts a Write and the message with its immediate data (RFC 7306 section 6).
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

    /// Posts one Read Request per segment, because a Read Request has only one sink.
    fn post_read(
        &mut self,
        pd: u32,
        table: &MemoryTable,
        mut request: WorkRequest,
        from: RemoteRange,
        sgl: &[Sge],
    ) -> Result<u32, WcStatus> {
        let memory = table.access();
        if sgl.iter().any(|sge| memory.local(pd, sge, true).is_none()) {
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

    /// Queues one Read Request, or two if a rule of [`peer`] requires that. Returns the number.
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

    /// True if a Send or Write over TCP must be followed by an empty Read, whose answer shows that
    /// the peer has executed it. In shared memory the peer's index shows that. While this end
    /// receives nothing, it cannot receive answers.
    fn asks_for_acknowledgements(&self) -> bool {
        let config = self.proto.config();
        self.acknowledged
            && !self.proto.has_tx_moved()
            && !self.waits_for_receive
            && config.ord > 0
            && config.peer.answers_empty_reads()
    }

    /// Asks the peer to acknowledge the request that was posted last.
    fn ask(&mut self, token: u64) -> Result<(), WcStatus> {
        self.queue(WorkRequest {
            token,
            kind: WorkKind::Read {
                source_stag: EMPTY_READ,
                source_to: 0,
                sink_stag: EMPTY_READ,
                sink_to: 0,
            },
            len: 0,
            fence: false,
        })
    }

    /// Announces how often the peer lets messages of this end wait for receives.
    pub(crate) fn announce_retries(&mut self, retries: Option<u8>) {
        let announced = self.queue(WorkRequest {
            token: u64::MAX,
            kind: WorkKind::announce_retries(retries),
            len: 0,
            fence: false,
        });
        if announced.is_err() {
            tracing::debug!("a limit of retries is not announced");
        }
    }

    fn queue(&mut self, request: WorkRequest) -> Result<(), WcStatus> {
        self.proto
            .post(request)
            .map_err(|_| WcStatus::LocalQpOperation)
    }

    /// Sends as much as the transport accepts.
    pub(crate) fn transmit(&mut self, stream: Stream, table: &MemoryTable) -> Result<(), End> {
        self.burst.on_transmit();
        match self.transmit_by_carrier(stream, table) {
            Ok(flow) => self.set_blocked(flow == Flow::Blocked),
            Err(fault) => return Err(self.end_of_tx(fault)),
        }
        Ok(())
    }

    fn end_of_tx(&mut self, fault: TxFault) -> End {
        match fault {
            TxFault::Transport(error) => End::of_socket(error),
            TxFault::Response(fault) => End::Fault(fault),
            TxFault::Local { token } => {
                if let Some(slot) = self.outstanding.get_mut(token) {
                    slot.status = WcStatus::LocalProtection;
                }
                End::Fault(self.proto.fail_local())
            }
        }
    }

    /// Records whether bytes wait for room in the socket. While they do, room is an event in the
    /// set.
    fn set_blocked(&mut self, is_blocked: bool) {
        if self.is_blocked != is_blocked {
            self.is_blocked = is_blocked;
            self.socket.want_room(&mut self.place, is_blocked);
        }
    }

    /// Makes every poll drive the connection from now on, if it is armed and consumers or the
    /// engine poll. Returns true if the connection became a polled one.
    pub(crate) fn start_polling(&mut self) -> bool {
        let in_set = self.proto.has_rx_moved();
        if self.waits_for_receive || !self.socket.start_polling(&mut self.place, in_set) {
            return false;
        }
        self.tcp.keep_staging(true);
        if let Some(local) = self.local() {
            local.start_polling();
        }
        true
    }

    /// Arms the connection, because no thread polls it any more. Returns `true` if there is work
    /// already; the connection then stays polled.
    ///
    /// An armed connection is not changed. Threads arm the connections of a list that they have
    /// copied, so another thread may have armed this one first. A check for work would then stop
    /// the peer from ringing, on behalf of a poller that does not exist.
    pub(crate) fn arm(&mut self) -> Result<bool, End> {
        if !self.place.is_polled() {
            return Ok(false);
        }
        if self.arm_local()? {
            return Ok(true);
        }
        self.socket.arm(&mut self.place, self.is_blocked);
        self.tcp.keep_staging(false);
        Ok(false)
    }

    /// Handles an event of a descriptor of the connection.
    pub(crate) fn on_ready(&mut self, ready: Ready) {
        if self.waits_for_receive
            && ready == Ready::Socket
            && !self.proto.has_rx_moved()
            && io::is_hung_up(self.socket.as_fd())
        {
            // The peer has closed, so the connection ends instead of waiting longer.
            self.proto.wait_for_receives(false);
        }
        match (ready, &mut self.moving) {
            (Ready::Socket, Move::Local { is_ready, .. }) => *is_ready = true,
            (Ready::Bell, _) => self.answer_bell(),
            // TCP is read at every pass.
            (Ready::None | Ready::Socket, _) => {}
        }
    }

    /// Makes the peer ring for its next records. Returns `true` if there are some already.
    pub(crate) fn arm_local(&mut self) -> Result<bool, End> {
        let is_unready = self.inbox.is_unready();
        match self.local() {
            None => Ok(false),
            Some(local) => local.arm(is_unready),
        }
    }

    /// True if a call of [`Self::transmit`] has something to send.
    pub(crate) fn wants_transmit(&self) -> bool {
        self.is_tx_pending() || self.proto.has_transmit()
    }

    /// Moves finished requests to the list of completions, in the order of submission.
    pub(crate) fn reap(&mut self, qp: QpToken) -> u32 {
        // A framed request is older than all queued ones. Queued requests wait until it is sent,
        // even if they have nothing to send.
        let mut count = self.reap_submitted(qp);
        if self.outstanding.is_empty() || self.tx().has_unfinished() {
            return count;
        }
        self.note_completions();
        while let Some(slot) = self.outstanding.pop_done() {
            count += 1;
            self.send_done
                .extend(slot.report().completion(qp, WcStatus::Success));
        }
        count
    }

    /// Records the completions of the protocol.
    fn note_completions(&mut self) {
        while let Some(done) = self.proto.poll_completion() {
            if let Some(slot) = self.outstanding.get_mut(done.token) {
                slot.parts_left = slot.parts_left.saturating_sub(1);
            }
        }
    }

    /// Records the requests that the peer has executed, before the connection ends. If the peer has
    /// closed it in an orderly way, the requests that the transport has taken count as executed.
    pub(crate) fn reap_last(&mut self, is_orderly: bool) {
        if let Move::Local { carrier, .. } = &mut self.moving {
            // A peer that has corrupted the memory has executed nothing more.
            let _ = carrier.reap(&mut self.proto);
        }
        if is_orderly {
            self.outstanding.assume_acknowledged();
        }
    }

    /// Sends as many as possible of the bytes that end the stream between two frames, with a
    /// Terminate message at its end if there is one. Returns the remaining bytes.
    pub(crate) fn last_bytes(
        &mut self,
        stream: Stream,
        table: &MemoryTable,
        fault: Option<&ProtocolError>,
    ) -> Option<Vec<u8>> {
        let mut last = Vec::new();
        if fault.is_some() && !self.proto.has_tx_moved() {
            last.extend(std::iter::from_fn(|| self.proto.poll_last_answer()));
        }
        let terminate = fault.and_then(|fault| self.proto.terminate(fault));
        if self.proto.has_tx_moved() {
            if let (Some(segment), Some(local)) = (&terminate, self.local()) {
                local.transmit_last(segment);
            }
            return Some(Vec::new());
        }
        let payloads = Payloads {
            table,
            stream,
            outstanding: &self.outstanding,
        };
        last.extend(terminate);
        self.tcp.last_bytes(&last, &payloads)
    }
}

/// The STag of a Read of length 0, which no rule checks.
const EMPTY_READ: Stag = Stag(1);

/// True if the peer does not answer the operation by itself.
fn op_is_sent(op: &SendOp) -> bool {
    matches!(
        op,
        SendOp::Send { .. }
            | SendOp::SendImmediate { .. }
            | SendOp::Write(_)
            | SendOp::WriteImmediate { .. }
    )
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
        is_first: bind.is_first,
        only: bind.only,
    })
}
