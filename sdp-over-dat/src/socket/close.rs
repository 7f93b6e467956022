//! Linger, and the end.

use std::{
    io,
    net::Shutdown,
    time::{Duration, Instant},
};

use sdp_proto::ConnectionState;

use super::{Inner, Socket};

/// Whether an active side goes through with its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Commitment {
    /// It may still give up.
    Open,
    /// It has said its first message, whatever has become of the connection since.
    Made,
    /// It has given up.
    Withdrawn,
}

impl Socket {
    /// shutdown(2). Bytes that come after SHUT_RD alone are passed over, and those that come after
    /// both directions were shut reset the connection, as Linux does.
    pub(crate) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        let mut inner = self.lock();
        self.progress(&mut inner);
        if matches!(how, Shutdown::Read | Shutdown::Both) {
            inner.read_half.on_shut();
        }
        if matches!(how, Shutdown::Write | Shutdown::Both) {
            inner.connection.shut_send();
        }
        if inner.read_half.is_shut() && !inner.connection.send_half().is_open() {
            inner.connection.shut_receive();
        }
        self.progress(&mut inner);
        self.hand_over(&mut inner);
        self.kick(&mut inner);
        Ok(())
    }

    /// Sends the active side's first message, empty where nothing else is to be said.
    pub(crate) fn commit(&self) {
        let mut inner = self.lock();
        inner.connection.send_first();
        self.pump(&mut inner);
    }

    /// Whether the active side's first message has come, or comes no more.
    pub(crate) fn commitment(&self) -> Commitment {
        let mut inner = self.lock();
        self.progress(&mut inner);
        let now = inner.readiness();
        if inner.statistics.messages_received > 0 {
            Commitment::Made
        } else if now.failed || now.errno.is_some() {
            Commitment::Withdrawn
        } else {
            Commitment::Open
        }
    }

    /// Ends the connection at once.
    pub(crate) fn abort(&self) {
        let mut inner = self.lock();
        self.progress(&mut inner);
        self.give_up(&mut inner);
        // A last word may be owed.
        self.pump(&mut inner);
        self.kick(&mut inner);
    }

    /// Bytes that were written and have not left, and a last word that has not.
    pub(crate) fn unsent(&self) -> usize {
        let mut inner = self.lock();
        self.progress(&mut inner);
        inner.unsent()
    }

    /// The same, and what its transport has of it that the peer's kernel has not acknowledged.
    pub(crate) fn undelivered(&self) -> usize {
        let below = self.transport.map_or(0, |it| it.unacknowledged());
        self.unsent() + below
    }

    /// close(2). Unread bytes, or linger with no time, reset the connection; otherwise what was
    /// written leaves behind the close, which waits for it when it lingers.
    pub(crate) fn close(&self) {
        let mut inner = self.lock();
        self.progress(&mut inner);
        let is_unread = inner.has_unread();
        // Nobody would be at this end of a connection that comes about now.
        let is_connecting = inner.connection.state() == ConnectionState::HelloSent;
        let linger = inner.options.linger;
        if is_unread || is_connecting || linger == Some(Duration::ZERO) {
            self.give_up(&mut inner);
        } else {
            inner.connection.shut_send();
            inner.connection.shut_receive();
            self.progress(&mut inner);
        }
        inner.watch = None;
        let undelivered = self.undelivered_of(&inner);
        inner.user.on_close(self.close_deadline(), undelivered);
        if let Some(until) = linger.and_then(|linger| Instant::now().checked_add(linger)) {
            while !inner.has_ended() {
                inner = match self.wait(inner, Some(until)) {
                    Ok(inner) => inner,
                    Err(_) => {
                        inner = self.lock();
                        break;
                    }
                };
            }
        }
        self.hand_over(&mut inner);
        drop(inner);
        self.adapter.wake();
    }

    /// Bytes of a closed socket whose delivery nobody has confirmed.
    fn undelivered_of(&self, inner: &Inner) -> usize {
        let below = self.transport.map_or(0, |it| it.unacknowledged());
        inner.send.uncompleted() + below
    }

    /// The time that a closed socket has is over.
    pub(super) fn end_close(&self, inner: &mut Inner) {
        let undelivered = self.undelivered_of(inner);
        if inner.user.on_due(self.close_deadline(), undelivered) {
            self.give_up(inner);
        }
    }

    /// When the peer of a closed socket is given up if it says nothing from now on.
    pub(super) fn close_deadline(&self) -> Option<Instant> {
        Instant::now().checked_add(self.config.close_timeout)
    }
}
