//! Registration, removal and priority of protocols.

use std::sync::Arc;

use anyhow::{Result, ensure};
use ops::{Registry, StackRequest};

use crate::lab::{Lab, end_of, exchange};
use crate::unix_protocol::{Behaviour, UnixProtocol};

fn named(name: &'static str, number: i32) -> UnixProtocol {
    let mut protocol = UnixProtocol {
        name,
        ..UnixProtocol::default()
    };
    protocol.capabilities.number = Some(number);
    protocol
}

#[test]
fn a_name_and_a_number_are_registered_once_and_free_again_after_the_end() -> Result<()> {
    let registry = Arc::new(Registry::default());
    let first = registry.register(Arc::new(named("one", 1)), 0)?;
    ensure!(registry.register(Arc::new(named("one", 2)), 0).is_err());
    ensure!(registry.register(Arc::new(named("two", 1)), 0).is_err());
    let generation = registry.generation();
    drop(first);
    ensure!(registry.generation() > generation && registry.protocols().is_empty());
    let _second = registry.register(Arc::new(named("one", 1)), 0)?;
    let generation = registry.generation();
    registry.notify();
    ensure!(registry.generation() > generation);
    Ok(())
}

#[test]
fn the_protocol_of_the_highest_priority_is_preferred() -> Result<()> {
    let registry = Arc::new(Registry::default());
    let mut kept = Vec::new();
    for (name, number, priority) in [("low", 1, -5), ("first", 2, 7), ("second", 3, 7)] {
        kept.push(registry.register(Arc::new(named(name, number)), priority)?);
    }
    let names: Vec<String> = registry
        .protocols()
        .iter()
        .map(|protocol| protocol.name().to_owned())
        .collect();
    ensure!(names == ["first", "second", "low"]);
    Ok(())
}

#[test]
fn several_protocols_serve_side_by_side() -> Result<()> {
    let protocols = [named("one", 1), named("two", 2)];
    let Some(lab) = Lab::new("", &protocols)? else {
        return Ok(());
    };
    let mut service = lab.service()?;
    let to = service.local()?;
    for name in ["one", "two"] {
        let socket = lab.socket_with_request(StackRequest::Only(name.to_owned()))?;
        let (mut client, server) = end_of(socket, to)?.accepted_by(&mut service, to)?;
        ensure!(client.outcome() == name);
        exchange(&mut client, &server)?;
    }
    Ok(())
}

#[test]
fn where_the_preferred_protocol_fails_the_next_is_tried_before_tcp() -> Result<()> {
    let bad = UnixProtocol {
        behaviour: Behaviour::Refuse,
        ..named("bad", 1)
    };
    let Some(lab) = Lab::new("", &[bad, named("good", 2)])? else {
        return Ok(());
    };
    let mut service = lab.service()?;
    let to = service.local()?;
    let (mut client, server) = lab.connect(to)?.accepted_by(&mut service, to)?;
    ensure!(client.outcome() == "good");
    exchange(&mut client, &server)
}

#[test]
fn a_connection_outlives_the_registration_of_its_protocol() -> Result<()> {
    let Some(lab) = Lab::new("", &[])? else {
        return Ok(());
    };
    let registration = lab
        .registry
        .register(Arc::new(UnixProtocol::default()), 0)?;
    let mut service = lab.service()?;
    let to = service.local()?;
    let (mut client, server) = lab.connect(to)?.accepted_by(&mut service, to)?;
    drop(registration);
    exchange(&mut client, &server)?;
    ensure!(lab.connect(to)?.outcome() == "tcp: no offload protocol is registered");
    Ok(())
}
