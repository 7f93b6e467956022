//! The protocols that may carry a connection: policy, then the route, then each protocol's answer.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use tracing::debug;

use crate::netlink::{LinkAddress, NetStack, RdmaPort, Reach, Route, RouteQuery};
use crate::protosw::{OffloadProtocol, Terms, Way};
use crate::reason::Reason;
use crate::rules::{Query, Role, Rule, Setting, Target};
use crate::switch::Switch;
use crate::trace::{DecisionTrace, Subject};

/// The time for which an explanation waits until the kernel has resolved the next hop.
const RESOLVED_WITHIN: Duration = Duration::from_millis(500);

/// The call that a socket is about to make.
#[derive(Debug)]
pub struct Intent {
    /// Listen or connect.
    pub role: Role,
    /// The socket's own address if it listens, the peer's if it connects.
    pub address: SocketAddr,
    /// The socket's own address if it connects and is bound.
    pub from: Option<SocketAddr>,
    /// The name of a socket option that is set and that only TCP supports.
    pub tcp_only: Option<&'static str>,
    /// The largest number of unread bytes that the program wants the socket to hold.
    pub receive_bound: Option<usize>,
    /// The stack that the program has named when it made the socket.
    pub wish: Wish,
}

/// The stack that a program names by the address family or the protocol of a socket. A rule that
/// matches the socket decides about TCP, and about the protocols if it names some.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Wish {
    /// The program names no stack, as almost all programs.
    #[default]
    None,
    /// The kernel's stack, whatever the rule (`AF_INET_DIRECT`).
    Kernel,
    /// Any offload protocol, and not TCP (`AF_INET_OFFLOAD`).
    Offload,
    /// This offload protocol, and not TCP (`AF_INET_SDP`, `IPPROTO_SDP`).
    Protocol(&'static str),
}

/// The result of a decision.
#[derive(Debug)]
pub enum Plan {
    /// Uses TCP alone.
    Native(Reason),
    /// Tries these protocols first.
    Offload(Offer),
    /// Fails: TCP is not permitted, and no protocol can carry the connection.
    Impossible(Reason),
}

/// The protocols that can carry a connection.
#[derive(Debug)]
pub struct Offer {
    /// The protocols in order of preference; not empty.
    pub protocols: Vec<Arc<dyn OffloadProtocol>>,
    /// True if TCP is used after all protocols have failed.
    pub may_fall_back: bool,
    /// The time that all protocols together may take.
    pub within: Duration,
    /// The kernel's route to the peer, if a rule or a protocol needed it.
    pub route: Option<Route>,
    /// The active RDMA ports behind the network device of that route.
    pub ports: Vec<RdmaPort>,
    /// The settings of the matching rule.
    pub settings: Vec<Setting>,
    /// True if the rule names the protocol.
    pub is_named: bool,
    /// The largest number of unread bytes that the program wants the socket to hold.
    pub receive_bound: Option<usize>,
}

impl Offer {
    /// Returns the settings of the rule and of the program for the socket.
    #[must_use]
    pub fn terms(&self) -> Terms<'_> {
        Terms {
            settings: &self.settings,
            is_named: self.is_named,
            receive_bound: self.receive_bound,
        }
    }
}

/// The choice of the rule file, before the protocols are checked.
struct Policy {
    target: Target,
    line: Option<u32>,
    /// The permitted protocols; empty permits all.
    protocols: Vec<String>,
    within: Duration,
    settings: Vec<Setting>,
}

impl Policy {
    /// Returns true if the rule names the protocols.
    fn is_named(&self) -> bool {
        !self.protocols.is_empty()
    }
}

/// The route lookup, made once and only if a rule or a protocol needs it.
struct Finder<'a> {
    switch: &'a Switch,
    intent: &'a Intent,
    found: Option<Result<Found, Reason>>,
}

#[derive(Debug, Clone)]
struct Found {
    route: Option<Route>,
    device: Option<String>,
    has_rdma: bool,
    ports: Vec<RdmaPort>,
    is_local: bool,
}

impl Switch {
    /// Decides by the rules, then by the route, then by the capabilities of each protocol. The peer
    /// is not asked yet.
    pub fn plan(&self, intent: &Intent, trace: &mut DecisionTrace) -> Plan {
        decide(self, intent, trace)
    }

    /// Returns the rule that keeps connections to this address on TCP, whatever socket connects.
    /// `None`: call [`Switch::plan`]. Makes no system call.
    pub fn rule_for_tcp(&self, address: SocketAddr) -> Option<&Rule> {
        let rules = self.rules().filter(|rules| !rules.needs_interface())?;
        let query = self.query(Role::Connect, address, None);
        let rule = rules.verdict(&query).rule;
        let rule = rule.filter(|rule| rule.target == Target::Tcp)?;
        report(&query, Some(rule), Target::Tcp);
        Some(rule)
    }

    fn query<'a>(
        &'a self,
        role: Role,
        address: SocketAddr,
        interface: Option<&'a str>,
    ) -> Query<'a> {
        let program = self.program();
        Query {
            role,
            program: &program.path,
            called: &program.called,
            user: program.user,
            address,
            interface,
        }
    }
}

/// Decides which stacks may carry the socket.
fn decide(switch: &Switch, intent: &Intent, trace: &mut DecisionTrace) -> Plan {
    let mut finder = Finder {
        switch,
        intent,
        found: None,
    };
    let Some(policy) = policy(switch, intent, &mut finder, trace) else {
        return Plan::Native(Reason::NoRules);
    };
    let may_fall_back = policy.target != Target::Offload;
    let without_protocol = |reason| {
        if may_fall_back {
            Plan::Native(reason)
        } else {
            Plan::Impossible(reason)
        }
    };
    if policy.target == Target::Tcp {
        let line = policy.line.unwrap_or_default();
        return Plan::Native(Reason::Rule { line });
    }
    if intent.wish == Wish::Kernel {
        return Plan::Native(Reason::KernelWanted);
    }
    if let Some(option) = intent.tcp_only {
        return without_protocol(Reason::Option(option));
    }
    let mut protocols = Vec::new();
    let mut refusal = None;
    for protocol in switch.registry().protocols() {
        let subject = Subject::Protocol(protocol.name().to_owned());
        match check(&*protocol, intent, &policy, &mut finder, trace) {
            Ok(explained) => {
                trace.note(subject, || match explained {
                    by if by.is_empty() => "can carry it".to_owned(),
                    by => format!("can carry it, {by}"),
                });
                protocols.push(protocol);
            }
            Err(reason) => {
                trace.note(subject, || format!("no: {reason}"));
                // The reason of the first protocol is reported, because protocols are in the order
                // of preference. The reason of a protocol that no rule selects explains nothing, so
                // a later reason replaces it.
                match &refusal {
                    Some(kept) if is_excluded_by_rule(&reason) || !is_excluded_by_rule(kept) => {}
                    _ => refusal = Some(reason),
                }
            }
        }
    }
    if protocols.is_empty() {
        return without_protocol(refusal.unwrap_or(Reason::NoProtocol));
    }
    let (route, ports) = match finder.found {
        Some(Ok(found)) => (found.route, found.ports),
        _ => (None, Vec::new()),
    };
    Plan::Offload(Offer {
        protocols,
        may_fall_back,
        within: policy.within,
        route,
        ports,
        is_named: policy.is_named(),
        receive_bound: intent.receive_bound,
        settings: policy.settings,
    })
}

/// Returns `None` if the rule file cannot be used.
fn policy(
    switch: &Switch,
    intent: &Intent,
    finder: &mut Finder<'_>,
    trace: &mut DecisionTrace,
) -> Option<Policy> {
    let Some(rules) = switch.rules() else {
        trace.note(Subject::Rule, || Reason::NoRules.to_string());
        return None;
    };
    let device = if rules.needs_interface() {
        finder.find(trace).ok()
    } else {
        None
    };
    let interface = device.as_ref().and_then(|found| found.device.as_deref());
    let query = switch.query(intent.role, intent.address, interface);
    let verdict = rules.verdict(&query);
    trace.note(Subject::Rule, || match verdict.rule {
        Some(rule) => format!("line {}: {rule}", rule.line),
        None => format!("none matches, so {}", verdict.target.word()),
    });
    let rule = verdict.rule;
    let target = match intent.wish {
        Wish::Offload | Wish::Protocol(_) if rule.is_none() => Target::Offload,
        _ => verdict.target,
    };
    let mut protocols = rule.map(|rule| rule.protocols.clone()).unwrap_or_default();
    if let Wish::Protocol(name) = intent.wish
        && protocols.is_empty()
    {
        protocols.push(name.to_owned());
    }
    report(&query, rule, target);
    Some(Policy {
        target,
        line: rule.map(|rule| rule.line),
        protocols,
        within: rule
            .and_then(|rule| rule.within)
            .unwrap_or_else(|| switch.within_of(target)),
        settings: rule.map(|rule| rule.settings.clone()).unwrap_or_default(),
    })
}

fn report(query: &Query<'_>, rule: Option<&Rule>, target: Target) {
    debug!(
        address = %query.address, role = query.role.word(),
        line = rule.map(|rule| rule.line), target = target.word(), "the rule file decides"
    );
}

/// Returns true for a protocol that the rule excludes, whatever it could carry.
fn is_excluded_by_rule(reason: &Reason) -> bool {
    matches!(reason, Reason::OtherProtocol | Reason::NotNamed)
}

/// Checks whether a protocol can carry the socket. Returns the protocol's explanation if the trace
/// keeps its steps, else an empty string.
fn check(
    protocol: &dyn OffloadProtocol,
    intent: &Intent,
    policy: &Policy,
    finder: &mut Finder<'_>,
    trace: &mut DecisionTrace,
) -> Result<String, Reason> {
    let can = protocol.capabilities();
    let is_wanted = |name: &String| name == protocol.name();
    if policy.is_named() && !policy.protocols.iter().any(is_wanted) {
        return Err(Reason::OtherProtocol);
    }
    if can.needs_rule && !policy.is_named() {
        return Err(Reason::NotNamed);
    }
    let ip = intent.address.ip().to_canonical();
    let needs_rule_here = can.needs_rule_within_host && !policy.is_named();
    if needs_rule_here && ip.is_loopback() {
        return Err(Reason::NotNamed);
    }
    let mut way = Way {
        role: intent.role,
        address: intent.address,
        route: None,
        device: None,
        ports: &[],
        terms: Terms {
            settings: &policy.settings,
            is_named: policy.is_named(),
            receive_bound: intent.receive_bound,
        },
    };
    let answer = |way: &Way<'_>, trace: &DecisionTrace| {
        protocol.reaches(way)?;
        Ok(if trace.is_kept() {
            protocol.explain(way)
        } else {
            String::new()
        })
    };
    // A loopback address, or an address to listen at, always belongs to this host and needs no
    // route.
    let is_here = !can.remote && (intent.role == Role::Listen || ip.is_loopback());
    if is_here {
        return answer(&way, trace);
    }
    let found = finder.find(trace)?;
    if found.is_local && needs_rule_here {
        return Err(Reason::NotNamed);
    }
    if !found.is_local && !can.remote {
        return Err(Reason::Remote);
    }
    way.route = found.route.as_ref();
    way.device = found.device.as_deref();
    way.ports = &found.ports;
    answer(&way, trace)
}

impl Finder<'_> {
    fn find(&mut self, trace: &mut DecisionTrace) -> Result<Found, Reason> {
        if let Some(found) = &self.found {
            return found.clone();
        }
        let found = match self.intent.role {
            Role::Connect => self.find_toward_peer(),
            Role::Listen => self.find_at_own_address(),
        };
        let ip = self.intent.address.ip().to_canonical();
        trace.note(Subject::Route, || describe(self.switch.stack(), &found, ip));
        self.found = Some(found.clone());
        found
    }

    fn find_toward_peer(&self) -> Result<Found, Reason> {
        let stack = self.switch.stack().ok_or(Reason::NoNetlink)?;
        let mut to = RouteQuery::to(self.intent.address.ip());
        if let SocketAddr::V6(v6) = self.intent.address
            && v6.scope_id() != 0
        {
            to.device = Some(v6.scope_id());
        }
        let to = to.from(self.intent.from.map(|from| from.ip()));
        let route = stack
            .route(&to)
            .map_err(|error| Reason::NoRoute(error.errno()))?;
        if route.reach == Reach::Other {
            return Err(Reason::NoUnicast);
        }
        let no_device = |error: host::netlink::Error| Reason::NoRoute(error.errno());
        let device = stack.device(route.device).map_err(no_device)?.name;
        let rdma = stack.rdma().map_err(no_device)?;
        let local = route.reach == Reach::Local;
        // The route to an address of this host uses the loopback device, which does not have that
        // address.
        let ports = if local {
            let own = self.intent.address.ip().to_canonical();
            stack.rdma_ports_at(own).map_err(no_device)?
        } else {
            rdma.active_ports(Some(&device))
        };
        Ok(Found {
            is_local: local,
            route: Some(route),
            has_rdma: rdma.can(&device) || !ports.is_empty(),
            device: Some(device),
            ports,
        })
    }

    /// Finds the device of a listening socket's address. There is no route, and no device for the
    /// unspecified address.
    fn find_at_own_address(&self) -> Result<Found, Reason> {
        let stack = self.switch.stack().ok_or(Reason::NoNetlink)?;
        let refused = |error: host::netlink::Error| Reason::NoRoute(error.errno());
        let rdma = stack.rdma().map_err(refused)?;
        let ip = self.intent.address.ip().to_canonical();
        if ip.is_unspecified() {
            return Ok(Found {
                route: None,
                device: None,
                has_rdma: rdma.network_devices().any(|name| rdma.can(name)),
                ports: rdma.active_ports(None),
                is_local: false,
            });
        }
        let addresses = stack.addresses().map_err(refused)?;
        let own = addresses.iter().find(|own| own.ip == ip);
        let device = own.map(|own| stack.device(own.device).map(|device| device.name));
        let device = device.transpose().map_err(refused)?;
        Ok(Found {
            route: None,
            has_rdma: device.as_deref().is_some_and(|name| rdma.can(name)),
            ports: device
                .as_deref()
                .map(|name| rdma.active_ports(Some(name)))
                .unwrap_or_default(),
            device,
            is_local: ip.is_loopback(),
        })
    }
}

fn describe(stack: Option<&NetStack>, found: &Result<Found, Reason>, ip: IpAddr) -> String {
    let found = match found {
        Ok(found) => found,
        Err(reason) => return reason.to_string(),
    };
    let mut text = match &found.device {
        Some(device) => format!("device {device}"),
        None if ip.is_unspecified() => "every device".to_owned(),
        None if found.is_local => "this host".to_owned(),
        None => "no device has this address".to_owned(),
    };
    if let Some(route) = &found.route {
        match route.reach {
            Reach::Local => text.push_str(", this host"),
            _ => {
                text.push_str(&format!(", next hop {}", route.next_hop()));
                if let Some(stack) = stack {
                    text.push_str(&describe_link(stack, route, ip));
                }
            }
        }
        if let Some(source) = route.source {
            text.push_str(&format!(", from {source}"));
        }
    }
    text.push_str(if found.has_rdma {
        ", RDMA"
    } else {
        ", no RDMA"
    });
    text
}

/// Describes the link-layer address of the next hop, the MTU, and the other source addresses.
fn describe_link(stack: &NetStack, route: &Route, ip: IpAddr) -> String {
    let mut text = String::new();
    if let Ok(LinkAddress::Known(bytes)) = stack.link_address(route, RESOLVED_WITHIN) {
        let bytes: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        text.push_str(&format!(" ({})", bytes.join(":")));
    }
    if let Ok(mtu) = stack.mtu_to(ip) {
        text.push_str(&format!(", MTU {mtu}"));
    }
    let sources = stack.sources_to(ip).unwrap_or_default();
    let others = sources
        .iter()
        .filter(|other| Some(other.ip) != route.source);
    let others: Vec<String> = others.map(|other| other.ip.to_string()).collect();
    if !others.is_empty() {
        text.push_str(&format!(", also reached from {}", others.join(", ")));
    }
    text
}

impl Reason {
    /// Returns the error of a call if TCP is not permitted and no protocol carries the connection
    /// for this reason.
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            Self::NoRoute(errno) | Self::Failed(errno) => *errno,
            Self::Refused | Self::PeerRefused | Self::PeerAbsent | Self::Version => {
                Errno::CONNREFUSED
            }
            Self::Late { .. } | Self::PeerSilent => Errno::TIMEDOUT,
            Self::PortTaken => Errno::ADDRINUSE,
            Self::Option(_) | Self::Duplicated | Self::Shared => Errno::OPNOTSUPP,
            _ => Errno::NETUNREACH,
        }
    }
}
