//! Listening: the kernel's listener stays, and the offload protocols listen beside it.

use std::ffi::c_int;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use ops::{
    DecisionTrace, Intent, KernelSockets, Local, Offer, OffloadListener, OffloadProtocol, Plan,
    StackRequest, Switch,
};
use ops_portmap::Offering;
use ops_rules::Role;
use rustix::io::{FdFlags, fcntl_getfd};
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

/// A process that shares or has copied the memory of the table's owner, and has numbers of its own,
/// closes a listening socket: what is next to it is closed as well, or the name would stay taken.
pub(crate) fn close_copy(fd: c_int) {
    if let Some(listener) = table::find_listener(fd)
        // The table's reference and this one: no other number names it.
        && Arc::strong_count(&listener) == 2
    {
        listener.close_copy();
    }
}

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
        listener.keep_over_exec(is_kept && knows_us);
        if is_kept && !knows_us {
            listener.withdraw();
        }
    }
}

/// A descriptor is passed to another process, which knows nothing of what is next to it.
pub(crate) fn is_passed(fd: c_int) {
    if let Some(listener) = table::find_listener(fd) {
        let _inside = guard::enter();
        listener.withdraw();
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
fn adopt(numbers: &[c_int], kernel: OwnedFd) {
    let Some(&fd) = numbers.first() else {
        return;
    };
    // SAFETY: a number that was listed.
    let socket = unsafe { BorrowedFd::borrow_raw(fd) };
    let (Some((family, service)), Ok(lock)) = (local_of(socket), AcceptLock::new()) else {
        return;
    };
    let name = ops_local_protocol::NAME;
    let record = observing::listener(service, name, "");
    let of = (name, ops_local_protocol::kernel_sockets());
    if rustix::io::fcntl_setfd(&kernel, FdFlags::CLOEXEC).is_ok()
        && let Ok(listener) = Listener::of_kernel(family, of, record, kernel, Arc::new(lock))
    {
        let listener = Arc::new(listener);
        for fd in numbers {
            crate::hooks::numbers::place(*fd, Entry::Listener(Arc::clone(&listener)));
        }
    }
}

/// The kernel's listener next to a service was shut down: what is left is TCP's.
pub(crate) fn withdraw(listener: &Arc<Listener>) {
    let numbers: Vec<c_int> = table::within(0, usize::MAX)
        .filter(|fd| table::find_listener(*fd).is_some_and(|it| Arc::ptr_eq(&it, listener)))
        .collect();
    for fd in numbers {
        Registrations::of(fd).exchange(listener.pending_number(), None);
        numbers::forget(fd);
    }
}

/// The program is about to listen on a socket. The switch is made before the kernel listens: a peer
/// that connects between that and the offer comes over TCP.
pub(crate) fn prepare(fd: c_int) {
    if switch::made().is_some() || fd < 0 {
        return;
    }
    // SAFETY: a number from 0 up; the kernel says EBADF when it names nothing.
    if local_of(unsafe { BorrowedFd::borrow_raw(fd) }).is_some() {
        let _undisturbed = Undisturbed::begin();
        let _inside = guard::enter();
        switch::switch();
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
    let place = Local::of(socket, service);
    if let Some((listener, name, sockets)) =
        listen_in_kernel(switch, &offer, socket, place, backlog)
    {
        let record = observing::listener(service, name, "");
        let of = (name, sockets);
        if let Ok(listener) = Listener::of_kernel(family, of, record, listener, accept_lock) {
            info!(%service, protocol = name, "a service is offered within the host");
            numbers::place(fd, Entry::Listener(Arc::new(listener)));
        }
        return;
    }
    if let Some((offloaded, protocol)) = listen_beside(switch, &offer, place, backlog)
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

/// The first protocol that listens by a socket of the kernel.
fn listen_in_kernel<'a>(
    switch: &Switch,
    offer: &'a Offer,
    socket: BorrowedFd<'_>,
    place: Local,
    backlog: u32,
) -> Option<(OwnedFd, &'a str, &'static dyn KernelSockets)> {
    for protocol in &offer.protocols {
        let Some(sockets) = protocol.kernel_sockets() else {
            continue;
        };
        match sockets.listen(socket, place, backlog) {
            Ok(listener) => return Some((listener, protocol.name(), sockets)),
            Err(reason) => {
                let service = place.address;
                let protocol = protocol.name();
                info!(%service, protocol, %reason, "listening without a protocol");
                switch.count_fall_back(&reason);
            }
        }
    }
    None
}

/// The first protocol that listens.
fn listen_beside<'a>(
    switch: &Switch,
    offer: &'a Offer,
    local: Local,
    backlog: u32,
) -> Option<(Box<dyn OffloadListener>, &'a dyn OffloadProtocol)> {
    let protocols = offer.protocols.iter();
    for protocol in protocols.filter(|protocol| protocol.kernel_sockets().is_none()) {
        let bound = protocol.bind(local, offer.terms());
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
