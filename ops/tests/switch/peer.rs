//! Asking the peer, and answering.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use ops_portmap::PORT;
use ops_unix_protocol::UnixProtocol;

use crate::lab::{DEADLINE, End, LOCALHOST, Lab, carrier, converse};

/// A protocol that is tried only where the peer says that it serves it.
fn asking() -> UnixProtocol {
    let mut protocol = UnixProtocol::default();
    protocol.capabilities.asks_peer = true;
    protocol
}

#[test]
fn a_peer_that_offers_the_service_is_connected_to_by_the_protocol() -> Result<()> {
    let Some(lab) = Lab::new("", &[asking()])? else {
        return Ok(());
    };
    let _mapper = lab.mapper();
    let mut service = lab.service()?;
    let to = service.local()?;
    for _ in 0..2 {
        let (mut client, server) = lab.connect(to)?.meets(&mut service, to)?;
        ensure!(client.told() == "unix", "{}", client.told());
        converse(&mut client, &server)?;
    }
    Ok(())
}

#[test]
fn a_service_that_ended_is_offered_no_longer() -> Result<()> {
    let Some(lab) = Lab::new("", &[asking()])? else {
        return Ok(());
    };
    let _mapper = lab.mapper();
    // This one keeps the mapper answering.
    let _other = lab.service()?;
    let service = lab.service()?;
    let to = service.local()?;
    drop(service);
    let plain = std::net::TcpListener::bind(to)?;
    let end = lab.connect(to)?.decided(to)?;
    let told = "tcp: the peer does not offer this service over RDMA";
    ensure!(end.told() == told, "{}", end.told());
    plain.accept()?;
    Ok(())
}

#[test]
fn a_host_without_port_mapper_is_connected_to_by_tcp_at_once() -> Result<()> {
    let Some(lab) = Lab::new("", &[asking()])? else {
        return Ok(());
    };
    let plain = std::net::TcpListener::bind((LOCALHOST, 0))?;
    let to = plain.local_addr()?;
    let mut end = lab.connect(to)?.decided(to)?;
    ensure!(
        end.told() == "tcp: the peer has no port mapper",
        "{}",
        end.told()
    );
    let (accepted, _) = plain.accept()?;
    converse(&mut end, &ops::Accepted::Native(accepted.into()))
}

#[test]
fn a_host_that_swallows_datagrams_costs_the_bound_once() -> Result<()> {
    let Some(lab) = Lab::new("use both connect * *:* within=40ms\n", &[asking()])? else {
        return Ok(());
    };
    let swallows = UdpSocket::bind((LOCALHOST, PORT))?;
    swallows.set_nonblocking(true)?;
    let plain = std::net::TcpListener::bind((LOCALHOST, 0))?;
    let to = plain.local_addr()?;
    let begin = Instant::now();
    let end = lab.connect(to)?.decided(to)?;
    ensure!(
        end.told() == "tcp: the peer's port mapper does not answer",
        "{}",
        end.told()
    );
    ensure!(begin.elapsed() >= Duration::from_millis(20) && begin.elapsed() < DEADLINE);
    let asked = || {
        (0..)
            .take_while(|_| swallows.recv(&mut [0; 99]).is_ok())
            .count()
    };
    ensure!(asked() > 0);
    // Now it is known: nothing is sent, and nothing waited for.
    let again = lab.connect(to)?;
    ensure!(matches!(again, End::Native(..)) && asked() == 0);
    Ok(())
}

#[test]
fn what_a_peer_said_is_forgotten_when_the_network_changes() -> Result<()> {
    let Some(lab) = Lab::new("", &[asking()])? else {
        return Ok(());
    };
    let plain = std::net::TcpListener::bind((LOCALHOST, 0))?;
    let to = plain.local_addr()?;
    ensure!(lab.connect(to)?.decided(to)?.told() == "tcp: the peer has no port mapper");
    let silent = UdpSocket::bind((LOCALHOST, PORT))?;
    ensure!(lab.connect(to)?.decided(to)?.told() == "tcp: the peer has no port mapper");
    lab.registry.notify();
    let begun = lab.connect(to)?;
    ensure!(matches!(begun, End::Begun(_)), "{}", begun.told());
    drop(silent);
    Ok(())
}

#[test]
fn a_protocol_that_need_not_ask_is_tried_where_the_peer_does_not_answer() -> Result<()> {
    let mut asks = asking();
    asks.name = "asks".to_owned();
    asks.capabilities.number = None;
    // Half of it goes by before the other protocol is tried.
    let rules = "use both connect * *:* within=4s\n";
    let Some(lab) = Lab::new(rules, &[asks, UnixProtocol::default()])? else {
        return Ok(());
    };
    let mut service = lab.service()?;
    let to = service.local()?;
    // The station offers it, but nobody drives it.
    let (client, server) = lab.connect(to)?.meets(&mut service, to)?;
    ensure!(
        client.told() == "unix" && carrier(&server) == "unix",
        "{}",
        client.told()
    );
    Ok(())
}
