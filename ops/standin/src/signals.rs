//! What is known of the bytes in a pair.

use std::sync::atomic::{AtomicU32, Ordering};

/// Announcements that may lie unread at the program's end. Each is an edge for `EPOLLET`; beyond
/// this many a program that never reads gets no more of them, and level-triggered waits still see
/// that there is something.
pub(crate) const ANNOUNCED_MAX: u32 = 64;

const WINDOW_OPEN: u32 = 0;
const WINDOW_CLOSED: u32 = 1;

/// What the library remembers of the signal bytes in a pair.
///
/// It holds no pointer and may lie in memory that forked processes share: they share the pair too.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Signals {
    announced: AtomicU32,
    window: AtomicU32,
}

impl Signals {
    /// Nothing to read, window open.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            announced: AtomicU32::new(0),
            window: AtomicU32::new(WINDOW_OPEN),
        }
    }

    /// Whether an announcement may still be made, and counts it.
    pub(crate) fn take_announcement(&self) -> bool {
        self.announced
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| {
                (count < ANNOUNCED_MAX).then_some(count + 1)
            })
            .is_ok()
    }

    /// Announcements not yet taken back.
    pub(crate) fn announced(&self) -> u32 {
        self.announced.load(Ordering::Acquire)
    }

    /// Announcements were read, or could not be written.
    pub(crate) fn give_back(&self, count: u32) {
        let give_back = |announced: u32| Some(announced.saturating_sub(count));
        let _ = self
            .announced
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, give_back);
    }

    /// The bytes were taken out of the pair: nothing is announced, and the window is open.
    pub fn forget(&self) {
        self.announced.store(0, Ordering::Release);
        self.window.store(WINDOW_OPEN, Ordering::Release);
    }

    /// `true`: the caller is the one who closes the window.
    pub(crate) fn close_window(&self) -> bool {
        self.window.swap(WINDOW_CLOSED, Ordering::AcqRel) == WINDOW_OPEN
    }

    /// `true`: the caller is the one who opens the window.
    pub(crate) fn open_window(&self) -> bool {
        self.window.swap(WINDOW_OPEN, Ordering::AcqRel) == WINDOW_CLOSED
    }
}
