//! A network for one test, with switches and both ends of a connection in it.

use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock, RwLockReadGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail, ensure};
use host::locks::IgnorePoison as _;
use ops::netlink::NetStack;
use ops::{
    Accepted, DecisionTrace, OffloadStream, Program, Reason, Registration, Registry, Socket,
    SocketState, StackRequest, Switch,
};
use rustix::io::Errno;
use rustix::net::AddressFamily;
use stack_tests::{NetSpace, not_run};

use crate::unix_protocol::UnixProtocol;

/// The time limit of a step, long enough for a loaded machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// A time in which events that must not happen would usually happen.
pub(crate) const MOMENT: Duration = Duration::from_millis(200);

/// The loopback address.
pub(crate) const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Locked for writing while programs are started: a child has every descriptor of this process
/// until it executes its program, so a descriptor that is closed meanwhile stays open.
pub(crate) static NO_CHILDREN: RwLock<()> = RwLock::new(());

/// A network for one test, with a switch in it.
pub(crate) struct Lab {
    pub(crate) switch: Arc<Switch>,
    pub(crate) registry: Arc<Registry>,
    _registrations: Vec<Registration>,
    _no_children: RwLockReadGuard<'static, ()>,
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
        let stack = NetStack::open()?;
        Ok(Self {
            switch: Switch::new(
                program,
                Some(rules),
                Arc::clone(&registry),
                Some(stack),
                DEADLINE,
            )?,
            registry,
            _registrations: registrations,
            _no_children: NO_CHILDREN.read().ignore_poison(),
        })
    }

    /// Makes a socket whose stack the rules select.
    pub(crate) fn socket(&self) -> Result<Socket> {
        self.socket_with_request(StackRequest::ByRule)
    }

    /// Makes a socket for the stacks that `request` permits.
    pub(crate) fn socket_with_request(&self, request: StackRequest) -> Result<Socket> {
        Ok(Socket::new(
            Arc::clone(&self.switch),
            AddressFamily::INET,
            request,
        )?)
    }

    /// Makes a service at a port of this host that is free on every stack.
    pub(crate) fn service(&self) -> Result<Socket> {
        let mut service = self.socket()?;
        service.bind((LOCALHOST, 0).into())?;
        service.listen(16)?;
        Ok(service)
    }

    /// Connects, over TCP if the switch decides so.
    pub(crate) fn connect(&self, to: SocketAddr) -> Result<End> {
        end_of(self.socket()?, to)
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

/// Connects a socket.
pub(crate) fn end_of(mut socket: Socket, to: SocketAddr) -> Result<End> {
    if let SocketState::Connecting { .. } = socket.connect(to, DecisionTrace::default())? {
        // The service is on this thread, and makes progress only when it is called.
        return Ok(End::Begun(socket));
    }
    settled(socket, to)
}

fn settled(socket: Socket, to: SocketAddr) -> Result<End> {
    match socket.state() {
        SocketState::Offloaded => Ok(End::Offloaded(socket)),
        SocketState::Native => {
            let reason = socket.reason().cloned();
            let native = socket.into_native().map_err(|_| anyhow!("not native"))?;
            rustix::net::connect(&native, &to)?;
            Ok(End::Native(TcpStream::from(native), reason))
        }
        state => bail!("{state:?}"),
    }
}

/// The connecting end.
pub(crate) enum End {
    Begun(Socket),
    Offloaded(Socket),
    Native(TcpStream, Option<Reason>),
}

impl End {
    /// Makes progress while `service` accepts, until both ends have a connection.
    pub(crate) fn accepted_by(
        self,
        service: &mut Socket,
        to: SocketAddr,
    ) -> Result<(Self, Accepted)> {
        let end = Instant::now() + DEADLINE;
        let mut this = self;
        loop {
            let accepted = service.accept()?;
            this = this.step(to)?;
            if let Some(accepted) = accepted {
                while matches!(this, Self::Begun(_)) {
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
            Self::Begun(mut socket) => match socket.drive()? {
                SocketState::Connecting { .. } => Ok(Self::Begun(socket)),
                _ => settled(socket, to),
            },
            other => Ok(other),
        }
    }

    /// Makes progress until the connection is decided, without the service.
    pub(crate) fn decided(self, to: SocketAddr) -> Result<Self> {
        match self {
            Self::Begun(mut socket) => {
                socket.finish()?;
                settled(socket, to)
            }
            other => Ok(other),
        }
    }

    /// Returns the stack and the reason for it.
    pub(crate) fn outcome(&self) -> String {
        match self {
            Self::Begun(_) => "begun".to_owned(),
            Self::Offloaded(socket) => socket
                .stream()
                .map_or_else(String::new, |(name, _)| name.to_owned()),
            Self::Native(_, Some(reason)) => format!("tcp: {reason}"),
            Self::Native(_, None) => "tcp".to_owned(),
        }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<()> {
        match self {
            Self::Offloaded(socket) => send(stream_of(socket)?, bytes),
            Self::Native(stream, _) => Ok(stream.write_all(bytes)?),
            Self::Begun(_) => bail!("not connected"),
        }
    }

    pub(crate) fn receive(&mut self, len: usize) -> Result<Vec<u8>> {
        match self {
            Self::Offloaded(socket) => receive(stream_of(socket)?, len),
            Self::Native(stream, _) => {
                let mut bytes = vec![0; len];
                stream.read_exact(&mut bytes)?;
                Ok(bytes)
            }
            Self::Begun(_) => bail!("not connected"),
        }
    }
}

/// Returns the stream of a socket that an offload protocol carries.
pub(crate) fn stream_of(socket: &Socket) -> Result<&dyn OffloadStream> {
    let (_, stream) = socket.stream().ok_or_else(|| anyhow!("not offloaded"))?;
    Ok(stream)
}

/// Sends all bytes.
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
            Err(Errno::AGAIN) => ensure!(Instant::now() < end, "nothing comes"),
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
            let mut stream = TcpStream::from(socket.try_clone()?);
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
