//! A look at a ring by threads that do not hold the connection.
//!
//! A polling thread drives each polled connection in every call, and most calls find nothing. To
//! find that out it need not lock the connection: the holder leaves behind where the next record
//! will be, and whether there is anything else to do.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::ring::line;
use super::segment::{Half, LINE};
use crate::progress::conn_socket::MayHaveWork;

/// The connection has work that the ring does not show.
const BUSY: usize = usize::MAX;

/// Whether one connection may have work.
#[derive(Debug)]
pub(crate) struct Watch {
    half: Half,
    /// Where the next record begins, or [`BUSY`].
    next: AtomicUsize,
}

impl Watch {
    pub(super) fn new(half: Half) -> Self {
        Self {
            half,
            next: AtomicUsize::new(BUSY),
        }
    }

    /// The holder of the connection is done with it: `next` is where the next record begins;
    /// `None`: there is other work to come back to.
    pub(super) fn set(&self, next: Option<usize>) {
        self.next.store(next.unwrap_or(BUSY), Ordering::Relaxed);
    }
}

impl MayHaveWork for Watch {
    /// A thread that sees an old position finds what is at that place now, and drives for nothing
    /// or waits for its next look: whoever has taken records says so before it lets the connection
    /// go.
    fn may_have_work(&self) -> bool {
        let next = self.next.load(Ordering::Relaxed);
        if next != BUSY && self.half.word(next).load(Ordering::Relaxed) == 0 {
            return false;
        }
        // The payload of a short message is in the line behind the first one.
        if next != BUSY {
            line::prefetch(self.half.bytes((next + LINE) & (self.half.len() - 1), LINE));
        }
        true
    }

    fn has_record(&self) -> bool {
        let next = self.next.load(Ordering::Relaxed);
        next != BUSY && self.half.word(next).load(Ordering::Relaxed) != 0
    }
}
