//! A check of a ring by threads that do not hold the connection.
//!
//! A polling thread drives each polled connection in every call, and most calls find nothing. This
//! check needs no lock of the connection: the holder stores the offset of the next record, and
//! whether there is any other work.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::attention;
use super::ring::line;
use super::segment::{Half, LINE};
use crate::progress::conn_socket::MayHaveWork;

/// Represents a connection with work that the ring does not show.
const BUSY: usize = usize::MAX;

/// Shows whether a connection may have work.
#[derive(Debug)]
pub(crate) struct Watch {
    half: Half,
    /// The offset of the next record, or [`BUSY`].
    next: AtomicUsize,
}

impl Watch {
    pub(super) fn new(half: Half) -> Self {
        Self {
            half,
            next: AtomicUsize::new(BUSY),
        }
    }

    /// Called when the holder of the connection has finished for now. `next` is the offset of the
    /// next record, or `None` if there is other work to do.
    pub(super) fn set(&self, next: Option<usize>) {
        self.next.store(next.unwrap_or(BUSY), Ordering::Relaxed);
    }
}

impl MayHaveWork for Watch {
    /// Returns false if the connection certainly has no work. A thread that reads an old offset
    /// checks the current bytes there: it may drive without a result, or find the work at its next
    /// check. Every holder that has taken records stores the new offset before it releases the
    /// connection.
    fn may_have_work(&self) -> bool {
        attention::note_poll(&self.half);
        let next = self.next.load(Ordering::Relaxed);
        if next != BUSY && self.half.word(next).load(Ordering::Relaxed) == 0 {
            return false;
        }
        // The payload of a short message is in the second line of the record.
        if next != BUSY {
            line::prefetch(self.half.bytes((next + LINE) & (self.half.len() - 1), LINE));
        }
        true
    }
}
