//! A listening socket of the program, and the offload protocols that listen next to it.
//!
//! The program's descriptor stays the kernel's TCP listener. Next to it are up to two descriptors
//! that are readable while offloaded connections can be accepted: a kernel listener
//! ([`kernel_listener`]) and the counter of a service ([`service`]). A wait for the TCP listener
//! also waits for these descriptors, and reports their events as events of the TCP listener.
//! Because all three are kernel objects, inheritance by workers, `EPOLLEXCLUSIVE` and
//! edge-triggered sets work as for TCP.
//!
//! | File | Contents |
//! |---|---|
//! | `mod` | the TCP listener with the listeners next to it |
//! | [`kernel_listener`] | a kernel listener, whose connections are kernel sockets |
//! | [`service`] | a service of a protocol, in the listening process and in processes that inherited it |
//! | [`passing`] | passes a connection to the process that accepts it |
//! | [`accept_lock`] | a lock for the kernel's `accept` |
//! | [`activity`] | the use of the listener by calls of this library |
//! | [`offers`] | clients that are offered over TCP |
//! | [`common`] | these three objects, which all processes of the listener share |
//! | [`joint`] | one descriptor for all of these, for `EPOLLONESHOT` |

pub(crate) mod accept_lock;
pub(crate) mod activity;
pub(crate) mod common;
pub(crate) mod joint;
pub(crate) mod kernel_listener;
pub(crate) mod offers;
pub(crate) mod passing;
pub(crate) mod service;

use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use ops::observe::{Counter, Record, Tally};

use crate::events::restarting;
use crate::fd::{self, Kind, Operations};
use crate::listener::activity::Activity;
use crate::listener::common::{Common, InheritedCommon};
use crate::listener::joint::Joint;
use crate::listener::kernel_listener::{KernelListener, KernelProtocol};
use crate::listener::service::{InheritedService, Service, ServiceId};
use crate::process;
use crate::tcp::names::Family;
use std::ffi::c_int;
use std::time::Instant;

/// The listeners next to a TCP listener: a kernel listener, a service of a protocol, or both. When
/// one of them begins or ends, a new `Listener` replaces this one in the table.
pub(crate) struct Listener {
    kernel: Option<Arc<KernelListener>>,
    service: Option<Arc<Service>>,
    common: Arc<Common>,
    joint: Arc<Joint>,
    listed: Listed,
    /// True if the listener was inherited over an `exec`, and no attempt to offer it was made.
    lacks_service: AtomicBool,
    is_lost: AtomicBool,
    /// Counts the calls of `accept`.
    turn: AtomicU32,
    family: Family,
    /// The process that made the listener; a fork copies the value.
    maker: i32,
}

/// The record that counts accepted connections.
#[derive(Clone, Default)]
pub(crate) struct Listed {
    /// The record, in the process that made the listener.
    record: Option<Arc<Record>>,
    tally: Option<Tally>,
}

/// The kind of connection that is accepted first.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    Kernel,
    Service,
    Tcp,
}

/// The number of calls in which each kind of connection comes first at least once.
const TURNS: u32 = 8;

/// The copy of a listener that the parent makes for the child of a fork.
#[derive(Clone, Copy)]
pub(crate) struct InheritedListener {
    kernel: Option<(RawFd, KernelProtocol)>,
    service: Option<InheritedService>,
    lacks_service: bool,
    common: InheritedCommon,
    joint: Option<RawFd>,
    family: Family,
    tally: Option<Tally>,
}

impl Operations for Listener {
    fn kind(&self) -> Kind {
        Kind::Listener
    }

    fn is_of_this_process(&self) -> bool {
        self.maker == process::id()
    }

    /// A listener stops when its last reference is dropped.
    fn on_closed(self: Arc<Self>) -> Option<Instant> {
        restarting::drop_left(&self);
        None
    }

    fn on_copies_closed(&self) {
        self.kernel().inspect(|it| it.close_copy());
    }
}

impl Listener {
    /// Returns the protocols next to a listening socket, if there are any.
    pub(crate) fn of(fd: c_int) -> Option<Arc<Self>> {
        fd::is_listener(fd).then(|| fd::find(fd)).flatten()
    }

    /// Makes a listener. `common` is shared by all processes that accept from the same TCP
    /// listener.
    pub(crate) fn new(
        kernel: Option<KernelListener>,
        service: Option<Service>,
        common: Arc<Common>,
        listed: Listed,
        family: Family,
    ) -> Self {
        Self {
            kernel: kernel.map(Arc::new),
            service: service.map(Arc::new),
            common,
            joint: Arc::default(),
            listed,
            lacks_service: AtomicBool::new(false),
            is_lost: AtomicBool::new(false),
            turn: AtomicU32::new(0),
            family,
            maker: process::id(),
        }
    }

    /// Makes a listener that was inherited over an `exec`, with or without a kernel listener, and
    /// without a service.
    pub(crate) fn from_exec(
        kernel: Option<KernelListener>,
        common: Arc<Common>,
        listed: Listed,
        family: Family,
    ) -> Self {
        Self {
            lacks_service: AtomicBool::new(true),
            ..Self::new(kernel, None, common, listed, family)
        }
    }

    /// Returns a copy of the listener with another service.
    pub(crate) fn with_service(&self, service: Service, listed: Listed) -> Self {
        Self {
            kernel: self.kernel.clone(),
            joint: Arc::clone(&self.joint),
            ..Self::new(
                None,
                Some(service),
                Arc::clone(&self.common),
                listed,
                self.family,
            )
        }
    }

    /// Returns a copy without the kernel listener or the service, if that has ended. Returns `None`
    /// if both have ended.
    pub(crate) fn remaining(&self) -> Option<Self> {
        let kernel = self.kernel.clone().filter(|it| !it.is_withdrawn());
        let service = self.service.clone().filter(|it| !it.is_lost());
        if kernel.is_none() && service.is_none() {
            return None;
        }
        let (common, listed) = (Arc::clone(&self.common), self.listed.clone());
        Some(Self {
            kernel,
            service,
            joint: Arc::clone(&self.joint),
            ..Self::new(None, None, common, listed, self.family)
        })
    }

    /// Makes the listener of the child of a fork.
    pub(crate) fn inherited(from: InheritedListener) -> Self {
        // SAFETY: the child inherited the descriptors, and forgets the objects that own them in the
        // parent.
        let own = |fd| unsafe { OwnedFd::from_raw_fd(fd) };
        let kernel = from
            .kernel
            .map(|(fd, protocol)| KernelListener::inherited(own(fd), protocol));
        let listed = Listed {
            record: None,
            tally: from.tally,
        };
        let common = Arc::new(Common::inherited(from.common));
        let service = from.service.map(Service::inherited);
        let joint = from.joint.map(|set| own(set).into());
        Self {
            joint: Arc::new(joint.map(Joint::inherited).unwrap_or_default()),
            lacks_service: AtomicBool::new(from.lacks_service),
            ..Self::new(kernel, service, common, listed, from.family)
        }
    }

    /// Returns, before a fork, the copy for the child. Descriptors that the child must not keep are
    /// added to `withheld`.
    pub(crate) fn copy(&self, withheld: &mut Vec<RawFd>) -> Option<InheritedListener> {
        let service = self.service.as_ref().and_then(|it| it.copy(withheld));
        let kernel = self.kernel.as_ref().map(|it| (it.number(), it.protocol()));
        let lacks_service = self.lacks_service();
        if service.is_none() && kernel.is_none() && !lacks_service {
            return None;
        }
        Some(InheritedListener {
            kernel,
            service,
            lacks_service,
            common: self.common.copy(),
            joint: self.joint.get(),
            family: self.family,
            tally: self.listed.tally,
        })
    }

    /// Returns the use of the listener by calls of this library.
    pub(crate) fn activity(&self) -> &Activity {
        self.common.activity()
    }

    pub(crate) fn kernel(&self) -> Option<&KernelListener> {
        self.kernel.as_deref()
    }

    pub(crate) fn service(&self) -> Option<&Service> {
        self.service.as_deref()
    }

    /// Returns false for a listener that was inherited over an `exec`, until it is offered.
    pub(crate) fn is_offered(&self) -> bool {
        self.kernel.is_some() || self.service.is_some()
    }

    /// Returns the descriptors to wait for together with the TCP listener, and records the wait.
    pub(crate) fn awaited(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.on_awaited();
        self.pending()
    }

    /// Records that the program waits for the listener by a call of this library.
    pub(crate) fn on_awaited(&self) {
        self.activity().on_awaited();
        self.kernel().inspect(|it| it.on_used());
    }

    /// Records that the program calls `accept`.
    pub(crate) fn on_accept(&self) {
        self.activity().on_accept();
        self.kernel().inspect(|it| it.on_used());
    }

    /// Returns the descriptors that are readable while connections can be accepted.
    pub(crate) fn pending(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let kernel = self.kernel().map(AsFd::as_fd);
        kernel.into_iter().chain(self.service().map(AsFd::as_fd))
    }

    /// Returns one descriptor for the TCP listener `socket` and all listeners next to it, and makes
    /// the descriptor if necessary. Returns `None` if memory or descriptors are exhausted.
    pub(crate) fn obtain_joint(&self, socket: BorrowedFd<'_>) -> Option<RawFd> {
        let members = std::iter::once(socket).chain(self.awaited());
        self.joint.obtain(members)
    }

    pub(crate) fn joint(&self) -> &Joint {
        &self.joint
    }

    pub(crate) fn has_service(&self, id: ServiceId) -> bool {
        self.service().is_some_and(|it| it.id() == Some(id))
    }

    /// Ends both listeners in all processes, and closes the queued connections.
    pub(crate) fn end(&self) {
        if let Some(kernel) = self.kernel() {
            kernel.withdraw();
        }
        if let Some(service) = self.service() {
            service.end();
        }
    }

    /// Returns true if this process must begin the service, because the listening process has ended
    /// or called `exec`.
    pub(crate) fn needs_service(&self) -> bool {
        match self.service() {
            Some(service) => service.is_orphaned(),
            None => self.lacks_service.load(Ordering::Relaxed),
        }
    }

    /// Returns true if the listener was inherited over an `exec`, and no attempt to offer it was
    /// made.
    pub(crate) fn lacks_service(&self) -> bool {
        self.lacks_service.load(Ordering::Relaxed)
    }

    /// Returns true if an attempt to begin the service is due.
    pub(crate) fn is_service_due(&self) -> bool {
        match self.service() {
            Some(service) => service.may_be_taken_over(),
            None => self.lacks_service.swap(false, Ordering::Relaxed),
        }
    }

    /// Returns a descriptor that hangs up when the listening process ends.
    pub(crate) fn listening_process(&self) -> Option<BorrowedFd<'_>> {
        self.service()?.listening_process()
    }

    /// Records that the program has closed one of the descriptors next to the TCP listener.
    pub(crate) fn set_lost(&self) {
        self.is_lost.store(true, Ordering::Relaxed);
    }

    /// Returns true after [`Self::set_lost`]. Then a wait uses the TCP listener only.
    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed)
    }

    /// Returns true if any process has shut the kernel listener down, or if the program has closed
    /// the number of a listener.
    pub(crate) fn is_withdrawn(&self) -> bool {
        self.kernel().is_some_and(KernelListener::is_withdrawn)
            || self.service().is_some_and(Service::is_lost)
    }

    /// Returns the objects that all processes of the listener share.
    pub(crate) fn common(&self) -> &Arc<Common> {
        &self.common
    }

    /// Returns the kind of connection that the next call accepts first.
    pub(crate) fn next_turn(&self) -> Turn {
        match self.turn.fetch_add(1, Ordering::Relaxed) % TURNS {
            turn if turn == TURNS - 1 => Turn::Tcp,
            turn if turn == TURNS / 2 - 1 => Turn::Service,
            _ => Turn::Kernel,
        }
    }

    pub(crate) fn count(&self, counter: Counter) {
        self.listed.count(counter);
    }

    /// Returns the family of the TCP listener, which accepted connections inherit.
    pub(crate) fn family(&self) -> Family {
        self.family
    }
}

impl Listed {
    /// Counts in a record of this process.
    pub(crate) fn by(record: &Arc<Record>) -> Self {
        Self {
            record: Some(Arc::clone(record)),
            tally: record.tally(),
        }
    }

    fn count(&self, counter: Counter) {
        match (&self.record, self.tally) {
            (Some(record), _) => record.count(counter, 1),
            (None, Some(tally)) => tally.count(counter, 1),
            (None, None) => {}
        }
    }
}
