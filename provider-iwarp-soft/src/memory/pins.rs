//! Registrations that are written while the table is not open.
//!
//! The kernel may take any time to supply the memory of a peer. So the table is not open while a
//! payload is read from there. The registrations of its target are pinned instead: only their own
//! deregistration waits.

use std::sync::{Condvar, Mutex};

use host::locks::{IgnorePoison as _, lock};
use iwarp_proto::Stag;

/// The pinned registrations. Pinning allocates no memory once the list has its length.
#[derive(Debug, Default)]
pub(super) struct Pins {
    state: Mutex<State>,
    /// Notified when registrations were unpinned, if a thread waits.
    unpinned: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Each pinned registration, with the number of its pin.
    pinned: Vec<(u64, Stag)>,
    next_pin: u64,
    waiting: usize,
}

/// Keeps registrations pinned until it is dropped.
#[derive(Debug)]
pub(crate) struct Pinned<'a> {
    pins: &'a Pins,
    pin: u64,
}

impl Pins {
    pub(super) fn pin(&self, stags: impl IntoIterator<Item = Stag>) -> Pinned<'_> {
        let mut state = lock(&self.state);
        let pin = state.next_pin;
        state.next_pin += 1;
        state
            .pinned
            .extend(stags.into_iter().map(|stag| (pin, stag)));
        Pinned { pins: self, pin }
    }

    /// Returns when a registration is not pinned any more.
    pub(super) fn await_unpinned(&self, stag: Stag) {
        let mut state = lock(&self.state);
        state.waiting += 1;
        while state.pinned.iter().any(|(_, pinned)| *pinned == stag) {
            state = self.unpinned.wait(state).ignore_poison();
        }
        state.waiting -= 1;
    }
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.pins.state);
        state.pinned.retain(|(pin, _)| *pin != self.pin);
        let must_notify = state.waiting > 0;
        drop(state);
        if must_notify {
            self.pins.unpinned.notify_all();
        }
    }
}
