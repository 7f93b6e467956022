//! A blocked consumer that sleeps elsewhere, on sockets of connections and on descriptors of its
//! own: what it does before and behind the sleep.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use access_layer::rnic::Nap;

use crate::cq::Cq;

use super::driver::{SLEPT_ON_MAX, keep_each_once};
use super::lane::Lane;

/// The connections on whose sockets it sleeps. Dropped, they are the engine's again.
#[derive(Debug)]
pub(crate) struct Napping {
    lanes: Vec<Arc<Lane>>,
}

impl Napping {
    /// A consumer that has just looked at these queues is about to sleep, on what is added to `fds`
    /// among others.
    /// For many connections the engine listens, and its news wake.
    pub(crate) fn begin(cqs: &[&Arc<Cq>], fds: &mut Vec<libc::pollfd>) -> Self {
        let feeders: Vec<_> = cqs.iter().map(|cq| cq.feeders()).collect();
        let mut lanes: Vec<&Arc<Lane>> = feeders.iter().flat_map(|all| all.iter()).collect();
        keep_each_once(&mut lanes);
        // What a burst left behind goes out before anybody sleeps.
        for lane in lanes.iter().filter(|lane| lane.is_held()) {
            lane.qp.drive_by_consumer(lane);
        }
        if lanes.len() > SLEPT_ON_MAX {
            lanes.clear();
        }
        for lane in &lanes {
            lane.park();
        }
        let open = lanes.iter().filter(|lane| !lane.is_closed());
        fds.extend(open.map(|lane| {
            let writable = if lane.is_tx_blocked() {
                libc::POLLOUT
            } else {
                0
            };
            libc::pollfd {
                fd: lane.as_fd().as_raw_fd(),
                events: libc::POLLIN | writable,
                revents: 0,
            }
        }));
        Self {
            lanes: lanes.into_iter().cloned().collect(),
        }
    }
}

impl Nap for Napping {
    fn work(&self) {
        for lane in &self.lanes {
            lane.qp.drive_by_consumer(lane);
        }
    }
}

impl Drop for Napping {
    fn drop(&mut self) {
        for lane in &self.lanes {
            lane.unpark();
        }
    }
}
