//! A connection.
//!
//! | File | Contents |
//! |---|---|
//! | `setup.rs` | Hello and HelloAck |
//! | `commands.rs` | the engine's commands |
//! | `inbound.rs` | received messages |
//! | `outbound.rs` | the next message to send |
//! | `pipelined.rs` | pipelined mode, memory of a reader that the peer writes |
//! | `resizing.rs` | another size of receive buffers |
//! | `suspending.rs` | suspension, and the continuation after it |
//! | `send_queue.rs` | bytes that were written and not sent |

mod commands;
mod inbound;
mod outbound;
mod pipelined;
mod resizing;
mod send_queue;
mod setup;
mod suspending;

use std::collections::VecDeque;

use crate::{
    ConnectionState, Event, Failure, ProtocolError, ReceiveHalf, SendHalf, Seq,
    credit::{CreditUpdate, ReceiveCredits, SendCredits},
    exchange::{read, write},
    mode, resize,
    suspension::Suspension,
    wire::Mode,
};

pub use commands::Read;
pub use inbound::Inbound;
use send_queue::SendQueue;
pub use setup::Config;

/// The protocol of one connection.
#[derive(Debug)]
pub struct Connection {
    config: Config,
    state: ConnectionState,
    send_half: SendHalf,
    receive_half: ReceiveHalf,
    send_mode: Mode,
    receive_mode: Mode,
    send_credits: SendCredits,
    receive_credits: ReceiveCredits,
    /// Our memory that the peer reads.
    source: read::source::Exchange,
    /// The peer's memory that we read.
    sink: read::sink::Exchange,
    /// The peer's memory that we write.
    write_source: write::source::Exchange,
    /// Our memory that the peer writes.
    write_sink: write::sink::Exchange,
    /// The number of the SendSm that was sent last, until the peer acknowledges it.
    refused_at: Option<Seq>,
    /// True if an advertisement was dropped because it had crossed that SendSm. A cancel of it is
    /// answered.
    has_dropped: bool,
    /// The size of the peer's receive buffers in bytes, base header included.
    peer_buffer_size: u32,
    /// The number of our advertisements that the peer accepts at a time.
    peer_adverts_max: usize,
    /// Our request for other receive buffers at the peer.
    request: resize::Request,
    /// Our answer to such a request of the peer.
    answer: resize::Answer,
    suspension: Suspension,
    queue: SendQueue,
    due: Due,
    events: VecDeque<Event>,
}

/// The peer's parameters, from Hello or HelloAck.
#[derive(Clone, Copy, Debug)]
struct Peer {
    bufs: u16,
    size: u32,
    adverts_max: u16,
}

impl Peer {
    /// A peer that has not answered Hello.
    const UNKNOWN: Self = Self {
        bufs: 0,
        size: Config::BUFFER_SIZE_MIN,
        adverts_max: 1,
    };
}

/// Messages that wait only for a credit.
#[derive(Clone, Copy, Debug, Default)]
struct Due {
    /// The answer to the cancel of advertisements that were dropped.
    send_sm: bool,
    /// Our sending half changes to buffered mode.
    go_buffered: bool,
    /// Our sending half changes to pipelined mode.
    go_pipelined: bool,
    /// Our sending half changes from pipelined to combined mode.
    leave_pipelined: bool,
    /// The next RdmaRdCompl asks the peer to change to pipelined mode.
    ask_pipelined: bool,
    /// Our receiving half changes back to combined mode.
    go_combined: bool,
    /// The engine has ticked; see [`crate::credit::CreditUpdate::AtTick`].
    ticked: bool,
    /// An empty message, which only shows that this end continues.
    first_message: bool,
}

impl Connection {
    /// The next event, if there is one.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The state of the connection.
    #[must_use]
    pub const fn state(&self) -> ConnectionState {
        self.state
    }

    /// The half in which this end is the source.
    #[must_use]
    pub const fn send_half(&self) -> SendHalf {
        self.send_half
    }

    /// The half in which this end is the sink.
    #[must_use]
    pub const fn receive_half(&self) -> ReceiveHalf {
        self.receive_half
    }

    /// The mode of the sending half.
    #[must_use]
    pub const fn send_mode(&self) -> Mode {
        self.send_mode
    }

    /// The mode of the receiving half.
    #[must_use]
    pub const fn receive_mode(&self) -> Mode {
        self.receive_mode
    }

    /// The number of messages that the peer has room for.
    #[must_use]
    pub fn credits(&self) -> u32 {
        self.send_credits.credits()
    }

    /// True if bytes were written and not sent, and no advertisement waits for the peer's reader.
    #[must_use]
    pub fn has_unsent(&self) -> bool {
        !self.queue.is_empty() && self.source.is_idle()
    }

    /// True if bytes were written and not sent, and the credits permit no message with data.
    #[must_use]
    pub fn awaits_credits(&self) -> bool {
        self.has_unsent() && !self.send_credits.allow_data()
    }

    /// True if the peer has not read all memory that is advertised to it.
    #[must_use]
    pub fn awaits_reader(&self) -> bool {
        !self.source.is_idle()
    }

    /// True if everything that was written was sent, and the peer has read all advertised memory.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.queue.is_empty() && self.source.is_idle()
    }

    /// True if the peer has acknowledged everything that was written.
    #[must_use]
    pub fn is_delivered(&self) -> bool {
        self.is_drained() && !self.send_credits.has_unacknowledged_data()
    }

    /// True if a credit update waits for [`Self::handle_tick`]. A tick every 10 ms is enough; only
    /// ends with three buffers ever ask for one.
    #[must_use]
    pub fn wants_tick(&self) -> bool {
        self.state.is_established() && self.receive_credits.credit_update() == CreditUpdate::AtTick
    }

    /// True until this end and the peer have both sent their last message, the connection is
    /// suspended, or it has ended. After that, no more receive buffers need be posted.
    #[must_use]
    pub const fn expects_messages(&self) -> bool {
        let said_all = self.send_half.has_sent_fin() && self.receive_half.has_ended();
        let is_suspended = matches!(self.state, ConnectionState::Suspended);
        !said_all && !is_suspended && !self.state.has_ended()
    }

    /// The largest payload of a Data message to this peer, in bytes.
    #[must_use]
    pub const fn payload_max(&self) -> u32 {
        let size = if self.peer_buffer_size < self.config.send_size_max {
            self.peer_buffer_size
        } else {
            self.config.send_size_max
        };
        size - crate::wire::BSDH_LEN as u32
    }

    /// The number of this end's advertisements that the peer may hold, of both kinds.
    fn adverts(&self) -> usize {
        self.source.len() + self.write_sink.outstanding()
    }

    fn new(config: Config, state: ConnectionState, peer: Peer) -> Self {
        Self {
            config,
            state,
            send_half: SendHalf::Open,
            receive_half: ReceiveHalf::Open,
            send_mode: mode::START,
            receive_mode: mode::START,
            send_credits: SendCredits::new(peer.bufs),
            receive_credits: ReceiveCredits::new(config.buffers),
            source: read::source::Exchange::new(),
            sink: read::sink::Exchange::Idle,
            write_source: write::source::Exchange::new(),
            write_sink: write::sink::Exchange::new(),
            refused_at: None,
            has_dropped: false,
            peer_buffer_size: peer.size,
            peer_adverts_max: usize::from(peer.adverts_max),
            request: resize::Request::Settled,
            answer: resize::Answer::Settled,
            suspension: Suspension::None,
            queue: SendQueue::default(),
            due: Due::default(),
            events: VecDeque::new(),
        }
    }

    /// Ends the connection because of a violation by the peer.
    fn violated(&mut self, error: ProtocolError) -> ProtocolError {
        tracing::warn!(%error, state = ?self.state, "the peer broke the protocol");
        self.fail(Failure::Protocol(error));
        error
    }

    /// Ends the connection with a failure, and the transport with it.
    fn fail(&mut self, failure: Failure) {
        if !self.state.has_ended() {
            self.state.on_failure(failure);
            self.events.push_back(Event::Failed(failure));
            self.events.push_back(Event::Disconnect);
        }
    }

    /// Disconnects the transport if both halves have ended.
    fn check_halves(&mut self) {
        let sent = self.send_half == SendHalf::Finished;
        if sent && self.receive_half.has_ended() && self.state.is_established() {
            self.state.on_halves_ended();
            self.events.push_back(Event::Disconnect);
        }
    }
}
