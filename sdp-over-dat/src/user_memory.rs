//! The caller's memory, registered for one call.
//!
//! Both types borrow the memory. The socket calls that create them return only after the peer can
//! no longer access it. So no registration outlives the borrow, and none is ever used for other
//! memory that is later mapped at the same address.

use std::ptr::NonNull;

use dat_api::{Error, Lmr, Privileges, Pz, Result};

/// Registered memory whose bytes the peer reads.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) lmr: Lmr,
}

/// Registered memory into which the peer's memory is read, or into which the peer writes.
#[derive(Debug)]
pub(crate) struct Sink {
    pub(crate) lmr: Lmr,
}

impl Source {
    /// Registers `bytes`. The socket releases the registration before the call that borrowed
    /// `bytes` returns, and only after the endpoint no longer uses it.
    pub(crate) fn register(pz: &Pz, bytes: &[u8]) -> Result<Self> {
        let ptr = NonNull::from(bytes).cast();
        let privileges = Privileges::LOCAL_READ | Privileges::REMOTE_READ;
        // SAFETY: the write that calls this borrows the bytes and deregisters them before it
        // returns. Before that, it waits until the protocol no longer needs them and every Send
        // from them has completed, or until the transport has ended. Nothing writes to them
        // meanwhile, because the registration permits only reading.
        let lmr = unsafe { Lmr::register(pz, ptr, bytes.len(), privileges) }?;
        Ok(Self { lmr })
    }
}

impl Sink {
    /// Registers `bytes`. A peer that writes needs the right of remote write, and so do iWARP
    /// reads.
    pub(crate) fn register(pz: &Pz, bytes: &mut [u8], needs_remote_write: bool) -> Result<Self> {
        let len = bytes.len();
        let ptr = NonNull::from(bytes).cast();
        let privileges = if needs_remote_write {
            Privileges::LOCAL_WRITE | Privileges::REMOTE_WRITE
        } else {
            Privileges::LOCAL_WRITE
        };
        // SAFETY: the read that calls this borrows the bytes mutably and deregisters them before it
        // returns. Before that, it waits until its RDMA Reads have completed, or the peer has given
        // up the advertisement, or the transport has ended; until then nothing else accesses the
        // bytes.
        let lmr = unsafe { Lmr::register(pz, ptr, len, privileges) }?;
        Ok(Self { lmr })
    }
}

/// Deregisters the memory. If the provider refuses, it may still access the memory, so this
/// function does not return to the caller.
pub(crate) fn release(lmr: Lmr) {
    if let Err((lmr, error)) = lmr.free() {
        tracing::error!(%error, "the caller's memory could not be deregistered");
        std::mem::forget(lmr);
        block_forever(&error);
    }
}

/// Blocks this thread for ever, because memory that a provider still uses must not be returned.
fn block_forever(error: &Error) -> ! {
    loop {
        tracing::error!(%error, "waiting for a provider that keeps the caller's memory");
        std::thread::park();
    }
}
