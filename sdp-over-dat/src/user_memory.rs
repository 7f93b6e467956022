//! The caller's memory, registered for one call.
//!
//! The socket calls that register memory borrow it, or own it ([`crate::Submission`]). They
//! deregister it before they return, and only after the peer can no longer access it. So no
//! registration outlives the borrow, and none is ever used for other memory that is later mapped at
//! the same address.
//!
//! Registrations are not kept for later calls, although an adapter pins pages at each one, because
//! no library can know in time that memory was unmapped. The C library unmaps memory in `free`
//! without a call that can be interposed. And the kernel queues the event of `userfaultfd(2)` after
//! it has unmapped the memory and released its lock, so another thread can map other memory there
//! and send it by the old registration.

use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;

use dat_api::{Error, Lmr, Privileges, Pz, Result};

/// The caller's memory. It is deregistered when this value is dropped.
#[derive(Debug)]
pub(crate) struct UserMemory(Option<Lmr>);

/// Memory into which the peer or the adapter writes. The caller cannot access it while this value
/// exists, because the value keeps the mutable borrow.
#[derive(Debug)]
pub(crate) struct Sink<'a> {
    memory: UserMemory,
    _bytes: PhantomData<&'a mut [u8]>,
}

impl UserMemory {
    /// Registers bytes that the peer reads, or that are sent from where they are.
    pub(crate) fn source(pz: &Pz, bytes: &[u8]) -> Result<Self> {
        let ptr = NonNull::from(bytes).cast();
        let privileges = Privileges::LOCAL_READ | Privileges::REMOTE_READ;
        // SAFETY: the write that calls this borrows the bytes and drops this value before it
        // returns, or the socket owns the bytes and drops this value first. Before that, it waits
        // until the protocol no longer needs them and every Send from them has completed, or until
        // the transport has ended. The adapter and the peer do not write to them, because the
        // registration permits only reading, and the shared borrow or the ownership keeps
        // everything else from writing.
        let lmr = unsafe { Lmr::register(pz, ptr, bytes.len(), privileges) }?;
        Ok(Self(Some(lmr)))
    }

    /// Registers bytes into which the peer's memory is read, or into which the peer writes. A peer
    /// that writes needs the right of remote write, and so do iWARP reads.
    pub(crate) fn sink<'a>(
        pz: &Pz,
        bytes: &'a mut [u8],
        needs_remote_write: bool,
    ) -> Result<Sink<'a>> {
        let len = bytes.len();
        let ptr = NonNull::from(bytes).cast();
        let privileges = if needs_remote_write {
            Privileges::LOCAL_WRITE | Privileges::REMOTE_WRITE
        } else {
            Privileges::LOCAL_WRITE
        };
        // SAFETY: the result keeps the mutable borrow, so nothing but the adapter and the peer
        // accesses the bytes until it is dropped. The read that calls this drops it before it
        // returns. Before that, it waits until its RDMA Reads have completed, or the peer has
        // released the advertisement, or the transport has ended.
        let lmr = unsafe { Lmr::register(pz, ptr, len, privileges) }?;
        Ok(Sink {
            memory: Self(Some(lmr)),
            _bytes: PhantomData,
        })
    }
}

impl Deref for Sink<'_> {
    type Target = Lmr;

    fn deref(&self) -> &Lmr {
        &self.memory
    }
}

impl Deref for UserMemory {
    type Target = Lmr;

    fn deref(&self) -> &Lmr {
        self.0.as_ref().expect("only the drop takes the region")
    }
}

impl Drop for UserMemory {
    /// Deregisters the memory. If the provider refuses, it may still access the memory, so the
    /// thread does not return to the caller.
    fn drop(&mut self) {
        if let Some(Err((lmr, error))) = self.0.take().map(Lmr::free) {
            tracing::error!(%error, "the caller's memory could not be deregistered");
            std::mem::forget(lmr);
            block_forever(&error);
        }
    }
}

/// Blocks this thread for ever, because memory that a provider still uses must not be returned.
fn block_forever(error: &Error) -> ! {
    loop {
        tracing::error!(%error, "waiting for a provider that keeps the caller's memory");
        std::thread::park();
    }
}
