//! Linger, and the end.

use std::{
    io,
    net::Shutdown,
    time::{Duration, Instant},
};

use super::Socket;

impl Socket {
    /// shutdown(2). Bytes that come after SHUT_RD are passed over, as Linux does.
    pub(crate) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        let mut inner = self.lock();
        self.progress(&mut inner);
        if matches!(how, Shutdown::Read | Shutdown::Both) {
            inner.read_shut = true;
        }
        if matches!(how, Shutdown::Write | Shutdown::Both) {
            inner.connection.shut_send();
        }
        self.pump(&mut inner);
        self.hand_over(&mut inner);
        self.kick(&mut inner);
        Ok(())
    }

    /// close(2). Unread bytes, or linger with no time, reset the connection; otherwise what was
    /// written leaves behind the close, which waits for it when it lingers.
    pub(crate) fn close(&self) {
        let mut inner = self.lock();
        self.progress(&mut inner);
        let is_unread = inner.has_unread();
        let linger = inner.options.linger;
        if is_unread || linger == Some(Duration::ZERO) {
            self.give_up(&mut inner);
        } else {
            inner.connection.shut_send();
            inner.connection.shut_receive();
            self.pump(&mut inner);
        }
        inner.watch = None;
        inner.closed_until = Instant::now().checked_add(self.stack.config.close_timeout);
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
        self.stack.wake();
    }
}
