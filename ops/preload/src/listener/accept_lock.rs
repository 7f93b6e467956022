//! One at a time takes a connection out of the kernel's accept queue.
//!
//! A call that waits for connections of several stacks may not be left to the kernel before one of
//! TCP is there. Several who wait see the same one, and the kernel would keep those who come too
//! late until the next one of TCP. So whoever has seen one looks again while nobody else may take
//! it.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, PoisonError};

use host::descriptors::raise;
use rustix::fs::{FlockOperation, MemfdFlags, fcntl_lock, memfd_create};
use rustix::io::Errno;

/// The right to accept from a listener, among the threads of this process and among those processes
/// that have inherited the listener.
pub(crate) struct AcceptLock {
    threads: Mutex<()>,
    /// A file for locks of the process, which end with it, whatever ends it. They would end as well
    /// with any other descriptor of the file that the process closes, so it has this one alone.
    processes: OwnedFd,
}

impl AcceptLock {
    pub(crate) fn new() -> Result<Self, Errno> {
        let file = memfd_create("ops-accept-lock", MemfdFlags::CLOEXEC)?;
        Ok(Self {
            threads: Mutex::default(),
            processes: raise(file)?,
        })
    }

    /// In the child of a fork, which has a descriptor of the same file.
    pub(crate) fn inherited(processes: OwnedFd) -> Self {
        Self {
            threads: Mutex::default(),
            processes,
        }
    }

    /// Does something that nobody else does meanwhile. It must not wait.
    pub(crate) fn run<R>(&self, work: impl FnOnce() -> R) -> R {
        let _own = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        // A deadlock that the kernel sees is none: nobody waits for anything while he holds it.
        while let Err(Errno::INTR | Errno::DEADLK) = self.lock(FlockOperation::LockExclusive) {}
        let done = work();
        // A lock of our own can be given back. Without it, as where the kernel had no memory for
        // it, other threads may come too late and wait for the next connection of TCP.
        let _ = self.lock(FlockOperation::Unlock);
        done
    }

    fn lock(&self, how: FlockOperation) -> Result<(), Errno> {
        fcntl_lock(&self.processes, how)
    }
}

impl AsRawFd for AcceptLock {
    fn as_raw_fd(&self) -> RawFd {
        self.processes.as_raw_fd()
    }
}
