//! A stream in full operation: DDP and RDMAP in both directions.
//!
//! [`Connection`] is split by direction: `outbound.rs` makes FPDUs, `inbound.rs` checks complete
//! segments, `prediction.rs` checks segments that are placed while they are received, `ending.rs`
//! ends streams, `state.rs` defines the states, `agreement.rs` is the agreement between two ends of
//! this implementation, `carrier.rs` the move from TCP to another carrier, and `send_queue.rs` and
//! `requests.rs` hold requests in flight.

mod agreement;
mod carrier;
mod ending;
mod inbound;
mod outbound;
mod prediction;
mod requests;
mod send_queue;
mod state;

pub use agreement::OwnOffer;
pub use carrier::CarrierError;
pub use state::StreamState;

use crate::{
    Completion, Msn, Peer, PostError, Role, Stag, WorkKind, WorkRequest,
    mpa::Negotiated,
    wire::{fpdu, mpa::RtrKind},
    work,
};

use agreement::Agreement;
use carrier::Carriers;
use inbound::Receiver;
use outbound::Transmitter;
use requests::{OutstandingQueue, PendingQueue};
use send_queue::SendQueue;

/// The configuration of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Our side.
    pub role: Role,
    /// The longest ULPDU to transmit ([`fpdu::mulpdu`]); kept within the bounds of RFC 5044.
    pub mulpdu: usize,
    /// The number of the peer's reads and atomics to hold. A peer may exceed the number up to the
    /// next power of two, because siw rounds up the announced number.
    pub ird: u16,
    /// The number of our reads and atomics that may be outstanding.
    pub ord: u16,
    /// Peer-to-peer mode: the kind of the initiator's first FPDU.
    pub rtr: Option<RtrKind>,
    /// The maximum number of uncompleted work requests.
    pub send_queue_len: usize,
    /// True if atomics and Immediate Data (RFC 7306) are permitted. The start-up frames do not
    /// negotiate them; if they are not permitted, a peer that sends one receives "unexpected
    /// opcode".
    pub rfc7306: bool,
    /// The implementation of the peer.
    pub peer: Peer,
}

impl Config {
    /// Returns the configuration on which the start-up frames agreed.
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

/// A stream in full operation.
///
/// Methods are of four kinds: commands (`post`, `set_mulpdu`), input (`predict_target`, `handle_*`,
/// `on_*`, `answer_*`), output (`poll_*`), and getters. None of them blocks, and none allocates
/// beyond the first time a queue reaches a new length.
///
/// The loop of an engine:
///
/// 1. Out: `poll_transmit` until it returns `None` or the buffer is full; hand the bytes to the
///    transport; `on_sent` with the number of [`crate::Ends::WorkRequest`] whose bytes the
///    transport has taken completely; `poll_completion` until it returns `None`.
/// 2. In: [`fpdu::peek`], check the CRC, `handle_ulpdu`, do what [`crate::Inbound`] says, then
///    `poll_completion` (stored answers have completed reads) and 1 again.
/// 3. On `Err`: `terminate`, transmit its FPDU, shut the transport's sending side down,
///    `poll_flushed` until it returns `None`.
#[derive(Debug)]
pub struct Connection {
    config: Config,
    state: StreamState,
    send_queue: SendQueue,
    outstanding: OutstandingQueue,
    pending: PendingQueue,
    agreement: Agreement,
    carriers: Carriers,
    waits_for_receives: bool,
    peer_retries: Option<u8>,
    tx: Transmitter,
    rx: Receiver,
}

impl Connection {
    /// Creates a stream right after its start-up frames.
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
            waits_for_receives: false,
            peer_retries: None,
            tx: Transmitter::new(rtr),
            rx: Receiver::new(),
        }
    }

    /// Posts a work request. Requests are carried out in the order of this call.
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
            WorkKind::SendImmediate { .. } if !self.agreement.is_possible() => {
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

    /// Changes the longest ULPDU of later FPDUs, for example when the segment size changes. The
    /// call has no effect once both ends have agreed on a length ([`Self::offer`]).
    pub fn set_mulpdu(&mut self, mulpdu: usize) {
        if self.agreed_ulpdu().is_none() {
            self.config.mulpdu = mulpdu.clamp(fpdu::MULPDU_MIN, fpdu::MULPDU_MAX);
        }
    }

    /// Makes an offer, before the first FPDU, to a peer that may run this implementation. If the
    /// peer makes an offer too, ULPDUs are up to the shorter of both lengths from then on, whatever
    /// the size of TCP's segments. Carrier messages may be exchanged if both offer them. A peer
    /// that runs another implementation ignores the offer and receives FPDUs of the configured
    /// MULPDU.
    ///
    /// The ends recognise each other by the zero-length RDMA Read of a peer-to-peer start-up, so an
    /// initiator knows the result one round trip after its first FPDU.
    pub fn offer(&mut self, own: OwnOffer) {
        self.agreement
            .on_offer(OwnOffer::new(own.ulpdu_max, own.carriers));
    }

    /// Sets whether a message of a peer that runs this implementation waits for a receive
    /// ([`crate::Inbound::Unready`]). Otherwise a message without a receive ends the stream (RFC
    /// 5041 section 7.2, "no buffer available"). To the peer, waiting is TCP's flow control.
    pub fn wait_for_receives(&mut self, waits: bool) {
        self.waits_for_receives = waits;
    }

    /// The number of times that the peer would repeat a message without a receive, if the peer has
    /// announced a limit ([`WorkKind::announce_retries`]).
    #[must_use]
    pub const fn peer_retries(&self) -> Option<u8> {
        self.peer_retries
    }

    /// Records an announcement of a peer that runs this implementation.
    pub(super) const fn on_empty_write(&mut self, stag: Stag, to: u64) {
        if self.agreed_ulpdu().is_some() && stag.0 == work::RETRIES_STAG && to >> 8 == work::RETRIES
        {
            let [retries, ..] = to.to_le_bytes();
            self.peer_retries = if retries == u8::MAX {
                None
            } else {
                Some(retries)
            };
        }
    }

    /// True if a message that finds no receive waits for one.
    const fn may_wait_for_receives(&self) -> bool {
        self.waits_for_receives && self.agreed_ulpdu().is_some()
    }

    /// The longest ULPDU on which both ends have agreed; `None` with a peer that runs another
    /// implementation.
    #[must_use]
    pub const fn agreed_ulpdu(&self) -> Option<usize> {
        self.agreement.ulpdu_max()
    }

    /// Uses the agreed length, after the zero-length Read of the start-up or its answer has shown
    /// the peer's offer.
    const fn adopt_agreed_ulpdu(&mut self) {
        if let Some(agreed) = self.agreed_ulpdu() {
            self.config.mulpdu = agreed;
        }
    }

    /// Reports that the transport has taken (or, with zero-copy transmission, has released) the
    /// last byte of `work_requests` more work requests: as many as FPDUs with
    /// [`crate::Ends::WorkRequest`] were transmitted.
    pub fn on_sent(&mut self, work_requests: usize) {
        self.send_queue.on_sent(work_requests);
    }

    /// Takes the next work request that was carried out, in the order of submission.
    pub fn poll_completion(&mut self) -> Option<Completion> {
        self.send_queue.pop_done()
    }

    /// Takes the next work request that was not carried out. Valid after the stream has ended and
    /// the engine has released all payload. Call [`Self::poll_completion`] until it returns `None`
    /// first.
    pub fn poll_flushed(&mut self) -> Option<Completion> {
        if self.state.has_ended() {
            self.send_queue.pop_flushed()
        } else {
            None
        }
    }

    /// The state of the stream.
    #[must_use]
    pub const fn state(&self) -> StreamState {
        self.state
    }

    /// The configuration, with the current `mulpdu`.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// True after a valid FPDU was received.
    #[must_use]
    pub const fn has_received(&self) -> bool {
        self.rx.has_received()
    }

    /// True after an FPDU was transmitted.
    #[must_use]
    pub const fn has_sent(&self) -> bool {
        self.tx.sent_fpdu
    }

    /// Makes an empty Write the next FPDU, for a peer that may have missed the first one
    /// ([`crate::peer::repeats_first_frame`]). Only between two messages.
    pub fn repeat_first_frame(&mut self) {
        if self.state.may_transmit() && !self.has_transmit() {
            self.tx.rtr = Some(RtrKind::Write);
        }
    }

    /// The number of work requests that have not completed.
    #[must_use]
    pub fn uncompleted(&self) -> usize {
        self.send_queue.len()
    }

    /// The number of our reads and atomics that the peer has not answered.
    #[must_use]
    pub fn outstanding_reads(&self) -> usize {
        self.outstanding.entries.len()
    }

    /// True if there is nothing to transmit and neither side owes an answer: a good moment to
    /// close.
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
