//! Registration, removal and priority of protocols.

use std::sync::Arc;

use anyhow::{Result, ensure};
use ops::Registry;
use stack_tests::available;

use crate::lab::{Lab, exchange};
use crate::unix_protocol::{Behaviour, UnixProtocol};

#[test]
fn a_name_is_registered_once_and_free_again_after_the_end() -> Result<()> {
    let registry = Arc::new(Registry::default());
    let first = registry.register(Arc::new(UnixProtocol::named("one")), 0)?;
    ensure!(
        registry
            .register(Arc::new(UnixProtocol::named("one")), 0)
            .is_err()
    );
    let generation = registry.generation();
    drop(first);
    ensure!(registry.generation() > generation && registry.protocols().is_empty());
    let _second = registry.register(Arc::new(UnixProtocol::named("one")), 0)?;
    let generation = registry.generation();
    registry.notify();
    ensure!(registry.generation() > generation);
    Ok(())
}

#[test]
fn the_protocol_of_the_highest_priority_is_preferred() -> Result<()> {
    let registry = Arc::new(Registry::default());
    let mut kept = Vec::new();
    for (name, priority) in [("low", -5), ("first", 7), ("second", 7)] {
        kept.push(registry.register(Arc::new(UnixProtocol::named(name)), priority)?);
    }
    let protocols = registry.protocols();
    let names = protocols.iter().map(|protocol| protocol.name());
    ensure!(names.eq(["first", "second", "low"]));
    Ok(())
}

#[test]
fn several_protocols_serve_side_by_side() -> Result<()> {
    let protocols = [UnixProtocol::named("one"), UnixProtocol::named("two")];
    for name in ["one", "two"] {
        let rules = format!("use both listen * *:*\nuse both connect * *:* protocol={name}");
        let lab = available!(Lab::new(&rules, &protocols)?);
        let (_service, mut client, server) = lab.connected()?;
        ensure!(client.outcome() == name);
        exchange(&mut client, &server)?;
    }
    Ok(())
}

#[test]
fn where_the_preferred_protocol_fails_the_next_is_tried_before_tcp() -> Result<()> {
    let bad = UnixProtocol {
        behaviour: Behaviour::Refuse,
        ..UnixProtocol::named("bad")
    };
    let lab = available!(Lab::new("", &[bad, UnixProtocol::named("good")])?);
    let (_service, mut client, server) = lab.connected()?;
    ensure!(client.outcome() == "good");
    exchange(&mut client, &server)
}

#[test]
fn a_connection_outlives_the_registration_of_its_protocol() -> Result<()> {
    let lab = available!(Lab::new("", &[])?);
    let registration = lab
        .registry
        .register(Arc::new(UnixProtocol::default()), 0)?;
    let (service, mut client, server) = lab.connected()?;
    drop(registration);
    exchange(&mut client, &server)?;
    ensure!(lab.connect(service.address()?)?.outcome() == "tcp: no offload protocol is registered");
    Ok(())
}
