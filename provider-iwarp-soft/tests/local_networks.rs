//! The move to shared memory between two network namespaces of one host, and over the addresses of
//! one link. The process at the other end is this test binary again, in another role.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod support;

use std::path::{Path, PathBuf};

use rnic::*;
use support::networks::{FAR, FAR_V4, FarNetwork, NEAR, NEAR_LINK, connect_networks};
use support::process::OtherProcess;
use support::testbed::wait_until;
use support::*;

/// The variable that makes this binary the other process. It has the adapter's parameters.
const ROLE: &str = "LOCAL_NETWORKS_ROLE";
const MESSAGES: usize = 300;
const LEN: usize = 20_000;

/// Not a test: the other process. It answers messages with their own bytes.
#[test]
fn other_process() {
    let Ok(params) = std::env::var(ROLE) else {
        return;
    };
    let node = Node::new(&params);
    let server = node.side(10);
    let (_listener, port) = node.listen();
    let memory = node.memory(2 * LEN);
    let slot = |round: usize, len| memory.sge(round % 2 * LEN, len);
    server.recv(0, &[slot(0, LEN)]);
    println!("PORT {port}");
    let (request, _) = node.recorder.request(7);
    server.accept(request, &[]);
    assert!(matches!(server.event(), Event::Established { .. }));
    for round in 0..MESSAGES {
        let len = server.received().byte_len as usize;
        server.recv(0, &[slot(round + 1, LEN)]);
        server.send(1, &[slot(round, len)]);
        server.sent();
    }
    println!("WAY {}", way(&server));
    assert_eq!(server.event(), Event::Disconnected);
}

/// Returns "moved", or the reason why a connection is on TCP.
fn way(side: &Side<'_>) -> String {
    let traffic = side.node.rnic.traffic(&side.qp).unwrap();
    let why = WhyTcp::ALL
        .into_iter()
        .find(|why| traffic.on_tcp[*why as usize] > 0);
    match why {
        Some(why) => format!("{why:?}"),
        None => "moved".to_owned(),
    }
}

/// Directories of the test, removed with it.
struct Directories(PathBuf);

impl Directories {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("dat-rs-networks-{}", std::process::id()));
        for name in ["one", "other"] {
            std::fs::create_dir_all(path.join(name)).unwrap();
        }
        Self(path)
    }

    fn setting(&self, name: Option<&str>) -> String {
        let dir = |name: &str| format!(" local_dir={}", self.0.join(name).display());
        name.map(dir).unwrap_or_default()
    }

    fn sockets(&self) -> usize {
        let count = |dir: &Path| std::fs::read_dir(dir).unwrap().count();
        count(&self.0.join("one")) + count(&self.0.join("other"))
    }
}

impl Drop for Directories {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Connects to a process in the second network and exchanges messages. Returns the [`way`] of the
/// connection at this end and at the other.
fn exchange(network: &FarNetwork, params: &str, others: &str) -> (String, String) {
    let mut other = OtherProcess::start((ROLE, others), |it| network.enter_on_exec(it));
    let port: u16 = other.word_after("PORT ").parse().unwrap();
    let node = Node::new(params);
    let client = node.side(10);
    let params = ConnectParams {
        remote: format!("{FAR_V4}:{port}").parse().unwrap(),
        timeout: Some(DEADLINE),
        private_data: &[],
    };
    node.rnic.connect(&client.qp, &params).unwrap();
    assert!(matches!(client.event(), Event::Established { .. }));
    let (from, to) = (node.memory(LEN), node.memory(LEN));
    for round in 0..MESSAGES {
        let len = if round % 2 == 0 { 64 } else { LEN };
        from.fill(round);
        client.recv(1, &[to.sge(0, len)]);
        client.send(1, &[from.sge(0, len)]);
        assert_eq!(client.received().status, WcStatus::Success);
        assert_eq!(client.sent().status, WcStatus::Success);
        assert!(to.copy(0, len) == patterned(round, len), "{round}");
    }
    let ways = (way(&client), other.word_after("WAY "));
    node.rnic.disconnect(&client.qp, false);
    assert_eq!(client.event(), Event::Disconnected);
    assert!(other.child.wait().unwrap().success());
    ways
}

#[test]
fn a_directory_that_two_networks_have_lets_their_connections_move() {
    let Some(network) = connect_networks("a directory of two networks") else {
        return;
    };
    let directories = Directories::new();
    // The directories of the connecting and the accepting process, and the way at each end.
    let cases = [
        (Some("one"), Some("one"), "moved", "moved"),
        (None, None, "OtherHost", "OtherHost"),
        (None, Some("one"), "OtherHost", "NotAnswered"),
        (Some("one"), None, "OtherHost", "OtherHost"),
        (Some("one"), Some("other"), "OtherHost", "NotAnswered"),
    ];
    for (ours, theirs, here, there) in cases {
        let params = format!("{NEAR} 0{}", directories.setting(ours));
        let others = format!("{FAR} 0{}", directories.setting(theirs));
        let ways = exchange(&network, &params, &others);
        assert_eq!(ways, (here.into(), there.into()), "{ours:?} {theirs:?}");
        wait_until("sockets are left in the directory", || {
            directories.sockets() == 0
        });
    }
}

#[test]
fn connections_between_link_local_addresses_of_this_host_move() {
    let Some(_network) = connect_networks("link-local addresses") else {
        return;
    };
    let device = format!("{NEAR_LINK}%{NEAR} 0");
    let (a, b) = (Node::new(&device), Node::new(&device));
    let (client, server) = connected(&a, &b);
    moved::move_on(&client, &server);
    assert_eq!(
        (way(&client), way(&server)),
        ("moved".into(), "moved".into())
    );
}
