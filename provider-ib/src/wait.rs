//! Sleeping until a completion comes.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::time::Duration;

use access_layer::rnic::Waker;

use crate::objects::IbCq;

/// Queues that one sleeper listens to itself. For further ones the engine does, and wakes it.
const HEARD_MAX: usize = 16;

/// Sleeps until one of the queues may have completions, `waker` is woken, or `timeout` passes.
/// `true`: until a signal handler ran.
///
/// The caller sleeps on the queues' channels in its own thread: nobody stands between the device
/// and it.
pub(crate) fn wait(cqs: &[&IbCq], waker: &Waker, timeout: Option<Duration>) -> bool {
    if !waker.begin_sleep() {
        return false;
    }
    let mut interrupted = false;
    let heard = &cqs[..cqs.len().min(HEARD_MAX)];
    heard.iter().for_each(|cq| cq.cq.begin_wait());
    // Between the arming and now, what came without the device has told the engine, which leaves
    // waiters alone.
    if !heard.iter().any(|cq| cq.cq.has_queued()) {
        let mut set = [poll_of(-1); 1 + 2 * HEARD_MAX];
        set[0] = poll_of(waker.as_fd().as_raw_fd());
        for (index, cq) in heard.iter().enumerate() {
            // A negative descriptor is passed over.
            set[1 + 2 * index] = poll_of(cq.cq.event_fd().unwrap_or(-1));
            set[2 + 2 * index] = poll_of(cq.cq.wake_fd());
        }
        interrupted = sleep(&mut set[..1 + 2 * heard.len()], timeout);
        for (index, cq) in heard.iter().enumerate() {
            if has_failed(&set[1 + 2 * index]) {
                cq.cq.disable_events();
            }
        }
    }
    let woken = waker.end_sleep();
    heard.iter().for_each(|cq| cq.cq.end_wait());
    interrupted && !woken
}

fn poll_of(fd: RawFd) -> libc::pollfd {
    libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    }
}

/// Whether a channel tells nothing any more. The kernel says so, and keeps saying it, when the
/// device is gone and its last event is read.
fn has_failed(channel: &libc::pollfd) -> bool {
    let failed = libc::POLLERR | libc::POLLHUP | libc::POLLNVAL;
    channel.revents & failed != 0 && channel.revents & libc::POLLIN == 0
}

/// `true`: a signal handler ran.
fn sleep(set: &mut [libc::pollfd], timeout: Option<Duration>) -> bool {
    let spec = timeout.map(|t| libc::timespec {
        tv_sec: libc::time_t::try_from(t.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(t.subsec_nanos()),
    });
    let spec = spec.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let count = set.len() as libc::nfds_t;
    // SAFETY: the set and the timespec (or null) are of the caller's and this frame; no signal
    // mask.
    let ready = unsafe { libc::ppoll(set.as_mut_ptr(), count, spec, std::ptr::null()) };
    ready < 0 && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
}

#[cfg(test)]
mod tests {
    use std::io::{Write, pipe};

    use super::*;

    #[test]
    fn a_channel_has_failed_when_its_end_is_gone_and_everything_is_read() {
        let (mut reader, mut writer) = pipe().unwrap();
        let look = |reader: &std::io::PipeReader| {
            let mut set = [poll_of(-1), poll_of(reader.as_fd().as_raw_fd())];
            sleep(&mut set, Some(Duration::ZERO));
            set.map(|one| has_failed(&one))
        };
        assert_eq!(look(&reader), [false, false], "nothing to read");
        writer.write_all(b"1").unwrap();
        drop(writer);
        assert_eq!(look(&reader), [false, false], "one more to read");
        std::io::Read::read_exact(&mut reader, &mut [0]).unwrap();
        assert_eq!(look(&reader), [false, true]);
    }
}
