//! The state that the sockets of a process share.

use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use host::descriptors::OwnDescriptor;
use host::locks::lock;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::io::Errno;

use crate::netlink::{NetStack, Route};
use crate::portmap::{Answers, Offering, PortMapper};
use crate::registry::Registry;
use crate::rules::{Rules, Target};

/// The default time by which offload protocols may delay TCP. Within a data centre a peer answers
/// in less than a millisecond. A peer that drops datagrams costs half of this time, once a minute.
pub const WITHIN: Duration = Duration::from_millis(200);

/// The factor of the bound where TCP is not permitted. The connection fails at the bound, and a
/// busy host may need more time than a fast fall-back permits.
const WITHOUT_TCP: u32 = 10;

/// The program that owns the sockets.
#[derive(Debug, Clone)]
pub struct Program {
    /// The path of the program's file.
    pub path: String,
    /// The name by which the program was started; it differs from `path` if that name is a link.
    pub called: String,
    /// Effective user id.
    pub user: u32,
}

/// The route over which a peer was asked, because its answer may be wrong for another route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Path {
    route: Route,
    /// The number of times that the route's device was removed or added.
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
    answers_generation: Mutex<u64>,
    port_mapper: Mutex<PortMapper>,
    wake: OwnDescriptor,
}

impl Switch {
    /// Returns a switch whose offload protocols may delay TCP for `within`; use [`WITHIN`] unless
    /// there is a reason for another bound. Without `rules` every socket stays on TCP, because the
    /// intended stack is unknown. Without `stack` only protocols with their own routing are used.
    ///
    /// # Errors
    /// Fails if the process has no free descriptor.
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
            answers_generation: Mutex::default(),
            port_mapper: Mutex::new(port_mapper),
            wake: host::descriptors::raise(eventfd(
                0,
                EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK,
            )?)?
            .into(),
        }))
    }

    /// Returns the program that owns the sockets.
    #[must_use]
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Returns the rules, or `None` if the rule file cannot be used.
    #[must_use]
    pub fn rules(&self) -> Option<&Rules> {
        self.rules.as_ref()
    }

    /// Returns the registered protocols.
    #[must_use]
    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// Returns the network stack, or `None` if netlink is not permitted.
    #[must_use]
    pub fn stack(&self) -> Option<&NetStack> {
        self.stack.as_ref()
    }

    /// The time by which offload protocols may delay TCP unless a rule sets another time.
    #[must_use]
    pub fn within(&self) -> Duration {
        self.within
    }

    /// The time by which offload protocols must have connected unless a rule sets another time.
    pub(crate) fn within_of(&self, target: Target) -> Duration {
        match target {
            Target::Offload => self.within * WITHOUT_TCP,
            Target::Tcp | Target::Both => self.within,
        }
    }

    /// Returns the current route to a peer; `None` if no route was looked up.
    ///
    /// The kernel often reports network changes: routers repeat their advertisements, containers
    /// start and stop. Asking a silent peer costs part of the bound, so the switch asks again only
    /// after changes of the route to that peer.
    pub(crate) fn path_to(&self, route: Option<&Route>) -> Option<Path> {
        let route = route.cloned()?;
        let device_changes = self.stack.as_ref()?.device_changes(route.device).ok()?;
        Some(Path {
            route,
            device_changes,
        })
    }

    /// Returns the cached answers of peers. The cache is cleared first if a protocol was
    /// registered, removed or changed since the last call.
    pub(crate) fn answers(&self) -> MutexGuard<'_, Answers<Option<Path>>> {
        let now = self.registry.generation();
        let mut answers = lock(&self.answers);
        let mut answers_generation = lock(&self.answers_generation);
        if *answers_generation != now {
            *answers_generation = now;
            answers.clear();
        }
        answers
    }

    /// Announces a service to peers that ask for it. They are answered once a
    /// [`Switch::port_mapper_service`] runs.
    pub fn offer(&self, offering: Offering) {
        let mut port_mapper = lock(&self.port_mapper);
        port_mapper.set_addresses(self.addresses());
        port_mapper.offer(offering);
        drop(port_mapper);
        self.wake();
    }

    /// Withdraws an announcement of [`Switch::offer`].
    pub fn withdraw(&self, service: SocketAddr, mapped: SocketAddr) {
        lock(&self.port_mapper).withdraw(service, mapped);
        self.wake();
    }

    /// Returns the address at which this process itself offers a service of this host. A connection
    /// to a service of its own process depends on no other process.
    pub(crate) fn own_mapping(&self, service: SocketAddr) -> Option<SocketAddr> {
        lock(&self.port_mapper).own_mapping(service)
    }

    /// Makes this process answer port mapper requests, on the thread that runs
    /// [`PortMapperService::serve`]. Returns `None` if the process answers already, or cannot. Call
    /// this before the first service is offered. Until the result is dropped, each offered service
    /// is announced at once, so a thread must run the service.
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
        let of_watch = watch.iter().map(AsFd::as_fd);
        for fd in of_watch.chain([self.wake.as_fd()]) {
            epoll::add(&set, fd, EventData::new_u64(0), EventFlags::IN).ok()?;
        }
        Some(PortMapperService {
            switch: Arc::clone(self),
            set: set.into(),
            _watch: watch.map(OwnDescriptor::from),
        })
    }

    /// Keeps the port mapper's descriptors unchanged until the result is dropped.
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

    /// Wakes the thread that runs [`PortMapperService::serve`].
    pub fn wake(&self) {
        self.wake.count_up();
    }
}

/// The right to answer port mapper requests. Dropping it hands the requests to other processes.
#[derive(Debug)]
pub struct PortMapperService {
    switch: Arc<Switch>,
    set: OwnDescriptor,
    /// Receives notifications of network changes as long as it is open.
    _watch: Option<OwnDescriptor>,
}

impl PortMapperService {
    /// Answers requests, for this process or for its whole network namespace, until `stop` returns
    /// true or the descriptors are closed. A program runs this on a thread that it starts with its
    /// first service.
    pub fn serve(self, stop: impl Fn() -> bool) {
        let nothing = Event {
            flags: EventFlags::empty(),
            data: EventData::new_u64(0),
        };
        let switch = &*self.switch;
        let mut generation = None;
        while !stop() {
            let due = self.run_due_work(&mut generation);
            let timeout = Timespec::try_from(due.min(10 * WITHIN)).ok();
            // Which descriptor is ready does not matter: `run_due_work` makes progress on all of
            // them.
            match epoll::wait(&self.set, &mut [nothing][..], timeout.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                // The program has closed our descriptors, for example with all its descriptors.
                // Continuing would be a busy loop.
                Err(_) => return,
            }
            if switch.wake.is_lost() {
                return;
            }
            let _ = rustix::io::read(&switch.wake, &mut [0; 8]);
        }
    }

    /// Runs the work that is due, and returns the time until more work is due.
    fn run_due_work(&self, generation: &mut Option<u64>) -> Duration {
        let switch = &*self.switch;
        let now = switch.stack().and_then(|stack| stack.generation().ok());
        // A call of `offer` on another thread waits for this lock.
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

/// The lock on the port mapper around a fork: no other thread uses the port mapper meanwhile.
#[derive(Debug)]
pub struct PortMapperLock<'a>(MutexGuard<'a, PortMapper>);

impl PortMapperLock<'_> {
    /// Returns the descriptors that must be open in this process alone. The child of a fork closes
    /// its copies. An open copy would keep peers asking a process that never answers, and no other
    /// process could take over.
    #[must_use]
    pub fn descriptors(&self) -> Vec<RawFd> {
        self.0.descriptors().map(|fd| fd.as_raw_fd()).collect()
    }
}

/// Arms a descriptor for one event. An `epoll` set drops closed descriptors by itself and keeps
/// none of them open.
fn arm(set: &OwnDescriptor, fd: BorrowedFd<'_>) {
    let flags = EventFlags::IN | EventFlags::ONESHOT;
    let data = EventData::new_u64(0);
    if epoll::modify(set, fd, data, flags) == Err(Errno::NOENT) {
        // If this fails, the thread still checks the descriptor after its timeout.
        let _ = epoll::add(set, fd, data, flags);
    }
}
