//! Registrations that are written while the table is not open.
//!
//! The kernel may take any time to supply the memory of a peer. So the table is not open while a
//! payload is read from there. The registrations of its target are pinned instead: only their own
//! deregistration waits.

use std::sync::{Condvar, Mutex};

use host::locks::{IgnorePoison as _, lock};
use iwarp_proto::Stag;

/// The pinned registrations, once for each pin.
#[derive(Debug, Default)]
pub(super) struct Pins {
    pinned: Mutex<Vec<Stag>>,
    /// Notified when registrations were unpinned.
    unpinned: Condvar,
}

/// Keeps registrations pinned until it is dropped.
#[derive(Debug)]
pub(crate) struct Pinned<'a> {
    pins: &'a Pins,
    stags: Vec<Stag>,
}

impl Pins {
    pub(super) fn pin(&self, stags: Vec<Stag>) -> Pinned<'_> {
        lock(&self.pinned).extend(&stags);
        Pinned { pins: self, stags }
    }

    /// Returns when a registration is not pinned any more.
    pub(super) fn await_unpinned(&self, stag: Stag) {
        let mut pinned = lock(&self.pinned);
        while pinned.contains(&stag) {
            pinned = self.unpinned.wait(pinned).ignore_poison();
        }
    }
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        let mut pinned = lock(&self.pins.pinned);
        for stag in &self.stags {
            if let Some(at) = pinned.iter().position(|it| it == stag) {
                pinned.swap_remove(at);
            }
        }
        drop(pinned);
        self.pins.unpinned.notify_all();
    }
}
