//! `rpoll` and `rselect`, for sockets of this library and other descriptors.

use std::ffi::c_int;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use libc::{fd_set, nfds_t, pollfd, timeval};
use rustix::io::Errno;

use crate::fault::{self, Fault};

use super::socket::Socket;
use super::table;

/// The events that poll(2) reports without being asked.
const ALWAYS: libc::c_short = libc::POLLERR | libc::POLLHUP;

/// The descriptors of a call.
struct Polled<'a> {
    entries: &'a mut [pollfd],
    sockets: Vec<Option<Arc<Socket>>>,
}

impl Polled<'_> {
    /// Stores which sockets are ready. Returns their number.
    fn check(&mut self) -> usize {
        let mut count = 0;
        for (entry, socket) in self.entries.iter_mut().zip(&self.sockets) {
            if let Some(socket) = socket {
                entry.revents = socket.progress().readiness() & (entry.events | ALWAYS);
                count += usize::from(entry.revents != 0);
            }
        }
        count
    }

    /// Announces that this thread will sleep, to all sockets. Returns false if it must look again.
    fn begin_sleep(&self) -> bool {
        let sockets: Vec<&Arc<Socket>> = self.sockets.iter().flatten().collect();
        for (index, socket) in sockets.iter().enumerate() {
            if !socket.begin_sleep() {
                sockets[..index]
                    .iter()
                    .for_each(|socket| socket.end_sleep());
                return false;
            }
        }
        true
    }

    /// Sleeps, not longer than `timeout_ms`. Stores which other descriptors are ready.
    fn sleep(&mut self, timeout_ms: c_int) -> Result<(), Fault> {
        let mut set = self.entries.to_vec();
        for (entry, socket) in set.iter_mut().zip(&self.sockets) {
            if let Some(socket) = socket {
                (entry.fd, entry.events) = (socket.sleep_on().as_raw_fd(), libc::POLLIN);
            }
        }
        // SAFETY: the set has as many entries.
        let code = unsafe { libc::poll(set.as_mut_ptr(), set.len() as nfds_t, timeout_ms) };
        if code < 0 {
            return Err(fault::errno());
        }
        for ((entry, socket), found) in self.entries.iter_mut().zip(&self.sockets).zip(&set) {
            if socket.is_none() {
                entry.revents = found.revents;
            }
        }
        Ok(())
    }

    /// The number of descriptors that are ready.
    fn ready(&self) -> usize {
        self.entries
            .iter()
            .filter(|entry| entry.revents != 0)
            .count()
    }

    /// Waits until a descriptor is ready.
    fn wait(&mut self, timeout: Option<Duration>) -> Result<usize, Fault> {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        let has_others = self.sockets.iter().any(Option::is_none);
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let is_ready = self.check() > 0;
            if is_ready || left.is_some_and(|left| left.is_zero()) {
                if has_others {
                    self.sleep(0)?;
                }
                return Ok(self.ready());
            }
            if !self.begin_sleep() {
                continue;
            }
            let slept = self.sleep(left.map_or(-1, milliseconds));
            self.sockets
                .iter()
                .flatten()
                .for_each(|socket| socket.end_sleep());
            slept?;
            let is_other = |(entry, socket): (&pollfd, &Option<Arc<Socket>>)| {
                socket.is_none() && entry.revents != 0
            };
            if self.entries.iter().zip(&self.sockets).any(is_other) {
                self.check();
                return Ok(self.ready());
            }
        }
    }
}

/// A time in milliseconds, rounded up.
fn milliseconds(time: Duration) -> c_int {
    c_int::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(c_int::MAX)
}

fn poll(entries: &mut [pollfd], timeout: Option<Duration>) -> Result<usize, Fault> {
    let sockets = entries.iter().map(|entry| table::find(entry.fd)).collect();
    Polled { entries, sockets }.wait(timeout)
}

/// The result of a function that returns a number of descriptors.
fn number(result: Result<usize, Fault>) -> c_int {
    match result {
        Ok(count) => count as c_int,
        Err(fault) => fault::minus_one(Err(fault)),
    }
}

/// `rpoll`.
///
/// # Safety
/// As poll(2) says.
#[unsafe(no_mangle)]
unsafe extern "C" fn rpoll(entries: *mut pollfd, count: nfds_t, timeout_ms: c_int) -> c_int {
    let entries = match count {
        0 => &mut [],
        // SAFETY: the program passes as many entries.
        _ => unsafe { std::slice::from_raw_parts_mut(entries, count as usize) },
    };
    let timeout = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
    number(poll(entries, timeout))
}

/// The sets of `rselect`, with the events that each stands for.
type Sets = [(*mut fd_set, libc::c_short, libc::c_short); 3];

/// `rselect`.
///
/// # Safety
/// As select(2) says.
#[unsafe(no_mangle)]
unsafe extern "C" fn rselect(
    count: c_int,
    readable: *mut fd_set,
    writable: *mut fd_set,
    exceptional: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    let sets: Sets = [
        (readable, libc::POLLIN, libc::POLLIN | ALWAYS),
        (writable, libc::POLLOUT, libc::POLLOUT | libc::POLLERR),
        (exceptional, libc::POLLPRI, libc::POLLPRI),
    ];
    // SAFETY: the program passes null or a structure.
    let timeout = unsafe { timeout.as_ref() }.map(|time| {
        let seconds = Duration::from_secs(time.tv_sec.try_into().unwrap_or(0));
        seconds + Duration::from_micros(time.tv_usec.try_into().unwrap_or(0))
    });
    let select = || {
        if !(0..=libc::FD_SETSIZE as c_int).contains(&count) {
            return Err(Errno::INVAL);
        }
        // SAFETY: the program passes null or sets.
        let mut entries = unsafe { entries_of(count, &sets) };
        poll(&mut entries, timeout)?;
        // SAFETY: as above.
        unsafe { store(&entries, &sets) }
    };
    number(select())
}

/// # Safety
/// The pointers are null or those of sets.
unsafe fn entries_of(count: c_int, sets: &Sets) -> Vec<pollfd> {
    let entry = |fd| {
        let asked = sets.iter().filter(|(set, ..)| {
            // SAFETY: the number is within the set (caller).
            !set.is_null() && unsafe { libc::FD_ISSET(fd, *set) }
        });
        let events = asked.fold(0, |all, (_, events, _)| all | events);
        let revents = 0;
        (events != 0).then_some(pollfd {
            fd,
            events,
            revents,
        })
    };
    (0..count).filter_map(entry).collect()
}

/// Stores which descriptors are ready. Returns the number of bits in all sets.
///
/// # Safety
/// As for [`entries_of`].
unsafe fn store(entries: &[pollfd], sets: &Sets) -> Result<usize, Fault> {
    if entries
        .iter()
        .any(|entry| entry.revents & libc::POLLNVAL != 0)
    {
        return Err(Errno::BADF);
    }
    let mut count = 0;
    for (set, asked, found) in sets.iter().filter(|(set, ..)| !set.is_null()) {
        for entry in entries.iter().filter(|entry| entry.events & asked != 0) {
            let is_ready = entry.revents & found != 0;
            count += usize::from(is_ready);
            // SAFETY: the number is within the set (caller).
            unsafe {
                match is_ready {
                    true => libc::FD_SET(entry.fd, *set),
                    false => libc::FD_CLR(entry.fd, *set),
                }
            }
        }
    }
    Ok(count)
}
