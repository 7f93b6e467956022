//! What public and common service points have in common: a listener and an EVD, until they are
//! freed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dat_abi::*;

use crate::ep::Held;
use crate::evd::Evd;
use crate::rnic::Rnic;

/// The listener and the EVD of a service point.
pub(super) struct Listening<R: Rnic>(Mutex<Stage<R::Listener, Held<Evd<R>>>>);

/// How far a service point is; `L` listens, `E` is where requests go. `on_*` are the only writers.
#[derive(Debug, PartialEq, Eq)]
enum Stage<L, E> {
    /// The RNIC is being asked to listen, and may tell requests already.
    Opening(E),
    /// Requests come.
    Open(L, E),
    /// Freed.
    Over,
}

impl<L, E> Stage<L, E> {
    /// The RNIC listens. What comes back listens for a service point that was freed meanwhile.
    fn on_listening(&mut self, listener: L) -> Option<L> {
        match std::mem::replace(self, Self::Over) {
            Self::Opening(evd) => {
                *self = Self::Open(listener, evd);
                None
            }
            other => {
                *self = other;
                Some(listener)
            }
        }
    }

    /// The service point is freed: what listened and where requests went, for the caller to drop.
    fn on_end(&mut self) -> (Option<L>, Option<E>) {
        match std::mem::replace(self, Self::Over) {
            Self::Opening(evd) => (None, Some(evd)),
            Self::Open(listener, evd) => (Some(listener), Some(evd)),
            Self::Over => (None, None),
        }
    }

    fn evd(&self) -> Option<&E> {
        match self {
            Self::Opening(evd) | Self::Open(_, evd) => Some(evd),
            Self::Over => None,
        }
    }
}

impl<R: Rnic> Listening<R> {
    /// Requests will go to `evd`; nothing listens yet.
    pub(super) fn new(evd: Held<Evd<R>>) -> Self {
        Self(Mutex::new(Stage::Opening(evd)))
    }

    /// Keeps what listens. An IA that closes meanwhile has ended the service point already; then
    /// the listener ends here.
    pub(super) fn keep(&self, listener: R::Listener) {
        let late = self.lock().on_listening(listener);
        drop(late);
    }

    /// Where requests go; `None` once freed.
    pub(super) fn evd(&self) -> Option<Arc<Evd<R>>> {
        self.lock().evd().map(|evd| evd.object().clone())
    }

    /// The handle of the EVD; null once freed.
    pub(super) fn evd_handle(&self) -> DatEvdHandle {
        self.evd()
            .map_or(DAT_HANDLE_NULL, |evd| evd.handle().as_dat())
    }

    /// Stops listening and lets go of the EVD. Both go without the lock: the RNIC has locks of its
    /// own.
    pub(super) fn end(&self) {
        let ended = self.lock().on_end();
        drop(ended);
    }

    fn lock(&self) -> MutexGuard<'_, Stage<R::Listener, Held<Evd<R>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::Stage::{Open, Opening, Over};
    use super::*;

    type TestStage = Stage<&'static str, &'static str>;

    #[test]
    fn every_event_in_every_state() {
        let rows: [(fn() -> TestStage, _, _); 3] = [
            // (state, what listening, and what the end, give back and leave)
            (
                || Opening("evd"),
                (None, Open("new", "evd")),
                (None, Some("evd")),
            ),
            (
                || Open("old", "evd"),
                (Some("new"), Open("old", "evd")),
                (Some("old"), Some("evd")),
            ),
            (|| Over, (Some("new"), Over), (None, None)),
        ];
        for (state, listening, end) in rows {
            let mut stage = state();
            assert_eq!(stage.evd().copied(), end.1, "{stage:?}");
            assert_eq!(
                (stage.on_listening("new"), stage),
                listening,
                "{:?}",
                state()
            );
            let mut stage = state();
            assert_eq!((stage.on_end(), stage), (end, Over), "{:?}", state());
        }
    }
}
