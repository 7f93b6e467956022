//! Waiting for several descriptors, ended by signals as the kernel ends `accept`.
//!
//! A handler that was installed with `SA_RESTART` does not end an `accept`, any other does. `poll`
//! is ended by both, and does not tell by which. A sleep on a word of memory is ended as `accept`
//! is, so the steward watches the descriptors and the thread sleeps.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::internal;
use crate::socket::parking::Parking;
use crate::steward::{Ward, steward};

/// Waits until one of them is readable, and says which. `INTR`: a handler ran that ends such a
/// call.
pub(crate) fn wait(fds: [BorrowedFd<'_>; 2]) -> Result<[bool; 2], Errno> {
    loop {
        let ready = ready(fds)?;
        if ready.contains(&true) {
            return Ok(ready);
        }
        sleep(fds)?;
    }
}

fn ready(fds: [BorrowedFd<'_>; 2]) -> Result<[bool; 2], Errno> {
    let mut set = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    poll(&mut set, Some(&Timespec::default()))?;
    Ok(set.map(|entry| !entry.revents().is_empty()))
}

/// Sleeps until one of them may be ready.
fn sleep(fds: [BorrowedFd<'_>; 2]) -> Result<(), Errno> {
    let knock = Arc::new(Knock::default());
    let seen = knock.0.news();
    // A set of its own: several threads may wait for the same descriptors.
    let set = internal::raise(epoll::create(CreateFlags::CLOEXEC)?)?;
    for fd in fds {
        epoll::add(&set, fd, EventData::new_u64(0), EventFlags::IN)?;
    }
    let steward = steward()?;
    steward.watch(&set, EventFlags::IN, knock.clone())?;
    let slept = knock.0.sleep(seen, None);
    steward.leave(&set);
    slept
}

/// Wakes the thread.
#[derive(Default)]
struct Knock(Parking);

impl Ward for Knock {
    fn ready(&self, _seen: EventFlags) {
        self.0.wake();
    }
}
