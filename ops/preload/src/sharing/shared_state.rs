//! Memory that an owner shares with its children and theirs.

use std::collections::VecDeque;
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use stand_in::Handover;

/// What is shared of one connection.
#[derive(Debug)]
pub(crate) struct SharedState {
    /// Whether its pair carries signals or bytes.
    pub(crate) handover: Handover,
    /// `SO_LINGER` in seconds, as a user that is not the owner has set it; below 0: none has.
    linger: AtomicI32,
}

/// Mapped at a time: a page.
const PAGE: usize = 4096;

/// Mapped ones that serve no connection.
#[derive(Debug, Default)]
pub(crate) struct FreeStates {
    /// Used in turn, so that one who knows one from before finds it unchanged for long.
    free: VecDeque<&'static SharedState>,
}

impl FreeStates {
    /// One of them.
    pub(crate) fn take(&mut self) -> Result<&'static SharedState, Errno> {
        if self.free.is_empty() {
            self.free.extend(map()?);
        }
        let shared_state = self.free.pop_front().ok_or(Errno::NOMEM)?;
        shared_state.linger.store(-1, Ordering::Relaxed);
        Ok(shared_state)
    }

    /// One that serves none any more.
    pub(crate) fn give_back(&mut self, shared_state: &'static SharedState) {
        self.free.push_back(shared_state);
    }
}

fn map() -> Result<&'static [SharedState], Errno> {
    // SAFETY: new memory at a place of the kernel's choice. It is never unmapped, and zeroes are a
    // value of `SharedState`.
    unsafe {
        let flags = MapFlags::SHARED;
        let page = mmap_anonymous(
            ptr::null_mut(),
            PAGE,
            ProtFlags::READ | ProtFlags::WRITE,
            flags,
        )?;
        let count = PAGE / size_of::<SharedState>();
        Ok(std::slice::from_raw_parts(
            page.cast::<SharedState>(),
            count,
        ))
    }
}

impl SharedState {
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
