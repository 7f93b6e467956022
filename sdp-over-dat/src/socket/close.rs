//! Shutdown, linger and close.

use std::{
    io,
    net::Shutdown,
    time::{Duration, Instant},
};

use sdp_proto::ConnectionState;

use super::{Inner, Socket};

/// The state of an active side's commitment to its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Commitment {
    /// The active side may still withdraw.
    Open,
    /// The active side has sent its first message, whatever has happened to the connection since.
    Made,
    /// The active side has withdrawn.
    Withdrawn,
}

impl Socket {
    /// shutdown(2). Bytes that are received after SHUT_RD alone are discarded. Bytes that are
    /// received after both directions were shut reset the connection, as on Linux.
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

    /// Sends the active side's first message. The message is empty if there is nothing else to
    /// send.
    pub(crate) fn commit(&self) {
        let mut inner = self.lock();
        inner.connection.send_first();
        self.pump(&mut inner);
    }

    /// The commitment of the active side: its first message was received, may still be received, or
    /// will not be.
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
        self.abort_connection(&mut inner);
        // AbortConn may have to be sent.
        self.pump(&mut inner);
        self.kick(&mut inner);
    }

    /// The number of bytes that were written and not sent, plus a final message that was not sent.
    pub(crate) fn unsent(&self) -> usize {
        let mut inner = self.lock();
        self.progress(&mut inner);
        inner.unsent()
    }

    /// The number of unsent bytes, plus those in the transport that the peer's kernel has not
    /// acknowledged.
    pub(crate) fn undelivered(&self) -> usize {
        let below = self.transport.map_or(0, |it| it.unacknowledged());
        self.unsent() + below
    }

    /// close(2). Unread bytes, or a linger time of zero, reset the connection. Otherwise the bytes
    /// that were written are sent after the call, and a linger time makes the call wait for them.
    pub(crate) fn close(&self) {
        let mut inner = self.lock();
        self.progress(&mut inner);
        let is_unread = inner.has_unread();
        // If the connection were established after the close, this end would have no user.
        let is_connecting =
            inner.connection.state() == ConnectionState::HelloSent && !inner.link.continues();
        let linger = inner.options.linger;
        if is_unread || is_connecting || linger == Some(Duration::ZERO) {
            self.abort_connection(&mut inner);
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

    /// The number of bytes of a closed socket whose delivery is not confirmed.
    fn undelivered_of(&self, inner: &Inner) -> usize {
        let below = self.transport.map_or(0, |it| it.unacknowledged());
        inner.send.uncompleted() + below
    }

    /// Aborts the connection when the time of a closed socket has passed and nothing was delivered
    /// meanwhile.
    pub(super) fn end_close(&self, inner: &mut Inner) {
        let undelivered = self.undelivered_of(inner);
        if inner.user.on_due(self.close_deadline(), undelivered) {
            self.abort_connection(inner);
        }
    }

    /// The time at which the connection of a closed socket is aborted, if the peer sends nothing
    /// from now on.
    pub(super) fn close_deadline(&self) -> Option<Instant> {
        Instant::now().checked_add(self.config.close_timeout)
    }
}
