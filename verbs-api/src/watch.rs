//! The thread that waits for datagrams while a completion queue of their receives is armed, and for
//! timers of queue pairs.
//!
//! The thread starts with the first of these. Each armed socket makes it return from its sleep
//! once; a program that polls needs no thread.

use std::collections::HashMap;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, Weak};

use host::locks::lock;
use host::threads::{Thread, spawn_quiet};
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::io::Errno;

use crate::fault::Fault;

/// An object whose socket is watched.
pub(crate) trait Watched: Send + Sync {
    /// Called when the socket is readable.
    fn on_readable(&self);
}

/// The sockets of a device, and the thread that waits for them.
pub(crate) struct Watch {
    set: OwnedFd,
    /// Readable when the thread ends.
    end: OwnedFd,
    sockets: Mutex<HashMap<u64, Weak<dyn Watched>>>,
}

/// The name of the descriptor that ends the thread.
const END: u64 = u64::MAX;

/// A thread and its descriptors. The drop ends the thread.
#[derive(Default)]
pub(crate) struct Watcher(Mutex<Option<(Arc<Watch>, Thread)>>);

rnic::opaque_debug!(Watcher {});

impl Watcher {
    /// Returns the sockets, and starts the thread if there is none.
    pub(crate) fn watch(&self) -> Result<Arc<Watch>, Fault> {
        let mut running = lock(&self.0);
        if let Some((watch, _)) = &*running {
            return Ok(watch.clone());
        }
        let watch = Arc::new(Watch {
            set: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            end: eventfd(0, EventfdFlags::CLOEXEC)?,
            sockets: Mutex::default(),
        });
        let data = epoll::EventData::new_u64(END);
        epoll::add(&watch.set, &watch.end, data, epoll::EventFlags::IN)?;
        let own = watch.clone();
        let thread = spawn_quiet("verbs-datagrams", move || own.run());
        let thread =
            thread.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))?;
        *running = Some((watch.clone(), thread));
        Ok(watch)
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        if let Some((watch, thread)) = lock(&self.0).take() {
            let _ = rustix::io::write(&watch.end, &1_u64.to_ne_bytes());
            if !thread.is_current() {
                thread.join();
            }
        }
    }
}

impl Watch {
    /// Adds a socket under a name. It is not watched before [`arm`](Self::arm).
    pub(crate) fn add(
        &self,
        name: u64,
        socket: BorrowedFd<'_>,
        watched: Weak<dyn Watched>,
    ) -> Result<(), Fault> {
        lock(&self.sockets).insert(name, watched);
        let data = epoll::EventData::new_u64(name);
        epoll::add(&self.set, socket, data, epoll::EventFlags::ONESHOT)
    }

    pub(crate) fn remove(&self, name: u64, socket: BorrowedFd<'_>) {
        lock(&self.sockets).remove(&name);
        let _ = epoll::delete(&self.set, socket);
    }

    /// Calls [`Watched::on_readable`] once when the socket is readable.
    pub(crate) fn arm(&self, name: u64, socket: BorrowedFd<'_>) {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ONESHOT;
        let data = epoll::EventData::new_u64(name);
        if let Err(error) = epoll::modify(&self.set, socket, data, flags) {
            tracing::warn!(%error, "a socket is not watched");
        }
    }

    fn run(&self) {
        loop {
            let mut events: Vec<epoll::Event> = Vec::with_capacity(16);
            let room = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(self.set.as_fd(), room, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return tracing::warn!(%error, "datagrams are no longer awaited"),
            }
            for event in &events {
                let name = event.data.u64();
                if name == END {
                    return;
                }
                let watched = lock(&self.sockets).get(&name).and_then(Weak::upgrade);
                if let Some(watched) = watched {
                    watched.on_readable();
                }
            }
        }
    }
}
