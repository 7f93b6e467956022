//! Every way in which an offload protocol fails: the program gets a working TCP connection within
//! the bound, and its server sees one connection.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use ops::rules::Role;
use ops::{DecisionTrace, Plan, WITHIN};
use rustix::io::Errno;
use stack_tests::available;

use crate::lab::{Accepted, DEADLINE, End, LOCALHOST, Lab, NO_PROGRAM, carrier, exchange, intent};
use crate::unix_protocol::{Behaviour, UnixProtocol};

/// Connects to a service of this behaviour, and returns the reason for the fall-back.
fn falls_back(behaviour: Behaviour) -> Result<Option<String>> {
    let protocol = UnixProtocol::with_behaviour(behaviour);
    // Only a peer that never answers may be late, even on a loaded machine.
    let rules = match behaviour {
        Behaviour::Stall => format!("use both connect * *:* within={}ms\n", WITHIN.as_millis()),
        _ => String::new(),
    };
    let Some(lab) = Lab::new(&rules, &[protocol])? else {
        return Ok(None);
    };
    let (service, mut client, server) = lab.connected()?;
    ensure!(carrier(&server) == "tcp");
    exchange(&mut client, &server)?;
    ensure!(
        service.accept()?.is_none(),
        "a second connection was accepted"
    );
    Ok(Some(client.outcome()))
}

#[test]
fn a_peer_that_refuses_has_another_version_or_breaks_off_in_mid_handshake() -> Result<()> {
    for (behaviour, expected) in [
        (Behaviour::Refuse, "tcp: the peer refused"),
        (
            Behaviour::OtherVersion,
            "tcp: the peer speaks another version",
        ),
        (Behaviour::BreakOff, "tcp: failed: "),
    ] {
        let outcome = available!(falls_back(behaviour)?);
        ensure!(outcome.starts_with(expected), "{outcome}");
    }
    Ok(())
}

#[test]
fn a_peer_that_stalls_costs_the_bound_and_no_more() -> Result<()> {
    let begin = Instant::now();
    let outcome = available!(falls_back(Behaviour::Stall)?);
    ensure!(outcome == format!("tcp: no connection was made within {WITHIN:?}"));
    ensure!(begin.elapsed() >= WITHIN && begin.elapsed() < DEADLINE);
    Ok(())
}

#[test]
fn the_bound_is_that_of_the_rule() -> Result<()> {
    let stalls = UnixProtocol::with_behaviour(Behaviour::Stall);
    let rules = "use both connect * *:* within=7ms\n";
    let lab = available!(Lab::new(rules, &[stalls])?);
    let service = lab.service()?;
    let to = service.address()?;
    let end = lab.connect(to)?.decided(to)?;
    ensure!(end.outcome() == "tcp: no connection was made within 7ms");
    Ok(())
}

#[test]
fn a_peer_without_the_protocol_and_one_without_port_mapper() -> Result<()> {
    let mut asks = UnixProtocol::default();
    asks.capabilities.asks_peer = true;
    for (protocol, outcome) in [
        (UnixProtocol::default(), "tcp: the peer refused"),
        (asks, NO_PROGRAM),
    ] {
        let lab = available!(Lab::new("", &[protocol])?);
        let plain = std::net::TcpListener::bind((LOCALHOST, 0))?;
        let to = plain.local_addr()?;
        let mut end = lab.connect(to)?.decided(to)?;
        ensure!(end.outcome() == outcome, "{}", end.outcome());
        let (accepted, _) = plain.accept()?;
        exchange(&mut end, &Accepted::Native(accepted))?;
    }
    Ok(())
}

#[test]
fn a_connect_without_a_listener_gets_the_error_of_tcp() -> Result<()> {
    let lab = available!(Lab::new("", &[UnixProtocol::default()])?);
    let to: SocketAddr = (LOCALHOST, 9).into();
    let error = lab.connect(to).and_then(|end| end.decided(to)).err();
    ensure!(error.and_then(|error| error.downcast().ok()) == Some(Errno::CONNREFUSED));
    Ok(())
}

#[test]
fn an_attempt_that_was_dropped_is_never_accepted() -> Result<()> {
    let lab = available!(Lab::new("", &[UnixProtocol::default()])?);
    let service = lab.service()?;
    let to = service.address()?;
    let begun = lab.connect(to)?;
    ensure!(matches!(begun, End::Begun(..)));
    ensure!(service.accept()?.is_none(), "it has not committed itself");
    drop(begun);
    ensure!(service.accept()?.is_none());
    let (client, server) = lab.connect(to)?.accepted_by(&service)?;
    ensure!(carrier(&server) == "unix" && client.outcome() == "unix");
    Ok(())
}

#[test]
fn where_tcp_is_not_permitted_the_bound_is_longer_unless_a_rule_sets_it() -> Result<()> {
    let rules = "use offload connect * *:1\nuse offload connect * *:2 within=7ms\n";
    let lab = available!(Lab::new(rules, &[UnixProtocol::default()])?);
    for (port, within) in [
        (1, 10 * DEADLINE),
        (2, Duration::from_millis(7)),
        (3, DEADLINE),
    ] {
        let intent = intent(Role::Connect, (LOCALHOST, port).into());
        let plan = lab.switch.plan(&intent, &mut DecisionTrace::default());
        let Plan::Offload(offer) = plan else {
            anyhow::bail!("{plan:?}");
        };
        ensure!(offer.within == within, "port {port}: {:?}", offer.within);
    }
    Ok(())
}

#[test]
fn where_tcp_is_not_permitted_the_call_fails() -> Result<()> {
    for (behaviour, errno) in [
        (Behaviour::Refuse, Errno::CONNREFUSED),
        (Behaviour::OtherVersion, Errno::CONNREFUSED),
        (Behaviour::BreakOff, Errno::CONNRESET),
        (Behaviour::Stall, Errno::TIMEDOUT),
    ] {
        let protocol = UnixProtocol::with_behaviour(behaviour);
        let rules = match behaviour {
            Behaviour::Stall => "use offload connect * *:* within=100ms\n",
            _ => "use offload connect * *:*\n",
        };
        let lab = available!(Lab::new(rules, &[protocol])?);
        let service = lab.service()?;
        let to = service.address()?;
        let mut connecting = lab.connect(to);
        let end = Instant::now() + DEADLINE;
        let error = loop {
            ensure!(service.accept()?.is_none());
            connecting = match connecting?.step(to) {
                Err(error) => break error,
                step => step,
            };
            ensure!(Instant::now() < end, "it does not fail");
        };
        let failed = error.downcast::<Errno>()?;
        ensure!(failed == errno, "{behaviour:?}: {failed}");
    }
    Ok(())
}
