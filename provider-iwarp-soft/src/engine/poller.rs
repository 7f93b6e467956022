//! Readiness of many sockets: `epoll` with one-shot interest and times in nanoseconds.
//!
//! A wait is one system call and a wake-up is one more. The `polling` crate would set a timer
//! descriptor and arm two descriptors again at each wait, a large part of the system calls of a
//! short-lived connection.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use host::descriptors::{OwnDescriptor, out_of_the_way};
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::io::Errno;

use super::{Interest, Key};

/// The key of the descriptor that wakes the waiter.
const WAKE: u64 = u64::MAX;
/// The flags of that descriptor's entry.
const WAKE_FLAGS: EventFlags = EventFlags::IN.union(EventFlags::ET);
/// Maximum number of events that one wait returns.
const EVENTS_MAX: usize = 256;

/// The events of a wait.
pub(super) type Ready = Vec<Event>;

/// The sockets that the engine watches.
pub(super) struct Poller {
    epoll: OwnDescriptor,
    /// An `eventfd` that is always readable. A change of its entry in the set triggers the
    /// edge-triggered entry again, which wakes the waiter.
    wake: OwnDescriptor,
    /// True while a wake-up is pending.
    is_woken: AtomicBool,
    /// True once the kernel, or a tool that runs the program, has refused `epoll_pwait2`. The call
    /// is not tried again: it would double the system calls, and valgrind warns at each attempt.
    lacks_precise_wait: AtomicBool,
}

impl Poller {
    pub(super) fn new() -> Result<Self, Errno> {
        let epoll = out_of_the_way(epoll::create(CreateFlags::CLOEXEC)?);
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let wake = out_of_the_way(eventfd(1, flags)?);
        // The entry is triggered at once, so that no change of it can be lost: the first wait ends
        // early.
        epoll::add(&epoll, &wake, EventData::new_u64(WAKE), WAKE_FLAGS)?;
        Ok(Self {
            epoll,
            wake,
            is_woken: AtomicBool::new(true),
            lacks_precise_wait: AtomicBool::new(false),
        })
    }

    /// Room for the events of [`Self::wait`].
    pub(super) fn room() -> Ready {
        Vec::with_capacity(EVENTS_MAX)
    }

    /// Adds a socket with a one-shot interest.
    pub(super) fn add(
        &self,
        fd: BorrowedFd<'_>,
        key: Key,
        interest: Interest,
    ) -> Result<(), Errno> {
        epoll::add(&self.epoll, fd, data(key), flags(interest))
    }

    /// Changes the interest and arms it again.
    pub(super) fn modify(
        &self,
        fd: BorrowedFd<'_>,
        key: Key,
        interest: Interest,
    ) -> Result<(), Errno> {
        epoll::modify(&self.epoll, fd, data(key), flags(interest))
    }

    /// Removes a socket.
    pub(super) fn delete(&self, fd: BorrowedFd<'_>) -> Result<(), Errno> {
        epoll::delete(&self.epoll, fd)
    }

    /// Ends the current wait, or the next one.
    pub(super) fn notify(&self) -> Result<(), Errno> {
        if self.is_woken.swap(true, Ordering::AcqRel) {
            // The waiter has not handled the last wake-up yet; then it will check everything.
            return Ok(());
        }
        // The call fails if the program has closed either number, whatever file has the number by
        // now: an entry of a set belongs to a file and not to a number alone. A write into the
        // `eventfd` would have to check this first, by one more system call.
        epoll::modify(
            &self.epoll,
            &self.wake,
            EventData::new_u64(WAKE),
            WAKE_FLAGS,
        )
    }

    /// Waits for sockets, a wake-up or the timeout. An interruption ends the wait too.
    pub(super) fn wait(&self, ready: &mut Ready, timeout: Option<Duration>) -> Result<(), Errno> {
        ready.clear();
        let timeout = timeout.map(|timeout| Timespec::try_from(timeout).unwrap_or_default());
        let precise = match self.lacks_precise_wait.load(Ordering::Relaxed) {
            true => Err(Errno::NOSYS),
            false => wait_precisely(self.epoll.as_fd(), ready, timeout.as_ref()),
        };
        let result = match precise {
            // Kernels before Linux 5.11; times are rounded up to milliseconds.
            Err(Errno::NOSYS | Errno::PERM) => {
                self.lacks_precise_wait.store(true, Ordering::Relaxed);
                let room = rustix::buffer::spare_capacity(ready);
                epoll::wait(&self.epoll, room, timeout.as_ref()).map(drop)
            }
            other => other,
        };
        self.is_woken.swap(false, Ordering::AcqRel);
        match result {
            Err(error) if error != Errno::INTR => Err(error),
            _ => Ok(()),
        }
    }
}

/// Returns key, readable, writable; `None` for the wake-up. A broken connection is both.
pub(super) fn readiness(event: &Event) -> Option<(Key, bool, bool)> {
    let number = event.data.u64();
    if number == WAKE {
        return None;
    }
    // A packed field is copied out before it is used.
    let flags = event.flags;
    let broken = EventFlags::ERR | EventFlags::HUP;
    let readable = EventFlags::IN | EventFlags::PRI | EventFlags::RDHUP;
    Some((
        Key(number as usize),
        flags.intersects(broken | readable),
        flags.intersects(broken | EventFlags::OUT),
    ))
}

fn data(Key(key): Key) -> EventData {
    EventData::new_u64(key as u64)
}

fn flags(interest: Interest) -> EventFlags {
    let wanted = match interest {
        Interest::Nothing => EventFlags::empty(),
        Interest::Readable => EventFlags::IN,
        Interest::Writable => EventFlags::OUT,
        Interest::Both => EventFlags::IN | EventFlags::OUT,
    };
    wanted | EventFlags::ONESHOT
}

/// `epoll_pwait2`, which libraries do not offer because older kernels lack it.
fn wait_precisely(
    epoll: BorrowedFd<'_>,
    ready: &mut Ready,
    timeout: Option<&Timespec>,
) -> Result<(), Errno> {
    let timeout = timeout.map(|time| libc::timespec {
        tv_sec: time.tv_sec,
        tv_nsec: time.tv_nsec,
    });
    // SAFETY: the events are written to the spare room of the vector, of which at most the capacity
    // is offered; `epoll::Event` has the layout of the kernel's `epoll_event`; the time is a
    // variable of this frame; no signal mask is given. The vector grows by the number of events
    // that the kernel reports as written.
    let count = unsafe {
        let count = libc::syscall(
            libc::SYS_epoll_pwait2,
            epoll.as_raw_fd(),
            ready.as_mut_ptr(),
            ready.capacity().min(EVENTS_MAX) as libc::c_int,
            timeout
                .as_ref()
                .map_or(std::ptr::null(), std::ptr::from_ref),
            std::ptr::null::<libc::sigset_t>(),
            0_usize,
        );
        if let Ok(count) = usize::try_from(count) {
            ready.set_len(count);
        }
        count
    };
    if count < 0 {
        let error = std::io::Error::last_os_error();
        return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::time::Instant;

    const LONG: Option<Duration> = Some(Duration::from_secs(20));

    fn keys(poller: &Poller, timeout: Option<Duration>) -> Vec<(usize, bool, bool)> {
        let mut ready = Poller::room();
        poller.wait(&mut ready, timeout).unwrap();
        let known = ready.iter().filter_map(readiness);
        known.map(|(Key(key), r, w)| (key, r, w)).collect()
    }

    #[test]
    fn interest_is_one_shot_and_can_be_armed_again() {
        let poller = Poller::new().unwrap();
        let (mut near, far) = UnixStream::pair().unwrap();
        poller.add(far.as_fd(), Key(7), Interest::Readable).unwrap();
        assert_eq!(keys(&poller, Some(Duration::from_micros(50))), []);
        near.write_all(b"x").unwrap();
        assert_eq!(keys(&poller, LONG), [(7, true, false)]);
        assert_eq!(keys(&poller, Some(Duration::ZERO)), []);
        poller.modify(far.as_fd(), Key(8), Interest::Both).unwrap();
        assert_eq!(keys(&poller, LONG), [(8, true, true)]);
        poller
            .modify(far.as_fd(), Key(8), Interest::Writable)
            .unwrap();
        poller.delete(far.as_fd()).unwrap();
        assert_eq!(keys(&poller, Some(Duration::ZERO)), []);
    }

    #[test]
    fn a_wake_up_ends_one_wait_before_or_during_it() {
        let poller = Poller::new().unwrap();
        let start = Instant::now();
        for _ in 0..3 {
            poller.notify().unwrap();
            poller.notify().unwrap();
            assert_eq!(keys(&poller, LONG), []);
        }
        std::thread::scope(|scope| {
            scope.spawn(|| poller.notify().unwrap());
            assert_eq!(keys(&poller, LONG), []);
        });
        assert!(start.elapsed() < Duration::from_secs(20));
        assert_eq!(keys(&poller, Some(Duration::ZERO)), []);
    }

    #[test]
    fn a_peer_that_has_closed_is_readable_and_writable() {
        let poller = Poller::new().unwrap();
        let (near, far) = UnixStream::pair().unwrap();
        poller.add(far.as_fd(), Key(1), Interest::Nothing).unwrap();
        drop(near);
        assert_eq!(keys(&poller, LONG), [(1, true, true)]);
    }

    /// Makes the kernel refuse `epoll_pwait2` to the calling thread, as a kernel before Linux 5.11.
    fn refuse_precise_waits() {
        let instruction = |code: u32, jf, k| libc::sock_filter {
            code: code as u16,
            jt: 0,
            jf,
            k,
        };
        let refusal = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
        // The number of the call is the first word of what a filter reads.
        let mut program = [
            instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
            instruction(
                libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
                1,
                libc::SYS_epoll_pwait2 as u32,
            ),
            instruction(libc::BPF_RET | libc::BPF_K, 0, refusal),
            instruction(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
        ];
        let filter = libc::sock_fprog {
            len: program.len() as u16,
            filter: program.as_mut_ptr(),
        };
        // SAFETY: the calls take numbers and a pointer to the program, which lives in this frame.
        let done = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(
                    libc::PR_SET_SECCOMP,
                    libc::SECCOMP_MODE_FILTER,
                    &raw const filter,
                ) == 0
        };
        assert!(done, "{}", std::io::Error::last_os_error());
    }

    #[test]
    fn a_kernel_without_precise_waits_is_asked_once() {
        let poller = Poller::new().unwrap();
        let (mut near, far) = UnixStream::pair().unwrap();
        poller.add(far.as_fd(), Key(7), Interest::Readable).unwrap();
        assert!(!poller.lacks_precise_wait.load(Ordering::Relaxed));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                refuse_precise_waits();
                assert_eq!(keys(&poller, Some(Duration::from_micros(50))), []);
            });
        });
        assert!(poller.lacks_precise_wait.load(Ordering::Relaxed));
        near.write_all(b"x").unwrap();
        assert_eq!(keys(&poller, LONG), [(7, true, false)]);
    }
}
