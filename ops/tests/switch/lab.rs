//! A network for one test, with switches and both ends of a connection in it.

use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use host::locks::{IgnorePoison as _, lock};
use ops::netlink::NetStack;
use ops::portmap::Offering;
use ops::rules::Role;
use ops::{
    Connecting, DecisionTrace, Intent, Local, OffloadListener, OffloadStream, Outcome, Plan,
    Program, Reason, Registration, Registry, Reserve, Switch, Wish,
};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType};
use stack_tests::{NetSpace, not_run};

use crate::unix_protocol::UnixProtocol;

/// The time limit of a step, long enough for a loaded machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// The loopback address.
pub(crate) const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// The outcome of a connection to a host without a port mapper.
pub(crate) const NO_PROGRAM: &str = "tcp: no program of the peer runs under opsrun";

/// Keeps labs and starting programs apart: a child has every descriptor of this process until it
/// executes its program, so a descriptor that a lab closes meanwhile stays open.
///
/// A test may have several labs. An `RwLock` does not permit that: the second lab would wait for a
/// waiting writer, which waits for the first one.
static LABS: Mutex<usize> = Mutex::new(0);

/// Notified when the last lab is dropped.
static NO_LABS: Condvar = Condvar::new();

/// Waits until no lab exists, and keeps it so until the guard is dropped.
pub(crate) fn without_labs() -> MutexGuard<'static, usize> {
    NO_LABS
        .wait_while(lock(&LABS), |labs| *labs > 0)
        .ignore_poison()
}

/// One lab, in the count of [`LABS`].
struct Counted;

impl Counted {
    fn new() -> Self {
        *lock(&LABS) += 1;
        Self
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut labs = lock(&LABS);
        *labs -= 1;
        if *labs == 0 {
            NO_LABS.notify_all();
        }
    }
}

/// A network for one test, with a switch in it.
pub(crate) struct Lab {
    pub(crate) switch: Arc<Switch>,
    pub(crate) registry: Arc<Registry>,
    _registrations: Vec<Registration>,
    _counted: Counted,
}

impl Lab {
    /// Makes a lab with these protocols, the first one preferred; `None` if no network can be made.
    pub(crate) fn new(rules: &str, protocols: &[UnixProtocol]) -> Result<Option<Self>> {
        if matches!(NetSpace::enter()?, NetSpace::Host(_)) {
            not_run("no network namespaces; run as root or allow user namespaces");
            return Ok(None);
        }
        Ok(Some(Self::here(rules, protocols)?))
    }

    /// Makes a lab in the calling thread's network. Protocols have no bound unless a rule sets one.
    pub(crate) fn here(rules: &str, protocols: &[UnixProtocol]) -> Result<Self> {
        let registry = Arc::new(Registry::default());
        let priorities = (0..).map(|n: i32| -n);
        let registrations = protocols
            .iter()
            .zip(priorities)
            .map(|(protocol, priority)| registry.register(Arc::new(protocol.clone()), priority))
            .collect::<Result<_, _>>()?;
        let rules = ops::rules::parse(rules.as_bytes()).map_err(|faults| anyhow!("{faults:?}"))?;
        let program = Program {
            path: "/usr/bin/probe".to_owned(),
            called: "probe".to_owned(),
            user: 1000,
        };
        let (stack, own) = (NetStack::open()?, Arc::clone(&registry));
        Ok(Self {
            switch: Switch::new(program, Some(rules), own, Some(stack), DEADLINE)?,
            registry,
            _registrations: registrations,
            _counted: Counted::new(),
        })
    }

    /// Makes a service at a port of this host, over TCP and the protocols that the rules permit.
    pub(crate) fn service(&self) -> Result<Service> {
        self.service_at((LOCALHOST, 0).into())
    }

    /// Makes a service at an address of this host, like [`Lab::service`].
    pub(crate) fn service_at(&self, address: SocketAddr) -> Result<Service> {
        let tcp = TcpListener::bind(address)?;
        tcp.set_nonblocking(true)?;
        let address = tcp.local_addr()?;
        let intent = intent(Role::Listen, address);
        let offer = match self.switch.plan(&intent, &mut DecisionTrace::default()) {
            Plan::Offload(offer) => Some(offer),
            Plan::Native(_) | Plan::Impossible(_) => None,
        };
        let mut service = Service {
            switch: Arc::clone(&self.switch),
            tcp,
            listeners: Vec::new(),
            mapped: Vec::new(),
        };
        for protocol in offer.iter().flat_map(|offer| &offer.protocols) {
            let streams = protocol
                .sockets()
                .streams()
                .context("a protocol of streams")?;
            let bound = streams.bind(Local::from(address), Default::default())?;
            let listener = bound.listen(16)?;
            if protocol.capabilities().asks_peer {
                let mapped = listener.mapped();
                self.switch.offer(Offering::new(address, mapped));
                service.mapped.push(mapped);
            }
            service.listeners.push((protocol.name(), listener));
        }
        Ok(service)
    }

    /// Begins to connect, over TCP if the switch decides so at once.
    pub(crate) fn connect(&self, to: SocketAddr) -> Result<End> {
        let native = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
        match self.plan(to) {
            Plan::Native(reason) => native_end(native, reason, to),
            Plan::Impossible(reason) => bail!(reason.errno()),
            Plan::Offload(offer) => {
                let native = Arc::new(native);
                let bound = Arc::clone(&native);
                let reserve = Reserve::new(move || {
                    rustix::net::bind(&bound, &SocketAddr::new(LOCALHOST, 0))?;
                    rustix::net::getsockname(&bound)?.try_into()
                });
                let attempt = self
                    .switch
                    .connect(to, reserve, offer, DecisionTrace::default());
                End::Begun(native, Box::new(attempt)).step(to)
            }
        }
    }

    /// Makes a service, and a connection to it.
    pub(crate) fn connected(&self) -> Result<(Service, End, Accepted)> {
        let service = self.service()?;
        let (client, server) = self.connect(service.address()?)?.accepted_by(&service)?;
        Ok((service, client, server))
    }

    /// Makes a service over TCP only, without a port mapper that announces it, and learns that.
    pub(crate) fn service_without_mapper(&self) -> Result<(TcpListener, SocketAddr)> {
        let plain = TcpListener::bind((LOCALHOST, 0))?;
        let to = plain.local_addr()?;
        let outcome = self.connect(to)?.decided(to)?.outcome();
        ensure!(outcome == NO_PROGRAM, "{outcome}");
        Ok((plain, to))
    }

    /// Returns the reason why a connection uses TCP.
    pub(crate) fn reason(&self, to: SocketAddr) -> Result<Reason> {
        let offer = match self.plan(to) {
            Plan::Native(reason) => return Ok(reason),
            Plan::Impossible(reason) => bail!(reason.errno()),
            Plan::Offload(offer) => offer,
        };
        let reserve = Reserve::new(move || Ok((LOCALHOST, 1).into()));
        let mut attempt = self
            .switch
            .connect(to, reserve, offer, DecisionTrace::default());
        match attempt.wait() {
            Outcome::Native(reason) => Ok(reason),
            other => bail!("{other:?}"),
        }
    }

    /// Decides about a connection.
    pub(crate) fn plan(&self, to: SocketAddr) -> Plan {
        let intent = intent(Role::Connect, to);
        self.switch.plan(&intent, &mut DecisionTrace::default())
    }

    /// Starts a thread that answers port mapper requests until the result is dropped.
    pub(crate) fn mapper(&self) -> Mapper {
        let switch = Arc::clone(&self.switch);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = switch.port_mapper_service().map(|service| {
            thread::spawn(move || service.serve(|| stopped.load(Ordering::Relaxed)))
        });
        Mapper {
            stop,
            switch,
            thread,
        }
    }
}

/// A thread that answers port mapper requests.
pub(crate) struct Mapper {
    stop: Arc<AtomicBool>,
    switch: Arc<Switch>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Mapper {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.switch.wake();
        if let Some(thread) = self.thread.take() {
            assert!(thread.join().is_ok() || thread::panicking());
        }
    }
}

/// Returns the intent of a socket without options.
pub(crate) fn intent(role: Role, address: SocketAddr) -> Intent {
    Intent {
        role,
        address,
        from: None,
        tcp_only: None,
        receive_bound: None,
        wish: Wish::None,
    }
}

/// Connects over TCP.
fn native_end(native: OwnedFd, reason: Reason, to: SocketAddr) -> Result<End> {
    rustix::net::connect(&native, &to)?;
    Ok(End::Native(TcpStream::from(native), Some(reason)))
}

/// A service over TCP and offload protocols.
pub(crate) struct Service {
    switch: Arc<Switch>,
    tcp: TcpListener,
    listeners: Vec<(&'static str, Box<dyn OffloadListener>)>,
    /// The addresses that the port mapper announces.
    mapped: Vec<SocketAddr>,
}

impl Service {
    pub(crate) fn address(&self) -> Result<SocketAddr> {
        Ok(self.tcp.local_addr()?)
    }

    /// Returns the next connection, if there is one.
    pub(crate) fn accept(&self) -> Result<Option<Accepted>> {
        for (protocol, listener) in &self.listeners {
            if let Some(stream) = listener.accept()? {
                return Ok(Some(Accepted::Offloaded { protocol, stream }));
            }
        }
        match self.tcp.accept() {
            Ok((stream, _)) => Ok(Some(Accepted::Native(stream))),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let address = self.tcp.local_addr().expect("the service has an address");
        for mapped in &self.mapped {
            self.switch.withdraw(address, *mapped);
        }
    }
}

/// A connection that a service has accepted.
pub(crate) enum Accepted {
    Native(TcpStream),
    Offloaded {
        protocol: &'static str,
        stream: Box<dyn OffloadStream>,
    },
}

pub(crate) enum End {
    Begun(Arc<OwnedFd>, Box<Connecting<'static>>),
    Offloaded(String, Box<dyn OffloadStream>),
    Native(TcpStream, Option<Reason>),
}

impl End {
    /// Makes progress while `service` accepts, until both ends have a connection.
    pub(crate) fn accepted_by(self, service: &Service) -> Result<(Self, Accepted)> {
        let to = service.address()?;
        let end = Instant::now() + DEADLINE;
        let mut this = self;
        loop {
            let accepted = service.accept()?;
            this = this.step(to)?;
            if let Some(accepted) = accepted {
                while matches!(this, Self::Begun(..)) {
                    ensure!(Instant::now() < end, "accepted and not connected");
                    this = this.step(to)?;
                }
                return Ok((this, accepted));
            }
            ensure!(Instant::now() < end, "no connection: {}", this.outcome());
            thread::yield_now();
        }
    }

    /// Makes one step of progress.
    pub(crate) fn step(self, to: SocketAddr) -> Result<Self> {
        match self {
            Self::Begun(native, mut attempt) => match attempt.step() {
                None => Ok(Self::Begun(native, attempt)),
                Some(outcome) => {
                    drop(attempt);
                    settled(native, outcome, to)
                }
            },
            other => Ok(other),
        }
    }

    /// Makes progress until the connection is decided, without the service.
    pub(crate) fn decided(self, to: SocketAddr) -> Result<Self> {
        match self {
            Self::Begun(native, mut attempt) => {
                let outcome = attempt.wait();
                drop(attempt);
                settled(native, outcome, to)
            }
            other => Ok(other),
        }
    }

    /// Returns the stack and the reason for it.
    pub(crate) fn outcome(&self) -> String {
        match self {
            Self::Begun(..) => "begun".to_owned(),
            Self::Offloaded(protocol, _) => protocol.clone(),
            Self::Native(_, Some(reason)) => format!("tcp: {reason}"),
            Self::Native(_, None) => "tcp".to_owned(),
        }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<()> {
        match self {
            Self::Offloaded(_, stream) => send(&**stream, bytes),
            Self::Native(stream, _) => Ok(stream.write_all(bytes)?),
            Self::Begun(..) => bail!("not connected"),
        }
    }

    pub(crate) fn receive(&mut self, len: usize) -> Result<Vec<u8>> {
        match self {
            Self::Offloaded(_, stream) => receive(&**stream, len),
            Self::Native(stream, _) => {
                let mut bytes = vec![0; len];
                stream.read_exact(&mut bytes)?;
                Ok(bytes)
            }
            Self::Begun(..) => bail!("not connected"),
        }
    }
}

fn settled(native: Arc<OwnedFd>, outcome: Outcome, to: SocketAddr) -> Result<End> {
    match outcome {
        Outcome::Offloaded { protocol, stream } => Ok(End::Offloaded(protocol, stream)),
        Outcome::Impossible(reason) => bail!(reason.errno()),
        Outcome::Native(reason) => {
            let native = Arc::into_inner(native).ok_or(anyhow!("the attempt has the socket"))?;
            native_end(native, reason, to)
        }
    }
}

pub(crate) fn send(stream: &dyn OffloadStream, mut bytes: &[u8]) -> Result<()> {
    let end = Instant::now() + DEADLINE;
    while !bytes.is_empty() {
        match stream.send(&[IoSlice::new(bytes)]) {
            Ok(len) => bytes = &bytes[len..],
            Err(Errno::AGAIN) => ensure!(Instant::now() < end, "cannot send"),
            Err(errno) => bail!(errno),
        }
    }
    Ok(())
}

/// Receives that many bytes.
pub(crate) fn receive(stream: &dyn OffloadStream, len: usize) -> Result<Vec<u8>> {
    let end = Instant::now() + DEADLINE;
    let mut bytes = vec![0; len];
    let mut at = 0;
    while at < len {
        match stream.receive(&mut [IoSliceMut::new(&mut bytes[at..])], false) {
            Ok(0) => bail!("ended after {at} bytes"),
            Ok(more) => at += more,
            Err(Errno::AGAIN) => ensure!(Instant::now() < end, "no bytes are received"),
            Err(errno) => bail!(errno),
        }
    }
    Ok(bytes)
}

/// Sends data in both directions and checks it.
pub(crate) fn exchange(client: &mut End, server: &Accepted) -> Result<()> {
    client.send(b"question")?;
    match server {
        Accepted::Offloaded { stream, .. } => {
            ensure!(receive(&**stream, 8)? == b"question");
            send(&**stream, b"answer")?;
        }
        Accepted::Native(socket) => {
            let mut stream = socket;
            let mut bytes = [0; 8];
            stream.read_exact(&mut bytes)?;
            ensure!(&bytes == b"question");
            stream.write_all(b"answer")?;
        }
    }
    ensure!(client.receive(6)? == b"answer");
    Ok(())
}

/// Returns the name of the stack that accepted a connection.
pub(crate) fn carrier(accepted: &Accepted) -> &str {
    match accepted {
        Accepted::Native(_) => "tcp",
        Accepted::Offloaded { protocol, .. } => protocol,
    }
}
