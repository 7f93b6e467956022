//! Who owns a consumer's socket (DAT 2.0 iWARP extensions 3.1).
//!
//! A socket given to `dat_iw_ssp_create` or `dat_iw_socket_connect` belongs to exactly one owner at
//! any time. The owner is written down here, and each change of it is one method:
//!
//! ```text
//!              arm                 request              accept
//! Consumer ──────────▶ Ssp ──────────────────▶ Cr ──────────────▶ Ep ──ended──▶ System
//!   ▲  ▲ ▲              │                       │                 │ ▲
//!   │  │ └─ freed, down ┘        rejected       │      not made   │ │
//!   │  └────────────────────────────────────────┘                 │ │
//!   └─────────────────────────────────────────────────────────────┘ │
//!   └──────────────────────────connect──────────────────────────────┘
//! ```
//!
//! The RNIC moves the descriptor itself; this record says what its moves mean to the consumer.

pub(crate) mod inherit;

use std::os::fd::RawFd;

/// Whose the socket is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The consumer's: it may read, write, poll and close it.
    Consumer,
    /// A service point waits on it for a connection request.
    Ssp,
    /// The connection request that came in over it.
    Cr,
    /// The endpoint that connects or is connected over it.
    Ep,
    /// The operating system's: the connection is over and the socket closed.
    System,
}

/// A consumer's socket and its owner. Not `Clone`: there is one record, and it moves with the
/// socket.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ConsumerSocket {
    id: RawFd,
    owner: Owner,
    /// The connection over it has been established.
    carries: bool,
}

impl ConsumerSocket {
    /// A socket that nobody has taken from its consumer.
    pub(crate) fn new(id: RawFd) -> Self {
        Self {
            id,
            owner: Owner::Consumer,
            carries: false,
        }
    }

    /// The number under which the consumer knows it.
    pub(crate) fn id(&self) -> RawFd {
        self.id
    }

    /// Whose it is.
    pub(crate) fn owner(&self) -> Owner {
        self.owner
    }

    /// A service point was made of it.
    pub(crate) fn on_armed(&mut self) {
        self.pass(Owner::Consumer, Owner::Ssp);
    }

    /// Its connection request was told.
    pub(crate) fn on_request(&mut self) {
        self.pass(Owner::Ssp, Owner::Cr);
    }

    /// It was found disconnected before a connection request came.
    pub(crate) fn on_down(&mut self) {
        self.pass(Owner::Ssp, Owner::Consumer);
    }

    /// Its service point was freed before a connection request came.
    pub(crate) fn on_ssp_freed(&mut self) {
        self.pass(Owner::Ssp, Owner::Consumer);
    }

    /// Its connection request was accepted.
    pub(crate) fn on_accepted(&mut self) {
        self.pass(Owner::Cr, Owner::Ep);
    }

    /// Its connection request was rejected.
    pub(crate) fn on_rejected(&mut self) {
        self.pass(Owner::Cr, Owner::Consumer);
    }

    /// An endpoint connects over it.
    pub(crate) fn on_connecting(&mut self) {
        self.pass(Owner::Consumer, Owner::Ep);
    }

    /// The connection over it is established.
    pub(crate) fn on_established(&mut self) {
        debug_assert_eq!(self.owner, Owner::Ep);
        self.carries = true;
    }

    /// The endpoint is done with it, one way or the other.
    pub(crate) fn on_over(&mut self) {
        if self.carries {
            self.on_ended()
        } else {
            self.on_not_made()
        }
    }

    /// The connection over it was not made: rejected, refused, unreachable, timed out.
    pub(crate) fn on_not_made(&mut self) {
        self.pass(Owner::Ep, Owner::Consumer);
    }

    /// The connection over it was made and is over.
    pub(crate) fn on_ended(&mut self) {
        self.pass(Owner::Ep, Owner::System);
    }

    fn pass(&mut self, from: Owner, to: Owner) {
        debug_assert_eq!(self.owner, from, "socket {} cannot pass to {to:?}", self.id);
        tracing::debug!(socket = self.id, ?from, ?to, "socket changes hands");
        self.owner = to;
    }
}

/// Says why this adapter has no Socket Service Points, and how a consumer may go on.
pub(crate) fn log_no_sockets() {
    tracing::warn!(
        "this adapter opens its connections itself and cannot take over a socket: use a public \
         service point and dat_ep_connect, or an adapter of the software iWARP provider"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned_by(owner: Owner) -> ConsumerSocket {
        ConsumerSocket {
            id: 5,
            owner,
            carries: false,
        }
    }

    macro_rules! passes {
        ($($name:ident: $from:ident . $event:ident => $to:ident;)+) => {$(
            #[test]
            fn $name() {
                let mut socket = owned_by(Owner::$from);
                socket.$event();
                assert_eq!(socket, owned_by(Owner::$to));
            }
        )+};
    }

    passes! {
        an_armed_socket_is_the_service_points: Consumer.on_armed => Ssp;
        a_request_takes_the_socket_from_its_service_point: Ssp.on_request => Cr;
        a_socket_found_down_is_the_consumers: Ssp.on_down => Consumer;
        a_freed_service_point_gives_the_socket_back: Ssp.on_ssp_freed => Consumer;
        an_accepted_request_gives_the_socket_to_the_endpoint: Cr.on_accepted => Ep;
        a_rejected_request_gives_the_socket_back: Cr.on_rejected => Consumer;
        a_connecting_endpoint_takes_the_socket: Consumer.on_connecting => Ep;
        a_connection_that_is_not_made_gives_the_socket_back: Ep.on_not_made => Consumer;
        the_end_of_a_connection_leaves_the_socket_to_the_system: Ep.on_ended => System;
    }

    #[test]
    fn what_an_endpoint_leaves_behind_depends_on_whether_it_was_connected() {
        let mut failed = owned_by(Owner::Ep);
        failed.on_over();
        assert_eq!(failed.owner(), Owner::Consumer);
        let mut connected = owned_by(Owner::Ep);
        connected.on_established();
        connected.on_over();
        assert_eq!(connected.owner(), Owner::System);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "cannot pass")]
    fn a_socket_cannot_change_hands_out_of_turn() {
        owned_by(Owner::Consumer).on_accepted();
    }
}
