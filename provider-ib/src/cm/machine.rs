//! The state machine of a connection: pure, without device or clock.
//!
//! ```text
//!  connect                                                          accept
//!     │    ┌──────────────────────────────── pause over ─┐              │
//!     ▼    ▼                                            │              ▼
//!  ResolvingAddress ─▶ ResolvingRoute ─▶ Requesting ─▶ Pausing     Accepting
//!                                         │      │ refused             │
//!                                 replied │      │                     │
//!                                         ▼      │ established         │
//!                                    Confirming ─┴──▶ Established ◀────┘
//!                                                      │        │ graceful
//!                                              abrupt, │        ▼
//!                                              failed  │     Draining
//!                                                      ▼        │ drained
//!                          (from everywhere) ─────▶ Flushing ◀──┘
//!                                                   │      │ the peer has not answered
//!                                                   ▼      ▼
//!                                                 Over ◀─ Lingering
//! ```
//!
//! A connection that begins on a consumer's socket ([`super::bound_socket`]) has one state more at
//! each end: the connecting end is in `AwaitingReply` before it resolves the address that the Reply
//! contains, and the accepting end is in `AwaitingRequest` before it is `Accepting`.
//!
//! [`Machine::on`] is the only writer of the state. The end of a connection is reported exactly
//! once: on leaving [`State::Flushing`], when everything posted has completed. The device may need
//! a long time for that, so the engine's thread does not wait but checks at intervals.
//!
//! On InfiniBand and RoCE the connecting side first receives the reply ([`Event::Replied`]),
//! readies its queue pair and confirms. On iWARP the kernel does both, and [`Event::Established`]
//! follows the request directly.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// The Request is being sent over the consumer's socket, or waits for its Reply there.
    AwaitingReply,
    /// The peer's address is being resolved to a device and a link address.
    ResolvingAddress,
    /// The path to the peer is being resolved.
    ResolvingRoute,
    Requesting,
    /// The peer accepted; the queue pair of this end is being readied.
    Confirming,
    /// The request was refused and will be sent again.
    Pausing,
    /// The Reply was sent over the consumer's socket, and the peer must connect to the device.
    AwaitingRequest,
    /// The reply was sent.
    Accepting,
    Established,
    /// The consumer requested a graceful disconnect, and posted requests have not finished.
    Draining,
    /// The connection or the attempt has ended, and posted work is being flushed.
    Flushing(End),
    /// The end was reported; the peer has not answered the disconnect.
    Lingering,
    /// The connection is over, and nothing is left to do.
    Over,
}

/// The end of a connection or an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct End {
    /// The event that reports the end.
    report: ConsumerEvent,
    /// True if the peer has not answered the disconnect of this end.
    lingers: bool,
}

/// The reason why a request was refused, or why a reply led to no connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    Consumer,
    /// The peer has no listener, or the parameters do not fit.
    Service,
    /// The connection manager's messages are not answered, or there is no route.
    Unreachable,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// The peer accepted over the consumer's socket.
    AcceptedOnSocket,
    /// The device of the peer, to which this end has replied over the consumer's socket, requests
    /// the connection.
    Requested,
    AddressResolved,
    RouteResolved,
    /// The address or the route cannot be resolved.
    Unresolved,
    /// The peer accepted and waits for the confirmation.
    Replied,
    /// Both sides may send.
    Established,
    /// The request was refused. On InfiniBand an end that is established, or has disconnected,
    /// receives this event too: a peer that ends its side before it has received the confirmation
    /// sends a reject instead of a disconnect, and the kernel then ends the connection of this end.
    Refused {
        refusal: Refusal,
        /// True if the refusal may be temporary and there is time for another attempt.
        again: bool,
    },
    /// The pause before another attempt is over.
    PauseOver,
    /// The peer ended the connection, or has answered the disconnect of this end.
    Disconnected {
        /// True if the device had put the queue pair into the error state by then.
        failed: bool,
    },
    /// A call that readies the queue pair failed.
    Failed,
    /// The device reported a failure of the queue pair.
    Reported {
        /// True if the queue pair is in error now. If not, the report may be about the previous
        /// connection of the same queue pair.
        failed: bool,
    },
    DeviceRemoved,
    TimedOut,
    /// The consumer disconnects.
    Disconnect {
        /// True if posted requests must finish first.
        graceful: bool,
    },
    Drained,
    Flushed,
    /// The time in which the peer could answer the disconnect has passed.
    LingerOver,
}

/// The event that the consumer receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConsumerEvent {
    Established,
    PeerRejected,
    /// The request was refused for any other reason.
    NonPeerRejected,
    /// There is no route to the peer.
    Unreachable,
    TimedOut,
    /// The request was accepted, but no connection was established.
    AcceptFailed,
    /// The connection was closed in an orderly way.
    Disconnected,
    Broken,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Create an id and resolve the peer's address with it.
    ResolveAddress,
    ResolveRoute,
    Request,
    /// Answer the request of the peer's device. Ends in [`Event::Failed`] on an error.
    Reply,
    /// Ready the queue pair and confirm. Ends in [`Event::Established`] or [`Event::Failed`].
    Confirm,
    /// Wait, and then pass [`Event::PauseOver`].
    Pause,
    /// Wait until posted requests have finished, and then pass [`Event::Drained`].
    Drain,
    /// Ask the peer to end the connection.
    Disconnect,
    /// Put the queue pair into the error state, wait until all posted work has completed, and then
    /// pass [`Event::Flushed`]. In [`State::Flushing`]: check at once.
    Flush,
    /// Wait for the peer's answer, and then pass [`Event::LingerOver`].
    Linger,
    Retire,
}

use Action::{
    Confirm, Disconnect, Drain, Flush, Linger, Pause, Reply, Request, ResolveAddress, ResolveRoute,
    Retire,
};

/// The next state and the actions of an event.
type Step = (State, &'static [Action]);

#[derive(Debug)]
pub(crate) struct Machine {
    state: State,
}

impl Machine {
    /// Creates the machine of a connection that this end requests. Its first action is
    /// [`Action::ResolveAddress`].
    pub(crate) fn connect() -> Self {
        let state = State::ResolvingAddress;
        Self { state }
    }

    /// Creates the machine of a connection that this end requests over a consumer's socket.
    pub(crate) fn connect_on_socket() -> Self {
        let state = State::AwaitingReply;
        Self { state }
    }

    /// Creates the machine of a connection whose Request over a consumer's socket was accepted.
    pub(crate) fn accept_on_socket() -> Self {
        let state = State::AwaitingRequest;
        Self { state }
    }

    /// Creates the machine of a connection whose request has been accepted.
    pub(crate) fn accept() -> Self {
        let state = State::Accepting;
        Self { state }
    }

    pub(crate) fn state(&self) -> State {
        self.state
    }

    /// True while an attempt to connect is in progress.
    pub(crate) fn is_connecting(&self) -> bool {
        matches!(
            self.state,
            State::AwaitingReply
                | State::ResolvingAddress
                | State::ResolvingRoute
                | State::Requesting
                | State::Confirming
                | State::Pausing
        )
    }

    /// Takes one event. The caller must report the event to the consumer, if one is returned, and
    /// then perform the actions in order.
    pub(crate) fn on(&mut self, event: Event) -> (Option<ConsumerEvent>, &'static [Action]) {
        let before = self.state;
        let (state, actions) = match before {
            State::AwaitingReply
            | State::ResolvingAddress
            | State::ResolvingRoute
            | State::Requesting
            | State::Confirming
            | State::Pausing => connecting(before, event),
            State::AwaitingRequest | State::Accepting => accepting(before, event),
            State::Established => established(event),
            State::Draining => draining(event),
            State::Flushing(end) => flushing(end, event),
            State::Lingering => lingering(event),
            State::Over => (State::Over, &[] as &[_]),
        };
        self.state = state;
        let report = match (before, state) {
            (State::Flushing(end), State::Lingering | State::Over) => Some(end.report),
            (State::Established, State::Established) => None,
            (_, State::Established) => Some(ConsumerEvent::Established),
            _ => None,
        };
        (report, actions)
    }
}

/// Ends an attempt, or a connection that the peer or the device has ended. The queue pair is
/// flushed, because work may have been posted.
fn abandon(report: ConsumerEvent) -> Step {
    let lingers = false;
    (State::Flushing(End { report, lingers }), &[Flush])
}

/// Ends the connection from this end. The peer is asked to disconnect before the flush, so that
/// data in flight is received.
fn end(report: ConsumerEvent) -> Step {
    let lingers = true;
    (
        State::Flushing(End { report, lingers }),
        &[Disconnect, Flush],
    )
}

fn connecting(state: State, event: Event) -> Step {
    match (state, event) {
        (State::AwaitingReply, Event::AcceptedOnSocket) => {
            (State::ResolvingAddress, &[ResolveAddress])
        }
        (State::ResolvingAddress, Event::AddressResolved) => {
            (State::ResolvingRoute, &[ResolveRoute])
        }
        (State::ResolvingRoute, Event::RouteResolved) => (State::Requesting, &[Request]),
        (State::Requesting, Event::Replied) => (State::Confirming, &[Confirm]),
        (State::Requesting | State::Confirming, Event::Established) => (State::Established, &[]),
        (State::Requesting, Event::Refused { again: true, .. }) => {
            (State::Pausing, &[Retire, Pause])
        }
        (State::Pausing, Event::PauseOver) => (State::ResolvingAddress, &[ResolveAddress]),
        (State::ResolvingAddress | State::ResolvingRoute, Event::Unresolved) => {
            abandon(ConsumerEvent::Unreachable)
        }
        (
            State::AwaitingReply | State::Requesting | State::Confirming,
            Event::Refused { refusal, .. },
        ) => match refusal {
            Refusal::Consumer => abandon(ConsumerEvent::PeerRejected),
            Refusal::Service => abandon(ConsumerEvent::NonPeerRejected),
            Refusal::Unreachable => abandon(ConsumerEvent::Unreachable),
        },
        // The peer disconnected before the connection was established.
        (State::Requesting | State::Confirming, Event::Disconnected { .. }) => {
            abandon(ConsumerEvent::NonPeerRejected)
        }
        // The peer may send, and the queue pair may fail, before this end is notified that the
        // connection is established.
        (_, Event::Failed | Event::Reported { failed: true }) => {
            abandon(ConsumerEvent::NonPeerRejected)
        }
        (_, Event::DeviceRemoved) => abandon(ConsumerEvent::Unreachable),
        (_, Event::TimedOut) => abandon(ConsumerEvent::TimedOut),
        (_, Event::Disconnect { .. }) => abandon(ConsumerEvent::Disconnected),
        (state, _) => (state, &[]),
    }
}

fn accepting(state: State, event: Event) -> Step {
    match event {
        Event::Requested if state == State::AwaitingRequest => (State::Accepting, &[Reply]),
        Event::Established if state == State::Accepting => (State::Established, &[]),
        Event::Refused { .. }
        | Event::Disconnected { .. }
        | Event::Unresolved
        | Event::Failed
        | Event::Reported { failed: true }
        | Event::DeviceRemoved => abandon(ConsumerEvent::AcceptFailed),
        Event::Disconnect { .. } => abandon(ConsumerEvent::Disconnected),
        Event::AcceptedOnSocket
        | Event::Requested
        | Event::Established
        | Event::AddressResolved
        | Event::RouteResolved
        | Event::Replied
        | Event::Reported { failed: false }
        | Event::PauseOver
        | Event::TimedOut
        | Event::Drained
        | Event::Flushed
        | Event::LingerOver => (state, &[]),
    }
}

fn established(event: Event) -> Step {
    match event {
        Event::Disconnect { graceful: true } => (State::Draining, &[Drain]),
        Event::Disconnect { graceful: false } => end(ConsumerEvent::Disconnected),
        other => up(State::Established, other),
    }
}

fn draining(event: Event) -> Step {
    match event {
        Event::Drained | Event::Disconnect { graceful: false } => end(ConsumerEvent::Disconnected),
        other => up(State::Draining, other),
    }
}

/// Handles the events of the peer and of the device that end an established connection.
fn up(state: State, event: Event) -> Step {
    match event {
        Event::Disconnected { failed: false } | Event::Refused { .. } => {
            abandon(ConsumerEvent::Disconnected)
        }
        Event::Disconnected { failed: true } | Event::DeviceRemoved => {
            abandon(ConsumerEvent::Broken)
        }
        Event::Failed | Event::Reported { .. } => end(ConsumerEvent::Broken),
        _ => (state, &[]),
    }
}

fn flushing(end: End, event: Event) -> Step {
    let lingers = false;
    match event {
        Event::Flushed if end.lingers => (State::Lingering, &[Linger]),
        Event::Flushed => (State::Over, &[Retire]),
        Event::Disconnected { .. } | Event::Refused { .. } => {
            (State::Flushing(End { lingers, ..end }), &[])
        }
        // The removed device completes nothing more.
        Event::DeviceRemoved => (State::Flushing(End { lingers, ..end }), &[Flush]),
        _ => (State::Flushing(end), &[]),
    }
}

fn lingering(event: Event) -> Step {
    match event {
        Event::Disconnected { .. }
        | Event::Refused { .. }
        | Event::DeviceRemoved
        | Event::LingerOver => (State::Over, &[Retire]),
        _ => (State::Lingering, &[]),
    }
}

#[cfg(test)]
mod tests;
