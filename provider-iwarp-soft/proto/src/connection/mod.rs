//! One stream in full operation: DDP and RDMAP in both directions.
//!
//! [`Connection`] is split by direction: `outbound.rs` makes FPDUs, `inbound.rs` judges segments,
//! `foresight.rs` those that are placed while they arrive, `ending.rs` is how streams end,
//! `state.rs` what is allowed when, `agreement.rs` the agreement between two ends of this
//! implementation, `carrier.rs` the move from TCP to another carrier, `send_queue.rs` and
//! `requests.rs` hold what is on its way.

mod agreement;
mod carrier;
mod ending;
mod foresight;
mod inbound;
mod outbound;
mod requests;
mod send_queue;
mod state;

pub use agreement::OwnOffer;
pub use carrier::CarrierError;
pub use state::StreamState;

use crate::{
    Completion, Msn, Peer, PostError, WorkKind, WorkRequest,
    mpa::Negotiated,
    wire::{fpdu, mpa::RtrKind},
};

use agreement::Agreement;
use carrier::Carriers;
use inbound::Receiver;
use outbound::Transmitter;
use requests::{OutstandingQueue, PendingQueue};
use send_queue::SendQueue;

/// Which side of the start-up this was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Sent the Request, speaks first.
    Initiator,
    /// Sent the Reply, is silent until the first FPDU arrives.
    Responder,
}

/// What a connection is made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Our side.
    pub role: Role,
    /// The longest ULPDU to transmit ([`fpdu::mulpdu`]); kept within the bounds of RFC 5044.
    pub mulpdu: usize,
    /// Reads and atomics of the peer to hold. A peer may exceed it up to the next power of two,
    /// because siw rounds up what was announced.
    pub ird: u16,
    /// Reads and atomics to have outstanding.
    pub ord: u16,
    /// Peer-to-peer mode: the kind of the initiator's first FPDU.
    pub rtr: Option<RtrKind>,
    /// Work requests that may be uncompleted.
    pub send_queue_len: usize,
    /// Atomics and Immediate Data (RFC 7306). Not negotiated on the wire; without it a peer that
    /// sends them gets "unexpected opcode".
    pub rfc7306: bool,
    /// Who the peer is.
    pub peer: Peer,
}

impl Config {
    /// From what the start-up frames agreed on.
    #[must_use]
    pub const fn new(
        role: Role,
        negotiated: &Negotiated,
        mulpdu: usize,
        send_queue_len: usize,
    ) -> Self {
        Self {
            role,
            mulpdu,
            ird: negotiated.ird,
            ord: negotiated.ord,
            rtr: negotiated.rtr,
            send_queue_len,
            rfc7306: true,
            peer: negotiated.peer,
        }
    }
}

/// One stream.
///
/// Methods are of four kinds: commands (`post`, `set_mulpdu`), input (`foresee`, `handle_*`,
/// `on_*`, `answer_*`), output (`poll_*`), and getters. None of them blocks, and none allocates
/// beyond the first time a queue reaches a new length.
///
/// The loop of an engine:
///
/// 1. Out: `poll_transmit` until it gives nothing or the buffer is full; hand the bytes to the
///    transport; `on_sent` with the number of [`crate::Ends::WorkRequest`] that are completely
///    with it; `poll_completion` until it gives nothing.
/// 2. In: [`fpdu::peek`], check the CRC, `handle_ulpdu`, do what [`crate::Inbound`] says, then
///    `poll_completion` (answers may have completed reads) and 1 again.
/// 3. On `Err`: `terminate`, transmit what it gives, shut the transport's sending side down,
///    `poll_flushed` until it gives nothing.
#[derive(Debug)]
pub struct Connection {
    config: Config,
    state: StreamState,
    send_queue: SendQueue,
    outstanding: OutstandingQueue,
    pending: PendingQueue,
    agreement: Agreement,
    carriers: Carriers,
    tx: Transmitter,
    rx: Receiver,
}

impl Connection {
    /// A stream right after its start-up frames.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let mulpdu = config.mulpdu.clamp(fpdu::MULPDU_MIN, fpdu::MULPDU_MAX);
        let (state, rtr) = match config.role {
            Role::Initiator => (StreamState::Operational, config.rtr),
            Role::Responder => (StreamState::AwaitFirstFpdu, None),
        };
        Self {
            config: Config { mulpdu, ..config },
            state,
            send_queue: SendQueue::new(config.send_queue_len),
            outstanding: OutstandingQueue::default(),
            pending: PendingQueue::default(),
            agreement: Agreement::Off,
            carriers: Carriers::new(),
            tx: Transmitter::new(rtr),
            rx: Receiver::new(),
        }
    }

    /// Takes a work request. Requests are carried out in the order of this call.
    pub fn post(&mut self, request: WorkRequest) -> Result<(), PostError> {
        if self.state.has_ended() {
            return Err(PostError::Ended);
        }
        if request.kind.is_answered() && self.config.ord == 0 {
            return Err(PostError::NoOutboundReads);
        }
        match request.kind {
            WorkKind::Atomic { .. } | WorkKind::ImmediateData { .. } if !self.config.rfc7306 => {
                return Err(PostError::Unsupported);
            }
            WorkKind::Atomic { to, .. } if to % 8 != 0 => return Err(PostError::Misaligned),
            _ => {}
        }
        if self.send_queue.push(request) {
            Ok(())
        } else {
            Err(PostError::QueueFull)
        }
    }

    /// Changes the longest ULPDU for FPDUs to come, for example when the segment size changes.
    /// It has no effect once both ends have agreed on a length ([`Self::offer`]).
    pub fn set_mulpdu(&mut self, mulpdu: usize) {
        if self.agreed_ulpdu().is_none() {
            self.config.mulpdu = mulpdu.clamp(fpdu::MULPDU_MIN, fpdu::MULPDU_MAX);
        }
    }

    /// Makes an offer, before the first FPDU, to a peer that may run this implementation. If the
    /// peer makes an offer too, ULPDUs are up to the shorter of both lengths from then on, whatever
    /// the size of TCP's segments, and carrier messages may be exchanged if both offer them. A peer
    /// that runs another implementation ignores the offer and gets FPDUs of the configured MULPDU.
    ///
    /// The ends recognise each other by the zero-length RDMA Read of a peer-to-peer start-up, so an
    /// initiator knows the result one round trip after its first FPDU.
    pub fn offer(&mut self, own: OwnOffer) {
        self.agreement
            .on_offer(OwnOffer::new(own.ulpdu_max, own.carriers));
    }

    /// The longest ULPDU that both ends have agreed on; `None` with a peer that runs another
    /// implementation.
    #[must_use]
    pub const fn agreed_ulpdu(&self) -> Option<usize> {
        self.agreement.ulpdu_max()
    }

    /// The zero-length Read of the start-up, or its answer, has shown what the peer runs.
    const fn adopt_agreed_ulpdu(&mut self) {
        if let Some(agreed) = self.agreed_ulpdu() {
            self.config.mulpdu = agreed;
        }
    }

    /// The transport has taken (or, with zero-copy transmission, has released) the last byte of
    /// `work_requests` more work requests: as many as FPDUs with [`crate::Ends::WorkRequest`] went.
    pub fn on_sent(&mut self, work_requests: usize) {
        self.send_queue.on_sent(work_requests);
    }

    /// The next work request that was carried out, in the order of submission.
    pub fn poll_completion(&mut self) -> Option<Completion> {
        self.send_queue.pop_done()
    }

    /// After the stream has ended and the engine has let go of all payload: the next work request
    /// that was not carried out. Take what [`Self::poll_completion`] has first.
    pub fn poll_flushed(&mut self) -> Option<Completion> {
        if self.state.has_ended() {
            self.send_queue.pop_flushed()
        } else {
            None
        }
    }

    /// Where the stream is in its life.
    #[must_use]
    pub const fn state(&self) -> StreamState {
        self.state
    }

    /// The configuration, `mulpdu` as it is now.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Whether a valid FPDU has arrived.
    #[must_use]
    pub const fn has_received(&self) -> bool {
        self.rx.has_received()
    }

    /// Whether an FPDU was transmitted.
    #[must_use]
    pub const fn has_sent(&self) -> bool {
        self.tx.sent_fpdu
    }

    /// Has an empty Write transmitted next, for a peer that may have missed the first FPDU
    /// ([`crate::peer::repeats_first_frame`]). Only between two messages.
    pub fn repeat_first_frame(&mut self) {
        if self.state.may_transmit() && !self.has_transmit() {
            self.tx.rtr = Some(RtrKind::Write);
        }
    }

    /// Work requests that have not completed.
    #[must_use]
    pub fn uncompleted(&self) -> usize {
        self.send_queue.len()
    }

    /// Reads and atomics of ours that the peer has not answered.
    #[must_use]
    pub fn outstanding_reads(&self) -> usize {
        self.outstanding.entries.len()
    }

    /// Nothing to transmit, nothing to be answered by either side: a good moment to close.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.tx.rtr.is_none()
            && !self.carriers.has_queued()
            && self.send_queue.current().is_none()
            && self.outstanding.entries.is_empty()
            && self.pending.entries.is_empty()
    }
}

/// The message sequence numbers of one direction.
#[derive(Clone, Copy, Debug)]
struct Sequences {
    send: Msn,
    request: Msn,
    atomic_response: Msn,
    carrier: Msn,
}

impl Sequences {
    const FIRST: Self = Self {
        send: Msn::FIRST,
        request: Msn::FIRST,
        atomic_response: Msn::FIRST,
        carrier: Msn::FIRST,
    };
}
