//! Listening: the kernel's listener stays, and the offload protocols listen beside it.

use std::ffi::c_int;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};

use ops::{
    DecisionTrace, Intent, Local, Offer, OffloadListener, OffloadProtocol, Plan, StackRequest,
    Switch,
};
use ops_portmap::Offering;
use ops_rules::Role;
use rustix::net::sockopt;
use tracing::info;

use crate::accept_lock::AcceptLock;
use crate::hooks::numbers;
use crate::listener::Listener;
use crate::per_process::PerProcess;
use crate::registrations::Registrations;
use crate::socket::names::local_of;
use crate::table::Entry;
use crate::undisturbed::Undisturbed;
use crate::{guard, observing, process, switch, table, tcp_only};

/// The kernel's own bound of a backlog.
const BACKLOG_MAX: u32 = 4096;

/// Listens anew where the process that listened is gone. Of several processes that could, one can
/// where a protocol gives an address once; the others stay on TCP, and try again later.
pub(crate) fn take_over(fd: c_int) {
    static ONE_AT_A_TIME: PerProcess<Mutex<()>> = PerProcess::new();
    if process::is_vforked() || !table::find_listener(fd).is_some_and(|it| it.is_orphaned()) {
        return;
    }
    // SAFETY: the table names it, so it is a number from 0 up.
    let socket = unsafe { BorrowedFd::borrow_raw(fd) };
    if !sockopt::socket_acceptconn(socket).unwrap_or(false) {
        // The listener that was shut down is the socket of all who have it.
        return;
    }
    let _undisturbed = Undisturbed::begin();
    let lock = ONE_AT_A_TIME.get_or_init(Mutex::default);
    let _own = lock.lock().unwrap_or_else(PoisonError::into_inner);
    // Another thread may have been faster.
    let before = table::find_listener(fd).filter(|it| it.may_be_taken_over());
    let Some(before) = before else { return };
    let is_it = |entry: &Entry| matches!(entry, Entry::Listener(it) if Arc::ptr_eq(it, &before));
    let others: Vec<c_int> = table::within(0, usize::MAX)
        .filter(|other| *other != fd && table::entry(*other).is_some_and(|entry| is_it(&entry)))
        .collect();
    begin_with_lock(fd, -1, Arc::clone(before.accept_lock()));
    let now = match table::entry(fd) {
        Some(entry) if is_it(&entry) => return,
        now => now,
    };
    let pending = table::find_listener(fd).map(|successor| successor.pending_number());
    for other in std::iter::once(fd).chain(others) {
        if let Some(now) = now.clone().filter(|_| other != fd) {
            table::exchange(other, is_it, || now);
        }
        // Sets that watched it go on watching.
        Registrations::of(other).exchange(before.pending_number(), pending);
    }
}

/// The program has shut a listener down: the kernel's socket listens no more, for anybody, and may
/// be told to listen again.
pub(crate) fn shut_down(fd: c_int) {
    let Some(listener) = table::find_listener(fd) else {
        return;
    };
    if !process::owns_table() {
        return;
    }
    let _inside = guard::enter();
    listener.end();
    forget(|it| std::ptr::eq(it, &*listener));
}

/// Nothing is added any more to the listening sockets of which this is true.
pub(crate) fn forget(is_it: impl Fn(&Listener) -> bool) {
    for fd in table::within(0, usize::MAX) {
        if table::find_listener(fd).is_some_and(|it| is_it(&it)) {
            numbers::forget(fd);
        }
    }
}

/// The program listens on a socket. Whatever fails here leaves it on TCP alone.
pub(crate) fn begin(fd: c_int, backlog: c_int) {
    let _undisturbed = Undisturbed::begin();
    if let Ok(accept_lock) = AcceptLock::new() {
        begin_with_lock(fd, backlog, Arc::new(accept_lock));
    }
}

fn begin_with_lock(fd: c_int, backlog: c_int, accept_lock: Arc<AcceptLock>) {
    let _inside = guard::enter();
    // SAFETY: the kernel has just accepted it as a socket.
    let socket = unsafe { BorrowedFd::borrow_raw(fd) };
    let Some((family, service)) = local_of(socket) else {
        return;
    };
    let Some(switch) = switch::switch() else {
        return;
    };
    let intent = Intent {
        role: Role::Listen,
        address: service,
        from: None,
        request: &StackRequest::ByRule,
        tcp_only: tcp_only::option_of(socket),
    };
    let offer = match switch.plan(&intent, &mut DecisionTrace::default()) {
        Plan::Offload(offer) => offer,
        Plan::Native(reason) | Plan::Impossible(reason) => {
            info!(%service, %reason, "a service over TCP alone");
            switch.count_fall_back(&reason);
            return observing::native_listener(fd, service, reason.to_string());
        }
    };
    // The kernel takes what is negative for the most there is, and more than that for that.
    let backlog = u32::try_from(backlog).map_or(BACKLOG_MAX, |it| it.min(BACKLOG_MAX));
    if let Some((offloaded, protocol)) =
        listen_beside(switch, &offer, Local::of(socket, service), backlog)
        && let record = observing::listener(service, protocol.name(), offloaded.device())
        && let Ok(listener) = Listener::begin(
            family,
            protocol.name(),
            record,
            offloaded,
            accept_lock,
            backlog,
        )
    {
        info!(%service, protocol = protocol.name(), "a service is offered");
        let listener = Arc::new(listener);
        numbers::place(fd, Entry::Listener(Arc::clone(&listener)));
        if protocol.capabilities().asks_peer {
            tell_peers(switch, socket, service, &listener);
        }
    }
}

/// The first protocol that listens.
fn listen_beside<'a>(
    switch: &Switch,
    offer: &'a Offer,
    local: Local,
    backlog: u32,
) -> Option<(Box<dyn OffloadListener>, &'a dyn OffloadProtocol)> {
    for protocol in &offer.protocols {
        let bound = protocol.bind(local, &offer.settings);
        let begun = bound.and_then(|bound| bound.listen(backlog));
        match begun {
            Ok(listener) => return Some((listener, &**protocol)),
            Err(errno) => switch.count_fall_back(&ops::Reason::Failed(errno)),
        }
    }
    None
}

/// Tells peers that ask where the service is.
fn tell_peers(
    switch: &'static Arc<Switch>,
    socket: BorrowedFd<'_>,
    service: SocketAddr,
    listener: &Arc<Listener>,
) {
    let Some(mapped) = listener.mapped() else {
        return;
    };
    switch::answer(switch);
    switch.offer(Offering {
        service,
        mapped,
        ipv6_only: sockopt::ipv6_v6only(socket) == Ok(true),
    });
    listener.is_offered((switch, service, mapped));
}
