//! `listen`: offload protocols listen next to the kernel's TCP listener.
//!
//! Up to two protocols listen: the first whose connections are kernel sockets, for peers within the
//! host, and the first of all other protocols, for peers with an RDMA device.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::{Arc, Mutex};

use host::locks::IgnorePoison as _;
use ops::observe::{ReasonText, Record};
use ops::portmap::Offering;
use ops::rules::Role;
use ops::{DecisionTrace, Intent, Local, Offer, OffloadProtocol, Plan, Reason, Switch};
use rustix::net::sockopt;
use tracing::info;

use crate::listener::accept_lock::AcceptLock;
use crate::listener::kernel_listener::{KernelListener, KernelProtocol};
use crate::listener::service::{Begun, Service, ServiceId};
use crate::listener::{Listed, Listener};
use crate::process::per_process::PerProcess;
use crate::process::signals_blocked::SignalsBlocked;
use crate::process::{self, guard};
use crate::registrations::Registrations;
use crate::setup::{not_offered, signal_driven};
use crate::table::{self, Entry};
use crate::tcp::names::{Family, local_of};
use crate::tcp::{buffers, made, tcp_only};
use crate::{numbers, observing, switch};

/// The default maximum of the kernel's backlog (`net.core.somaxconn`).
const BACKLOG_MAX: u32 = 4096;

/// Begins a service again if the listening process has ended, or has become this program by `exec`,
/// and offers a listener that was inherited over an `exec`. If the protocol permits only one
/// listener at an address, one of several processes succeeds, and the others try again later.
pub(crate) fn take_over(fd: c_int) {
    static ONE_AT_A_TIME: PerProcess<Mutex<()>> = PerProcess::new();
    if process::is_vforked() || !table::find_listener(fd).is_some_and(|it| it.needs_service()) {
        return;
    }
    // SAFETY: the table has an entry for the number, so it is not negative.
    let socket = unsafe { BorrowedFd::borrow_raw(fd) };
    if !sockopt::socket_acceptconn(socket).unwrap_or(false) {
        // The socket was shut down, which ends the listener in all processes that inherited it.
        return;
    }
    let _signals_blocked = SignalsBlocked::begin();
    let lock = ONE_AT_A_TIME.get_or_init(Mutex::default);
    let _own = lock.lock().ignore_poison();
    // Another thread may have begun the service already.
    let Some(before) = table::find_listener(fd) else {
        return;
    };
    if !before.is_service_due() {
        return;
    }
    let _inside = guard::enter();
    let candidate = Candidate::of(socket).filter(|_| !switch::is_elsewhere(socket));
    match candidate.and_then(|candidate| candidate.offer_again(socket, &before)) {
        Some(renewed) => replace_listener(&before, &Arc::new(renewed)),
        None if !before.is_offered() => forget(|it| std::ptr::eq(it, &*before)),
        None => {}
    }
}

/// Replaces the listener in all its table entries, and in the `epoll` sets that watch it.
fn replace_listener(before: &Arc<Listener>, now: &Arc<Listener>) {
    let is_it = |entry: &Entry| matches!(entry, Entry::Listener(it) if Arc::ptr_eq(it, before));
    let number = before.service().map(Service::number);
    let successor = now.service().map(Service::number);
    let has_joint = now.joint().get().is_some();
    now.joint().exchange(number, successor);
    for fd in table::within(0, usize::MAX) {
        if table::entry(fd).is_some_and(|entry| is_it(&entry)) {
            table::exchange(fd, is_it, || Entry::Listener(Arc::clone(now)));
            match before.is_offered() {
                true => Registrations::of(fd).exchange(number, successor, has_joint),
                false => watch_pending(fd, now),
            }
        }
    }
}

/// Adds the descriptors next to a listener to the `epoll` sets that the program has added the
/// listener to.
fn watch_pending(fd: c_int, listener: &Listener) {
    // SAFETY: the table has an entry for the number, so it is not negative.
    let socket = unsafe { BorrowedFd::borrow_raw(fd) };
    let pending: Vec<c_int> = listener.pending().map(|it| it.as_raw_fd()).collect();
    Registrations::of(fd).add(&pending, || listener.obtain_joint(socket));
}

/// Handles the program's `shutdown` of a listener, or its `connect` with `AF_UNSPEC`. The kernel's
/// socket stops listening in all processes; a later `listen` starts it again.
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

/// Removes the entries of matching listeners from the table.
pub(crate) fn forget(is_it: impl Fn(&Listener) -> bool) {
    for fd in table::within(0, usize::MAX) {
        if let Some(listener) = table::find_listener(fd).filter(|it| is_it(it)) {
            restore(fd, &listener);
            numbers::forget(fd);
        }
    }
}

/// Arms a listener in sets that watch its joint descriptor, which is closed next.
pub(crate) fn restore(fd: c_int, listener: &Listener) {
    if let Some(joint) = listener.joint().get() {
        Registrations::of(joint).restore(fd);
    }
}

/// Prepares a `listen`. The switch is created before the kernel's `listen`, to shorten the time
/// until the offer, in which peers connect over TCP.
pub(crate) fn prepare(fd: c_int) {
    if switch::made().is_some() || fd < 0 {
        return;
    }
    // SAFETY: the number is not negative; if it is not open, the kernel returns EBADF.
    if local_of(unsafe { BorrowedFd::borrow_raw(fd) }).is_some() {
        let _signals_blocked = SignalsBlocked::begin();
        let _inside = guard::enter();
        switch::switch();
    }
}

/// Removes the entry of a listener that another process has shut down.
fn forget_shut(service: ServiceId) {
    forget(|it| it.has_service(service));
}

/// A listening TCP socket next to which protocols may listen.
struct Candidate {
    switch: &'static Arc<Switch>,
    family: Family,
    local: Local,
    tcp_only: Option<&'static str>,
    receive_bound: Option<usize>,
}

impl Candidate {
    /// Returns `None` if the socket is not a TCP socket, or this process offloads no sockets.
    fn of(socket: BorrowedFd<'_>) -> Option<Self> {
        let (family, service) = local_of(socket)?;
        Some(Self {
            switch: switch::switch()?,
            family,
            local: Local::of(socket, service),
            tcp_only: tcp_only::option_of(socket),
            receive_bound: buffers::receive_bound(socket),
        })
    }

    /// Returns the protocols that may listen.
    fn plan(&self) -> Result<Offer, Reason> {
        let intent = Intent {
            role: Role::Listen,
            address: self.local.address,
            from: None,
            tcp_only: self.tcp_only,
            receive_bound: self.receive_bound,
        };
        match self.switch.plan(&intent, &mut DecisionTrace::default()) {
            Plan::Offload(offer) => Ok(offer),
            Plan::Native(reason) | Plan::Impossible(reason) => Err(reason),
        }
    }

    /// Listens with the protocols. The error is the first failure of a protocol with kernel
    /// sockets, or else that of another protocol.
    fn offer(
        &self,
        socket: BorrowedFd<'_>,
        offer: &Offer,
        backlog: u32,
        lock: Arc<AcceptLock>,
    ) -> Result<Listener, Reason> {
        let kernel = self.listen_in_kernel(socket, offer, backlog);
        let begun = self.listen_by_protocol(offer, backlog);
        let (kernel, begun) = match (kernel, begun) {
            (Err(first), Err(second)) => {
                return Err(first.or(second).unwrap_or(Reason::NoProtocol));
            }
            (kernel, begun) => (kernel.ok(), begun.ok()),
        };
        let of_kernel = kernel.as_ref().map(KernelListener::protocol);
        let record = self.list(of_kernel, begun.as_ref());
        let service = begun.map(|begun| self.serve(begun, &record)).transpose();
        let service = match service {
            Ok(service) => service,
            Err(reason) if kernel.is_none() => return Err(reason),
            Err(_) => None,
        };
        let listed = Listed::by(&record);
        Ok(Listener::new(kernel, service, lock, listed, self.family))
    }

    /// Offers a listener whose service has ended, or that was inherited over an `exec`.
    fn offer_again(&self, socket: BorrowedFd<'_>, before: &Listener) -> Option<Listener> {
        let offer = self.plan().ok()?;
        if !before.is_offered() {
            let lock = Arc::clone(before.accept_lock());
            return self.offer(socket, &offer, BACKLOG_MAX, lock).ok();
        }
        let begun = self.listen_by_protocol(&offer, BACKLOG_MAX).ok()?;
        let kernel = before.kernel().map(KernelListener::protocol);
        let record = self.list(kernel, Some(&begun));
        let service = self.serve(begun, &record).ok()?;
        Some(before.with_service(service, Listed::by(&record)))
    }

    /// Begins the service of a protocol, and answers peers that ask for its address.
    fn serve(&self, begun: Begun, record: &Arc<Record>) -> Result<Service, Reason> {
        let asks_peer = begun.asks_peer;
        let begun = Service::begin(begun, self.family, Arc::clone(record), forget_shut);
        let service = begun.map_err(Reason::Failed)?;
        if asks_peer && let Some(mapped) = service.mapped() {
            let address = self.local.address;
            switch::answer(self.switch);
            self.switch.offer(Offering {
                service: address,
                mapped,
                ipv6_only: self.local.ipv6_only,
            });
            service.set_offered((self.switch, address, mapped));
        }
        Ok(service)
    }

    /// Listens with the first protocol whose connections are kernel sockets.
    fn listen_in_kernel(
        &self,
        socket: BorrowedFd<'_>,
        offer: &Offer,
        backlog: u32,
    ) -> Result<KernelListener, Option<Reason>> {
        let mut why = None;
        for protocol in &offer.protocols {
            let Some(sockets) = protocol.sockets().kernel() else {
                continue;
            };
            let begun = sockets.listen(socket, self.local, backlog).and_then(|it| {
                let name = protocol.name();
                let protocol = KernelProtocol { sockets, name };
                KernelListener::new(it, protocol).map_err(Reason::Failed)
            });
            match begun {
                Ok(listener) => return Ok(listener),
                Err(reason) => {
                    why.get_or_insert(self.report_failure(&**protocol, reason));
                }
            }
        }
        Err(why)
    }

    /// Listens with the first protocol whose connections are not kernel sockets.
    fn listen_by_protocol(&self, offer: &Offer, backlog: u32) -> Result<Begun, Option<Reason>> {
        let mut why = None;
        for protocol in &offer.protocols {
            let Some(streams) = protocol.sockets().streams() else {
                continue;
            };
            let bound = streams.bind(self.local, offer.terms());
            match bound.and_then(|bound| bound.listen(backlog)) {
                Ok(listener) => {
                    return Ok(Begun {
                        listener,
                        protocol: protocol.name().to_owned(),
                        asks_peer: protocol.capabilities().asks_peer,
                        backlog,
                    });
                }
                Err(errno) => {
                    why.get_or_insert(self.report_failure(&**protocol, Reason::Failed(errno)));
                }
            }
        }
        Err(why)
    }

    fn report_failure(&self, protocol: &dyn OffloadProtocol, reason: Reason) -> Reason {
        let (service, protocol) = (self.local.address, protocol.name());
        info!(%service, protocol, %reason, "a protocol does not listen");
        reason
    }

    /// Records the listener in the page of this process.
    fn list(&self, kernel: Option<KernelProtocol>, service: Option<&Begun>) -> Arc<Record> {
        let kernel = kernel.map(|it| it.name);
        let names = kernel
            .into_iter()
            .chain(service.map(|it| it.protocol.as_str()));
        let protocols = names.collect::<Vec<_>>().join(",");
        let device = service.map_or("", |it| it.listener.device());
        let service = self.local.address;
        info!(%service, protocols, device, "a service is offered");
        not_offered::forget(service.port());
        Arc::new(observing::listener(service, &protocols, device))
    }
}

/// Offers a socket on which the program listens. After any failure the socket uses TCP alone.
pub(crate) fn begin(fd: c_int, backlog: c_int) {
    let _signals_blocked = SignalsBlocked::begin();
    let _inside = guard::enter();
    // SAFETY: the kernel has just accepted the number in a `listen`, so it is open.
    let socket = unsafe { BorrowedFd::borrow_raw(fd) };
    let Some(candidate) = Candidate::of(socket) else {
        return;
    };
    // As in the kernel, the maximum limits larger values and replaces negative ones.
    let backlog = u32::try_from(backlog).map_or(BACKLOG_MAX, |it| it.min(BACKLOG_MAX));
    let plan = if made::is_shared(fd) {
        Err(Reason::Shared)
    } else if made::has_duplicate(socket) {
        Err(Reason::Duplicated)
    } else if switch::is_elsewhere(socket) {
        Err(Reason::Namespace)
    } else {
        candidate.plan()
    };
    let offered = plan.and_then(|offer| {
        let lock = AcceptLock::new().map_err(Reason::Failed)?;
        candidate.offer(socket, &offer, backlog, Arc::new(lock))
    });
    match offered {
        Ok(listener) => {
            let listener = Arc::new(listener);
            numbers::insert(fd, Entry::Listener(Arc::clone(&listener)));
            // The program may have added the socket to `epoll` sets before it listens.
            watch_pending(fd, &listener);
            signal_driven::copy(fd, &listener);
        }
        Err(reason) => {
            let service = candidate.local.address;
            info!(%service, %reason, "a service uses TCP alone");
            if let Some(record) = observing::native_listener(service, &ReasonText::of(reason)) {
                numbers::list(fd, record);
            }
        }
    }
}
