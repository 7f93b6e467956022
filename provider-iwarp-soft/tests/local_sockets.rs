//! Connections that began as a consumer's sockets move to shared memory like all others.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod support;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsRawFd, IntoRawFd};

use rnic::*;
use support::moved::{has_moved, is_moved};
use support::networks::{NEAR, NEAR_LINK, NEAR_V4, connect_networks};
use support::testbed::{alone, wait_until};
use support::*;

const MESSAGES: usize = 300;
/// Further messages of each direction, after the connection has moved.
const LATER: usize = 2 * AHEAD;
const LEN: usize = 60_000;
/// Messages of one direction that are in flight at once.
const AHEAD: usize = 8;
const LENGTHS: [usize; 5] = [0, 64, 5000, 20_000, LEN];

/// A stream over which both ends have sent data.
fn streams(address: &str) -> (TcpStream, TcpStream) {
    let address = format!("{address}:0").to_socket_addrs().unwrap().next();
    let listener = TcpListener::bind(address.unwrap()).unwrap();
    let mut one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut other, _) = listener.accept().unwrap();
    for stream in [&one, &other] {
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
    }
    let mut bytes = [0; 5];
    one.write_all(b"hello").unwrap();
    other.read_exact(&mut bytes).unwrap();
    other.write_all(&bytes).unwrap();
    one.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"hello");
    (one, other)
}

/// Converts a stream: `server` by a service point, `client` by its socket. Returns the numbers of
/// the consumers' sockets.
fn convert(client: &Side<'_>, server: &Side<'_>, address: &str) -> [i32; 2] {
    let (mut one, other) = streams(address);
    let _armed = server
        .node
        .rnic
        .arm_socket(other.as_raw_fd(), b"go RDMA", ListenToken(5))
        .unwrap();
    let mut message = [0; 7];
    one.read_exact(&mut message).unwrap();
    assert_eq!(&message, b"go RDMA");
    let numbers = [one.into_raw_fd(), other.into_raw_fd()];
    client.connect_socket(numbers[0]).unwrap();
    let (request, _) = server.node.recorder.request(5);
    server.accept(request, &[]);
    for side in [client, server] {
        assert!(matches!(side.event(), Event::Established { .. }));
    }
    numbers
}

/// The messages of one direction.
struct Direction<'a> {
    from: (&'a Side<'a>, Memory),
    to: (&'a Side<'a>, Memory),
    posted: usize,
    done: usize,
}

impl<'a> Direction<'a> {
    fn new(from: &'a Side<'a>, to: &'a Side<'a>) -> Self {
        let memories = [from, to].map(|side| side.node.memory(AHEAD * LEN));
        let [sending, receiving] = memories;
        Self {
            from: (from, sending),
            to: (to, receiving),
            posted: 0,
            done: 0,
        }
    }

    /// Posts as many messages as may be in flight, up to `total`.
    fn post(&mut self, total: usize) {
        while self.posted < total && self.posted < self.done + AHEAD {
            let number = self.posted;
            let (at, len) = (number % AHEAD * LEN, LENGTHS[number % LENGTHS.len()]);
            for (i, byte) in patterned(number, len).into_iter().enumerate() {
                self.from.1.set(at + i, byte);
            }
            self.to.0.recv(number as u64, &[self.to.1.sge(at, LEN)]);
            self.from.0.send(number as u64, &[self.from.1.sge(at, len)]);
            self.posted += 1;
        }
    }

    /// Awaits the oldest message and checks its number, its length and its bytes.
    fn take(&mut self) {
        let number = self.done;
        let (at, len) = (number % AHEAD * LEN, LENGTHS[number % LENGTHS.len()]);
        let received = self.to.0.received();
        assert_eq!(received.status, WcStatus::Success, "{number}");
        let of_message = (received.wr_id, received.byte_len as usize);
        assert_eq!(of_message, (number as u64, len));
        assert!(
            self.to.1.copy(at, len) == patterned(number, len),
            "{number}"
        );
        self.from.0.expect_sent(number as u64);
        self.done += 1;
    }
}

/// Both directions carry messages while the connection moves.
fn exchange(client: &Side<'_>, server: &Side<'_>) {
    assert!(!is_moved(client) && !is_moved(server), "nothing was sent");
    let mut directions = [
        Direction::new(client, server),
        Direction::new(server, client),
    ];
    let mut exchange_until = |total| {
        while directions.iter().any(|direction| direction.done < total) {
            directions
                .iter_mut()
                .for_each(|direction| direction.post(total));
            directions.iter_mut().for_each(Direction::take);
        }
    };
    exchange_until(MESSAGES);
    // On a busy machine the connection may move after these messages.
    has_moved(client, server);
    exchange_until(MESSAGES + LATER);
    let traffic = client.node.rnic.traffic(&client.qp).unwrap();
    assert!(
        traffic.tcp.sent.bytes > 0,
        "the connection moved before any data was sent"
    );
    let ways = [traffic.ring, traffic.reference];
    let moved: u64 = ways.iter().map(|way| way.sent.bytes).sum();
    assert!(moved > 0, "{traffic:?}");
}

/// Takes converted connections from their beginning to each of their endings.
fn run_to_each_end(adapter: &str, address: &str) {
    for (is_abrupt, is_client) in [(true, true), (true, false), (false, true), (false, false)] {
        let name = format!("{adapter} {address} {is_abrupt} {is_client}");
        let (a, b) = (Node::new(adapter), Node::new(adapter));
        let (client, server) = (a.side(10), b.side(20));
        let numbers = convert(&client, &server, address);
        let targets = numbers.map(target_of);
        exchange(&client, &server);
        let (ender, other) = match is_client {
            true => (&client, &server),
            false => (&server, &client),
        };
        other.recv(7, &[]);
        ender.node.rnic.disconnect(&ender.qp, is_abrupt);
        assert_eq!(ender.event(), Event::Disconnected, "{name}");
        assert_eq!(other.event(), Event::Disconnected, "{name}");
        assert_eq!(other.received().status, WcStatus::Flushed, "{name}");
        drop((client, server));
        wait_until("a consumer's number stays open", || {
            numbers
                .map(target_of)
                .iter()
                .zip(&targets)
                .all(|(now, then)| now != then)
        });
    }
}

/// The object that a descriptor refers to.
fn target_of(number: i32) -> Option<std::path::PathBuf> {
    std::fs::read_link(format!("/proc/thread-self/fd/{number}")).ok()
}

#[test]
fn converted_sockets_of_loopback_addresses_move() {
    let _alone = alone();
    for (adapter, address) in [
        ("127.0.0.1 0", "127.0.0.1"),
        ("::1 0", "[::1]"),
        ("127.0.0.1 0", "[::ffff:127.0.0.1]"),
        ("127.0.0.1 0 sockets=any", "[::1]"),
    ] {
        run_to_each_end(adapter, address);
    }
}

#[test]
fn converted_sockets_of_other_local_addresses_move() {
    let _alone = alone();
    let Some(_network) = connect_networks("sockets of local addresses") else {
        return;
    };
    run_to_each_end(&format!("{NEAR_V4} 0"), NEAR_V4);
    run_to_each_end(&format!("{NEAR_V4} 0"), &format!("[::ffff:{NEAR_V4}]"));
    let link_local = format!("{NEAR_LINK}%{NEAR}");
    run_to_each_end(&format!("{link_local} 0"), &link_local);
}
