//! What the sockets of a process share.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ops_netlink::{NetStack, Route};
use ops_portmap::{Answers, Offering, PortMapper};
use ops_rules::Rules;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::io::Errno;

use crate::connect::{Connecting, Reserve};
use crate::decision::{Intent, Offer, Plan, decide};
use crate::reason::Reason;
use crate::registry::Registry;
use crate::trace::DecisionTrace;

/// How long offload protocols may delay TCP where no rule says otherwise. Within a data centre an
/// answer takes less than a millisecond. A peer that swallows datagrams costs half of this, once a
/// minute.
pub const WITHIN: Duration = Duration::from_millis(200);

/// The program whose sockets these are.
#[derive(Debug, Clone)]
pub struct Program {
    /// Path of its file.
    pub path: String,
    /// The name that it was started by, which is another one where that was a link.
    pub called: String,
    /// Effective user id.
    pub user: u32,
}

/// The route by which a peer was asked. Over another route its answer may not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Path {
    route: Route,
    /// Counts how often its device has come and gone.
    device_changes: u64,
}

/// The switch of a process.
#[derive(Debug)]
pub struct Switch {
    program: Program,
    rules: Option<Rules>,
    registry: Arc<Registry>,
    stack: Option<NetStack>,
    within: Duration,
    answers: Mutex<Answers<Option<Path>>>,
    heard: Mutex<u64>,
    port_mapper: Mutex<PortMapper>,
    wake: OwnedFd,
    fall_backs: Mutex<BTreeMap<String, u64>>,
}

impl Switch {
    /// A switch whose offload protocols may delay TCP for `within`, [`WITHIN`] where there is no
    /// reason for another bound. Without `rules` every socket stays on TCP, because what was
    /// meant is not known; without `stack` only protocols that find their way themselves are used.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn new(
        program: Program,
        rules: Option<Rules>,
        registry: Arc<Registry>,
        stack: Option<NetStack>,
        within: Duration,
    ) -> Result<Arc<Self>, Errno> {
        let mut port_mapper = PortMapper::new();
        port_mapper.suspend();
        Ok(Arc::new(Self {
            program,
            rules,
            registry,
            stack,
            within,
            answers: Mutex::default(),
            heard: Mutex::default(),
            port_mapper: Mutex::new(port_mapper),
            wake: host::descriptors::raise(eventfd(
                0,
                EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK,
            )?)?,
            fall_backs: Mutex::default(),
        }))
    }

    /// The program.
    #[must_use]
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The rule file.
    #[must_use]
    pub fn rules(&self) -> Option<&Rules> {
        self.rules.as_ref()
    }

    /// The protocols.
    #[must_use]
    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// The network stack.
    #[must_use]
    pub fn stack(&self) -> Option<&NetStack> {
        self.stack.as_ref()
    }

    /// How long offload protocols may delay TCP where no rule says otherwise.
    #[must_use]
    pub fn within(&self) -> Duration {
        self.within
    }

    /// How often sockets fell back to TCP, by reason.
    #[must_use]
    pub fn fall_backs(&self) -> BTreeMap<String, u64> {
        lock(&self.fall_backs).clone()
    }

    /// Decides by the rules, then the route, then what each protocol can carry. The peer is not
    /// asked yet.
    pub fn plan(&self, intent: &Intent<'_>, trace: &mut DecisionTrace) -> Plan {
        decide(self, intent, trace)
    }

    /// Begins to connect to `service` as `offer` says, from the address that `reserve` takes when
    /// the peer is one that can be tried.
    pub fn connect<'a>(
        self: &Arc<Self>,
        service: SocketAddr,
        reserve: Reserve<'a>,
        offer: Offer,
        trace: DecisionTrace,
    ) -> Connecting<'a> {
        Connecting::begin(Arc::clone(self), service, reserve, offer, trace)
    }

    /// The route to a peer as it is now; `None` where none was looked up.
    ///
    /// Hosts hear all the time that something about the network has changed: routers repeat what
    /// they advertise, containers come and go. A silent peer costs its part of the bound whenever
    /// it is asked, so it is not asked again for changes that do not concern the route to it.
    pub(crate) fn path_of(&self, offer: &Offer) -> Option<Path> {
        let route = offer.route.clone()?;
        let device_changes = self.stack.as_ref()?.device_changes(route.device).ok()?;
        Some(Path {
            route,
            device_changes,
        })
    }

    /// What peers said lately, and nothing that a change of the protocols has made untrue.
    pub(crate) fn answers(&self) -> MutexGuard<'_, Answers<Option<Path>>> {
        let now = self.registry.generation();
        let mut answers = lock(&self.answers);
        let mut heard = lock(&self.heard);
        if *heard != now {
            *heard = now;
            answers.clear();
        }
        answers
    }

    /// A socket stays on TCP for this reason.
    pub fn count_fall_back(&self, reason: &Reason) {
        *lock(&self.fall_backs)
            .entry(reason.to_string())
            .or_default() += 1;
    }

    /// Tells peers that ask where a service is offered, once somebody answers:
    /// [`Switch::port_mapper_service`].
    pub fn offer(&self, offering: Offering) {
        let mut port_mapper = lock(&self.port_mapper);
        port_mapper.set_addresses(self.addresses());
        port_mapper.offer(offering);
        drop(port_mapper);
        self.wake();
    }

    /// Tells it no longer.
    pub fn withdraw(&self, service: SocketAddr, mapped: SocketAddr) {
        lock(&self.port_mapper).withdraw(service, mapped);
        self.wake();
    }

    /// Makes this process take part in answering port mapper requests, in the thread that runs
    /// [`PortMapperService::serve`]; `None` where it does so already, or cannot. From now on, until
    /// the result is dropped, each offered service is announced at once. So call this before the
    /// first service is offered, and give the result to a thread that exists.
    pub fn port_mapper_service(self: &Arc<Self>) -> Option<PortMapperService> {
        if !lock(&self.port_mapper).resume() {
            return None;
        }
        let service = self.make_service();
        if service.is_none() {
            lock(&self.port_mapper).suspend();
        }
        service
    }

    fn make_service(self: &Arc<Self>) -> Option<PortMapperService> {
        let watch = self.stack.as_ref().and_then(|stack| stack.watch().ok());
        let set = epoll::create(CreateFlags::CLOEXEC).and_then(host::descriptors::raise);
        let set = set.ok()?;
        for fd in [&self.wake].into_iter().chain(&watch) {
            epoll::add(&set, fd, EventData::new_u64(0), EventFlags::IN).ok()?;
        }
        Some(PortMapperService {
            switch: Arc::clone(self),
            set,
            _watch: watch,
        })
    }

    /// Keeps the port mapper's descriptors as they are, until what it returns is dropped.
    pub fn lock_port_mapper(&self) -> PortMapperLock<'_> {
        PortMapperLock(lock(&self.port_mapper))
    }

    fn addresses(&self) -> Vec<(std::net::IpAddr, u32)> {
        let addresses = self.stack.as_ref().and_then(|stack| stack.addresses().ok());
        let usable = addresses
            .unwrap_or_default()
            .into_iter()
            .filter(|own| own.usable);
        usable.map(|own| (own.ip, own.device)).collect()
    }

    /// Makes a thread that serves look around.
    pub fn wake(&self) {
        // A counter that is full wakes as well.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }
}

/// Somebody who answers the port mapper's questions. Dropped, it leaves that to other processes.
#[derive(Debug)]
pub struct PortMapperService {
    switch: Arc<Switch>,
    set: OwnedFd,
    /// Tells of changes of the network, as long as it is open.
    _watch: Option<OwnedFd>,
}

impl PortMapperService {
    /// Answers, for this process or for all of its namespace, until `stop` says so or its
    /// descriptors are gone. It is what a thread does that a program starts with its first service.
    pub fn serve(self, stop: impl Fn() -> bool) {
        let nothing = Event {
            flags: EventFlags::empty(),
            data: EventData::new_u64(0),
        };
        let switch = &*self.switch;
        let mut generation = None;
        while !stop() {
            let due = self.look_around(&mut generation);
            let timeout = Timespec::try_from(due.min(10 * WITHIN)).ok();
            // Which descriptor is ready does not matter: `look_around` drives all of them.
            match epoll::wait(&self.set, &mut [nothing][..], timeout.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                // The program has closed our descriptors, as one that closes all numbers does.
                // Going on would be a busy loop.
                Err(_) => return,
            }
            let _ = rustix::io::read(&switch.wake, &mut [0; 8]);
        }
    }

    /// Does what is due, and returns the time until something else is.
    fn look_around(&self, generation: &mut Option<u64>) -> Duration {
        let switch = &*self.switch;
        let now = switch.stack().and_then(|stack| stack.generation().ok());
        // `offer` in another thread waits for this lock.
        let mut port_mapper = lock(&switch.port_mapper);
        if now != *generation {
            *generation = now;
            port_mapper.set_addresses(switch.addresses());
        }
        port_mapper.drive();
        for fd in port_mapper.awaited() {
            arm(&self.set, fd);
        }
        port_mapper.due().unwrap_or(10 * WITHIN)
    }
}

impl Drop for PortMapperService {
    fn drop(&mut self) {
        lock(&self.switch.port_mapper).suspend();
    }
}

/// The port mapper, which nobody else drives meanwhile: around a fork.
#[derive(Debug)]
pub struct PortMapperLock<'a>(MutexGuard<'a, PortMapper>);

impl PortMapperLock<'_> {
    /// What must be open in this process alone: the child of a fork closes its copies, or peers
    /// would ask somebody who never answers, and nobody could take over.
    #[must_use]
    pub fn descriptors(&self) -> Vec<RawFd> {
        self.0.descriptors().map(|fd| fd.as_raw_fd()).collect()
    }
}

/// Arms a descriptor for one event. An `epoll` set forgets closed descriptors by itself, so it
/// holds none of them open.
fn arm(set: &OwnedFd, fd: BorrowedFd<'_>) {
    let flags = EventFlags::IN | EventFlags::ONESHOT;
    let data = EventData::new_u64(0);
    if epoll::modify(set, fd, data, flags) == Err(Errno::NOENT) {
        // Without it the thread looks when its time is up.
        let _ = epoll::add(set, fd, data, flags);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
