//! A lock for taking a connection out of the kernel's accept queue.
//!
//! A call that waits for connections of several stacks must not block in the kernel's `accept`
//! while there is no connection of TCP. Several threads that wait are woken by the same connection,
//! and the kernel would block those that come too late until the next one. So a thread that was
//! woken checks the queue again and accepts while it holds this lock.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, PoisonError};

use host::descriptors::raise;
use rustix::fs::{FlockOperation, MemfdFlags, fcntl_lock, memfd_create};
use rustix::io::Errno;

/// The right to accept from a listener, among the threads of this process and among the processes
/// that have inherited the listener.
pub(crate) struct AcceptLock {
    threads: Mutex<()>,
    /// A file for locks of processes, which the kernel releases when the process ends. It also
    /// releases them when the process closes any descriptor of the file, so the file has this one
    /// alone.
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

    /// Makes the lock in the child of a fork, which has a descriptor of the same file.
    pub(crate) fn inherited(processes: OwnedFd) -> Self {
        Self {
            threads: Mutex::default(),
            processes,
        }
    }

    /// Runs `work`, which must not wait, with the lock held.
    pub(crate) fn run<R>(&self, work: impl FnOnce() -> R) -> R {
        let _own = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        // A deadlock that the kernel reports is none: no thread waits for anything else with the
        // lock held.
        while let Err(Errno::INTR | Errno::DEADLK) = self.lock(FlockOperation::LockExclusive) {}
        let done = work();
        // Releasing a lock of our own cannot fail. Where taking it failed, as without memory in the
        // kernel, other threads may come too late and wait for the next connection of TCP.
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
