//! Listeners that `exec` or `SCM_RIGHTS` passes on, and listeners inherited over an `exec`.
//!
//! The kernel listener of a protocol stays open over an `exec`. If the new program lacks this
//! library, the offer is withdrawn: queued connections are served, and later peers use TCP. The
//! service of a protocol ends with the `exec`. The new program offers its TCP listeners, also those
//! of a program without this library, when it waits or accepts: a program that inherits a listener
//! and does not use it must receive no peers.

use std::ffi::{CStr, c_char, c_int};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use host::descriptors::Identity;
use ops::Local;
use rustix::io::{FdFlags, fcntl_getfd};
use rustix::net::sockopt;

use crate::fd::{self, Entry};
use crate::listener::common::Common;
use crate::listener::kernel_listener::{KernelListener, KernelProtocol};
use crate::listener::{Listed, Listener};
use crate::observing;
use crate::process::guard;
use crate::tcp::names::local_of;

/// A list of words that is terminated by null.
pub(crate) type Words = *const *const c_char;

unsafe extern "C" {
    /// The environment of this program, which it may have changed.
    static environ: Words;
}

/// Prepares listeners for an `exec` with the environment of this program.
pub(crate) fn keep_over_exec() {
    // SAFETY: the C library guarantees that the list is null or terminated by null. A program that
    // changes it in another thread during an `exec` would break the `exec` as well.
    unsafe { keep_over_exec_with(environ) };
}

/// Prepares listeners for an `exec`, or for the start of another program. If a TCP listener stays
/// open, and the environment makes the loader load this library, so does the kernel listener next
/// to it.
///
/// # Safety
/// `environment` is a list for `execve`, or null.
pub(crate) unsafe fn keep_over_exec_with(environment: Words) {
    if !fd::has_listeners() {
        return;
    }
    // SAFETY: guaranteed by the caller.
    let has_library = unsafe { has_library(environment) };
    let _inside = guard::enter();
    for fd in fd::all() {
        let Some(listener) = Listener::of(fd) else {
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

/// Returns true for an environment that makes the loader load this library first.
///
/// # Safety
/// `environment` is a list for `execve`, or null.
unsafe fn has_library(environment: Words) -> bool {
    if environment.is_null() {
        return false;
    }
    let words = (0..).map_while(|at| {
        // SAFETY: the list is terminated by null, and the iteration ends there.
        let word = unsafe { *environment.add(at) };
        // SAFETY: the entries of the list are terminated strings.
        (!word.is_null()).then(|| unsafe { CStr::from_ptr(word) }.to_bytes())
    });
    let mut lists = words.filter_map(|word| word.strip_prefix(b"LD_PRELOAD="));
    let name = b"ops-preload";
    let other = b"ops_preload";
    lists.any(|list| {
        let mut parts = list.windows(name.len());
        parts.any(|part| part == name || part == other)
    })
}

/// Withdraws the offer of a listener that is passed to another process, because the kernel listener
/// next to it is not passed with it. A socket that does not listen yet will use TCP alone.
pub(crate) fn withdraw_passed(fd: c_int) {
    fd::on_shared(fd);
    if let Some(listener) = Listener::of(fd)
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
        if let Some((family, _)) = local_of(borrow(fd)).filter(|_| fd::is_plain(*fd))
            && let Ok(common) = Common::new()
        {
            let listener = Listener::from_exec(None, Arc::new(common), Listed::default(), family);
            let listener = Arc::new(listener);
            let identity = Identity::of_number(*fd);
            let same = others
                .iter()
                .filter(|it| Identity::of_number(**it) == identity);
            same.for_each(|fd| fd::store(*fd, Arc::clone(&listener) as Entry));
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
    let (Some((family, service)), Ok(common)) = (local_of(socket), Common::new()) else {
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
        let common = Arc::new(common);
        let kernel = kernel.adopted();
        let listener = Listener::from_exec(Some(kernel), common, Listed::by(&record), family);
        let listener = Arc::new(listener);
        for fd in partners {
            fd::store(*fd, Arc::clone(&listener) as Entry);
        }
    }
}
