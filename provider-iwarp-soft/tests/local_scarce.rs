//! Too few descriptors, too little memory and too low limits for shared memory: the connection
//! stays on TCP and works. A separate test binary, because limits belong to the process.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod support;

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use rnic::*;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Resource as Limit, Rlimit, getrlimit, setrlimit};
use support::scripted::{RING_LEN, Scripted, Shared, answer, hello, send_with, unix_address};
use support::testbed::{alone, mappings, wait_until, works};
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

/// Connects two adapters and exchanges messages under a limit. `warm`: another connection of the
/// two adapters has moved before.
fn stays_on_tcp(name: &str, warm: bool, limit: Limit, to: impl FnOnce() -> u64) {
    let _alone = alone();
    let (a, b) = nodes();
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
fn with_a_low_file_size_limit_a_connection_stays_on_tcp() {
    stays_on_tcp("file size", true, Limit::Fsize, || 4096);
}

/// Processor time of this process, in microseconds.
fn busy_us() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1000
}

#[test]
fn a_peer_that_connects_while_descriptors_are_exhausted_causes_no_busy_loop() {
    let _alone = alone();
    let node = Node::new("lo 0");
    let victim = node.side(10);
    let mut peer = Scripted::initiator(&victim);
    let (place, token) = peer.provoke_offer(&victim);
    let kind = SocketType::STREAM;
    let flags = SocketFlags::CLOEXEC;
    let unix = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None).unwrap();
    let shared = Shared::new();
    let (busy, took) = limited(Limit::Nofile, 0, || {
        rustix::net::connect(&unix, &unix_address(&place)).unwrap();
        let (start, before) = (std::time::Instant::now(), busy_us());
        std::thread::sleep(std::time::Duration::from_millis(300));
        (busy_us() - before, start.elapsed().as_micros() as u64)
    });
    assert!(busy < took / 3, "{busy} of {took} us");
    works(&mut peer, &victim, "no descriptor");
    // Descriptors are available again.
    let mut unix = UnixStream::from(unix);
    unix.set_read_timeout(Some(DEADLINE)).unwrap();
    send_with(&unix, &hello(token, RING_LEN), &[shared.fd.as_fd()]);
    assert_eq!(answer(&mut unix), Some(0));
}

/// A socket that connects later, which needs no descriptor.
fn unconnected() -> std::os::fd::OwnedFd {
    let flags = SocketFlags::CLOEXEC;
    rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap()
}

#[test]
fn silent_peers_that_use_up_the_descriptors_lose_their_slots() {
    let _alone = alone();
    let node = Node::new("lo 0 half_open_ms=20 mpa_timeout_ms=3600000");
    let (_listener, port) = node.listen();
    let sockets: Vec<_> = (0..20).map(|_| unconnected()).collect();
    let highest = sockets.iter().map(std::os::fd::AsRawFd::as_raw_fd).max();
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], port));
    let last = limited(Limit::Nofile, highest.unwrap() as u64 + 6, || {
        for socket in &sockets {
            rustix::net::connect(socket, &address).unwrap();
        }
        let request = hex("4d504120 49442052 65712046 72616d65 50010000");
        rustix::io::write(&sockets[19], &request).unwrap();
        node.recorder.request(7)
    });
    drop(last);
}
