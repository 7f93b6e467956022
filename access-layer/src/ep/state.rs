//! The endpoint's state machine (DAT 2.0 section 6.6, `dat_ep_create` and its neighbours).
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
//! Each `on_*` method is one event and the only writer of the state for it. What the consumer is to
//! be told is the method's result; nobody else derives it. Events that come too late (the RNIC's
//! news of a connection that is over, a service point that let go of its endpoint long ago) change
//! nothing.

use dat_abi::*;

/// Names the service point that holds an endpoint: its handle as a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SpId(pub(crate) u64);

/// Names the connection request that an endpoint waits with: its handle as a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CrId(pub(crate) u64);

/// Who made an endpoint, and so who destroys it when nobody accepts with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Creator {
    /// `dat_ep_create`.
    Consumer,
    /// The provider, because the consumer gave none to a service point.
    Provider,
}

/// What became of the endpoint when a service point or a connection request let go of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Released {
    /// It had left already.
    NotHeld,
    /// It is the consumer's and idle again.
    ToConsumer,
    /// It was the provider's; whoever let go of it destroys it.
    Destroy,
}

/// States of an endpoint. The `UNCONFIGURED` and multi-path states of DAT do not occur here: every
/// endpoint has attributes from its creation and one path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Idle, in the hands of the consumer.
    Unconnected,
    /// Promised to a reserved or socket service point.
    Reserved(SpId, Creator),
    /// The service point has told a connection request for it.
    Passive(CrId),
    /// Made by the provider together with a connection request.
    Tentative(CrId),
    /// A connect is under way.
    Active,
    /// Accepted, the peer has not confirmed yet.
    CompletionPending,
    /// Both directions work.
    Connected,
    /// The consumer asked for the end, the RNIC has not told it yet.
    DisconnectPending,
    /// Over; only a reset leads back.
    Disconnected,
}

/// How the RNIC says that a connection, or the attempt at one, ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The peer's consumer rejected.
    PeerRejected,
    /// Refused by anything but the peer's consumer.
    NonPeerRejected,
    /// No way to the peer.
    Unreachable,
    /// The consumer's timeout passed.
    TimedOut,
    /// The accepted peer went away too early.
    AcceptFailed,
    /// Ended in good order by either side.
    Disconnected,
    /// Failed.
    Broken,
}

/// What `dat_ep_disconnect` has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DisconnectStep {
    /// Nothing: there is no connection any more.
    AlreadyOver,
    /// Let posted requests finish, then end.
    Graceful,
    /// End now.
    Abrupt,
}

/// The call is not legal in the state the endpoint is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the endpoint is in the state {0:?}")]
pub(crate) struct WrongState(pub(crate) State);

impl WrongState {
    /// The subtype of `DAT_INVALID_STATE` that names the state.
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
    /// The number by which C knows the state.
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

/// State of one endpoint, and the endings that the RNIC still owes.
///
/// An abrupt disconnect does not wait for the RNIC's own report: the endpoint is disconnected when
/// the call returns, and the consumer may reset and connect it at once. The report of the old
/// connection may then come while a new one is under way. The RNIC tells exactly one ending for
/// each connection and tells them in order, so counting the anticipated ones keeps the two apart.
#[derive(Debug)]
pub(crate) struct Machine {
    state: State,
    endings_owed: u32,
}

impl Machine {
    /// A consumer's new endpoint.
    pub(crate) fn new() -> Self {
        Self {
            state: State::Unconnected,
            endings_owed: 0,
        }
    }

    /// An endpoint that the provider makes for connection request `cr`.
    pub(crate) fn new_tentative(cr: CrId) -> Self {
        Self {
            state: State::Tentative(cr),
            endings_owed: 0,
        }
    }

    /// A service point that had no endpoint given makes one: it is reserved from the start.
    pub(crate) fn new_reserved(sp: SpId) -> Self {
        Self {
            state: State::Reserved(sp, Creator::Provider),
            endings_owed: 0,
        }
    }

    /// Where the endpoint stands.
    pub(crate) fn state(&self) -> State {
        self.state
    }

    /// The consumer connects.
    pub(crate) fn on_connect(&mut self) -> Result<(), WrongState> {
        match self.state {
            State::Unconnected => self.enter(State::Active),
            other => Err(WrongState(other)),
        }
    }

    /// The RNIC refused to start a connect or an accept: nothing happened, nothing will be told.
    ///
    /// A disconnect may have come in between; there was nothing to end, so it is over, and the
    /// result is the event that the disconnecting consumer waits for.
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
                // An abrupt disconnect has anticipated an ending that will not be told after all.
                self.endings_owed = self.endings_owed.saturating_sub(1);
                None
            }
            State::Unconnected
            | State::Reserved(..)
            | State::Passive(_)
            | State::Tentative(_)
            | State::Connected => None,
        }
    }

    /// A service point takes the endpoint.
    pub(crate) fn on_reserve(&mut self, sp: SpId) -> Result<(), WrongState> {
        match self.state {
            State::Unconnected => self.enter(State::Reserved(sp, Creator::Consumer)),
            other => Err(WrongState(other)),
        }
    }

    /// The service point lets go of the endpoint.
    pub(crate) fn on_release(&mut self, sp: SpId) -> Released {
        match self.state {
            State::Reserved(holder, creator) if holder == sp => self.give_back(creator),
            _ => Released::NotHeld,
        }
    }

    /// The service point that holds the endpoint tells a connection request.
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

    /// The consumer accepts a request with an endpoint of its own choice.
    pub(crate) fn on_accept_chosen(&mut self) -> Result<(), WrongState> {
        match self.state {
            State::Unconnected => self.enter(State::CompletionPending),
            other => Err(WrongState(other)),
        }
    }

    /// The consumer accepts the request that the endpoint waits with. Who made the endpoint; from
    /// now on it is the consumer's.
    pub(crate) fn on_accept_own(&mut self, cr: CrId) -> Result<Creator, WrongState> {
        let creator = match self.state {
            State::Passive(own) if own == cr => Creator::Consumer,
            State::Tentative(own) if own == cr => Creator::Provider,
            other => return Err(WrongState(other)),
        };
        self.state = State::CompletionPending;
        Ok(creator)
    }

    /// The consumer rejects the request that the endpoint waits with, or the request is gone.
    pub(crate) fn on_reject(&mut self, cr: CrId) -> Released {
        match self.state {
            State::Passive(own) if own == cr => self.give_back(Creator::Consumer),
            State::Tentative(own) if own == cr => self.give_back(Creator::Provider),
            _ => Released::NotHeld,
        }
    }

    /// The RNIC says that both sides may send. The event to post, if the consumer still cares.
    pub(crate) fn on_established(&mut self) -> Option<DatEventNumber> {
        if self.endings_owed > 0 {
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

    /// The RNIC tells the one ending of a connection or attempt. The event to post, if any.
    pub(crate) fn on_ended(&mut self, ending: Ending) -> Option<DatEventNumber> {
        if self.endings_owed > 0 {
            self.endings_owed -= 1;
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
            // The consumer asked for the end and gets it, even when the peer was not polite about
            // it.
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

    /// The consumer disconnects. `Err(None)` is the one illegal combination of legal values: a
    /// graceful disconnect while a disconnect is under way.
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
                // Nothing can have been posted, so there is nothing to be graceful about.
                self.state = State::DisconnectPending;
                Ok(DisconnectStep::Abrupt)
            }
            other => Err(Some(WrongState(other))),
        }
    }

    /// The RNIC has returned from an abrupt disconnect: the connection is over now, whether its
    /// report came already or comes later. The event to post, if the report has not caused it.
    pub(crate) fn on_abrupt_done(&mut self) -> Option<DatEventNumber> {
        if self.state != State::DisconnectPending {
            return None;
        }
        self.state = State::Disconnected;
        self.endings_owed += 1;
        Some(DAT_CONNECTION_EVENT_DISCONNECTED)
    }

    /// Whether the consumer has disconnected something that the RNIC may have started only
    /// afterwards.
    pub(crate) fn disconnect_is_due(&self) -> bool {
        self.state == State::DisconnectPending || self.endings_owed > 0
    }

    /// The consumer resets. `true`: the queue pair needs it too; `false`: it was unconnected
    /// anyway.
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

    /// The RNIC could not reset the queue pair.
    pub(crate) fn on_reset_failed(&mut self) {
        if self.state == State::Unconnected {
            self.state = State::Disconnected;
        }
    }

    /// Whether `dat_ep_free` is legal: not while a service point or a connection request holds the
    /// endpoint.
    pub(crate) fn may_free(&self) -> Result<(), WrongState> {
        match self.state {
            State::Reserved(..) | State::Passive(_) | State::Tentative(_) => {
                Err(WrongState(self.state))
            }
            _ => Ok(()),
        }
    }

    /// Whether `dat_ep_modify` may set the protection zone.
    pub(crate) fn may_modify_pz(&self) -> Result<(), WrongState> {
        match self.state {
            State::Unconnected | State::Tentative(_) => Ok(()),
            // An endpoint that the provider made for a service point has no zone until the consumer
            // gives it one, and it can do so no earlier than with the request.
            other => Err(WrongState(other)),
        }
    }

    /// Whether `dat_ep_modify` may set event dispatchers and attributes.
    pub(crate) fn may_modify_rest(&self) -> Result<(), WrongState> {
        match self.state {
            State::Unconnected | State::Reserved(..) | State::Tentative(_) => Ok(()),
            other => Err(WrongState(other)),
        }
    }

    fn give_back(&mut self, creator: Creator) -> Released {
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
