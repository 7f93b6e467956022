//! A stream socket of a program.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, sockopt};

use crate::connect::{Connecting, Outcome, Reserve};
use crate::decision::{Intent, Plan};
use crate::family::StackRequest;
use crate::listen::{self, Accepted, Bound, Listening};
use crate::portmap::Offering;
use crate::protosw::OffloadStream;
use crate::reason::Reason;
use crate::rules::Role;
use crate::state::{Event, SocketState};
use crate::switch::Switch;
use crate::trace::DecisionTrace;

/// A stream socket that spans every stack until the switch decides which stack carries it.
#[derive(Debug)]
pub struct Socket {
    switch: Arc<Switch>,
    request: StackRequest,
    state: SocketState,
    native: Arc<OwnedFd>,
    bound: Bound,
    listening: Option<Listening>,
    offered: Vec<(SocketAddr, SocketAddr)>,
    connecting: Option<Connecting<'static>>,
    stream: Option<(String, Box<dyn OffloadStream>)>,
    reason: Option<Reason>,
    tcp_only: Option<&'static str>,
}

impl Socket {
    /// Makes a socket; `family` is `AF_INET` or `AF_INET6`.
    ///
    /// # Errors
    /// The error of the system call `socket`.
    pub fn new(
        switch: Arc<Switch>,
        family: AddressFamily,
        request: StackRequest,
    ) -> Result<Self, Errno> {
        let flags = SocketFlags::CLOEXEC;
        let native =
            rustix::net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
        Ok(Self::with_native(switch, native, request))
    }

    /// Wraps a TCP socket that is neither bound nor connected.
    #[must_use]
    pub fn with_native(switch: Arc<Switch>, native: OwnedFd, request: StackRequest) -> Self {
        Self {
            switch,
            request,
            state: SocketState::Fresh,
            native: Arc::new(native),
            bound: Bound::default(),
            listening: None,
            offered: Vec::new(),
            connecting: None,
            stream: None,
            reason: None,
            tcp_only: None,
        }
    }

    /// Returns the state of the socket.
    #[must_use]
    pub fn state(&self) -> SocketState {
        self.state
    }

    /// Returns the reason why the socket is on TCP, or listens without a protocol.
    #[must_use]
    pub fn reason(&self) -> Option<&Reason> {
        self.reason.as_ref()
    }

    /// Returns the kernel socket. Socket options of the program are set on it.
    #[must_use]
    pub fn native(&self) -> &OwnedFd {
        &self.native
    }

    /// Records that the program has set an option that only TCP supports.
    pub fn require_tcp(&mut self, option: &'static str) {
        self.tcp_only = Some(option);
    }

    /// Binds every stack to the same address.
    ///
    /// # Errors
    /// The error of `bind`.
    pub fn bind(&mut self, address: SocketAddr) -> Result<(), Errno> {
        let state = self.state.on(Event::Bind)?;
        let plan = self.plan(Role::Listen, address, &mut DecisionTrace::default());
        let offer = match &plan {
            Plan::Offload(offer) => Some(offer),
            Plan::Native(reason) => {
                self.reason = Some(reason.clone());
                None
            }
            Plan::Impossible(reason) => return Err(reason.errno()),
        };
        self.bound = listen::bind(&self.native, address, offer)?;
        self.state = state;
        Ok(())
    }

    /// Listens on every stack. The kernel socket does not block from then on.
    ///
    /// # Errors
    /// The error of `listen`. A protocol that cannot listen is skipped.
    pub fn listen(&mut self, backlog: u32) -> Result<(), Errno> {
        let state = self.state.on(Event::Listen)?;
        if self.state == SocketState::Fresh {
            let family = rustix::net::getsockname(&*self.native)?.address_family();
            let zeros: SocketAddr = if family == AddressFamily::INET6 {
                ([0_u16; 8], 0).into()
            } else {
                ([0_u8; 4], 0).into()
            };
            self.bind(zeros)?;
        }
        let flags = rustix::fs::fcntl_getfl(&*self.native)?;
        rustix::fs::fcntl_setfl(&*self.native, flags | OFlags::NONBLOCK)?;
        rustix::net::listen(&*self.native, i32::try_from(backlog).unwrap_or(i32::MAX))?;
        self.state = state;
        if self.listening.is_none() {
            self.listen_everywhere(backlog)?;
        }
        Ok(())
    }

    fn listen_everywhere(&mut self, backlog: u32) -> Result<(), Errno> {
        let service = self.local()?;
        let mut offloads = Vec::new();
        let bound = std::mem::take(&mut self.bound);
        let mut failures = bound.failures;
        for taken in bound.taken {
            match taken.bound.listen(backlog) {
                Ok(listener) => {
                    if taken.asks_peer {
                        let mapped = listener.mapped();
                        self.switch.offer(Offering {
                            service,
                            mapped,
                            ipv6_only: sockopt::ipv6_v6only(&*self.native) == Ok(true),
                        });
                        self.offered.push((service, mapped));
                    }
                    offloads.push((taken.protocol, listener));
                }
                Err(errno) => failures.push((taken.protocol, Reason::Failed(errno))),
            }
        }
        if let (true, Some((_, reason))) = (offloads.is_empty(), failures.first()) {
            self.reason = Some(reason.clone());
        }
        self.listening = Some(Listening::new(offloads));
        Ok(())
    }

    /// Returns the next connection of any stack, if there is one.
    ///
    /// # Errors
    /// `EINVAL` for a socket that does not listen, else the error of `accept`.
    pub fn accept(&mut self) -> Result<Option<Accepted>, Errno> {
        let listening = self.listening.as_mut().ok_or(Errno::INVAL)?;
        listening.accept(&self.native)
    }

    /// Returns the service, while the socket listens.
    #[must_use]
    pub fn listening(&self) -> Option<&Listening> {
        self.listening.as_ref()
    }

    /// Begins to connect and returns the new state. In state `Connecting`, call [`Socket::drive`]
    /// or [`Socket::finish`] next. In state `Native`, connect the kernel socket, in a blocking or
    /// non-blocking way.
    ///
    /// # Errors
    /// The error of `connect`, if TCP is not permitted.
    pub fn connect(
        &mut self,
        address: SocketAddr,
        mut trace: DecisionTrace,
    ) -> Result<SocketState, Errno> {
        let state = self.state.on(Event::Connect)?;
        match self.plan(Role::Connect, address, &mut trace) {
            Plan::Native(reason) => {
                self.state = self.state.on(Event::FellBack)?;
                self.leave_to_tcp(reason);
            }
            Plan::Impossible(reason) => return Err(reason.errno()),
            Plan::Offload(offer) => {
                // The protocols' bound addresses are for listening only.
                self.bound = Bound::default();
                let source = offer.route.as_ref().and_then(|route| route.source);
                let native = Arc::clone(&self.native);
                let reserve = Reserve::new(move || reserve(&native, source));
                let switch = Arc::clone(&self.switch);
                self.state = state;
                self.connecting = Some(Connecting::begin(switch, address, reserve, offer, trace));
                return self.drive();
            }
        }
        Ok(self.state)
    }

    /// Makes progress with the connection, without waiting.
    ///
    /// # Errors
    /// The error of `connect`, if TCP is not permitted.
    pub fn drive(&mut self) -> Result<SocketState, Errno> {
        match self.connecting.as_mut().and_then(Connecting::step) {
            Some(outcome) => self.conclude(outcome),
            None => Ok(self.state),
        }
    }

    /// Waits until the outcome of the connection is known, for no longer than the bound of
    /// [`Switch`].
    ///
    /// # Errors
    /// The error of `connect`, if TCP is not permitted.
    pub fn finish(&mut self) -> Result<SocketState, Errno> {
        match self.connecting.as_mut().map(Connecting::wait) {
            Some(outcome) => self.conclude(outcome),
            None => Ok(self.state),
        }
    }

    /// Returns the attempt in progress.
    #[must_use]
    pub fn connecting(&self) -> Option<&Connecting<'static>> {
        self.connecting.as_ref()
    }

    /// Returns the name of the offload protocol that carries the connection, and the connection.
    #[must_use]
    pub fn stream(&self) -> Option<(&str, &dyn OffloadStream)> {
        self.stream
            .as_ref()
            .map(|(name, stream)| (name.as_str(), &**stream))
    }

    /// Returns the local address.
    ///
    /// # Errors
    /// The error of `getsockname`.
    pub fn local(&self) -> Result<SocketAddr, Errno> {
        match &self.stream {
            Some((_, stream)) => Ok(stream.local()),
            None => rustix::net::getsockname(&*self.native)?.try_into(),
        }
    }

    /// Takes the kernel socket out of the switch. From then on the program uses the kernel
    /// directly.
    ///
    /// # Errors
    /// Returns the socket itself if TCP does not carry it.
    pub fn into_native(self) -> Result<OwnedFd, Box<Self>> {
        if self.state != SocketState::Native {
            return Err(Box::new(self));
        }
        let native = Arc::clone(&self.native);
        drop(self);
        Ok(Arc::into_inner(native).expect("the socket has the only reference"))
    }

    fn plan(&self, role: Role, address: SocketAddr, trace: &mut DecisionTrace) -> Plan {
        let intent = Intent {
            role,
            address,
            from: self.local().ok(),
            request: &self.request,
            tcp_only: self.tcp_only,
            receive_bound: None,
        };
        self.switch.plan(&intent, trace)
    }

    fn conclude(&mut self, outcome: Outcome) -> Result<SocketState, Errno> {
        self.connecting = None;
        match outcome {
            Outcome::Offloaded { protocol, stream } => {
                self.state = self.state.on(Event::Offloaded)?;
                self.stream = Some((protocol, stream));
            }
            Outcome::Native(reason) => {
                self.state = self.state.on(Event::FellBack)?;
                self.leave_to_tcp(reason);
            }
            Outcome::Impossible(reason) => {
                self.state = self.state.on(Event::Refused)?;
                let errno = reason.errno();
                self.reason = Some(reason);
                return Err(errno);
            }
        }
        Ok(self.state)
    }

    fn leave_to_tcp(&mut self, reason: Reason) {
        self.bound = Bound::default();
        self.switch.count_fall_back(&reason);
        self.reason = Some(reason);
    }
}

/// Binds the kernel socket to reserve a port, because both ends must know the port before they
/// connect.
fn reserve(native: &OwnedFd, source: Option<IpAddr>) -> Result<SocketAddr, Errno> {
    let mut local: SocketAddr = rustix::net::getsockname(native)?.try_into()?;
    if local.port() == 0 {
        rustix::net::bind(native, &local)?;
        local = rustix::net::getsockname(native)?.try_into()?;
    }
    if let (true, Some(source)) = (local.ip().is_unspecified(), source) {
        local.set_ip(source);
    }
    Ok(local)
}

impl Drop for Socket {
    fn drop(&mut self) {
        for (service, mapped) in self.offered.drain(..) {
            self.switch.withdraw(service, mapped);
        }
    }
}
