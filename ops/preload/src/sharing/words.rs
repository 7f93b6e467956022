//! Memory that an owner shares with its children and theirs.

use std::collections::VecDeque;
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use stand_in::Handover;

/// What is shared of one connection.
#[derive(Debug)]
pub(crate) struct Word {
    /// Whether its pair carries signals or bytes.
    pub(crate) handover: Handover,
    /// `SO_LINGER` in seconds, as a user that is not the owner has set it; below 0: none has.
    linger: AtomicI32,
}

/// Mapped at a time: a page.
const PAGE: usize = 4096;

/// Words that serve no connection.
#[derive(Debug, Default)]
pub(crate) struct Words {
    /// Used in turn, so that one who knows a word from before finds it unchanged for long.
    free: VecDeque<&'static Word>,
}

impl Words {
    /// One of them.
    pub(crate) fn take(&mut self) -> Result<&'static Word, Errno> {
        if self.free.is_empty() {
            self.free.extend(map()?);
        }
        let word = self.free.pop_front().ok_or(Errno::NOMEM)?;
        word.linger.store(-1, Ordering::Relaxed);
        Ok(word)
    }

    /// One that serves none any more.
    pub(crate) fn give_back(&mut self, word: &'static Word) {
        self.free.push_back(word);
    }
}

fn map() -> Result<&'static [Word], Errno> {
    // SAFETY: new memory at a place of the kernel's choice. It is never unmapped, and zeroes are a
    // value of `Word`.
    unsafe {
        let flags = MapFlags::SHARED;
        let page = mmap_anonymous(
            ptr::null_mut(),
            PAGE,
            ProtFlags::READ | ProtFlags::WRITE,
            flags,
        )?;
        let count = PAGE / size_of::<Word>();
        Ok(std::slice::from_raw_parts(page.cast::<Word>(), count))
    }
}

impl Word {
    /// A user has set `SO_LINGER`.
    pub(crate) fn set_linger(&self, seconds: Option<u64>) {
        let seconds = seconds.map_or(-1, |s| i32::try_from(s).unwrap_or(i32::MAX));
        self.linger.store(seconds, Ordering::Relaxed);
    }

    /// Whether a user wants the last close to be a reset.
    pub(crate) fn is_to_be_reset(&self) -> bool {
        self.linger.load(Ordering::Relaxed) == 0
    }
}
