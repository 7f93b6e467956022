//! The common part of public and common service points: a listener and an EVD, until the service
//! point is freed.

use std::sync::{Arc, Mutex, MutexGuard};

use dat_abi::*;
use host::locks::IgnorePoison as _;

use crate::ep::Held;
use crate::evd::Evd;
use crate::rnic::Rnic;

/// The listener and the EVD of a service point.
pub(super) struct Listening<R: Rnic>(Mutex<Stage<R::Listener, Held<Evd<R>>>>);

/// State of a service point; `L` is the listener, `E` the EVD of its requests. The `on_*` methods
/// are the only writers.
#[derive(Debug, PartialEq, Eq)]
enum Stage<L, E> {
    /// The RNIC is about to listen, and may already report requests.
    Opening(E),
    /// Requests are received.
    Open(L, E),
    /// Freed.
    Over,
}

impl<L, E> Stage<L, E> {
    /// Called when the RNIC listens. Returns the listener if the service point was freed meanwhile.
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

    /// Called when the service point is freed. Returns the listener and the EVD, which the caller
    /// drops.
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
    /// Creates the state before listening; requests will be posted to `evd`.
    pub(super) fn new(evd: Held<Evd<R>>) -> Self {
        Self(Mutex::new(Stage::Opening(evd)))
    }

    /// Stores the listener. If the service point has ended meanwhile, because the IA was closed,
    /// the listener is dropped here.
    pub(super) fn store(&self, listener: R::Listener) {
        let late = self.lock().on_listening(listener);
        drop(late);
    }

    /// Returns the EVD of requests; `None` once freed.
    pub(super) fn evd(&self) -> Option<Arc<Evd<R>>> {
        self.lock().evd().map(|evd| evd.object().clone())
    }

    /// The handle of the EVD; null once freed.
    pub(super) fn evd_handle(&self) -> DatEvdHandle {
        self.evd()
            .map_or(DAT_HANDLE_NULL, |evd| evd.handle().as_dat())
    }

    /// Stops listening and releases the EVD. Both are dropped without the lock, because the RNIC
    /// takes its own locks.
    pub(super) fn end(&self) {
        let ended = self.lock().on_end();
        drop(ended);
    }

    fn lock(&self) -> MutexGuard<'_, Stage<R::Listener, Held<Evd<R>>>> {
        self.0.lock().ignore_poison()
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
            // (state, (result of on_listening, next state), result of on_end)
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
