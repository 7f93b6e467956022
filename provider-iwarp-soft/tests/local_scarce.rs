//! Descriptors, memory and limits that do not suffice for shared memory: the connection stays on TCP
//! and works. A test binary of its own: limits are the process's.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use access_layer::rnic::*;
use rustix::process::{Resource as Limit, Rlimit, getrlimit, setrlimit};
use support::ground::{alone, mappings, wait_until};
use support::*;

/// Lowers a limit of the process while `work` runs.
fn limited<T>(limit: Limit, to: u64, work: impl FnOnce() -> T) -> T {
    let before = getrlimit(limit);
    let lowered = Rlimit {
        current: Some(to),
        ..before
    };
    setrlimit(limit, lowered).unwrap();
    let result = work();
    setrlimit(limit, before).unwrap();
    result
}

fn exchange(client: &Side<'_>, server: &Side<'_>, count: usize) {
    for _ in 0..count {
        server.recv(1, &[]);
        client.send(1, &[]);
        assert_eq!(server.received().status, WcStatus::Success);
        assert_eq!(client.sent().status, WcStatus::Success);
    }
}

/// Connects two adapters and exchanges messages under a limit. `warm`: another connection of the
/// two has moved before.
fn stays_on_tcp(name: &str, warm: bool, limit: Limit, to: impl FnOnce() -> u64) {
    let _alone = alone();
    let (a, b) = (Node::new("lo 0"), Node::new("lo 0"));
    let others = (a.side(10), b.side(20));
    if warm {
        connect(&others.0, &others.1);
        exchange(&others.0, &others.1, 200);
        wait_until("the first connection stays on TCP", || mappings() == 2);
    }
    let before = mappings();
    let (client, server) = (a.side(30), b.side(40));
    connect(&client, &server);
    limited(limit, to(), || exchange(&client, &server, 200));
    exchange(&client, &server, 200);
    assert_eq!(mappings(), before, "{name}");
    a.rnic.disconnect(&client.qp, false);
    assert_eq!(client.event(), Event::Disconnected, "{name}");
    assert_eq!(server.event(), Event::Disconnected, "{name}");
}

#[test]
fn without_descriptors_a_connection_stays_on_tcp() {
    stays_on_tcp("first", false, Limit::Nofile, || 0);
    stays_on_tcp("later", true, Limit::Nofile, || 0);
}

#[test]
fn without_address_space_a_connection_stays_on_tcp() {
    stays_on_tcp("memory", true, Limit::As, || 0);
}

#[test]
fn where_files_must_be_short_a_connection_stays_on_tcp() {
    stays_on_tcp("file size", true, Limit::Fsize, || 4096);
}
