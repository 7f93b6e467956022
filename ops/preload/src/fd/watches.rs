//! The registrations of connections within the host in `epoll` sets.
//!
//! An event of a set contains the data of its registration and not the descriptor. A wait that must
//! change the events of a connection finds the descriptor here. A slot keeps one registration. In a
//! program that watches a connection by several sets, a wait that finds no registration also reads
//! those of the set from `/proc`.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, epoll_event};

use crate::fd::operations::Kind;
use crate::fd::removals;
use crate::fd::slots::{self, existing};
pub(crate) use crate::fd::watch::Registration;
use crate::process::real;

/// True once a connection was added to a second set.
static HAS_SEVERAL: AtomicBool = AtomicBool::new(false);

/// Performs `epoll_ctl` for a connection within the host.
///
/// # Safety
/// As for `epoll_ctl`.
pub(crate) unsafe extern "C-unwind" fn control(
    set: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    // SAFETY: the caller's arguments, unchanged.
    let result = unsafe { removals::control(set, operation, fd, event) };
    match operation {
        _ if result != 0 => {}
        EPOLL_CTL_DEL => {
            existing(fd).inspect(|slot| slot.watch.clear());
        }
        // SAFETY: the kernel has just read the event.
        _ => record(set, fd, unsafe { event.read_unaligned() }),
    }
    result
}

/// Records that a set watches a descriptor.
pub(super) fn record(set: c_int, fd: c_int, event: epoll_event) {
    if let Some(slot) = existing(fd)
        && !slot.watch.record(set, event)
    {
        HAS_SEVERAL.store(true, Ordering::Relaxed);
    }
}

/// Records that the number `made` is a duplicate of `fd`. A set reports the connection also after
/// the number in the registration was closed, as long as a duplicate is open.
pub(super) fn on_duplicated(fd: c_int, made: c_int) {
    if let Some(Registration { set, event }) = registration(fd) {
        record(set, made, event);
    }
}

/// Returns the recorded registration of a descriptor.
pub(crate) fn registration(fd: c_int) -> Option<Registration> {
    existing(fd)?.watch.registration()
}

/// Calls `for_each` for the connections within the host that a set watches with this data, and with
/// the registration. Most programs use the number of the descriptor as data; for others, all slots
/// are searched.
pub(crate) fn find(set: c_int, data: u64, mut for_each: impl FnMut(c_int, epoll_event)) {
    let registered = |fd: c_int| {
        let found = registration(fd).filter(|it| it.set == set && it.event.u64 == data);
        found.map(|it| it.event)
    };
    let number = data as c_int;
    if slots::kind(number) == Kind::Local
        && let Some(found) = registered(number)
    {
        return for_each(number, found);
    }
    for fd in slots::local() {
        if let Some(found) = registered(fd) {
            for_each(fd, found);
        }
    }
}

/// Returns true once a connection was added to a second set: [`find`] may miss registrations.
pub(crate) fn has_several() -> bool {
    HAS_SEVERAL.load(Ordering::Relaxed)
}

/// Makes a set report no event of a descriptor but by a change: its only event would be one that
/// TCP does not show, so each wait would return at once. Returns false if the kernel refuses that.
pub(crate) fn report_changes_only(set: c_int, fd: c_int, event: &epoll_event) -> bool {
    let mut event = epoll_event {
        events: event.events | libc::EPOLLET.cast_unsigned(),
        ..*event
    };
    // SAFETY: the event is a local variable; the kernel checks the descriptors.
    let mut call = |operation| unsafe { real::epoll_ctl(set, operation, fd, &raw mut event) == 0 };
    // The kernel changes no registration with `EPOLLEXCLUSIVE`.
    let is_changed = call(EPOLL_CTL_MOD) || (call(EPOLL_CTL_DEL) && call(EPOLL_CTL_ADD));
    if is_changed {
        // The kernel reports the present event once more.
        record(set, fd, event);
    }
    is_changed
}
