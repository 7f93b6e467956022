//! The state of the signal bytes in a pair.

use std::sync::atomic::{AtomicU32, Ordering};

/// The maximum number of announcements that are unread at the program's end. Each is an edge for
/// `EPOLLET`. A program that never reads gets no more than this many, and level-triggered waits
/// still report that there is data.
pub(super) const ANNOUNCED_MAX: u32 = 64;

const WINDOW_OPEN: u32 = 0;
const WINDOW_CLOSED: u32 = 1;

/// The library's record of the signal bytes in a pair.
///
/// The value holds no pointer and may be stored in memory that forked processes share, because they
/// share the pair too.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Signals {
    announced: AtomicU32,
    window: AtomicU32,
}

impl Signals {
    /// The state of a new pair: nothing to read, window open.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            announced: AtomicU32::new(0),
            window: AtomicU32::new(WINDOW_OPEN),
        }
    }

    /// Counts an announcement and returns true, unless there are too many.
    pub(super) fn take_announcement(&self) -> bool {
        self.announced
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| {
                (count < ANNOUNCED_MAX).then_some(count + 1)
            })
            .is_ok()
    }

    /// The number of announcements that were not removed yet.
    pub(super) fn announced(&self) -> u32 {
        self.announced.load(Ordering::Acquire)
    }

    /// Subtracts announcements that were read, or could not be sent.
    pub(super) fn subtract_announcements(&self, count: u32) {
        let subtract = |announced: u32| Some(announced.saturating_sub(count));
        let _ = self
            .announced
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, subtract);
    }

    /// Resets the record after the bytes were removed from the pair: nothing is announced, and the
    /// window is open.
    pub fn forget(&self) {
        self.announced.store(0, Ordering::Release);
        self.window.store(WINDOW_OPEN, Ordering::Release);
    }

    /// Closes the window. Returns true if it was open, so the caller sends the byte.
    pub(super) fn close_window(&self) -> bool {
        self.window.swap(WINDOW_CLOSED, Ordering::AcqRel) == WINDOW_OPEN
    }

    /// The number of bytes at the library's end that are signals: the byte that is never read, and
    /// that of a closed window.
    pub(super) fn at_library_end(&self) -> usize {
        1 + usize::from(self.window.load(Ordering::Acquire) == WINDOW_CLOSED)
    }

    /// Opens the window. Returns true if it was closed, so the caller takes the byte.
    pub(super) fn open_window(&self) -> bool {
        self.window.swap(WINDOW_OPEN, Ordering::AcqRel) == WINDOW_CLOSED
    }
}
