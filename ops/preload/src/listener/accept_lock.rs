//! A lock for the kernel's `accept`.
//!
//! A call that waits for connections of TCP and of protocols must not block in the kernel's
//! `accept` while the kernel has no connection. One connection may wake several waiting threads,
//! and the kernel would block all but the first. So a woken thread takes this lock, checks the
//! queue again, and accepts only then.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Mutex;

use host::descriptors::{OwnDescriptor, raise};
use host::locks::IgnorePoison as _;
use rustix::fs::{FlockOperation, MemfdFlags, fcntl_lock, memfd_create};
use rustix::io::Errno;

/// The right to accept from a listener, among the threads of this process and among the processes
/// that have inherited the listener.
pub(crate) struct AcceptLock {
    threads: Mutex<()>,
    /// A file whose lock excludes other processes. The kernel releases the lock when the process
    /// ends or closes any descriptor of the file, so the process has only this descriptor.
    processes: OwnDescriptor,
}

impl AcceptLock {
    pub(crate) fn new() -> Result<Self, Errno> {
        let file = memfd_create("ops-accept-lock", MemfdFlags::CLOEXEC)?;
        Ok(Self {
            threads: Mutex::default(),
            processes: OwnDescriptor::from(raise(file)?),
        })
    }

    /// Makes the lock in the child of a fork, with the inherited descriptor of the file.
    pub(crate) fn inherited(processes: OwnedFd) -> Self {
        Self {
            threads: Mutex::default(),
            processes: OwnDescriptor::from(processes),
        }
    }

    /// Runs `work`, which must not wait, with the lock held.
    pub(crate) fn run<R>(&self, work: impl FnOnce() -> R) -> R {
        let _own = self.threads.lock().ignore_poison();
        // `DEADLK` is a false alarm: no thread waits for anything else with the lock held.
        while let Err(Errno::INTR | Errno::DEADLK) = self.lock(FlockOperation::LockExclusive) {}
        let done = work();
        // Releasing an own lock cannot fail. If taking the lock failed (the kernel has no memory),
        // another thread may take the connection, and this thread waits for the next connection of
        // TCP.
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
