//! Ownership of a consumer's socket (DAT 2.0 iWARP extensions 3.1).
//!
//! A socket passed to `dat_iw_ssp_create` or `dat_iw_socket_connect` has exactly one owner at any
//! time. This module records the owner, and each change of ownership is one method:
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
//! A request that is handed to another process takes the socket along: `Cr ──handed off──▶ System`.
//!
//! The RNIC passes the descriptor from one of its objects to another. This record contains what
//! these steps mean for the consumer.

pub(crate) mod inherit;

use std::os::fd::RawFd;

/// The owner of the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The consumer, which may read, write, poll and close the socket.
    Consumer,
    /// The service point, which waits for a connection request on the socket.
    Ssp,
    /// The connection request that was received over the socket.
    Cr,
    /// The endpoint that connects or is connected over the socket.
    Ep,
    /// The operating system: the connection has ended, or another process has it, and the socket is
    /// closed.
    System,
}

/// A consumer's socket and its owner. Not `Clone`, because there is one record, which moves with
/// the socket.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ConsumerSocket {
    id: RawFd,
    owner: Owner,
    /// True if the connection over the socket has been established.
    has_connection: bool,
}

impl ConsumerSocket {
    /// Creates the record of a socket that its consumer still owns.
    pub(crate) fn new(id: RawFd) -> Self {
        Self {
            id,
            owner: Owner::Consumer,
            has_connection: false,
        }
    }

    /// The descriptor number that the consumer uses.
    pub(crate) fn id(&self) -> RawFd {
        self.id
    }

    /// The owner of the socket.
    pub(crate) fn owner(&self) -> Owner {
        self.owner
    }

    /// Called when a service point was created with the socket.
    pub(crate) fn on_armed(&mut self) {
        self.pass(Owner::Consumer, Owner::Ssp);
    }

    /// Called when the connection request was delivered.
    pub(crate) fn on_request(&mut self) {
        self.pass(Owner::Ssp, Owner::Cr);
    }

    /// Called when the socket was found disconnected before a connection request was received.
    pub(crate) fn on_down(&mut self) {
        self.pass(Owner::Ssp, Owner::Consumer);
    }

    /// Called when the service point was freed before a connection request was received.
    pub(crate) fn on_ssp_freed(&mut self) {
        self.pass(Owner::Ssp, Owner::Consumer);
    }

    /// Called when the connection request was accepted.
    pub(crate) fn on_accepted(&mut self) {
        self.pass(Owner::Cr, Owner::Ep);
    }

    /// Called when the connection request was rejected.
    pub(crate) fn on_rejected(&mut self) {
        self.pass(Owner::Cr, Owner::Consumer);
    }

    /// Called when the connection request was handed to another process.
    pub(crate) fn on_handed_off(&mut self) {
        self.pass(Owner::Cr, Owner::System);
    }

    /// Called when an endpoint connects over the socket.
    pub(crate) fn on_connecting(&mut self) {
        self.pass(Owner::Consumer, Owner::Ep);
    }

    /// Called when the connection over the socket is established.
    pub(crate) fn on_established(&mut self) {
        debug_assert_eq!(self.owner, Owner::Ep);
        self.has_connection = true;
    }

    /// Called when the endpoint no longer uses the socket, for any reason.
    pub(crate) fn on_released(&mut self) {
        if self.has_connection {
            self.on_ended()
        } else {
            self.on_not_made()
        }
    }

    /// Called when no connection was made over the socket: rejected, refused, unreachable, timed
    /// out.
    pub(crate) fn on_not_made(&mut self) {
        self.pass(Owner::Ep, Owner::Consumer);
    }

    /// Called when the connection over the socket has ended.
    pub(crate) fn on_ended(&mut self) {
        self.pass(Owner::Ep, Owner::System);
    }

    fn pass(&mut self, from: Owner, to: Owner) {
        debug_assert_eq!(self.owner, from, "socket {} cannot pass to {to:?}", self.id);
        tracing::debug!(
            socket = self.id,
            ?from,
            ?to,
            "ownership of the socket changes"
        );
        self.owner = to;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned_by(owner: Owner) -> ConsumerSocket {
        ConsumerSocket {
            id: 5,
            owner,
            has_connection: false,
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
        an_armed_socket_belongs_to_its_service_point: Consumer.on_armed => Ssp;
        a_request_takes_the_socket_from_its_service_point: Ssp.on_request => Cr;
        a_socket_found_down_belongs_to_the_consumer: Ssp.on_down => Consumer;
        a_freed_service_point_returns_the_socket: Ssp.on_ssp_freed => Consumer;
        an_accepted_request_passes_the_socket_to_the_endpoint: Cr.on_accepted => Ep;
        a_rejected_request_returns_the_socket: Cr.on_rejected => Consumer;
        a_request_of_another_process_closes_the_socket: Cr.on_handed_off => System;
        a_connecting_endpoint_takes_the_socket: Consumer.on_connecting => Ep;
        a_connection_that_is_not_made_returns_the_socket: Ep.on_not_made => Consumer;
        the_end_of_a_connection_passes_the_socket_to_the_system: Ep.on_ended => System;
    }

    #[test]
    fn the_last_owner_depends_on_whether_the_endpoint_was_connected() {
        let mut failed = owned_by(Owner::Ep);
        failed.on_released();
        assert_eq!(failed.owner(), Owner::Consumer);
        let mut connected = owned_by(Owner::Ep);
        connected.on_established();
        connected.on_released();
        assert_eq!(connected.owner(), Owner::System);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "cannot pass")]
    fn an_owner_cannot_pass_a_socket_that_it_does_not_own() {
        owned_by(Owner::Consumer).on_accepted();
    }
}
