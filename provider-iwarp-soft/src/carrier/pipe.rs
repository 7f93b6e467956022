//! A second carrier for tests: a queue of bytes in each direction, within one process, with delays
//! and faults.
//!
//! The provider's own tests run over the pipe. They show that a carrier can be added in this folder
//! alone, and that a carrier may move bytes in portions other than whole segments.
//!
//! ```text
//! frame: header_len (2) | payload_len (4) | DDP and RDMAP header | payload
//! ```

#[path = "pipe/lane.rs"]
mod lane;
#[path = "pipe/tests.rs"]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex};

use access_layer::rnic::Flow as Way;
use host::locks::lock;
use iwarp_proto::{Connection, Ends, ProtectionFault, TransmitFpdu, TransmitPayload};
use lane::{Lane, Random};
use rustix::io::Errno;

use super::inbox::{Accepted, Sinks};
use super::local::bell::{self, Drained};
use super::local::rendezvous::UnixConn;
use super::{
    Carrier, Distance, Flow, Payloads, Reception, RxEnd, SecondCarrier, TxFault, visit_payload,
};
use crate::memory::{Bytes, ReferenceHolder};
use crate::progress::conn_socket::MayHaveWork;
use crate::work::Report;

/// The longest payload of one segment.
const PAYLOAD_MAX: usize = 16 * 1024;
/// The number of staged bytes from which on no more segments are framed.
const STAGED_MAX: usize = 64 * 1024;
/// Bytes in front of the headers of a segment.
const PREFIX: usize = 6;

/// The delays of a pipe. All choices follow from the seed and the order of calls.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Delays {
    pub(crate) seed: u64,
    /// True if a call moves a part of the possible bytes, or none.
    pub(crate) is_short: bool,
    /// True if another thread rings the doorbells, some time later.
    pub(crate) has_late_bells: bool,
}

/// The end of a direction at a chosen byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The reader finds the end of the bytes.
    Closed,
    /// The reader finds this error after the last byte.
    Error(Errno),
}

/// An end of a pipe, before the connection has moved.
#[derive(Debug)]
pub(crate) struct PipeEnd {
    tx: Arc<Lane>,
    rx: Arc<Lane>,
    delays: Delays,
}

type Ends2 = (SocketAddr, SocketAddr);
static ENDS: LazyLock<Mutex<HashMap<Ends2, PipeEnd>>> = LazyLock::new(Mutex::default);

/// Prepares a pipe for a connection. `ends` are the own address and the peer's, of the end that
/// sends through the first of the returned lanes.
fn prepare(ends: Ends2, delays: Delays) -> [Arc<Lane>; 2] {
    let lanes = [Arc::<Lane>::default(), Arc::default()];
    let mut all = lock(&ENDS);
    for (ends, tx, seed) in [(ends, 0, 1), ((ends.1, ends.0), 1, 2)] {
        let end = PipeEnd {
            tx: lanes[tx].clone(),
            rx: lanes[1 - tx].clone(),
            delays: Delays {
                seed: delays.seed * 2 + seed,
                ..delays
            },
        };
        all.insert(ends, end);
    }
    lanes
}

/// Takes the end that was prepared for a connection.
pub(super) fn end_of(ends: Ends2) -> Option<PipeEnd> {
    lock(&ENDS).remove(&ends)
}

/// The action that is due once the last byte of a segment is in the lane.
#[derive(Debug)]
enum Finish {
    Work,
    Report(Report),
}

#[derive(Debug)]
struct Watch {
    lane: Arc<Lane>,
    is_busy: AtomicBool,
}

impl MayHaveWork for Watch {
    fn may_have_work(&self) -> bool {
        self.is_busy.load(Ordering::Relaxed) || self.lane.may_have_bytes()
    }

    fn has_record(&self) -> bool {
        self.lane.may_have_bytes()
    }
}

/// The carrier.
#[derive(Debug)]
pub(crate) struct PipeCarrier {
    end: PipeEnd,
    unix: UnixConn,
    random: Random,
    watch: Arc<Watch>,
    /// Framed bytes that the lane has not accepted.
    staged: Vec<u8>,
    /// Segments that the lane has not accepted completely: the position of their last byte.
    unfinished: VecDeque<(u64, Finish)>,
    finished: Vec<Report>,
    /// Received bytes that are not a complete frame.
    received: Vec<u8>,
    distance: Distance,
    way: Way,
}

impl PipeCarrier {
    pub(super) fn new(end: PipeEnd, unix: UnixConn) -> Self {
        Self {
            random: Random::new(end.delays.seed),
            watch: Arc::new(Watch {
                lane: end.rx.clone(),
                is_busy: AtomicBool::new(true),
            }),
            end,
            unix,
            staged: Vec::new(),
            unfinished: VecDeque::new(),
            finished: Vec::new(),
            received: Vec::new(),
            distance: Distance::default(),
            way: Way::default(),
        }
    }

    /// Chooses the number of bytes, up to `count`, that a call moves.
    fn portion(&mut self, count: usize) -> usize {
        match self.end.delays.is_short {
            true => self.random.portion(count),
            false => count,
        }
    }

    fn ring(&mut self) {
        if self.end.delays.has_late_bells
            && let Ok(unix) = self.unix.as_fd().try_clone_to_owned()
        {
            let pause = self.random.pause();
            std::thread::spawn(move || {
                std::thread::sleep(pause);
                bell::ring(unix);
            });
        } else {
            bell::ring(&self.unix);
        }
    }

    fn stage(&mut self, segment: &TransmitFpdu, payload: &[u8], finish: Option<Finish>) {
        let header = segment.segment_header();
        self.staged.extend((header.len() as u16).to_be_bytes());
        self.staged.extend((payload.len() as u32).to_be_bytes());
        self.staged.extend_from_slice(header);
        self.staged.extend_from_slice(payload);
        self.way.sent.add_segment(payload.len());
        self.distance.sent += 1;
        if let Some(finish) = finish {
            let last = self.end.tx.written() + self.staged.len() as u64;
            self.unfinished.push_back((last, finish));
        }
    }

    /// Frames the pending segments of the protocol.
    fn frame(&mut self, proto: &mut Connection, payloads: &Payloads<'_>) -> Result<(), TxFault> {
        if !proto.has_transmit() {
            return Ok(());
        }
        let memory = payloads.table.access();
        while self.staged.len() < STAGED_MAX
            && let Some(segment) = proto.poll_transmit()
        {
            let mut bytes = Vec::with_capacity(segment.payload_len());
            let visited = visit_payload(segment.payload, &memory, payloads, |piece| {
                append(piece, &mut bytes);
            });
            if let Err(fault) = visited {
                return Err(refuse(&segment, fault, proto));
            }
            let is_work = matches!(segment.ends, Some(Ends::WorkRequest { .. }));
            self.stage(&segment, &bytes, is_work.then_some(Finish::Work));
        }
        Ok(())
    }

    /// Moves staged bytes into the lane. Returns their number.
    fn write(&mut self) -> Result<usize, TxFault> {
        let room = self.end.tx.room().min(self.staged.len());
        let count = self.portion(room);
        if self.staged.is_empty() {
            return Ok(0);
        }
        let Some(must_ring) = self.end.tx.put(&self.staged[..count]) else {
            return Err(TxFault::Transport(Errno::PIPE));
        };
        self.staged.drain(..count);
        if must_ring {
            self.ring();
        }
        Ok(count)
    }

    fn finish(&mut self, proto: &mut Connection) {
        let written = self.end.tx.written();
        while let Some((last, _)) = self.unfinished.front()
            && *last <= written
        {
            match self.unfinished.pop_front() {
                Some((_, Finish::Work)) => proto.on_sent(1),
                Some((_, Finish::Report(report))) => self.finished.push(report),
                None => {}
            }
        }
    }

    /// Handles the complete frames that were received.
    fn handle_frames(&mut self, sinks: &mut Sinks<'_>) -> Result<(), RxEnd> {
        let received = std::mem::take(&mut self.received);
        let mut rest = &received[..];
        while let Some((header, payload, after)) = split_frame(rest) {
            rest = after;
            self.distance.received += 1;
            self.way.received.add_segment(payload.len());
            handle_segment(header, payload, sinks)?;
        }
        self.received = rest.to_vec();
        Ok(())
    }
}

fn append(piece: Bytes<'_>, bytes: &mut Vec<u8>) {
    let at = bytes.len();
    bytes.resize(at + piece.len(), 0);
    piece.read_into(&mut bytes[at..]);
}

fn refuse(segment: &TransmitFpdu, fault: ProtectionFault, proto: &mut Connection) -> TxFault {
    match segment.payload {
        TransmitPayload::WorkRequest { token, .. } => TxFault::Local { token },
        _ => TxFault::Response(proto.refuse_response(segment, fault)),
    }
}

/// Returns the headers and the payload of the first frame, and the bytes after it.
fn split_frame(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (prefix, rest) = bytes.split_first_chunk::<PREFIX>()?;
    let [a, b, c, d, e, f] = *prefix;
    let header = usize::from(u16::from_be_bytes([a, b]));
    let payload = u32::from_be_bytes([c, d, e, f]) as usize;
    let (header, rest) = rest.split_at_checked(header)?;
    let (payload, rest) = rest.split_at_checked(payload)?;
    Some((header, payload, rest))
}

fn handle_segment(header: &[u8], payload: &[u8], sinks: &mut Sinks<'_>) -> Result<(), RxEnd> {
    let checked = sinks.with_proto(|proto, memory, receives| {
        proto.handle_segment(header, payload.len(), memory, receives)
    });
    if let Accepted::Place(placement) = sinks.accept(checked)? {
        let mut rest = payload;
        sinks.place(&placement.target, payload.len(), |bytes| {
            let (piece, after) = rest.split_at(bytes.len());
            bytes.write(piece);
            rest = after;
        })?;
        sinks.deliver(&placement);
    }
    Ok(())
}

impl Carrier for PipeCarrier {
    fn has_room(&mut self, payload_len: usize) -> bool {
        payload_len <= PAYLOAD_MAX && self.staged.len() < STAGED_MAX
    }

    fn submit(&mut self, segment: &TransmitFpdu, payload: &[Bytes<'_>], report: Report) {
        let mut bytes = Vec::new();
        payload.iter().for_each(|piece| append(*piece, &mut bytes));
        self.stage(segment, &bytes, Some(Finish::Report(report)));
    }

    fn transmit(
        &mut self,
        proto: &mut Connection,
        payloads: &Payloads<'_>,
    ) -> Result<Flow, TxFault> {
        loop {
            self.frame(proto, payloads)?;
            let written = self.write()?;
            self.finish(proto);
            if self.staged.is_empty() && !proto.has_transmit() {
                return Ok(Flow::Drained);
            }
            if written == 0 {
                return Ok(Flow::Blocked);
            }
        }
    }

    fn receive(&mut self, reception: &mut Reception<'_>) -> Result<bool, RxEnd> {
        let waiting = self.end.rx.len();
        if waiting == 0 {
            return match self.end.rx.ended() {
                None => Ok(false),
                Some(Ended::Closed) if self.received.is_empty() => Err(RxEnd::Closed),
                Some(Ended::Closed) => Err(RxEnd::Broken),
                Some(Ended::Error(errno)) => Err(RxEnd::Transport(errno)),
            };
        }
        let count = self.portion(waiting);
        if self.end.rx.take(count, &mut self.received) {
            self.ring();
        }
        let memory = reception.table.access();
        self.handle_frames(&mut reception.open(&memory))?;
        Ok(true)
    }

    fn finished(&mut self) -> &mut Vec<Report> {
        &mut self.finished
    }

    fn has_unfinished(&self) -> bool {
        let is_report = |it: &(u64, Finish)| matches!(it.1, Finish::Report(_));
        self.unfinished.iter().any(is_report)
    }

    fn take_unfinished(&mut self) -> Vec<Report> {
        let reports = self.unfinished.drain(..).filter_map(|it| match it.1 {
            Finish::Report(report) => Some(report),
            Finish::Work => None,
        });
        reports.collect()
    }

    fn is_pending(&self) -> bool {
        !self.staged.is_empty()
    }

    fn distance(&self) -> Distance {
        self.distance
    }
}

impl SecondCarrier for PipeCarrier {
    fn segment_max(&mut self) -> usize {
        PAYLOAD_MAX + iwarp_proto::HEADER_MAX
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.unix.as_fd()
    }

    fn answer_bell(&mut self) -> Drained {
        bell::drain(&self.unix)
    }

    fn start_polling(&mut self) {
        self.end.rx.wake_reader();
        self.end.tx.wake_writer();
    }

    fn arm(&mut self) -> Result<bool, RxEnd> {
        let has_work = self.end.rx.announce_reader();
        Ok(has_work || self.is_pending() && self.end.tx.announce_writer())
    }

    fn transmit_last(&mut self, segment: &TransmitFpdu) {
        self.stage(segment, &[], None);
        let bytes = std::mem::take(&mut self.staged);
        if self.end.tx.put(&bytes) == Some(true) {
            self.ring();
        }
    }

    fn close(&mut self) {}

    fn traffic(&self) -> (Way, Way) {
        (self.way, Way::default())
    }

    fn watch(&self) -> Arc<dyn MayHaveWork> {
        self.watch.clone()
    }

    fn update_watch(&self, is_busy: bool) {
        let is_busy = is_busy || self.is_pending();
        self.watch.is_busy.store(is_busy, Ordering::Relaxed);
    }

    fn reference_holder(&self) -> Option<Arc<dyn ReferenceHolder>> {
        None
    }
}
