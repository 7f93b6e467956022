//! Consumer notification objects: one object to wait for many dispatchers (DAT 2.0 section 6.3.3).

use std::os::fd::{BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use dat_abi::*;

use crate::address::wait_for;
use crate::error::{Error, Result, SocketError, check};
use crate::handle::{EvdId, Handle};
use crate::ia::Ia;
use crate::leak::keep_for_ever;

/// A consumer notification object. Clones share the object, and its dispatchers hold clones.
/// Dropping the last clone frees the object.
#[derive(Clone)]
pub struct Cno {
    inner: Arc<CnoInner>,
}

struct CnoInner {
    handle: Handle,
    ia: Ia,
    /// The provider's descriptor, which it closes when the object is freed.
    fd: Option<RawFd>,
}

impl Cno {
    /// Creates an object on which a thread can wait.
    pub fn create(ia: &Ia) -> Result<Self> {
        // SAFETY: an agent without a function is never called.
        unsafe { Self::create_with_agent(ia, DatOsWaitProxyAgent::zeroed()) }
    }

    /// Creates an object with an agent. The provider calls the agent when a dispatcher triggers,
    /// once each time the agent is set.
    ///
    /// # Safety
    ///
    /// The agent's function may be called with its data from any thread until the object has been
    /// freed and a call in progress has returned. The function must not unwind.
    pub unsafe fn create_with_agent(ia: &Ia, agent: DatOsWaitProxyAgent) -> Result<Self> {
        let mut handle = DAT_HANDLE_NULL;
        // SAFETY: the IA is open and the out-pointer writable; the caller guarantees the agent.
        let code = unsafe { (ia.library().dat_cno_create)(ia.as_raw(), agent, &mut handle) };
        check("dat_cno_create", code)?;
        Ok(Self::new(ia, handle, None))
    }

    /// Creates an object with a descriptor that becomes readable when a dispatcher triggers, for
    /// use in a poll set.
    ///
    /// # Errors
    /// [`Error::Missing`] with OFA's registry library, which does not export this call.
    pub fn create_with_fd(ia: &Ia) -> Result<Self> {
        const CALL: &str = "dat_cno_fd_create";
        let create = ia
            .library()
            .dat_cno_fd_create
            .ok_or(Error::Missing { call: CALL })?;
        let (mut handle, mut fd) = (DAT_HANDLE_NULL, -1);
        // SAFETY: the IA is open and both out-pointers are writable.
        check(CALL, unsafe { create(ia.as_raw(), &mut fd, &mut handle) })?;
        let cno = Self::new(ia, handle, Some(fd));
        if fd < 0 {
            let errno = libc::EBADF;
            return Err(SocketError { errno }.into());
        }
        Ok(cno)
    }

    fn new(ia: &Ia, handle: DatCnoHandle, fd: Option<RawFd>) -> Self {
        Self {
            inner: Arc::new(CnoInner {
                handle: Handle(handle),
                ia: ia.clone(),
                fd,
            }),
        }
    }

    /// Waits until a dispatcher triggers, and returns its identity. Returns `None` when `timeout`
    /// expired first (`None`: no limit). The caller then dequeues events until the dispatcher is
    /// empty.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Option<EvdId>> {
        wait_for(timeout, |timeout| self.wait_us(timeout))
    }

    fn wait_us(&self, timeout: DatTimeout) -> Result<Option<EvdId>> {
        let mut evd = DAT_HANDLE_NULL;
        // SAFETY: the handle is live and the out-pointer writable.
        let code = unsafe {
            (self.inner.ia.library().dat_cno_wait)(self.inner.handle.0, timeout, &mut evd)
        };
        if code.is(DAT_QUEUE_EMPTY) || code.is(DAT_TIMEOUT_EXPIRED) {
            return Ok(None);
        }
        check("dat_cno_wait", code)?;
        Ok((!evd.is_null()).then(|| EvdId::of(evd)))
    }

    /// Takes one trigger without waiting. Returns the dispatcher that triggered, or `None` if no
    /// trigger is left. When the last trigger has been taken, the descriptor is not readable.
    pub fn take_trigger(&self) -> Result<Option<EvdId>> {
        const CALL: &str = "dat_cno_trigger";
        let Some(trigger) = self.inner.ia.library().dat_cno_trigger else {
            return self.wait(Some(Duration::ZERO));
        };
        let mut evd = DAT_HANDLE_NULL;
        // SAFETY: the handle is live and the out-pointer writable.
        let code = unsafe { trigger(self.inner.handle.0, &mut evd) };
        if code.is(DAT_QUEUE_EMPTY) {
            return Ok(None);
        }
        check(CALL, code)?;
        Ok((!evd.is_null()).then(|| EvdId::of(evd)))
    }

    /// The descriptor of [`create_with_fd`](Self::create_with_fd).
    #[must_use]
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: the provider keeps the descriptor open while the object lives, and the result
        // borrows a clone of the object. `create_with_fd` has checked that it is not negative.
        self.inner
            .fd
            .map(|fd| unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// The handle, for calls through [`Library`](crate::Library). Valid while `self` or a clone
    /// lives.
    #[must_use]
    pub fn as_raw(&self) -> DatCnoHandle {
        self.inner.handle.0
    }
}

impl Drop for CnoInner {
    fn drop(&mut self) {
        // SAFETY: dispatchers that use the object hold a clone, so none of them exists any more.
        let code = unsafe { (self.ia.library().dat_cno_free)(self.handle.0) };
        keep_for_ever(check("dat_cno_free", code), &self.ia);
    }
}

opaque_debug!(Cno, |it| [fd: it.inner.fd]);
