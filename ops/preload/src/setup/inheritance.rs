//! Listeners that `exec` or `SCM_RIGHTS` passes on, and listeners inherited over an `exec`.
//!
//! The kernel listener of a protocol stays open over an `exec`. If the new program lacks this
//! library, the offer is withdrawn: queued connections are served, and later peers use TCP. The
//! service of a protocol ends with the `exec`. The new program offers its TCP listeners, also those
//! of a program without this library, when it waits or accepts: a program that inherits a listener
//! and does not use it must receive no peers.

use std::ffi::c_int;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use host::descriptors::Identity;
use ops::Local;
use rustix::io::{FdFlags, fcntl_getfd};
use rustix::net::sockopt;

use crate::listener::accept_lock::AcceptLock;
use crate::listener::kernel_listener::{KernelListener, KernelProtocol};
use crate::listener::{Listed, Listener};
use crate::process::guard;
use crate::registrations::Registrations;
use crate::setup::offer;
use crate::table::{self, Entry};
use crate::tcp::made;
use crate::tcp::names::local_of;
use crate::{numbers, observing};

/// Prepares listeners for an `exec`, or for the start of another program. If a TCP listener stays
/// open, so does the kernel listener next to it. `has_library`: this library is loaded into the new
/// program.
pub(crate) fn keep_over_exec(has_library: bool) {
    if !table::has_listeners() {
        return;
    }
    let _inside = guard::enter();
    for fd in table::within(0, usize::MAX) {
        let Some(listener) = table::find_listener(fd) else {
            continue;
        };
        // SAFETY: the table has an entry for the number, so it is not negative.
        let socket = unsafe { BorrowedFd::borrow_raw(fd) };
        let is_kept = fcntl_getfd(socket).is_ok_and(|flags| !flags.contains(FdFlags::CLOEXEC));
        let Some(kernel) = listener.kernel() else {
            continue;
        };
        kernel.keep_over_exec(is_kept && has_library);
        if is_kept && !has_library {
            kernel.withdraw();
        }
    }
}

/// Withdraws the offer of a listener that is passed to another process, because the kernel listener
/// next to it is not passed with it. A socket that does not listen yet will use TCP alone.
pub(crate) fn withdraw_passed(fd: c_int) {
    made::share(fd);
    if let Some(listener) = table::find_listener(fd)
        && let Some(kernel) = listener.kernel()
    {
        let _inside = guard::enter();
        kernel.withdraw();
    }
}

/// Adopts, at the start of this program, listeners that were inherited over an `exec`.
pub(crate) fn adopt_inherited() {
    let numbers = || {
        let listed = std::fs::read_dir("/proc/self/fd").into_iter().flatten();
        listed.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<c_int>().ok())
    };
    // SAFETY: the numbers were just listed as open.
    let borrow = |fd: &c_int| unsafe { BorrowedFd::borrow_raw(*fd) };
    let listening: Vec<c_int> = numbers()
        .filter(|fd| sockopt::socket_acceptconn(borrow(fd)).unwrap_or(false))
        .collect();
    if listening.is_empty() {
        return;
    }
    let _inside = guard::enter();
    let (kernel, others): (Vec<c_int>, Vec<c_int>) = listening
        .into_iter()
        .partition(|fd| ops_local_protocol::is_listener(borrow(fd)));
    for number in kernel {
        // SAFETY: the former program left this descriptor open for this library, and nothing else
        // owns it.
        let kernel = unsafe { OwnedFd::from_raw_fd(number) };
        let partners = others.iter().copied();
        let partners: Vec<c_int> = partners.filter(|fd| is_partner(*fd, &kernel)).collect();
        adopt(&partners, kernel);
    }
    for fd in &others {
        if let Some((family, _)) = local_of(borrow(fd)).filter(|_| table::is_plain(*fd))
            && let Ok(lock) = AcceptLock::new()
        {
            let listener = Listener::from_exec(None, Arc::new(lock), Listed::default(), family);
            let listener = Arc::new(listener);
            let identity = Identity::of_number(*fd);
            let same = others
                .iter()
                .filter(|it| Identity::of_number(**it) == identity);
            same.for_each(|fd| numbers::insert(*fd, Entry::Listener(Arc::clone(&listener))));
        }
    }
}

/// Returns true for the TCP listener to which a kernel listener belongs.
fn is_partner(fd: c_int, kernel: &OwnedFd) -> bool {
    // SAFETY: the number was listed as open.
    let socket = unsafe { BorrowedFd::borrow_raw(fd) };
    local_of(socket).is_some_and(|(_, service)| {
        ops_local_protocol::is_at(kernel.as_fd(), Local::of(socket, service))
    })
}

/// Adopts a kernel listener. `partners` are the descriptors of its TCP listener; without one no
/// accept is possible, so the kernel listener is closed.
fn adopt(partners: &[c_int], kernel: OwnedFd) {
    let Some(&fd) = partners.first() else {
        return;
    };
    // SAFETY: the number was listed as open.
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
        let listener = Listener::from_exec(Some(kernel), lock, Listed::by(&record), family);
        let listener = Arc::new(listener);
        for fd in partners {
            numbers::insert(*fd, Entry::Listener(Arc::clone(&listener)));
        }
    }
}

/// Removes the listeners that were shut down or lost. TCP and the other listener, if any, remain.
pub(crate) fn remove_withdrawn(listener: &Arc<Listener>) {
    let is_it = |entry: &Entry| matches!(entry, Entry::Listener(it) if Arc::ptr_eq(it, listener));
    let numbers: Vec<c_int> = table::within(0, usize::MAX)
        .filter(|fd| table::entry(*fd).is_some_and(|entry| is_it(&entry)))
        .collect();
    let successor = listener.remaining().map(Arc::new);
    let withdrawn = listener.kernel().filter(|it| it.is_withdrawn());
    let kernel = withdrawn.map(KernelListener::number);
    let has_joint = listener.joint().get().is_some();
    listener.joint().exchange(kernel, None);
    for fd in numbers {
        Registrations::of(fd).exchange(kernel, None, has_joint);
        match &successor {
            Some(successor) => {
                table::exchange(fd, is_it, || Entry::Listener(Arc::clone(successor)));
            }
            None => {
                offer::restore(fd, listener);
                numbers::forget(fd);
            }
        }
    }
}
