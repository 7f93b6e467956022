//! A listening socket of the program, and the offload protocols that listen next to it.
//!
//! The program's descriptor stays the kernel's TCP listener, backlog and all. Next to it are up to
//! two descriptors, each of which is readable while there are offloaded connections to accept: a
//! listener of the kernel ([`kernel_listener`]) and the counter of a service of a protocol
//! ([`service`]). A thread that waits for the TCP listener waits for them too, under the same name.
//! So workers that inherited the listener, `EPOLLEXCLUSIVE` and edge-triggered sets keep the
//! kernel's meaning.
//!
//! | File | Contents |
//! |---|---|
//! | `mod` | a listening socket, and what is next to it |
//! | [`kernel_listener`] | a listener of the kernel, whose connections are sockets of the kernel |
//! | [`service`] | a service of a protocol, in the process that listens and in those that inherited it |
//! | [`passing`] | connections that another process accepts |
//! | [`accept_lock`] | one at a time takes a connection out of the kernel's queue |

pub(crate) mod accept_lock;
pub(crate) mod kernel_listener;
pub(crate) mod passing;
pub(crate) mod service;

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use ops::observe::{Counter, Record, Tally};

use crate::listener::accept_lock::AcceptLock;
use crate::listener::kernel_listener::{KernelListener, KernelProtocol};
use crate::listener::service::{InheritedService, Service, ServiceId};
use crate::process;
use crate::tcp::names::Family;

/// The listeners next to a listening socket: one of the kernel, a service of a protocol, or both.
/// When one of them begins or ends, another `Listener` replaces this one in the table.
pub(crate) struct Listener {
    kernel: Option<Arc<KernelListener>>,
    service: Option<Arc<Service>>,
    accept_lock: Arc<AcceptLock>,
    listed: Listed,
    /// The service ended with the program that called `exec`, and was not begun again.
    lacks_service: AtomicBool,
    /// Counts calls that accept.
    turn: AtomicU32,
    family: Family,
    /// The process that made it.
    maker: i32,
}

/// Where the listener is listed.
#[derive(Clone)]
pub(crate) struct Listed {
    /// In the process that made it.
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

/// In so many calls, each kind of connection comes first at least once.
const TURNS: u32 = 8;

/// A listener as the child of a fork gets it.
#[derive(Clone, Copy)]
pub(crate) struct InheritedListener {
    kernel: Option<(RawFd, KernelProtocol)>,
    service: Option<InheritedService>,
    accept_lock: RawFd,
    family: Family,
    tally: Option<Tally>,
}

impl Listener {
    /// `accept_lock` is that of those who accept from the same TCP listener.
    pub(crate) fn new(
        kernel: Option<KernelListener>,
        service: Option<Service>,
        accept_lock: Arc<AcceptLock>,
        listed: Listed,
        family: Family,
    ) -> Self {
        Self {
            kernel: kernel.map(Arc::new),
            service: service.map(Arc::new),
            accept_lock,
            listed,
            lacks_service: AtomicBool::new(false),
            turn: AtomicU32::new(0),
            family,
            maker: process::id(),
        }
    }

    /// Returns a listener of the kernel that came over an `exec`, without its service.
    pub(crate) fn left_by_exec(
        kernel: KernelListener,
        accept_lock: Arc<AcceptLock>,
        listed: Listed,
        family: Family,
    ) -> Self {
        Self {
            lacks_service: AtomicBool::new(true),
            ..Self::new(Some(kernel), None, accept_lock, listed, family)
        }
    }

    /// Returns a listener with another service.
    pub(crate) fn with_service(&self, service: Service, listed: Listed) -> Self {
        Self {
            kernel: self.kernel.clone(),
            ..Self::new(
                None,
                Some(service),
                Arc::clone(&self.accept_lock),
                listed,
                self.family,
            )
        }
    }

    /// Returns a listener without the kernel's; `None` where nothing else is next to the socket.
    pub(crate) fn without_kernel(&self) -> Option<Self> {
        let service = Some(Arc::clone(self.service.as_ref()?));
        let (lock, listed) = (Arc::clone(&self.accept_lock), self.listed.clone());
        Some(Self {
            service,
            ..Self::new(None, None, lock, listed, self.family)
        })
    }

    /// In the child of a fork, where the parent's listener is forgotten.
    pub(crate) fn inherited(from: InheritedListener) -> Self {
        // SAFETY: the descriptors came over the fork, and what owned them in the parent is
        // forgotten.
        let own = |fd| unsafe { OwnedFd::from_raw_fd(fd) };
        let kernel = from
            .kernel
            .map(|(fd, protocol)| KernelListener::inherited(own(fd), protocol));
        let listed = Listed {
            record: None,
            tally: from.tally,
        };
        let lock = Arc::new(AcceptLock::inherited(own(from.accept_lock)));
        let service = from.service.map(Service::inherited);
        Self::new(kernel, service, lock, listed, from.family)
    }

    /// Before a fork, what the child gets. Descriptors that it must not keep are added to
    /// `withheld`.
    pub(crate) fn copy(&self, withheld: &mut Vec<RawFd>) -> Option<InheritedListener> {
        let service = self.service.as_ref().and_then(|it| it.copy(withheld));
        let kernel = self.kernel.as_ref().map(|it| (it.number(), it.protocol()));
        if service.is_none() && kernel.is_none() {
            return None;
        }
        Some(InheritedListener {
            kernel,
            service,
            accept_lock: self.accept_lock.as_raw_fd(),
            family: self.family,
            tally: self.listed.tally,
        })
    }

    pub(crate) fn kernel(&self) -> Option<&KernelListener> {
        self.kernel.as_deref()
    }

    pub(crate) fn service(&self) -> Option<&Service> {
        self.service.as_deref()
    }

    /// The descriptors that are readable while there are connections to accept.
    pub(crate) fn pending(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let kernel = self.kernel().map(AsFd::as_fd);
        kernel.into_iter().chain(self.service().map(AsFd::as_fd))
    }

    /// Returns true if it has this service.
    pub(crate) fn has_service(&self, id: ServiceId) -> bool {
        self.service().is_some_and(|it| it.id() == Some(id))
    }

    /// Ends both listeners, in whichever process, and closes the connections that wait.
    pub(crate) fn end(&self) {
        if let Some(kernel) = self.kernel() {
            kernel.withdraw();
        }
        if let Some(service) = self.service() {
            service.end();
        }
    }

    /// Returns true if this process is to begin the service: the process of the service is gone, or
    /// became another program.
    pub(crate) fn needs_service(&self) -> bool {
        match self.service() {
            Some(service) => service.is_orphaned(),
            None => self.lacks_service.load(Ordering::Relaxed),
        }
    }

    /// Returns true if the service ended with an `exec`, and was not begun again.
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

    /// Hangs up when the process of the service goes.
    pub(crate) fn listening_process(&self) -> Option<BorrowedFd<'_>> {
        self.service()?.listening_process()
    }

    /// Returns true for a listener of the kernel that was shut down, by whichever process.
    pub(crate) fn is_withdrawn(&self) -> bool {
        self.kernel().is_some_and(KernelListener::is_withdrawn)
    }

    /// The lock of those who accept from the TCP listener.
    pub(crate) fn accept_lock(&self) -> &Arc<AcceptLock> {
        &self.accept_lock
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

    /// Returns true if it was made in this process, and not copied by a fork.
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.maker == process::id()
    }

    /// The family of the listening socket, which accepted ones inherit.
    pub(crate) fn family(&self) -> Family {
        self.family
    }
}

impl Listed {
    /// By a record of this process.
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
