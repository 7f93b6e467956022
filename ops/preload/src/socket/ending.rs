//! `shutdown`, `close` and `SO_LINGER`.

use std::time::{Duration, Instant};

use libc::{SHUT_RD, SHUT_RDWR, SHUT_WR};
use ops::Half;
use rustix::io::Errno;

use crate::socket::Socket;

impl Socket {
    /// Performs `shutdown`.
    pub(super) fn end_directions(&self, how: i32) -> Result<(), Errno> {
        if !matches!(how, SHUT_RD | SHUT_WR | SHUT_RDWR) {
            return Err(Errno::INVAL);
        }
        let state = self.observer.state();
        if state.is_broken() || state.is_over() {
            return Err(Errno::NOTCONN);
        }
        if how != SHUT_WR {
            // Blocked readers return, and `poll` reports the descriptor readable.
            self.observer.on_reading_ended();
        }
        if how != SHUT_RD && self.observer.end_writing() {
            self.stream.shutdown(Half::Write)?;
            self.observer.on_writing_ended();
        }
        let state = self.observer.state();
        if state.has_writing_ended() && state.has_reading_ended() {
            self.stream.shutdown(Half::Read)?;
        }
        Ok(())
    }

    /// Ends the connection according to `SO_LINGER`. Called before the last descriptor of this
    /// process is closed. Returns the deadline if the caller must wait for the delivery.
    pub(super) fn close(&self) -> Option<Instant> {
        let linger = self.options().linger;
        let unread = self.stream.unread() > 0;
        if linger == Some(Duration::ZERO) || unread {
            // TCP also resets a connection that is closed with unread bytes (RFC 2525 section
            // 2.17).
            self.stream.abort();
            return None;
        }
        if self.observer.end_writing() {
            // Fails if the connection is broken already.
            let _ = self.stream.shutdown(Half::Write);
        }
        linger.map(|linger| Instant::now() + linger)
    }

    /// Ends a shared connection, once no process holds a descriptor of it.
    pub(crate) fn end_by_last_close(&self, reset: bool) {
        let reset = reset || self.options().linger == Some(Duration::ZERO);
        if reset || self.stream.unread() > 0 {
            self.stream.abort();
        } else if self.observer.end_writing() {
            // Fails if the connection is broken already.
            let _ = self.stream.shutdown(Half::Write);
        }
    }

    /// Waits until all written bytes are delivered, a signal handler has run, or the deadline has
    /// passed.
    pub(super) fn await_all_delivered(&self, deadline: Instant) {
        while self.stream.unsent() > 0 && !self.observer.state().is_broken() {
            let seen = self.observer.wait_queue().seq();
            if self.stream.unsent() == 0 {
                return;
            }
            if self
                .observer
                .wait_queue()
                .sleep(seen, Some(deadline))
                .is_err()
            {
                return;
            }
        }
    }
}
