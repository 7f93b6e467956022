//! An attempt to connect over another stack than TCP.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use tracing::debug;

use crate::decision::Offer;
use crate::netlink::{ListeningSocket, Reach};
use crate::portmap::{Answer, Asking};
use crate::protosw::{
    ConnectFailure, KernelConnection, KernelTarget, OffloadConnecting, OffloadProtocol,
    OffloadStream, Target,
};
use crate::reason::Reason;
use crate::switch::{Path, Switch};
use crate::trace::{DecisionTrace, Subject};

/// The divisor of the bound: the answer of the peer's port mapper may take half of the bound.
const ASKING_SHARE: u32 = 2;

/// The time that opening an adapter may take before it counts against the bound.
const OPENING_MAX: Duration = Duration::from_secs(2);

/// The result of an attempt.
#[derive(Debug)]
pub enum Outcome {
    /// A protocol has connected.
    Offloaded {
        /// Name of the protocol that carries the connection.
        protocol: String,
        /// The connection.
        stream: Box<dyn OffloadStream>,
    },
    /// The connection falls back to TCP: the caller connects the kernel socket now.
    Native(Reason),
    /// TCP is not permitted: the program's call fails.
    Impossible(Reason),
}

/// Reserves the local address of a connection in the kernel.
///
/// The attempt calls this function when a protocol is about to connect, so a connection that falls
/// back to TCP has reserved no port. A reserved port belongs to one socket alone, while TCP shares
/// one port among connections to different peers.
pub struct Reserve<'a>(Box<dyn FnOnce() -> Result<SocketAddr, Errno> + Send + 'a>);

impl<'a> Reserve<'a> {
    /// Wraps the function that reserves.
    pub fn new(take: impl FnOnce() -> Result<SocketAddr, Errno> + Send + 'a) -> Self {
        Self(Box::new(take))
    }
}

impl fmt::Debug for Reserve<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reserve")
    }
}

/// The local address of the connection.
#[derive(Debug)]
enum Local<'a> {
    /// Not reserved yet.
    Free(Reserve<'a>),
    /// Reserved.
    Taken(SocketAddr),
    /// The reservation failed.
    Failed(Errno),
}

/// The progress of an attempt, before the first byte.
///
/// ```text
///   Asking ── answer, or not needed ──> Trying ── first protocol that connects ──> Connected
///     │  <── cached answer is stale ────┘  └── late, no address, all failed ──────> Over
///     └── denied, and all protocols ask ──────────────────────────────────────────> Over
/// ```
#[derive(Debug)]
enum Stage {
    /// The peer's port mapper has not answered yet.
    Asking(Box<Asking>),
    /// The first protocol of the offer tries to connect. Protocols that have failed are removed.
    Trying {
        attempt: Option<Box<dyn OffloadConnecting>>,
        mapped: Option<Mapped>,
    },
    /// A protocol has connected.
    Connected,
    /// All protocols have failed.
    Over,
}

/// The address at which the peer offers the service.
#[derive(Debug, Clone, Copy)]
struct Mapped {
    address: SocketAddr,
    /// True if the answer is from the cache, so it may be out of date.
    is_cached: bool,
}

/// An attempt in progress. Poll its descriptor for input until its deadline, then call
/// [`Connecting::step`]; or call [`Connecting::wait`].
#[derive(Debug)]
pub struct Connecting<'a> {
    switch: Arc<Switch>,
    service: SocketAddr,
    local: Local<'a>,
    offer: Offer,
    /// The route over which the peer is asked.
    path: Option<Path>,
    stage: Stage,
    deadline: Instant,
    last: Option<Reason>,
    trace: DecisionTrace,
}

impl<'a> Connecting<'a> {
    /// Starts to ask the peer.
    pub(crate) fn begin(
        switch: Arc<Switch>,
        service: SocketAddr,
        reserve: Reserve<'a>,
        offer: Offer,
        trace: DecisionTrace,
    ) -> Self {
        let now = Instant::now();
        let deadline = now + offer.within;
        let path = switch.path_to(offer.route.as_ref());
        let mut connecting = Self {
            switch,
            service,
            local: Local::Free(reserve),
            offer,
            path,
            stage: Stage::Over,
            deadline,
            last: None,
            trace,
        };
        connecting.stage = connecting.ask(now, true);
        connecting
    }

    /// The latest time at which [`Connecting::step`] must be called.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        match &self.stage {
            Stage::Asking(asking) => asking.deadline().min(self.deadline),
            Stage::Trying { .. } | Stage::Connected | Stage::Over => self.deadline,
        }
    }

    /// The descriptor to poll for input. Each step may change it.
    #[must_use]
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.stage {
            Stage::Asking(asking) => Some(asking.as_fd()),
            Stage::Trying { attempt, .. } => attempt.as_deref().map(AsFd::as_fd),
            Stage::Connected | Stage::Over => None,
        }
    }

    /// The steps of the decision so far.
    #[must_use]
    pub fn trace(&self) -> &DecisionTrace {
        &self.trace
    }

    /// Makes progress without waiting. Returns the outcome once it is decided.
    pub fn step(&mut self) -> Option<Outcome> {
        loop {
            match &mut self.stage {
                Stage::Asking(_) => self.step_asking()?,
                Stage::Trying { mapped, .. } if Instant::now() >= self.deadline => {
                    if mapped.is_some() {
                        self.cache(Answer::Refused);
                    }
                    let within = self.offer.within;
                    self.skip_protocol(Reason::Late { within });
                    self.stage = Stage::Over;
                }
                Stage::Trying { .. } => match self.address() {
                    Some(local) => {
                        if let Some(outcome) = self.try_protocol(local)? {
                            return Some(outcome);
                        }
                    }
                    None => self.stage = Stage::Over,
                },
                Stage::Connected => return None,
                Stage::Over => return Some(self.finish()),
            }
        }
    }

    /// Continues with the peer's answer, once it was received.
    fn step_asking(&mut self) -> Option<()> {
        if let Stage::Asking(asking) = &mut self.stage {
            let answer = asking.step()?;
            self.cache(answer);
            self.stage = self.on_answer(answer, false);
        }
        Some(())
    }

    /// Waits until the peer has answered, at most for `limit`, and reserves the local address if
    /// the peer offers the service. Opens no adapter.
    pub fn wait_briefly(&mut self, limit: Duration) -> Option<Outcome> {
        let until = Instant::now() + limit;
        while self.step_asking().is_none() {
            if Instant::now() >= until {
                return None;
            }
            self.sleep(until);
        }
        if matches!(self.stage, Stage::Trying { .. }) && self.address().is_none() {
            self.stage = Stage::Over;
        }
        matches!(self.stage, Stage::Over).then(|| self.finish())
    }

    /// Steps until the outcome is decided. This takes no longer than the bound and the time that
    /// this process needs to open an adapter.
    pub fn wait(&mut self) -> Outcome {
        loop {
            if let Some(outcome) = self.step() {
                return outcome;
            }
            self.sleep(self.deadline());
        }
    }

    /// Sleeps until the next event, at most until the deadline and `until`.
    fn sleep(&self, until: Instant) {
        let until = until.min(self.deadline());
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left + Duration::from_nanos(1)).ok();
        let polled = self.descriptor();
        let polled = polled.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        // The result of poll, a signal included, does not matter: the step checks everything
        // itself.
        let _ = rustix::event::poll(&mut Vec::from_iter(polled), timeout.as_ref());
    }

    /// Asks the peer, if a protocol needs its answer and the cache has none, or may not be used.
    fn ask(&mut self, now: Instant, may_use_cache: bool) -> Stage {
        let mut protocols = self.offer.protocols.iter();
        if !protocols.any(|protocol| protocol.capabilities().asks_peer) {
            return self.try_next(None);
        }
        if self.is_local()
            && let Some(mapped) = self.switch.own_mapping(self.service)
        {
            self.trace
                .note(Subject::Peer, || "is this process itself".to_owned());
            return self.on_answer(Answer::Mapped(mapped), false);
        }
        let known = self.switch.answers().get(self.service, &self.path, now);
        let is_usable = |answer: &Answer| may_use_cache && self.may_use_cached(*answer);
        if let Some(answer) = known.filter(is_usable) {
            self.trace
                .note(Subject::Peer, || "the cached answer is used".to_owned());
            return self.on_answer(answer, true);
        }
        let left = self.deadline.saturating_duration_since(now);
        let within = left.min(self.offer.within / ASKING_SHARE);
        let asking = if self.must_persist() {
            Asking::begin_persistent(self.service, within)
        } else {
            Asking::begin(self.service, within)
        };
        match asking {
            Ok(asking) => Stage::Asking(Box::new(asking)),
            Err(errno) => {
                self.skip_protocol(Reason::NoRoute(errno));
                self.continue_without_answer()
            }
        }
    }

    /// True if the service is at an address of this host.
    fn is_local(&self) -> bool {
        let route = self.offer.route.as_ref();
        let has_local_route = route.is_some_and(|route| route.reach == Reach::Local);
        has_local_route || self.service.ip().is_loopback()
    }

    /// True if a cached answer may be used. A denial may keep a connection on TCP, but it must not
    /// make a connection fail, because it may have been wrong for some milliseconds only, as for
    /// [`Question::persistent`](crate::portmap::Question::persistent).
    fn may_use_cached(&self, answer: Answer) -> bool {
        self.offer.may_fall_back || matches!(answer, Answer::Mapped(_))
    }

    /// True if the connection would fail after a denial although its service may exist: TCP is not
    /// permitted, and nothing shows that no socket listens at the service.
    fn must_persist(&self) -> bool {
        if self.offer.may_fall_back {
            return false;
        }
        !(self.is_local() && is_vacant(self.service))
    }

    fn on_answer(&mut self, answer: Answer, is_cached: bool) -> Stage {
        if let Answer::Mapped(address) = answer {
            self.trace
                .note(Subject::Peer, || format!("offers it at {address}"));
            return Stage::trying(Some(Mapped { address, is_cached }));
        }
        let reason = Reason::of_answer(answer).unwrap_or(Reason::PeerRefused);
        self.trace.note(Subject::Peer, || reason.to_string());
        self.last = Some(reason);
        self.continue_without_answer()
    }

    /// Continues with the protocols that need no answer of the peer.
    fn continue_without_answer(&mut self) -> Stage {
        self.offer
            .protocols
            .retain(|protocol| !protocol.capabilities().asks_peer);
        self.try_next(None)
    }

    /// Continues with the first protocol of the offer.
    fn try_next(&self, mapped: Option<Mapped>) -> Stage {
        if self.offer.protocols.is_empty() {
            Stage::Over
        } else {
            Stage::trying(mapped)
        }
    }

    /// Returns the local address. The first call reserves it.
    fn address(&mut self) -> Option<SocketAddr> {
        // The placeholder is replaced at the end of this statement.
        self.local = match std::mem::replace(&mut self.local, Local::Failed(Errno::INVAL)) {
            Local::Free(Reserve(take)) => match take() {
                Ok(local) => Local::Taken(local),
                // The error that TCP returns if no port is left for a connection.
                Err(Errno::ADDRINUSE) => Local::Failed(Errno::ADDRNOTAVAIL),
                Err(errno) => Local::Failed(errno),
            },
            known => known,
        };
        match self.local {
            Local::Taken(local) => Some(local),
            Local::Failed(errno) => {
                self.skip_protocol(Reason::Failed(errno));
                None
            }
            Local::Free(_) => None,
        }
    }

    /// Steps the first protocol once. Returns `None` if it needs more time, and `Some(None)` if it
    /// has failed and the next protocol must be tried.
    fn try_protocol(&mut self, local: SocketAddr) -> Option<Option<Outcome>> {
        let (mut attempt, mapped) = match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Trying { attempt, mapped } => (attempt, mapped),
            Stage::Asking(_) | Stage::Connected | Stage::Over => return Some(None),
        };
        let Some(protocol) = self.offer.protocols.first().cloned() else {
            return Some(None);
        };
        let begun = match attempt.take() {
            Some(attempt) => Ok(attempt),
            None => self.begin_attempt(&*protocol, local, mapped),
        };
        let stepped = begun.and_then(|mut attempt| Ok((attempt.step()?, attempt)));
        match stepped {
            Ok((None, attempt)) => {
                let attempt = Some(attempt);
                self.stage = Stage::Trying { attempt, mapped };
                None
            }
            Ok((Some(stream), _)) => {
                self.stage = Stage::Connected;
                let protocol = protocol.name().to_owned();
                self.trace
                    .note(Subject::Verdict, || format!("carried by {protocol}"));
                Some(Some(Outcome::Offloaded { protocol, stream }))
            }
            Err(failure) => {
                self.stage = self.on_failure(&*protocol, failure, mapped);
                Some(None)
            }
        }
    }

    /// Continues after a failure of the first protocol: asks again if the service of a cached
    /// answer is gone, or tries the next protocol.
    fn on_failure(
        &mut self,
        protocol: &dyn OffloadProtocol,
        failure: ConnectFailure,
        mapped: Option<Mapped>,
    ) -> Stage {
        let is_gone = matches!(
            failure,
            ConnectFailure::Refused | ConnectFailure::Failed(Errno::CONNRESET)
        );
        if is_gone && mapped.is_some_and(|mapped| mapped.is_cached) {
            self.trace.note(Subject::Peer, || {
                "the cached answer is out of date; asked again".to_owned()
            });
            self.switch.answers().forget(self.service);
            return self.ask(Instant::now(), false);
        }
        match mapped {
            // The answer is not kept as a refusal: a server of this host that starts again often
            // has its port again, and asking about it costs no round trip over a network.
            Some(_) if is_gone && self.is_local() => self.switch.answers().forget(self.service),
            Some(_) => self.cache(Answer::Refused),
            None => {}
        }
        let reason = Reason::from(failure);
        let subject = Subject::Protocol(protocol.name().to_owned());
        self.trace.note(subject, || reason.to_string());
        self.skip_protocol(reason);
        self.offer.protocols.remove(0);
        self.try_next(mapped)
    }

    /// Begins to connect with a protocol. The first connection of a process may open an adapter
    /// here. This time, up to [`OPENING_MAX`], does not count against the bound, which limits the
    /// wait for peers.
    fn begin_attempt(
        &mut self,
        protocol: &dyn OffloadProtocol,
        local: SocketAddr,
        mapped: Option<Mapped>,
    ) -> Result<Box<dyn OffloadConnecting>, ConnectFailure> {
        let begun = Instant::now();
        // Protocols whose connections are kernel sockets are tried by `Switch::connect_in_kernel`.
        let streams = protocol.sockets().streams();
        let streams = streams.ok_or(ConnectFailure::Failed(Errno::OPNOTSUPP))?;
        let attempt = streams.connect(&self.target(protocol, local, mapped));
        self.deadline += begun.elapsed().min(OPENING_MAX);
        attempt
    }

    fn target(
        &self,
        protocol: &dyn OffloadProtocol,
        local: SocketAddr,
        mapped: Option<Mapped>,
    ) -> Target<'_> {
        let mapped = mapped.filter(|_| protocol.capabilities().asks_peer);
        Target {
            service: self.service,
            mapped: mapped.map_or(self.service, |mapped| mapped.address),
            local,
            next_hop: self.offer.route.as_ref().map(|route| route.next_hop()),
            ports: &self.offer.ports,
            terms: self.offer.terms(),
        }
    }

    /// Caches an answer. A failed connection to the mapped port counts as a refusal: until it
    /// expires, no connection follows the peer's earlier answer. The answer about a service of this
    /// host that has ended is forgotten instead.
    fn cache(&self, answer: Answer) {
        let (way, now) = (self.path.clone(), Instant::now());
        let is_local = self.is_local();
        let mut answers = self.switch.answers();
        if is_local {
            answers.put_own(self.service, answer, way, now);
        } else {
            answers.put(self.service, answer, way, now);
        }
    }

    fn skip_protocol(&mut self, reason: Reason) {
        debug!(service = %self.service, %reason, "an offload protocol is not used");
        self.last = Some(reason);
    }

    fn finish(&mut self) -> Outcome {
        let reason = self.last.clone().unwrap_or(Reason::NoProtocol);
        if self.offer.may_fall_back {
            self.trace
                .note(Subject::Verdict, || format!("tcp: {reason}"));
            Outcome::Native(reason)
        } else {
            self.trace
                .note(Subject::Verdict, || format!("fails: {reason}"));
            Outcome::Impossible(reason)
        }
    }
}

impl Stage {
    fn trying(mapped: Option<Mapped>) -> Self {
        Self::Trying {
            attempt: None,
            mapped,
        }
    }
}

/// True if no socket of this host listens at a service of this host, according to the kernel.
fn is_vacant(service: SocketAddr) -> bool {
    let zeros: [IpAddr; 2] = [[0_u8; 4].into(), [0_u16; 8].into()];
    let is_free = |ip| {
        let at = SocketAddr::new(ip, service.port());
        ListeningSocket::at(at).is_ok_and(|listening| listening.is_empty())
    };
    [service.ip()].into_iter().chain(zeros).all(is_free)
}

impl Switch {
    /// Begins to connect to `service` with the protocols of `offer`. `reserve` is called when a
    /// protocol is about to connect.
    pub fn connect<'a>(
        self: &Arc<Self>,
        service: SocketAddr,
        reserve: Reserve<'a>,
        offer: Offer,
        trace: DecisionTrace,
    ) -> Connecting<'a> {
        Connecting::begin(Arc::clone(self), service, reserve, offer, trace)
    }

    /// Connects with the first protocol of an offer whose connections are kernel sockets. Such
    /// protocols are tried before all other protocols, because they answer at once. Protocols that
    /// fail are removed from the offer.
    ///
    /// # Errors
    /// Fails with the reason of the last protocol, or with [`Reason::NoProtocol`] if the offer had
    /// none.
    pub fn connect_in_kernel(
        &self,
        target: &KernelTarget,
        offer: &mut Offer,
    ) -> Result<(Arc<dyn OffloadProtocol>, KernelConnection), Reason> {
        let mut last = Reason::NoProtocol;
        let has_kernel_sockets =
            |protocol: &Arc<dyn OffloadProtocol>| protocol.sockets().kernel().is_some();
        while let Some(at) = offer.protocols.iter().position(has_kernel_sockets) {
            let protocol = offer.protocols.remove(at);
            let tried = protocol
                .sockets()
                .kernel()
                .map(|sockets| sockets.connect(target, &offer.settings, self.stack()));
            match tried {
                Some(Ok(connection)) => return Ok((protocol, connection)),
                Some(Err(reason)) => last = reason,
                None => {}
            }
        }
        Err(last)
    }
}

impl From<ConnectFailure> for Reason {
    fn from(failure: ConnectFailure) -> Self {
        match failure {
            ConnectFailure::Refused => Self::Refused,
            ConnectFailure::Version => Self::Version,
            ConnectFailure::Unusable(why) => Self::Protocol(why),
            ConnectFailure::Failed(errno) => Self::Failed(errno),
        }
    }
}
