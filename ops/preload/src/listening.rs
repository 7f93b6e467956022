//! Listening: the kernel's listener stays, and the offload protocols listen beside it.

use std::ffi::c_int;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use ops_rules::Role;

use crate::hooks::numbers;
use crate::listener::Listener;
use crate::socket::names::local_of;
use crate::table::Entry;
use crate::{decision, guard, observing, table};

/// Listens anew where the process that listened is gone. Of several that could, one can; the others
/// stay on TCP.
pub(crate) fn take_over(fd: c_int) {
    if table::find_listener(fd).is_some_and(|listener| listener.is_orphaned()) {
        begin(fd);
    }
}

/// The program listens on a socket. Whatever fails here leaves it on TCP alone.
pub(crate) fn begin(fd: c_int) {
    let _inside = guard::enter();
    // SAFETY: the kernel has just accepted it as a socket.
    let socket = unsafe { BorrowedFd::borrow_raw(fd) };
    let Some((family, local)) = local_of(socket) else {
        return;
    };
    let Some(decision) = decision::decide(Role::Listen, local) else {
        return;
    };
    for protocol in decision.protocols {
        let record = observing::listener(local, protocol.name());
        let begun = Listener::begin(family, record, |pending| protocol.listen(local, pending));
        if let Ok(listener) = begun {
            numbers::place(fd, Entry::Listener(Arc::new(listener)));
            return;
        }
    }
}
