//! The state machine of a connection: pure, no device, no clock.
//!
//! ```text
//!  connect                                                          accept
//!     │                        ┌─────────── pause over ─┐              │
//!     ▼                        ▼                        │              ▼
//!  ResolvingAddress ─▶ ResolvingRoute ─▶ Requesting ─▶ Pausing     Accepting
//!                                         │      │ refused             │
//!                                 replied │      │                     │
//!                                         ▼      │ established         │
//!                                    Confirming ─┴──▶ Established ◀────┘
//!                                                      │        │ graceful
//!                                              abrupt, │        ▼
//!                                              failed  │     Draining
//!                                                      ▼        │ drained
//!                       (from everywhere) ─▶ Over ◀─ Lingering ◀┘
//! ```
//!
//! [`Machine::on`] is the only writer of the state. Its result says what to do, in order. An ending
//! is told exactly once: on the way into [`State::Lingering`] or [`State::Over`], when everything
//! posted has completed.
//!
//! On InfiniBand and RoCE the side that connects hears of the reply first ([`Event::Replied`]),
//! readies its queue pair and confirms. On iWARP the kernel does both, and
//! [`Event::Established`] follows the request at once.

/// Where a connection stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// The peer's address is being resolved to a device and a link address.
    ResolvingAddress,
    /// The path to it is being asked for.
    ResolvingRoute,
    /// The request is out.
    Requesting,
    /// The peer accepted; our queue pair is being readied.
    Confirming,
    /// Refused; the request will be made again.
    Pausing,
    /// The reply is out.
    Accepting,
    /// In full operation.
    Established,
    /// The consumer wants a graceful end: posted requests finish.
    Draining,
    /// The end was told; the peer has not answered our disconnect.
    Lingering,
    /// Nothing is left.
    Over,
}

/// Why a request was refused, or a reply came to nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The peer's consumer rejected.
    Consumer,
    /// Nobody listens, or the parameters do not fit.
    Service,
    /// The communication managers' messages are not answered, or there is no way.
    Unreachable,
}

/// What happens to a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// The address is resolved.
    AddressResolved,
    /// The route is resolved.
    RouteResolved,
    /// Either cannot be.
    Unresolved,
    /// The peer accepted, and waits for our confirmation.
    Replied,
    /// Both sides may send.
    Established,
    /// The request was refused. `again`: it is worth another attempt, and there is time for it.
    Refused {
        /// Why.
        refusal: Refusal,
        /// Whether to try again.
        again: bool,
    },
    /// The pause before another attempt is over.
    PauseOver,
    /// The peer ended the connection, or has answered that we did. `failed`: the queue pair had
    /// failed by then.
    Disconnected {
        /// The device had put the queue pair into the error state.
        failed: bool,
    },
    /// A call that readies the queue pair failed.
    Failed,
    /// The device told of a failure of the queue pair.
    Reported {
        /// The queue pair as it is now has failed. If not, the device may have told of the
        /// connection before, on the same queue pair.
        failed: bool,
    },
    /// The device goes away.
    DeviceRemoved,
    /// The consumer's timeout passed.
    TimedOut,
    /// The consumer disconnects.
    Disconnect {
        /// Posted requests are to finish.
        graceful: bool,
    },
    /// Posted requests have finished.
    Drained,
    /// The peer has had time enough to answer our disconnect.
    LingerOver,
}

/// What to tell the consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum News {
    /// The connection works.
    Established,
    /// The peer's consumer rejected.
    PeerRejected,
    /// Refused by anything else.
    NonPeerRejected,
    /// No way to the peer.
    Unreachable,
    /// The consumer's timeout passed.
    TimedOut,
    /// The accepted peer went away.
    AcceptFailed,
    /// Ended in good order.
    Disconnected,
    /// Failed.
    Broken,
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Make an id and resolve the peer's address with it.
    ResolveAddress,
    /// Ask for the path.
    ResolveRoute,
    /// Send the request.
    Request,
    /// Ready the queue pair and confirm. Ends in [`Event::Established`] or [`Event::Failed`].
    Confirm,
    /// Come back with [`Event::PauseOver`].
    Pause,
    /// Come back with [`Event::Drained`].
    Drain,
    /// Ask the peer to end the connection.
    Disconnect,
    /// Put the queue pair into the error state and see all posted work completed.
    Flush,
    /// Tell the consumer.
    Tell(News),
    /// Come back with [`Event::LingerOver`].
    Linger,
    /// Give the id up.
    Retire,
}

use Action::{
    Confirm, Disconnect, Drain, Flush, Linger, Pause, Request, ResolveAddress, ResolveRoute,
    Retire, Tell,
};

/// What an event leads to.
type Step = (State, &'static [Action]);

/// The state of one connection.
#[derive(Debug)]
pub(crate) struct Machine {
    state: State,
}

impl Machine {
    /// Of a connection that we ask for; its first action.
    pub(crate) fn connect() -> (Self, &'static [Action]) {
        let state = State::ResolvingAddress;
        (Self { state }, &[ResolveAddress])
    }

    /// Of a connection whose request has been accepted.
    pub(crate) fn accept() -> Self {
        let state = State::Accepting;
        Self { state }
    }

    /// Where it stands.
    pub(crate) fn state(&self) -> State {
        self.state
    }

    /// Whether an attempt to connect is under way.
    pub(crate) fn is_connecting(&self) -> bool {
        matches!(
            self.state,
            State::ResolvingAddress
                | State::ResolvingRoute
                | State::Requesting
                | State::Confirming
                | State::Pausing
        )
    }

    /// Takes one event; what it leads to is to be done in order.
    pub(crate) fn on(&mut self, event: Event) -> &'static [Action] {
        let (state, actions) = match self.state {
            State::ResolvingAddress
            | State::ResolvingRoute
            | State::Requesting
            | State::Confirming
            | State::Pausing => connecting(self.state, event),
            State::Accepting => accepting(event),
            State::Established => established(event),
            State::Draining => draining(event),
            State::Lingering => lingering(event),
            State::Over => (State::Over, &[] as &[_]),
        };
        self.state = state;
        actions
    }
}

/// The attempt is over. The queue pair is flushed: receives may have been posted.
macro_rules! give_up {
    ($news:ident) => {
        (State::Over, &[Flush, Retire, Tell(News::$news)])
    };
}

fn connecting(state: State, event: Event) -> Step {
    match (state, event) {
        (State::ResolvingAddress, Event::AddressResolved) => {
            (State::ResolvingRoute, &[ResolveRoute])
        }
        (State::ResolvingRoute, Event::RouteResolved) => (State::Requesting, &[Request]),
        (State::Requesting, Event::Replied) => (State::Confirming, &[Confirm]),
        (State::Requesting | State::Confirming, Event::Established) => {
            (State::Established, &[Tell(News::Established)])
        }
        (State::Requesting, Event::Refused { again: true, .. }) => {
            (State::Pausing, &[Retire, Pause])
        }
        (State::Pausing, Event::PauseOver) => (State::ResolvingAddress, &[ResolveAddress]),
        (State::ResolvingAddress | State::ResolvingRoute, Event::Unresolved) => {
            give_up!(Unreachable)
        }
        (State::Requesting | State::Confirming, Event::Refused { refusal, .. }) => match refusal {
            Refusal::Consumer => give_up!(PeerRejected),
            Refusal::Service => give_up!(NonPeerRejected),
            Refusal::Unreachable => give_up!(Unreachable),
        },
        // The peer is gone before the connection was one.
        (State::Requesting | State::Confirming, Event::Disconnected { .. }) => {
            give_up!(NonPeerRejected)
        }
        // The peer may send before we have heard that the connection stands.
        (_, Event::Failed | Event::Reported { failed: true }) => give_up!(NonPeerRejected),
        (_, Event::DeviceRemoved) => give_up!(Unreachable),
        (_, Event::TimedOut) => give_up!(TimedOut),
        (_, Event::Disconnect { .. }) => give_up!(Disconnected),
        (state, _) => (state, &[]),
    }
}

fn accepting(event: Event) -> Step {
    match event {
        Event::Established => (State::Established, &[Tell(News::Established)]),
        Event::Refused { .. }
        | Event::Disconnected { .. }
        | Event::Unresolved
        | Event::Failed
        | Event::Reported { failed: true }
        | Event::DeviceRemoved => give_up!(AcceptFailed),
        Event::Disconnect { .. } => give_up!(Disconnected),
        Event::AddressResolved
        | Event::RouteResolved
        | Event::Replied
        | Event::Reported { failed: false }
        | Event::PauseOver
        | Event::TimedOut
        | Event::Drained
        | Event::LingerOver => (State::Accepting, &[]),
    }
}

/// We end the connection: the peer is asked first, so that what is under way arrives.
macro_rules! end {
    ($news:ident) => {
        (
            State::Lingering,
            &[Disconnect, Flush, Tell(News::$news), Linger],
        )
    };
}

fn established(event: Event) -> Step {
    match event {
        Event::Disconnect { graceful: true } => (State::Draining, &[Drain]),
        Event::Disconnect { graceful: false } => end!(Disconnected),
        other => up(State::Established, other),
    }
}

fn draining(event: Event) -> Step {
    match event {
        Event::Drained | Event::Disconnect { graceful: false } => end!(Disconnected),
        other => up(State::Draining, other),
    }
}

/// What ends a connection from outside.
fn up(state: State, event: Event) -> Step {
    match event {
        Event::Disconnected { failed: false } => give_up!(Disconnected),
        Event::Disconnected { failed: true } | Event::DeviceRemoved => give_up!(Broken),
        Event::Failed | Event::Reported { .. } => end!(Broken),
        _ => (state, &[]),
    }
}

fn lingering(event: Event) -> Step {
    match event {
        Event::Disconnected { .. } | Event::DeviceRemoved | Event::LingerOver => {
            (State::Over, &[Retire])
        }
        _ => (State::Lingering, &[]),
    }
}

#[cfg(test)]
mod tests;
