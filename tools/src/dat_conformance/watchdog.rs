//! Ends a process whose case takes too long, or whose peer process has ended.
//!
//! A provider that hangs blocks the thread that called it for ever. Only the end of the process
//! helps. Its supervisor starts another process for the remaining cases.

use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use host::locks::IgnorePoison as _;

/// Exit status of a process that its watchdog has ended.
pub(crate) const TOO_LONG: i32 = 90;
/// Exit status of a process that its watchdog has ended because the other end's process ended in
/// the middle of a case.
pub(crate) const PEER_GONE: i32 = 91;

/// The interval of the watchdog's checks.
const INTERVAL: Duration = Duration::from_millis(50);

/// The time that a case may continue without its peer.
const GRACE: Duration = Duration::from_secs(2);

/// The watched deadline and peer.
#[derive(Debug, Clone, Default)]
pub(crate) struct Watchdog {
    deadline: Arc<Mutex<Option<Instant>>>,
}

impl Watchdog {
    /// Starts the watchdog; `peer` is the connection to the other end.
    pub(crate) fn start(peer: Option<TcpStream>) -> Self {
        let watchdog = Self::default();
        let watched = watchdog.clone();
        thread::spawn(move || watched.watch(peer.as_ref()));
        watchdog
    }

    /// Sets the time limit of a case that begins now.
    pub(crate) fn arm(&self, limit: Duration) {
        *self.lock() = Some(Instant::now() + limit);
    }

    /// Clears the time limit, because the case is over.
    pub(crate) fn disarm(&self) {
        *self.lock() = None;
    }

    fn watch(&self, peer: Option<&TcpStream>) {
        let mut gone_since = None;
        loop {
            thread::sleep(INTERVAL);
            let Some(deadline) = *self.lock() else {
                gone_since = None;
                continue;
            };
            let now = Instant::now();
            if now > deadline {
                end(TOO_LONG);
            }
            if peer.is_some_and(is_gone) && now > *gone_since.get_or_insert(now) + GRACE {
                end(PEER_GONE);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        self.deadline.lock().ignore_poison()
    }
}

/// Ends the process at once. The resources of the hanging call are of no further use, and handlers
/// that run at an orderly exit may wait for it.
fn end(status: i32) -> ! {
    // SAFETY: the call does not return and touches no memory of the program.
    unsafe { libc::_exit(status) }
}

fn is_gone(peer: &TcpStream) -> bool {
    let mut entry = libc::pollfd {
        fd: peer.as_raw_fd(),
        events: libc::POLLRDHUP,
        revents: 0,
    };
    // SAFETY: one structure is readable and writable for the call, and its descriptor is open.
    let found = unsafe { libc::poll(&raw mut entry, 1, 0) };
    found > 0 && entry.revents & (libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR) != 0
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_peer_that_closed_is_detected_and_a_silent_one_is_kept() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let far = listener.accept().unwrap().0;
        assert!(!is_gone(&near));
        drop(far);
        // The kernel delivers the end of the stream later if the machine is busy.
        while !is_gone(&near) {
            thread::yield_now();
        }
    }
}
