//! The part of a queue pair in the order of events: its disconnect may be deferred, and a deferred
//! disconnect of another queue pair may wait for the `Established` of this one.

use std::sync::Arc;

use crate::conn::Lifecycle;
use crate::progress::conn_set::Ready;
use crate::progress::conn_socket::{ConnSocket, Driver, Service};
use crate::progress::event_order::OrderedEvents;
use rnic::ConnectionEvent;

use super::{Effects, Link, Qp, lock};

impl Qp {
    /// Queues the event of a disconnect. A disconnect by the peer is delivered after the events
    /// that the peer caused before it.
    pub(super) fn queue_disconnect(&self, event: ConnectionEvent, is_peers: bool) {
        if is_peers {
            // The lock delays the engine until the event is stored.
            let mut deferred = lock(&self.deferred);
            if let Some(me) = self.me.upgrade()
                && self
                    .shared
                    .event_order
                    .defer_disconnect(&self.shared.engine, me)
            {
                *deferred = Some(event);
                return;
            }
        }
        self.queue_event(event);
    }

    /// The socket of a connection that awaits its first frame and that no other thread holds.
    fn socket_before_first_frame(&self) -> Option<Arc<ConnSocket>> {
        match self.try_lock_link().as_deref() {
            Some(Link::Up(conn)) if conn.lifecycle == Lifecycle::AwaitsFrame => {
                Some(conn.socket.clone())
            }
            _ => None,
        }
    }

    pub(super) fn queue_deferred(&self) {
        if let Some(event) = lock(&self.deferred).take() {
            self.queue_event(event);
        }
    }
}

impl OrderedEvents for Qp {
    fn poll_for_first_frame(&self) -> bool {
        let is_driven = match self.socket_before_first_frame() {
            Some(socket) => self.drive(&socket, Driver::Engine, Ready::Socket),
            None => {
                self.after(&Effects::default());
                false
            }
        };
        let is_quiet = is_driven && self.socket_before_first_frame().is_some();
        // A thread that posted during this check has queued its request for the holder.
        self.catch_up();
        is_quiet
    }

    fn deliver_deferred(&self) {
        self.queue_deferred();
        self.make_upcalls(&Effects::default());
    }
}
