//! What public and common service points have in common: a listener and an EVD, until they are
//! freed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dat_abi::*;

use crate::ep::Held;
use crate::evd::Evd;
use crate::rnic::Rnic;

/// The listener and the EVD of a service point.
pub(super) struct Listening<R: Rnic>(Mutex<Inner<R>>);

struct Inner<R: Rnic> {
    listener: Option<R::Listener>,
    /// `None` once freed.
    evd: Option<Held<Evd<R>>>,
}

impl<R: Rnic> Listening<R> {
    /// Requests will go to `evd`; nothing listens yet.
    pub(super) fn new(evd: Held<Evd<R>>) -> Self {
        Self(Mutex::new(Inner {
            listener: None,
            evd: Some(evd),
        }))
    }

    /// Keeps what listens. An IA that closes meanwhile has ended the service point already; then
    /// the listener ends here.
    pub(super) fn keep(&self, listener: R::Listener) {
        let mut inner = self.lock();
        if inner.evd.is_some() {
            inner.listener = Some(listener);
        }
    }

    /// Where requests go; `None` once freed.
    pub(super) fn evd(&self) -> Option<Arc<Evd<R>>> {
        self.lock().evd.as_ref().map(|evd| evd.object().clone())
    }

    /// The handle of the EVD; null once freed.
    pub(super) fn evd_handle(&self) -> DatEvdHandle {
        self.evd()
            .map_or(DAT_HANDLE_NULL, |evd| evd.handle().as_dat())
    }

    /// Stops listening and lets go of the EVD. Both go without the lock: the RNIC has locks of its
    /// own.
    pub(super) fn end(&self) {
        let (listener, evd) = {
            let mut inner = self.lock();
            (inner.listener.take(), inner.evd.take())
        };
        drop(listener);
        drop(evd);
    }

    fn lock(&self) -> MutexGuard<'_, Inner<R>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
