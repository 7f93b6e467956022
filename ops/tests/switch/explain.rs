//! The explanations of decisions.

use std::net::SocketAddr;

use anyhow::{Result, ensure};
use ops::rules::Role;
use stack_tests::available;

use crate::lab::{LOCALHOST, Lab, intent};
use crate::unix_protocol::UnixProtocol;

fn explained(lab: &Lab, role: Role, address: SocketAddr) -> Vec<String> {
    let trace = lab.switch.explain(&intent(role, address));
    let lines = trace.steps().iter();
    lines
        .map(|step| format!("{}: {}", step.subject, step.text))
        .collect()
}

#[test]
fn every_step_is_explained_in_order() -> Result<()> {
    let mut asks = UnixProtocol::default();
    asks.capabilities.asks_peer = true;
    let mut rdma = UnixProtocol::named("rdma");
    rdma.capabilities.needs_rule_within_host = true;
    let rules = "# one\nuse both connect probe *:*";
    let lab = available!(Lab::new(rules, &[rdma, asks])?);
    let to = SocketAddr::new(LOCALHOST, 80);
    let steps = explained(&lab, Role::Connect, to);
    let expected = [
        "rule: line 2: use both connect probe *:*",
        "rdma: no: no rule names the protocol",
        "route: device lo, this host, from 127.0.0.1, no RDMA",
        "unix: can carry it",
        "peer: nothing answers at its UDP port 3935",
        "verdict: tcp, because no program of the peer runs under opsrun",
    ];
    ensure!(steps == expected, "{steps:#?}");
    let _mapper = lab.mapper();
    let service = lab.service()?;
    let steps = explained(&lab, Role::Connect, service.address()?);
    let offered = format!("peer: offers it at {}", service.address()?);
    ensure!(steps.contains(&offered), "{steps:#?}");
    let verdict = "verdict: unix; tcp if that fails within 60s";
    ensure!(
        steps.last().is_some_and(|last| last == verdict),
        "{steps:#?}"
    );
    Ok(())
}

#[test]
fn listening_and_rules_are_explained_too() -> Result<()> {
    let rules = "use tcp connect * *:22\nuse offload connect * *:23 protocol=other\n\
                 use offload listen * *:24 protocol=other";
    let lab = available!(Lab::new(rules, &[UnixProtocol::default()])?);
    let at = |port| SocketAddr::new(LOCALHOST, port);
    let last = |role, port| explained(&lab, role, at(port)).pop().unwrap_or_default();
    ensure!(last(Role::Listen, 80) == "verdict: unix and tcp");
    let kept = "verdict: tcp, because line 1 of the rule file says tcp";
    ensure!(last(Role::Connect, 22) == kept);
    let fails = "verdict: connect() would fail: the rule wants another protocol (";
    ensure!(last(Role::Connect, 23).starts_with(fails));
    // The kernel's listener is kept in any case.
    let kept = "verdict: tcp, because the rule wants another protocol";
    ensure!(last(Role::Listen, 24) == kept);
    Ok(())
}

#[test]
fn an_explanation_has_no_side_effects() -> Result<()> {
    let lab = available!(Lab::new("", &[UnixProtocol::default()])?);
    let plain = std::net::TcpListener::bind((LOCALHOST, 0))?;
    plain.set_nonblocking(true)?;
    explained(&lab, Role::Connect, plain.local_addr()?);
    ensure!(plain.accept().is_err());
    let free = SocketAddr::new(LOCALHOST, 1234);
    explained(&lab, Role::Listen, free);
    ensure!(std::net::TcpListener::bind(free).is_ok());
    Ok(())
}
