//! The part of a queue pair in the order of events: its disconnect may be deferred, and a deferred
//! disconnect of another queue pair may wait for the `Established` of this one.

use crate::conn::Lifecycle;
use crate::event::OwnEvent;
use crate::progress::conn_set::Ready;
use crate::progress::conn_socket::Driver;
use crate::progress::event_order::{FirstFrame, OrderedEvents};

use super::{Effects, Link, Qp, lock};

impl Qp {
    /// Queues the event of a disconnect. A disconnect by the peer is delivered after the events
    /// that the peer caused before it.
    pub(super) fn queue_disconnect(&self, event: OwnEvent, is_peers: bool) {
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

    pub(super) fn queue_deferred(&self) {
        if let Some(event) = lock(&self.deferred).take() {
            self.queue_event(event);
        }
    }
}

impl OrderedEvents for Qp {
    fn poll_for_first_frame(&self) -> FirstFrame {
        let socket = match self.try_lock_link().as_deref() {
            None => return FirstFrame::Busy,
            Some(Link::Up(conn)) if conn.lifecycle == Lifecycle::AwaitsFrame => {
                Some(conn.socket.clone())
            }
            Some(_) => None,
        };
        let effects = match &socket {
            None => Effects::default(),
            Some(socket) => {
                match self.or_fail(socket, || {
                    self.try_drive(socket, Driver::Engine, Ready::Socket)
                }) {
                    Some(effects) => effects,
                    None => return FirstFrame::Busy,
                }
            }
        };
        self.after(&effects);
        let result = match self.try_lock_link().as_deref() {
            Some(Link::Up(conn)) if conn.lifecycle == Lifecycle::AwaitsFrame => FirstFrame::Quiet,
            _ => FirstFrame::Busy,
        };
        // A thread that posted during this check has queued its request for the holder.
        self.catch_up();
        result
    }

    fn deliver_deferred(&self) {
        self.queue_deferred();
        self.make_upcalls(&Effects::default());
    }
}
