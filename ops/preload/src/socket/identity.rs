//! The addresses and options of a connection.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use host::locks::IgnorePoison as _;

use crate::tcp::names::Family;
use crate::tcp::options::{Options, OptionsCopy};

/// The addresses and options of a connection. Every process that uses the connection has a copy.
pub(crate) struct Identity {
    pub(crate) family: Family,
    pub(crate) local: SocketAddr,
    pub(crate) peer: SocketAddr,
    options: Mutex<Options>,
    is_signed: AtomicBool,
}

/// The copy of an identity that the parent makes for the child of a fork.
#[derive(Clone, Copy)]
pub(crate) struct IdentityCopy {
    family: Family,
    local: SocketAddr,
    peer: SocketAddr,
    options: OptionsCopy,
}

impl Identity {
    pub(crate) fn new(
        family: Family,
        local: SocketAddr,
        peer: SocketAddr,
        options: Options,
    ) -> Self {
        Self {
            family,
            local,
            peer,
            options: Mutex::new(options),
            is_signed: AtomicBool::new(false),
        }
    }

    /// Returns the copy for the child of a fork.
    pub(crate) fn copied(&self) -> IdentityCopy {
        IdentityCopy {
            family: self.family,
            local: self.local,
            peer: self.peer,
            options: self.options().copied(),
        }
    }

    /// Makes the child's identity after a fork.
    pub(crate) fn from_copy(copied: IdentityCopy) -> Self {
        Self::new(
            copied.family,
            copied.local,
            copied.peer,
            Options::inherited(copied.options),
        )
    }

    /// Marks the pair as named (`sharing::adopting`). Returns false to the first caller, which must
    /// then bind the name.
    pub(crate) fn mark_signed(&self) -> bool {
        self.is_signed.swap(true, Ordering::Relaxed)
    }

    pub(crate) fn options(&self) -> MutexGuard<'_, Options> {
        self.options.lock().ignore_poison()
    }

    /// Sets the timeouts of the connection on a descriptor that carries bytes.
    pub(crate) fn apply_timeouts(&self, fd: BorrowedFd<'_>) {
        self.options().apply_timeouts(fd);
    }
}
