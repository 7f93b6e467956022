//! A blocked consumer that sleeps elsewhere, on sockets of connections and on descriptors of its
//! own: what it does before and behind the sleep.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use access_layer::rnic::ExternalSleep;

use crate::cq::Cq;

use super::conn_socket::ConnSocket;
use super::driver::{SLEPT_ON_MAX, keep_each_once};

/// The connections on whose sockets it sleeps. Dropped, they are the engine's again.
#[derive(Debug)]
pub(crate) struct SleepingConsumer {
    sockets: Vec<Arc<ConnSocket>>,
}

impl SleepingConsumer {
    /// A consumer that has just looked at these queues is about to sleep, on what is added to `fds`
    /// among others.
    /// For many connections the engine listens, and its news wake.
    pub(crate) fn begin(cqs: &[&Arc<Cq>], fds: &mut Vec<libc::pollfd>) -> Self {
        let feeders: Vec<_> = cqs.iter().map(|cq| cq.feeders()).collect();
        let mut sockets: Vec<&Arc<ConnSocket>> =
            feeders.iter().flat_map(|all| all.iter()).collect();
        keep_each_once(&mut sockets);
        // What a burst left behind goes out before anybody sleeps.
        for socket in sockets.iter().filter(|socket| socket.is_held()) {
            socket.qp.drive_by_consumer(socket);
        }
        if sockets.len() > SLEPT_ON_MAX {
            sockets.clear();
        }
        for socket in &sockets {
            socket.park();
        }
        let open = sockets.iter().filter(|socket| !socket.is_closed());
        fds.extend(open.map(|socket| {
            let writable = if socket.is_tx_blocked() {
                libc::POLLOUT
            } else {
                0
            };
            libc::pollfd {
                fd: socket.as_fd().as_raw_fd(),
                events: libc::POLLIN | writable,
                revents: 0,
            }
        }));
        Self {
            sockets: sockets.into_iter().cloned().collect(),
        }
    }
}

impl ExternalSleep for SleepingConsumer {
    fn work(&self) {
        for socket in &self.sockets {
            socket.qp.drive_by_consumer(socket);
        }
    }
}

impl Drop for SleepingConsumer {
    fn drop(&mut self) {
        for socket in &self.sockets {
            socket.unpark();
        }
    }
}
