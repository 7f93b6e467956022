//! Listeners that leave this process by `exec` or `SCM_RIGHTS`, and those that came over an `exec`.
//!
//! A program with this library keeps a listener of the kernel over an `exec`. From one without it,
//! the offer is withdrawn: what is queued is served, and later peers come over TCP. The service of
//! a protocol ends with the `exec`, and the new program begins it again when it waits or accepts.

use std::ffi::c_int;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use ops::Local;
use rustix::io::{FdFlags, fcntl_getfd};
use rustix::net::sockopt;

use crate::listener::accept_lock::AcceptLock;
use crate::listener::kernel_listener::{KernelListener, KernelProtocol};
use crate::listener::{Listed, Listener};
use crate::process::guard;
use crate::registrations::Registrations;
use crate::table::{self, Entry};
use crate::tcp::names::local_of;
use crate::{numbers, observing};

/// Before another program takes the place of this one, or is started by it: a listener that the
/// program keeps keeps what is next to it. `knows_us`: the program will have this library.
pub(crate) fn keep_over_exec(knows_us: bool) {
    if !table::has_listeners() {
        return;
    }
    let _inside = guard::enter();
    for fd in table::within(0, usize::MAX) {
        let Some(listener) = table::find_listener(fd) else {
            continue;
        };
        // SAFETY: the table names it, so it is a number from 0 up.
        let socket = unsafe { BorrowedFd::borrow_raw(fd) };
        let is_kept = fcntl_getfd(socket).is_ok_and(|flags| !flags.contains(FdFlags::CLOEXEC));
        let Some(kernel) = listener.kernel() else {
            continue;
        };
        kernel.keep_over_exec(is_kept && knows_us);
        if is_kept && !knows_us {
            kernel.withdraw();
        }
    }
}

/// A descriptor is passed to another process, which knows nothing of what is next to it.
pub(crate) fn is_passed(fd: c_int) {
    if let Some(listener) = table::find_listener(fd)
        && let Some(kernel) = listener.kernel()
    {
        let _inside = guard::enter();
        kernel.withdraw();
    }
}

/// When this program begins: listeners that came over an `exec` with what is next to them.
pub(crate) fn adopt_inherited() {
    let numbers = || {
        let listed = std::fs::read_dir("/proc/self/fd").into_iter().flatten();
        listed.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<c_int>().ok())
    };
    let left: Vec<c_int> = numbers()
        // SAFETY: a number that was just listed.
        .filter(|fd| ops_local_protocol::is_listener(unsafe { BorrowedFd::borrow_raw(*fd) }))
        .collect();
    if left.is_empty() {
        return;
    }
    let _inside = guard::enter();
    let others: Vec<c_int> = numbers().filter(|fd| !left.contains(fd)).collect();
    for number in left {
        // SAFETY: a descriptor that the former program has left for this one.
        let kernel = unsafe { OwnedFd::from_raw_fd(number) };
        let partners = others.iter().copied();
        let partners: Vec<c_int> = partners.filter(|fd| is_partner(*fd, &kernel)).collect();
        adopt(&partners, kernel);
    }
}

/// Returns true for the TCP listener to which a listener of the kernel belongs.
fn is_partner(fd: c_int, kernel: &OwnedFd) -> bool {
    // SAFETY: a number that was listed.
    let socket = unsafe { BorrowedFd::borrow_raw(fd) };
    sockopt::socket_acceptconn(socket).unwrap_or(false)
        && local_of(socket).is_some_and(|(_, service)| {
            ops_local_protocol::is_at(kernel.as_fd(), Local::of(socket, service))
        })
}

/// The TCP listener has these numbers; without one, nobody can accept.
fn adopt(partners: &[c_int], kernel: OwnedFd) {
    let Some(&fd) = partners.first() else {
        return;
    };
    // SAFETY: a number that was listed.
    let socket = unsafe { BorrowedFd::borrow_raw(fd) };
    let (Some((family, service)), Ok(lock)) = (local_of(socket), AcceptLock::new()) else {
        return;
    };
    let protocol = KernelProtocol {
        sockets: ops_local_protocol::kernel_sockets(),
        name: ops_local_protocol::NAME,
    };
    let record = Arc::new(observing::listener(service, protocol.name, ""));
    if rustix::io::fcntl_setfd(&kernel, FdFlags::CLOEXEC).is_ok()
        && let Ok(kernel) = KernelListener::new(kernel, protocol)
    {
        let lock = Arc::new(lock);
        let listener = Listener::left_by_exec(kernel, lock, Listed::by(&record), family);
        let listener = Arc::new(listener);
        for fd in partners {
            numbers::place(*fd, Entry::Listener(Arc::clone(&listener)));
        }
    }
}

/// The kernel's listener beside a service was shut down: what is left is the service, and TCP.
pub(crate) fn remove_withdrawn(listener: &Arc<Listener>) {
    let is_it = |entry: &Entry| matches!(entry, Entry::Listener(it) if Arc::ptr_eq(it, listener));
    let numbers: Vec<c_int> = table::within(0, usize::MAX)
        .filter(|fd| table::entry(*fd).is_some_and(|entry| is_it(&entry)))
        .collect();
    let successor = listener.without_kernel().map(Arc::new);
    for fd in numbers {
        if let Some(kernel) = listener.kernel() {
            Registrations::of(fd).exchange(Some(kernel.number()), None);
        }
        match &successor {
            Some(successor) => {
                table::exchange(fd, is_it, || Entry::Listener(Arc::clone(successor)));
            }
            None => numbers::forget(fd),
        }
    }
}
