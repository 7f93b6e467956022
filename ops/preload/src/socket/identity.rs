//! The addresses and options of a connection, whichever process moves its bytes.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::tcp::names::Family;
use crate::tcp::options::{Options, OptionsCopy};

/// The part of a connection of which every process that uses it has a copy.
pub(crate) struct Identity {
    pub(crate) family: Family,
    pub(crate) local: SocketAddr,
    pub(crate) peer: SocketAddr,
    options: Mutex<Options>,
    signed: AtomicBool,
}

/// An identity as it was before a fork, for the child.
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
            signed: AtomicBool::new(false),
        }
    }

    /// For the child of a fork.
    pub(crate) fn copied(&self) -> IdentityCopy {
        IdentityCopy {
            family: self.family,
            local: self.local,
            peer: self.peer,
            options: self.options().copied(),
        }
    }

    /// In the child of a fork, where the parent's identity is forgotten.
    pub(crate) fn from_copy(copied: IdentityCopy) -> Self {
        Self::new(
            copied.family,
            copied.local,
            copied.peer,
            Options::inherited(copied.options),
        )
    }

    /// Returns true if the pair has its name already (`sharing::adopting`). The first caller gets
    /// false, and names the pair.
    pub(crate) fn is_signed(&self) -> bool {
        self.signed.swap(true, Ordering::Relaxed)
    }

    /// The options in force.
    pub(crate) fn options(&self) -> MutexGuard<'_, Options> {
        self.options.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A descriptor that carries bytes has the timeouts of the socket.
    pub(crate) fn apply_timeouts(&self, fd: BorrowedFd<'_>) {
        self.options().apply_timeouts(fd);
    }
}
