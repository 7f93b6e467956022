//! The caller's memory, registered for one call.
//!
//! Both types borrow the memory, and the functions that make them return only after the peer can
//! no longer touch it; so no registration lives longer than the borrow, and none is ever used for
//! memory that came later to the same address.

use std::ptr::NonNull;

use dat_api::{Error, Lmr, Privileges, Pz, Result};

/// Registered memory whose bytes the peer reads.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) lmr: Lmr,
}

/// Registered memory into which reads of the peer's memory go.
#[derive(Debug)]
pub(crate) struct Sink {
    pub(crate) lmr: Lmr,
}

impl Source {
    /// Registers `bytes`. The socket that gets it gives it back before the call that borrowed
    /// `bytes` returns, and takes it out of the endpoint's hands before.
    pub(crate) fn register(pz: &Pz, bytes: &[u8]) -> Result<Self> {
        let ptr = NonNull::from(bytes).cast();
        let privileges = Privileges::LOCAL_READ | Privileges::REMOTE_READ;
        // SAFETY: the bytes are borrowed by the write that calls this, which deregisters them
        // before it returns: it waits until the protocol needs them no more and every Send from
        // them has completed, or until the transport is gone. Nobody writes to them meanwhile:
        // neither right allows it.
        let lmr = unsafe { Lmr::register(pz, ptr, bytes.len(), privileges) }?;
        Ok(Self { lmr })
    }
}

impl Sink {
    /// Registers `bytes`. iWARP reads need the right of remote write on their sink.
    pub(crate) fn register(pz: &Pz, bytes: &mut [u8], needs_remote_write: bool) -> Result<Self> {
        let len = bytes.len();
        let ptr = NonNull::from(bytes).cast();
        let privileges = if needs_remote_write {
            Privileges::LOCAL_WRITE | Privileges::REMOTE_WRITE
        } else {
            Privileges::LOCAL_WRITE
        };
        // SAFETY: the bytes are borrowed mutably by the read that calls this, which waits until
        // its RDMA Reads have completed or the transport is gone and deregisters them before it
        // returns; until then nobody looks at them.
        let lmr = unsafe { Lmr::register(pz, ptr, len, privileges) }?;
        Ok(Self { lmr })
    }
}

/// Deregisters; a provider that refuses may still touch the memory, and nothing can be returned
/// to the caller then.
pub(crate) fn release(lmr: Lmr) {
    if let Err((lmr, error)) = lmr.free() {
        tracing::error!(%error, "the caller's memory could not be deregistered");
        std::mem::forget(lmr);
        give_up(&error);
    }
}

/// Memory that a provider still uses cannot be given back, so this thread does not return.
fn give_up(error: &Error) -> ! {
    loop {
        tracing::error!(%error, "waiting for a provider that keeps the caller's memory");
        std::thread::park();
    }
}
