//! Protocols whose connections are kernel sockets, and protocols that need a rule.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use anyhow::{Result, bail, ensure};
use ops::netlink::NetStack;
use ops::rules::{Role, Setting};
use ops::{
    Capabilities, DecisionTrace, KernelConnection, KernelService, KernelSockets, KernelTarget,
    Local, Offer, OffloadProtocol, Plan, Reason, Registration, Sockets, Way,
};
use rustix::io::Errno;
use rustix::net::SocketFlags;
use stack_tests::available;

use crate::lab::{LOCALHOST, Lab, carrier, exchange, intent};
use crate::unix_protocol::UnixProtocol;

/// A protocol of pairs: the other end of a connection receives the addresses as text.
#[derive(Debug)]
struct Pairs {
    name: &'static str,
    sockets: &'static PairSockets,
}

/// The sockets of the protocol. If `fails`, each `connect` fails, and connections use other
/// protocols.
#[derive(Debug)]
struct PairSockets {
    fails: bool,
}

static WORKS: PairSockets = PairSockets { fails: false };
static FAILS: PairSockets = PairSockets { fails: true };

impl OffloadProtocol for Pairs {
    fn name(&self) -> &'static str {
        self.name
    }

    fn capabilities(&self) -> Capabilities {
        UnixProtocol::default().capabilities
    }

    fn reaches(&self, _: &Way<'_>) -> Result<(), Reason> {
        Ok(())
    }

    fn sockets(&self) -> Sockets<'_> {
        Sockets::Kernel(self.sockets)
    }
}

impl KernelSockets for PairSockets {
    fn is_offered(&self, _: SocketAddr) -> Result<(), Reason> {
        Ok(())
    }

    fn connect(
        &self,
        target: &KernelTarget,
        _: &[Setting],
        _: Option<&NetStack>,
    ) -> Result<KernelConnection, Reason> {
        if self.fails {
            return Err(Reason::BacklogFull);
        }
        let (ours, mut other) = UnixStream::pair().map_err(|_| Reason::Failed(Errno::MFILE))?;
        let written = write!(other, "{} {}", target.bound, target.service);
        written.map_err(|_| Reason::Failed(Errno::PIPE))?;
        Ok(KernelConnection {
            socket: ours.into(),
            local: target.bound,
            peer: target.service,
        })
    }

    fn listen(
        &self,
        _: BorrowedFd<'_>,
        _: Local,
        _: u32,
        _: &[Setting],
        _: Option<&NetStack>,
    ) -> Result<OwnedFd, Reason> {
        Err(Reason::PortTaken)
    }

    fn service(&self, _: BorrowedFd<'_>) -> Result<KernelService, Errno> {
        Err(Errno::INVAL)
    }

    fn accept(
        &self,
        _: BorrowedFd<'_>,
        _: KernelService,
        _: SocketFlags,
        _: Option<&NetStack>,
    ) -> Result<Option<KernelConnection>, Errno> {
        Ok(None)
    }
}

/// Makes a lab with these protocols, followed by the protocol `unix`.
fn lab_with(
    protocols: &[(&'static str, &'static PairSockets)],
) -> Result<Option<(Lab, Vec<Registration>)>> {
    let Some(lab) = Lab::new("", &[UnixProtocol::default()])? else {
        return Ok(None);
    };
    let registered = protocols.iter().zip((1..=9).rev());
    let registered = registered.map(|((name, sockets), priority)| {
        lab.registry
            .register(Arc::new(Pairs { name, sockets }), priority)
    });
    let registered = registered.collect::<Result<_, _>>()?;
    Ok(Some((lab, registered)))
}

fn offer(lab: &Lab, service: SocketAddr) -> Result<Offer> {
    let intent = intent(Role::Connect, service);
    match lab.switch.plan(&intent, &mut DecisionTrace::default()) {
        Plan::Offload(offer) => Ok(offer),
        other => bail!("{other:?}"),
    }
}

fn names(offer: &Offer) -> Vec<&str> {
    offer.protocols.iter().map(|it| it.name()).collect()
}

fn target(service: SocketAddr) -> KernelTarget {
    KernelTarget {
        service,
        bound: SocketAddr::new(LOCALHOST, 4000),
        is_ipv6: false,
        flags: SocketFlags::empty(),
    }
}

#[test]
fn the_first_protocol_that_connects_in_the_kernel_has_the_connection() -> Result<()> {
    let (lab, _kept) = available!(lab_with(&[
        ("bad", &FAILS),
        ("good", &WORKS),
        ("last", &WORKS)
    ])?);
    let service = SocketAddr::new(LOCALHOST, 80);
    let mut offer = offer(&lab, service)?;
    ensure!(names(&offer) == ["bad", "good", "last", "unix"]);
    let Ok((protocol, connection)) = lab.switch.connect_in_kernel(&target(service), &mut offer)
    else {
        bail!("no protocol connects");
    };
    ensure!(protocol.name() == "good" && connection.peer == service);
    let mut stream = UnixStream::from(connection.socket);
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    ensure!(text == "127.0.0.1:4000 127.0.0.1:80", "{text}");
    Ok(())
}

#[test]
fn a_connection_that_no_kernel_socket_carries_uses_the_other_protocols() -> Result<()> {
    let (lab, _kept) = available!(lab_with(&[("bad", &FAILS), ("worse", &FAILS)])?);
    let service = SocketAddr::new(LOCALHOST, 80);
    let mut offer = offer(&lab, service)?;
    let tried = lab.switch.connect_in_kernel(&target(service), &mut offer);
    ensure!(matches!(tried, Err(Reason::BacklogFull)));
    ensure!(names(&offer) == ["unix"], "{:?}", names(&offer));
    // Other protocols have not been tried.
    let tried = lab.switch.connect_in_kernel(&target(service), &mut offer);
    ensure!(matches!(tried, Err(Reason::NoProtocol)));
    ensure!(names(&offer) == ["unix"]);
    Ok(())
}

#[test]
fn a_protocol_that_needs_a_rule_carries_connections_whose_rule_names_it() -> Result<()> {
    let mut protocol = UnixProtocol::default();
    protocol.capabilities.needs_rule = true;
    let both = "use both listen * *:*\nuse both connect * *:*\n";
    let named = "use both listen * *:* protocol=unix\nuse both connect * *:* protocol=unix\n";
    for (rules, carries) in [("", "tcp"), (both, "tcp"), (named, "unix")] {
        let lab = available!(Lab::new(rules, std::slice::from_ref(&protocol))?);
        let (_service, mut client, server) = lab.connected()?;
        ensure!(carrier(&server) == carries, "{rules}: {}", client.outcome());
        let why = client.outcome();
        ensure!(
            carries != "tcp" || why == "tcp: no rule names the protocol",
            "{rules}: {why}"
        );
        exchange(&mut client, &server)?;
    }
    Ok(())
}
