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
use ops::{DecisionTrace, Intent, Local, Offer, OffloadProtocol, Plan, Reason, Switch, Wish};
use rustix::net::sockopt;
use tracing::info;

use crate::fd::sets::Registrations;
use crate::fd::{self, Entry};
use crate::listener::common::Common;
use crate::listener::kernel_listener::{Doorway, KernelListener, KernelProtocol};
use crate::listener::service::{Begun, Service, ServiceId};
use crate::listener::{Listed, Listener};
use crate::process::per_process::PerProcess;
use crate::process::signals_blocked::SignalsBlocked;
use crate::process::{self, guard};
use crate::setup::doorkeeper::{self, Holder};
use crate::setup::{not_offered, signal_driven};
use crate::tcp::names::{Family, local_of};
use crate::tcp::{buffers, tcp_only};
use crate::{observing, switch};

/// The default maximum of the kernel's backlog (`net.core.somaxconn`).
const BACKLOG_MAX: u32 = 4096;

/// Begins a service again if the listening process has ended, or has become this program by `exec`,
/// and offers a listener that was inherited over an `exec`. If the protocol permits only one
/// listener at an address, one of several processes succeeds, and the others try again later.
pub(crate) fn take_over(fd: c_int) {
    static ONE_AT_A_TIME: PerProcess<Mutex<()>> = PerProcess::new();
    if host::reserve::is_short()
        || process::is_vforked()
        || !Listener::of(fd).is_some_and(|it| it.needs_service())
    {
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
    let Some(before) = Listener::of(fd) else {
        return;
    };
    if !before.is_service_due() {
        return;
    }
    let _inside = guard::enter();
    // Without the checks, the processes of the former program may still make them.
    let _ = doorkeeper::begin(socket, &before, Holder::Heir, forget_withdrawn);
    let candidate = Candidate::of(socket).filter(|_| !switch::is_elsewhere(socket));
    match candidate.and_then(|candidate| candidate.offer_again(socket, &before)) {
        Some(renewed) => replace_listener(&before, &Arc::new(renewed)),
        None if !before.is_offered() => forget(|it| std::ptr::eq(it, &*before)),
        None => {}
    }
}

/// As in the kernel, the maximum limits larger values and replaces negative ones.
fn backlog_of(backlog: c_int) -> u32 {
    u32::try_from(backlog).map_or(BACKLOG_MAX, |it| it.min(BACKLOG_MAX))
}

/// Changes the backlogs of the protocols, because the program has called `listen` again.
pub(crate) fn set_backlog(listener: &Listener, backlog: c_int) {
    listener.kernel().inspect(|it| it.set_backlog(backlog));
    let _inside = guard::enter();
    let _signals_blocked = SignalsBlocked::begin();
    listener
        .service()
        .inspect(|it| it.set_backlog(backlog_of(backlog)));
}

/// Replaces the listener in all its table entries, and in the `epoll` sets that watch it.
fn replace_listener(before: &Arc<Listener>, now: &Arc<Listener>) {
    let number = before.service().map(Service::number);
    let successor = now.service().map(Service::number);
    let has_joint = now.joint().get().is_some();
    now.joint().exchange(number, successor);
    for fd in fd::numbers_of(&**before) {
        fd::exchange(fd, &**before, || Arc::clone(now) as Entry);
        match before.is_offered() {
            true => Registrations::of(fd).exchange(number, successor, has_joint),
            false => watch_pending(fd, now),
        }
    }
}

/// Adds the descriptors next to a listener to the `epoll` sets that the program has added the
/// listener to.
fn watch_pending(fd: c_int, listener: &Listener) {
    // SAFETY: the table has an entry for the number, so it is not negative.
    let socket = unsafe { BorrowedFd::borrow_raw(fd) };
    let registrations = Registrations::of(fd);
    if registrations.is_empty() {
        return;
    }
    let pending: Vec<c_int> = listener.awaited().map(|it| it.as_raw_fd()).collect();
    registrations.add(&pending, || listener.obtain_joint(socket));
}

/// Handles the program's `shutdown` of a listener, or its `connect` with `AF_UNSPEC`. The kernel's
/// socket stops listening in all processes; a later `listen` starts it again.
pub(crate) fn shut_down(fd: c_int) {
    let Some(listener) = Listener::of(fd) else {
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
    for fd in fd::all() {
        if let Some(listener) = Listener::of(fd).filter(|it| is_it(it)) {
            restore(fd, &listener);
            fd::forget(fd);
        }
    }
}

/// Arms a listener in sets that watch its joint descriptor, which is closed next.
pub(crate) fn restore(fd: c_int, listener: &Listener) {
    if let Some(joint) = listener.joint().get() {
        Registrations::of(joint).restore(fd);
    }
}

/// Returns true for a listener that another process has made and may accept from too, such as one
/// that was passed by `SCM_RIGHTS`. That process would not see the clients of an offer of this one.
pub(crate) fn is_made_elsewhere(fd: c_int) -> bool {
    // SAFETY: the number is not negative; if it is not open, the kernel returns EBADF.
    let listens = || sockopt::socket_acceptconn(unsafe { BorrowedFd::borrow_raw(fd) });
    fd >= 0 && Listener::of(fd).is_none() && listens() == Ok(true)
}

/// Prepares a `listen`. The switch is created before the kernel's `listen`, to shorten the time
/// until the offer, in which peers connect over TCP.
pub(crate) fn prepare(fd: c_int) {
    if switch::made().is_some() || fd < 0 || host::reserve::is_short() {
        return;
    }
    // SAFETY: the number is not negative; if it is not open, the kernel returns EBADF.
    if local_of(unsafe { BorrowedFd::borrow_raw(fd) }).is_some() {
        let _signals_blocked = SignalsBlocked::begin();
        let _inside = guard::enter();
        switch::switch();
    }
}

/// Removes the listeners that were shut down or lost. TCP and the other listener, if any, remain.
pub(crate) fn remove_withdrawn(listener: &Arc<Listener>) {
    let numbers: Vec<c_int> = fd::numbers_of(&**listener).collect();
    let successor = listener.remaining().map(Arc::new);
    let withdrawn = listener.kernel().filter(|it| it.is_withdrawn());
    let kernel = withdrawn.map(KernelListener::number);
    let has_joint = listener.joint().get().is_some();
    listener.joint().exchange(kernel, None);
    for fd in numbers {
        Registrations::of(fd).exchange(kernel, None, has_joint);
        match &successor {
            Some(successor) => {
                fd::exchange(fd, &**listener, || Arc::clone(successor) as Entry);
            }
            None => {
                restore(fd, listener);
                fd::forget(fd);
            }
        }
    }
}

/// Removes the entry of a listener that another process has shut down.
fn forget_shut(service: ServiceId) {
    forget(|it| it.has_service(service));
}

/// Removes a kernel listener whose offer was withdrawn.
fn forget_withdrawn(doorway: &Arc<Doorway>) {
    let is_it = |it: &KernelListener| it.has_doorway(doorway);
    let mut all = fd::all().filter_map(Listener::of);
    if let Some(listener) = all.find(|it| it.kernel().is_some_and(is_it)) {
        listener.kernel().inspect(|it| it.set_withdrawn());
        remove_withdrawn(&listener);
    }
}

/// A listening TCP socket next to which protocols may listen.
struct Candidate {
    switch: &'static Arc<Switch>,
    family: Family,
    local: Local,
    tcp_only: Option<&'static str>,
    receive_bound: Option<usize>,
    wish: Wish,
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
            wish: fd::wish_of(socket.as_raw_fd()),
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
            wish: self.wish,
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
        common: Arc<Common>,
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
        let listener = Listener::new(kernel, service, common, listed, self.family);
        doorkeeper::begin(socket, &listener, Holder::Offerer, forget_withdrawn)
            .map_err(Reason::Failed)?;
        Ok(listener)
    }

    /// Offers a listener whose service has ended, or that was inherited over an `exec`.
    fn offer_again(&self, socket: BorrowedFd<'_>, before: &Listener) -> Option<Listener> {
        let offer = self.plan().ok()?;
        if !before.is_offered() {
            let common = Arc::clone(before.common());
            return self.offer(socket, &offer, BACKLOG_MAX, common).ok();
        }
        let begun = self.listen_by_protocol(&offer, BACKLOG_MAX).ok()?;
        let kernel = before.kernel().map(KernelListener::protocol);
        let record = self.list(kernel, Some(&begun));
        let service = self.serve(begun, &record).ok()?;
        let listener = before.with_service(service, Listed::by(&record));
        let _ = doorkeeper::begin(socket, &listener, Holder::Offerer, forget_withdrawn);
        Some(listener)
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
            let stack = self.switch.stack();
            let begun = sockets
                .listen(socket, self.local, backlog, &offer.settings, stack)
                .and_then(|it| {
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
    if host::reserve::is_short() {
        return;
    }
    // SAFETY: the kernel has just accepted the number in a `listen`, so it is open.
    let socket = unsafe { BorrowedFd::borrow_raw(fd) };
    let Some(candidate) = Candidate::of(socket) else {
        return;
    };
    let backlog = backlog_of(backlog);
    let plan = if fd::is_shared(fd) {
        Err(Reason::Shared)
    } else if fd::has_duplicate(socket) {
        Err(Reason::Duplicated)
    } else if switch::is_elsewhere(socket) {
        Err(Reason::Namespace)
    } else {
        candidate.plan()
    };
    let offered = plan.and_then(|offer| {
        let common = Common::new().map_err(Reason::Failed)?;
        candidate.offer(socket, &offer, backlog, Arc::new(common))
    });
    match offered {
        Ok(listener) => {
            let listener = Arc::new(listener);
            fd::store(fd, Arc::clone(&listener) as Entry);
            // The program may have added the socket to `epoll` sets before it listens.
            watch_pending(fd, &listener);
            signal_driven::copy(fd, &listener);
        }
        Err(reason) => {
            let service = candidate.local.address;
            info!(%service, %reason, "a service uses TCP alone");
            if let Some(record) = observing::native_listener(service, &ReasonText::of(reason)) {
                fd::list(fd, record);
            }
        }
    }
}
