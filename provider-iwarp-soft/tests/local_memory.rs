//! The memory of connections that have moved and are idle. A test binary of its own: what the
//! process has is counted.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use access_layer::rnic::*;
use support::ground::{mappings, wait_until};
use support::*;

const CONNECTIONS: usize = 100;
/// KiB of each mapping of an idle ring: a thousand connections have 64 MiB for these and all else.
const IDLE_MAX_KIB: usize = 48;
const LEN: usize = 2048;

/// KiB of rings that are in memory, as mapped.
fn resident_kib() -> usize {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut is_ring = false;
    let mut sum = 0;
    for line in maps.lines() {
        if let Some(size) = line.strip_prefix("Rss:") {
            let kib: usize = size.split_whitespace().next().unwrap().parse().unwrap();
            sum += if is_ring { kib } else { 0 };
        } else if line
            .split_whitespace()
            .nth(1)
            .is_some_and(|it| it.len() == 4 && it.contains('p') | it.contains('s'))
        {
            is_ring = line.contains("memfd:dat-rs-ring");
        }
    }
    sum
}

#[test]
fn idle_connections_keep_little_memory() {
    let (a, b) = (Node::new("lo 0"), Node::new("lo 0"));
    let (from, to) = (a.memory(LEN), b.memory(LEN));
    let mut pairs = Vec::new();
    for index in 0..CONNECTIONS as u64 {
        let pair = (a.side(100 * index), b.side(100 * index + 50));
        connect(&pair.0, &pair.1);
        pairs.push(pair);
    }
    for _ in 0..200 {
        for (client, server) in &pairs {
            server.recv(1, &[to.sge(0, LEN)]);
            client.recv(1, &[from.sge(0, LEN)]);
            client.send(1, &[from.sge(0, LEN)]);
            assert_eq!(server.received().status, WcStatus::Success);
            server.send(1, &[to.sge(0, LEN)]);
            assert_eq!(client.received().status, WcStatus::Success);
            client.sent();
            server.sent();
        }
    }
    assert_eq!(mappings(), 2 * CONNECTIONS, "some stay on TCP");
    let allowed = 2 * CONNECTIONS * IDLE_MAX_KIB;
    let mut last = 0;
    wait_until("idle rings keep their memory", || {
        let now = resident_kib();
        if now != last {
            eprintln!("{now} KiB of {allowed}");
            last = now;
        }
        now <= allowed
    });
}
