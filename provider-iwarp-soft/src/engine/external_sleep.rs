//! A blocked consumer that sleeps elsewhere, on sockets of connections and on descriptors of its
//! own: what it does before and behind the sleep.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;

use access_layer::rnic::ExternalSleep;

use crate::cq::Cq;

use super::conn_socket::ConnSocket;
use super::driver::{SLEPT_ON_MAX, keep_each_once, park, set_of};

/// The connections on whose sockets it sleeps. Dropped, they are the engine's again.
#[derive(Debug)]
pub(crate) struct SleepingConsumer {
    sockets: Vec<Arc<ConnSocket>>,
    /// What is slept on is the set of the engine.
    in_set: bool,
}

impl SleepingConsumer {
    /// A consumer that has just looked at these queues is about to sleep, on what is added to `fds`
    /// among others: the sockets, or the set in which they are where they are many. Where there is
    /// no such set the engine listens, and its news wake.
    pub(crate) fn begin(cqs: &[&Arc<Cq>], fds: &mut Vec<libc::pollfd>) -> Self {
        let feeders: Vec<_> = cqs.iter().map(|cq| cq.feeders()).collect();
        let mut sockets: Vec<&Arc<ConnSocket>> =
            feeders.iter().flat_map(|all| all.iter()).collect();
        keep_each_once(&mut sockets);
        // What a burst left behind goes out before anybody sleeps.
        for socket in sockets.iter().filter(|socket| socket.is_held()) {
            socket.qp.drive_by_consumer(socket);
        }
        let set = set_of(&sockets);
        if set.is_none() && sockets.len() > SLEPT_ON_MAX {
            sockets.clear();
        }
        park(&sockets, set.is_some());
        match set {
            Some((_, set)) => fds.push(interest(set.as_fd(), false)),
            None => {
                let open = sockets.iter().filter(|socket| !socket.is_closed());
                fds.extend(open.map(|socket| interest(socket.as_fd(), socket.is_tx_blocked())));
            }
        }
        Self {
            in_set: set.is_some(),
            sockets: sockets.into_iter().cloned().collect(),
        }
    }
}

impl ExternalSleep for SleepingConsumer {
    fn work(&self) {
        match self.sockets.first() {
            Some(any) if self.in_set => {
                if let Some(set) = any.engine.ready_set() {
                    any.engine.drive_ready(set);
                }
            }
            _ => {
                for socket in &self.sockets {
                    socket.qp.drive_by_consumer(socket);
                }
            }
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

fn interest(fd: BorrowedFd<'_>, writable: bool) -> libc::pollfd {
    let writable = if writable { libc::POLLOUT } else { 0 };
    libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN | writable,
        revents: 0,
    }
}
