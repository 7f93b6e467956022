//! The endpoint's state machine (DAT 2.0 section 6.6, `dat_ep_create` and related calls).
//!
//! ```text
//!                     reserve                 request                  accept
//!  Unconnected ───────────────▶ Reserved ─────────────▶ Passive ──────────────┐
//!   │  ▲  │  ◀──────────────────release       reject ────┘│                   ▼
//!   │  │  └────────────────────────accept────────────────────────────▶ CompletionPending
//!   │  reset                 (provider's EP) Tentative ──accept──────▶  │     │
//!   │  │                                                    established │     │ failed
//!   │  └── Disconnected ◀──── DisconnectPending ◀──disconnect── Connected     │
//!   │         ▲  ▲  ▲                                            ▲   │ ended   │
//!   │         │  │  └────────────────────────────────────────────┼───┘         │
//!   │         │  └───────────────────────────────────────────────┼─────────────┘
//!   │         └───────────failed───────────┐                     │
//!   └─connect────────────────────────────▶ Active ──established──┘
//! ```
//!
//! Each `on_*` method handles one event and is the only writer of the state for that event. Its
//! result is the event to post to the consumer; no other code derives it. Late events change
//! nothing, such as an event of the RNIC for a connection that has ended, or of a service point
//! that has released its endpoint.

use dat_abi::*;

/// Identifies the service point that holds an endpoint: its handle as a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SpId(pub(crate) u64);

/// Identifies the connection request to which an endpoint belongs: its handle as a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CrId(pub(crate) u64);

/// The creator of an endpoint. The creator must destroy the endpoint if no accept uses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Creator {
    /// The consumer, with `dat_ep_create`.
    Consumer,
    /// The provider, because the consumer passed no endpoint to a service point.
    Provider,
}

/// State of the endpoint after a service point or a connection request has released it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Released {
    /// The service point or request no longer held the endpoint.
    NotHeld,
    /// The endpoint belongs to the consumer and is idle again.
    ToConsumer,
    /// The provider created the endpoint; the caller must destroy it.
    Destroy,
}

/// States of an endpoint. The `UNCONFIGURED` and multi-path states of DAT do not occur, because
/// every endpoint has one path, and attributes from its creation on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Idle, owned by the consumer.
    Unconnected,
    /// Reserved by a reserved or socket service point.
    Reserved(SpId, Creator),
    /// The service point has received a connection request for the endpoint.
    Passive(CrId),
    /// Created by the provider together with a connection request.
    Tentative(CrId),
    /// A connect is in progress.
    Active,
    /// Accepted; the peer has not confirmed yet.
    CompletionPending,
    /// Both directions are usable.
    Connected,
    /// The consumer requested a disconnect; the RNIC has not reported the end yet.
    DisconnectPending,
    /// The connection has ended; only a reset makes the endpoint usable again.
    Disconnected,
}

/// The reason that the RNIC reports for the end of a connection, or of an attempt to connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The peer's consumer rejected the request.
    PeerRejected,
    /// Refused, but not by the peer's consumer.
    NonPeerRejected,
    /// No route to the peer.
    Unreachable,
    /// The consumer's timeout expired.
    TimedOut,
    /// The peer closed an accepted connection too early.
    AcceptFailed,
    /// Closed in an orderly way by either side.
    Disconnected,
    /// The connection failed.
    Broken,
}

/// The next step of `dat_ep_disconnect`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DisconnectStep {
    /// Nothing, because the connection has already ended.
    AlreadyOver,
    /// Let posted requests finish, then end the connection.
    Graceful,
    /// End the connection at once.
    Abrupt,
}

/// Error of a call that is not legal in the state of the endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the endpoint is in the state {0:?}")]
pub(crate) struct WrongState(pub(crate) State);

impl WrongState {
    /// Returns the subtype of `DAT_INVALID_STATE` for the state.
    pub(crate) fn subtype(self) -> DatReturnSubtype {
        match self.0 {
            State::Unconnected => DAT_INVALID_STATE_EP_UNCONNECTED,
            State::Reserved(..) => DAT_INVALID_STATE_EP_RESERVED,
            State::Passive(_) => DAT_INVALID_STATE_EP_PASSCONNPENDING,
            State::Tentative(_) => DAT_INVALID_STATE_EP_TENTCONNPENDING,
            State::Active => DAT_INVALID_STATE_EP_ACTCONNPENDING,
            State::CompletionPending => DAT_INVALID_STATE_EP_COMPLPENDING,
            State::Connected => DAT_INVALID_STATE_EP_CONNECTED,
            State::DisconnectPending => DAT_INVALID_STATE_EP_DISCPENDING,
            State::Disconnected => DAT_INVALID_STATE_EP_DISCONNECTED,
        }
    }
}

impl State {
    /// Returns the number of the state in C.
    pub(crate) fn code(self) -> DatEpState {
        match self {
            Self::Unconnected => DAT_EP_STATE_UNCONNECTED,
            Self::Reserved(..) => DAT_EP_STATE_RESERVED,
            Self::Passive(_) => DAT_EP_STATE_PASSIVE_CONNECTION_PENDING,
            Self::Tentative(_) => DAT_EP_STATE_TENTATIVE_CONNECTION_PENDING,
            Self::Active => DAT_EP_STATE_ACTIVE_CONNECTION_PENDING,
            Self::CompletionPending => DAT_EP_STATE_COMPLETION_PENDING,
            Self::Connected => DAT_EP_STATE_CONNECTED,
            Self::DisconnectPending => DAT_EP_STATE_DISCONNECT_PENDING,
            Self::Disconnected => DAT_EP_STATE_DISCONNECTED,
        }
    }
}

/// State of one endpoint, and the number of reports that the RNIC has yet to make.
///
/// An abrupt disconnect does not wait for the RNIC's report: the endpoint is disconnected when the
/// call returns, and the consumer may reset and connect it at once. The report for the old
/// connection may then be received during the next one. The RNIC reports exactly one end for each
/// connection, in order, so the count of missing reports identifies the connection of a report.
#[derive(Debug)]
pub(crate) struct Machine {
    state: State,
    ends_due: u32,
}

impl Machine {
    /// Creates the state of a consumer's new endpoint.
    pub(crate) fn new() -> Self {
        Self {
            state: State::Unconnected,
            ends_due: 0,
        }
    }

    /// Creates the state of an endpoint that the provider creates for connection request `cr`.
    pub(crate) fn new_tentative(cr: CrId) -> Self {
        Self {
            state: State::Tentative(cr),
            ends_due: 0,
        }
    }

    /// Creates the state of an endpoint that the provider creates for service point `sp`: reserved
    /// from the start.
    pub(crate) fn new_reserved(sp: SpId) -> Self {
        Self {
            state: State::Reserved(sp, Creator::Provider),
            ends_due: 0,
        }
    }

    /// Returns the state of the endpoint.
    pub(crate) fn state(&self) -> State {
        self.state
    }

    /// Called when the consumer connects.
    pub(crate) fn on_connect(&mut self) -> Result<(), WrongState> {
        match self.state {
            State::Unconnected => self.enter(State::Active),
            other => Err(WrongState(other)),
        }
    }

    /// Called when the RNIC refused to start a connect or an accept. The RNIC will report nothing.
    ///
    /// A disconnect may have preceded the refusal. There was no connection to end, so the
    /// disconnect is complete, and the result is the event for which the disconnecting consumer
    /// waits.
    pub(crate) fn on_start_refused(&mut self) -> Option<DatEventNumber> {
        match self.state {
            State::Active | State::CompletionPending => {
                self.state = State::Unconnected;
                None
            }
            State::DisconnectPending => {
                self.state = State::Disconnected;
                Some(DAT_CONNECTION_EVENT_DISCONNECTED)
            }
            State::Disconnected => {
                // An abrupt disconnect has counted a report that the RNIC will not make.
                self.ends_due = self.ends_due.saturating_sub(1);
                None
            }
            State::Unconnected
            | State::Reserved(..)
            | State::Passive(_)
            | State::Tentative(_)
            | State::Connected => None,
        }
    }

    /// Called when a service point reserves the endpoint.
    pub(crate) fn on_reserve(&mut self, sp: SpId) -> Result<(), WrongState> {
        match self.state {
            State::Unconnected => self.enter(State::Reserved(sp, Creator::Consumer)),
            other => Err(WrongState(other)),
        }
    }

    /// Called when the service point releases the endpoint.
    pub(crate) fn on_release(&mut self, sp: SpId) -> Released {
        match self.state {
            State::Reserved(holder, creator) if holder == sp => self.make_idle(creator),
            _ => Released::NotHeld,
        }
    }

    /// Called when the service point that holds the endpoint receives a connection request.
    pub(crate) fn on_request(&mut self, sp: SpId, cr: CrId) -> Result<(), WrongState> {
        match self.state {
            State::Reserved(holder, Creator::Consumer) if holder == sp => {
                self.enter(State::Passive(cr))
            }
            State::Reserved(holder, Creator::Provider) if holder == sp => {
                self.enter(State::Tentative(cr))
            }
            other => Err(WrongState(other)),
        }
    }

    /// Called when the consumer accepts a request with an endpoint other than the request's.
    pub(crate) fn on_accept_chosen(&mut self) -> Result<(), WrongState> {
        match self.state {
            State::Unconnected => self.enter(State::CompletionPending),
            other => Err(WrongState(other)),
        }
    }

    /// Called when the consumer accepts the request of the endpoint. Returns the creator of the
    /// endpoint, which the consumer owns from now on.
    pub(crate) fn on_accept_own(&mut self, cr: CrId) -> Result<Creator, WrongState> {
        let creator = match self.state {
            State::Passive(own) if own == cr => Creator::Consumer,
            State::Tentative(own) if own == cr => Creator::Provider,
            other => return Err(WrongState(other)),
        };
        self.state = State::CompletionPending;
        Ok(creator)
    }

    /// Called when the consumer rejects the request of the endpoint, or when the request has ended.
    pub(crate) fn on_reject(&mut self, cr: CrId) -> Released {
        match self.state {
            State::Passive(own) if own == cr => self.make_idle(Creator::Consumer),
            State::Tentative(own) if own == cr => self.make_idle(Creator::Provider),
            _ => Released::NotHeld,
        }
    }

    /// Called when the RNIC reports that the connection is established. Returns the event to post,
    /// if the consumer still waits for it.
    pub(crate) fn on_established(&mut self) -> Option<DatEventNumber> {
        if self.ends_due > 0 {
            return None;
        }
        match self.state {
            State::Active | State::CompletionPending => {
                self.state = State::Connected;
                Some(DAT_CONNECTION_EVENT_ESTABLISHED)
            }
            State::Unconnected
            | State::Reserved(..)
            | State::Passive(_)
            | State::Tentative(_)
            | State::Connected
            | State::DisconnectPending
            | State::Disconnected => None,
        }
    }

    /// Called when the RNIC reports the end of a connection or attempt, once for each. Returns the
    /// event to post, if any.
    pub(crate) fn on_ended(&mut self, ending: Ending) -> Option<DatEventNumber> {
        if self.ends_due > 0 {
            self.ends_due -= 1;
            return None;
        }
        let event = match self.state {
            State::Active => match ending {
                Ending::PeerRejected => DAT_CONNECTION_EVENT_PEER_REJECTED,
                Ending::Unreachable => DAT_CONNECTION_EVENT_UNREACHABLE,
                Ending::TimedOut => DAT_CONNECTION_EVENT_TIMED_OUT,
                // "for all reasons of not establishing the connection, except timeout, remote host
                // not reachable, and remote peer reject" (DAT 2.0 iWARP extensions 3.1.4)
                Ending::NonPeerRejected
                | Ending::AcceptFailed
                | Ending::Disconnected
                | Ending::Broken => DAT_CONNECTION_EVENT_NON_PEER_REJECTED,
            },
            State::CompletionPending => DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR,
            State::Connected if ending == Ending::Disconnected => DAT_CONNECTION_EVENT_DISCONNECTED,
            State::Connected => DAT_CONNECTION_EVENT_BROKEN,
            // The consumer requested the disconnect, so the event is that of an orderly end, even
            // if the peer closed the connection abruptly.
            State::DisconnectPending => DAT_CONNECTION_EVENT_DISCONNECTED,
            State::Unconnected
            | State::Reserved(..)
            | State::Passive(_)
            | State::Tentative(_)
            | State::Disconnected => return None,
        };
        self.state = State::Disconnected;
        Some(event)
    }

    /// Called when the consumer disconnects. `Err(None)` reports a graceful disconnect while a
    /// disconnect is in progress: state and flag are legal, but not together.
    pub(crate) fn on_disconnect(
        &mut self,
        graceful: bool,
    ) -> Result<DisconnectStep, Option<WrongState>> {
        match self.state {
            State::Disconnected => Ok(DisconnectStep::AlreadyOver),
            State::DisconnectPending if graceful => Err(None),
            State::DisconnectPending => Ok(DisconnectStep::Abrupt),
            State::Connected => {
                self.state = State::DisconnectPending;
                Ok(if graceful {
                    DisconnectStep::Graceful
                } else {
                    DisconnectStep::Abrupt
                })
            }
            State::Active | State::CompletionPending => {
                // No request can have been posted, so none needs a graceful end.
                self.state = State::DisconnectPending;
                Ok(DisconnectStep::Abrupt)
            }
            other => Err(Some(WrongState(other))),
        }
    }

    /// Called when the RNIC has returned from an abrupt disconnect. The connection has ended; the
    /// RNIC's report may precede or follow this call. Returns the event to post, unless the report
    /// has caused it.
    pub(crate) fn on_abrupt_done(&mut self) -> Option<DatEventNumber> {
        if self.state != State::DisconnectPending {
            return None;
        }
        self.state = State::Disconnected;
        self.ends_due += 1;
        Some(DAT_CONNECTION_EVENT_DISCONNECTED)
    }

    /// Returns true if the consumer disconnected before the RNIC started the connection, so that
    /// the RNIC has yet to end it.
    pub(crate) fn disconnect_is_due(&self) -> bool {
        self.state == State::DisconnectPending || self.ends_due > 0
    }

    /// Called when the consumer resets the endpoint. Returns `true` if the queue pair must be reset
    /// too, and `false` if the endpoint was unconnected.
    pub(crate) fn on_reset(&mut self) -> Result<bool, WrongState> {
        match self.state {
            State::Unconnected => Ok(false),
            State::Disconnected => {
                self.state = State::Unconnected;
                Ok(true)
            }
            other => Err(WrongState(other)),
        }
    }

    /// Called when the RNIC could not reset the queue pair.
    pub(crate) fn on_reset_failed(&mut self) {
        if self.state == State::Unconnected {
            self.state = State::Disconnected;
        }
    }

    /// Checks that `dat_ep_free` is legal: no service point and no connection request holds the
    /// endpoint.
    pub(crate) fn may_free(&self) -> Result<(), WrongState> {
        match self.state {
            State::Reserved(..) | State::Passive(_) | State::Tentative(_) => {
                Err(WrongState(self.state))
            }
            _ => Ok(()),
        }
    }

    /// Checks that `dat_ep_modify` may set the protection zone.
    pub(crate) fn may_modify_pz(&self) -> Result<(), WrongState> {
        match self.state {
            State::Unconnected | State::Tentative(_) => Ok(()),
            // If the provider created the endpoint for a service point, the consumer can set its
            // zone only after the consumer has received the request, so `Reserved` is refused.
            other => Err(WrongState(other)),
        }
    }

    /// Checks that `dat_ep_modify` may set event dispatchers and attributes.
    pub(crate) fn may_modify_rest(&self) -> Result<(), WrongState> {
        match self.state {
            State::Unconnected | State::Reserved(..) | State::Tentative(_) => Ok(()),
            other => Err(WrongState(other)),
        }
    }

    fn make_idle(&mut self, creator: Creator) -> Released {
        self.state = State::Unconnected;
        match creator {
            Creator::Consumer => Released::ToConsumer,
            Creator::Provider => Released::Destroy,
        }
    }

    fn enter(&mut self, next: State) -> Result<(), WrongState> {
        self.state = next;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
