//! Consumers' sockets: conversions, and their return (DAT 2.0 iWARP extensions 3.1).

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, IntoRawFd};

use crate::support::*;
use rnic::*;

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    for stream in [&client, &server] {
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
    }
    (client, server)
}

fn expect_bytes(mut stream: &TcpStream, expected: &[u8]) {
    let mut bytes = vec![0; expected.len()];
    stream.read_exact(&mut bytes).unwrap();
    assert_eq!(bytes, expected);
}

fn talk(mut one: &TcpStream, other: &TcpStream) {
    one.write_all(b"still a stream").unwrap();
    expect_bytes(other, b"still a stream");
}

#[test]
fn a_rejected_socket_is_returned_on_both_sides() {
    let (a, b) = nodes();
    let client = a.side(10);
    let (one, other) = pair();
    let _armed = b.arm(other.as_raw_fd(), 5);
    client.connect_socket(one.as_raw_fd()).unwrap();
    let (request, _) = b.recorder.request(5);
    b.rnic.reject(request, b"stay").unwrap();
    (&other).write_all(b"behind the reply").unwrap();
    let private_data = b"stay".to_vec();
    assert_eq!(client.event(), Event::PeerRejected { private_data });
    expect_bytes(&one, b"behind the reply");
    talk(&one, &other);
    talk(&other, &one);
    assert!(!one.nodelay().unwrap() && !other.nodelay().unwrap());
}

#[test]
fn a_disarmed_socket_is_returned_with_its_unread_bytes() {
    let b = Node::new("lo 0");
    let (one, other) = pair();
    (&one).write_all(b"MPA ID").unwrap();
    let armed = b.arm(other.as_raw_fd(), 5);
    assert!(b.rnic.disarm_socket(armed));
    expect_bytes(&other, b"MPA ID");
    talk(&one, &other);
    // The returned socket can be armed again.
    drop(b.arm(other.as_raw_fd(), 6));
    talk(&one, &other);
}

#[test]
fn bytes_that_are_no_request_put_the_socket_down_unread() {
    let b = Node::new("lo 0");
    let (one, other) = pair();
    let armed = b.arm(other.as_raw_fd(), 5);
    (&one).write_all(b"MPA ID Rex and more").unwrap();
    b.recorder.socket_down(5);
    assert!(!b.rnic.disarm_socket(armed));
    expect_bytes(&other, b"MPA ID Rex and more");
}

#[test]
fn a_request_that_begins_and_does_not_end_puts_the_socket_down() {
    let b = Node::new("lo 0 mpa_timeout_ms=100");
    let (one, other) = pair();
    let _armed = b.arm(other.as_raw_fd(), 1);
    (&one).write_all(b"MPA ID Req").unwrap();
    b.recorder.socket_down(1);
}

#[test]
fn two_initiators_over_one_stream_refuse_each_other() {
    let (a, b) = nodes();
    let (one, other) = pair();
    let sides = [(a.side(10), &one), (b.side(20), &other)];
    for (side, socket) in &sides {
        side.connect_socket(socket.as_raw_fd()).unwrap();
    }
    for (side, socket) in &sides {
        assert_eq!(side.event(), Event::NonPeerRejected);
        // The Request of the other side stays unread in the socket.
        expect_bytes(socket, b"MPA ID Req Frame");
    }
}

#[test]
fn an_accept_that_is_not_answered_returns_the_socket() {
    let b = Node::new("lo 0 mpa_timeout_ms=20");
    for (is_aborted, event) in [(false, Event::AcceptFailed), (true, Event::Disconnected)] {
        let server = b.side(20);
        let (one, other) = pair();
        let _armed = b.arm(other.as_raw_fd(), 1);
        let request = "4d504120 49442052 65712046 72616d65 50020004 8004c004";
        (&one).write_all(&hex(request)).unwrap();
        let (request, _) = b.recorder.request(1);
        server.accept(request, &[]);
        if is_aborted {
            b.rnic.disconnect(&server.qp, true);
        }
        assert_eq!(server.event(), event);
        read_startup(&mut one.try_clone().unwrap());
        talk(&other, &one);
        talk(&one, &other);
    }
}

#[test]
fn the_descriptor_is_closed_after_the_disconnect_event() {
    let a = Node::new("lo 0");
    let client = a.side(10);
    let (one, mut other) = pair();
    let number = one.into_raw_fd();
    // Another test may open a descriptor with this number at once.
    let meaning = || std::fs::read_link(format!("/proc/self/fd/{number}")).ok();
    let before = meaning();
    client.connect_socket(number).unwrap();
    read_startup(&mut other);
    other.write_all(&hex(REPLY)).unwrap();
    assert!(matches!(client.event(), Event::Established { .. }));
    // The peer does not close its side yet.
    a.rnic.disconnect(&client.qp, true);
    assert_ne!(meaning(), before);
    assert_eq!(client.event(), Event::Disconnected);
    drop(other);
}

/// Checks that no call takes this socket, under this number or another one, and that nothing is
/// sent over it.
fn expect_in_use(node: &Node, socket: std::os::fd::RawFd) {
    let idle = node.side(900);
    // SAFETY: a number; the duplicate is closed below.
    let second = unsafe { libc::dup(socket) };
    for number in [socket, second] {
        let connected = idle.connect_socket(number);
        assert_eq!(connected, Err(SocketFault::InUse));
        let armed = node.rnic.arm_socket(number, b"bytes", ListenToken(9));
        assert_eq!(armed.unwrap_err(), SocketFault::InUse);
    }
    // SAFETY: our own duplicate, which no call took.
    unsafe { libc::close(second) };
}

fn expect_silence(mut stream: &TcpStream) {
    stream.set_nonblocking(true).unwrap();
    let read = stream.read(&mut [0]);
    let kind = read.map_err(|error| error.kind());
    assert_eq!(kind, Err(std::io::ErrorKind::WouldBlock));
    stream.set_nonblocking(false).unwrap();
}

#[test]
fn a_socket_of_a_service_point_a_request_or_an_attempt_is_not_taken_again() {
    let node = Node::new("lo 0");
    let client = node.side(10);
    let (mut one, other) = pair();
    let number = other.as_raw_fd();
    let armed = node.arm(number, 5);
    expect_in_use(&node, number);
    expect_silence(&one);
    assert!(node.rnic.disarm_socket(armed));

    let armed = node.arm(number, 5);
    one.write_all(&hex(REQUEST_REV1)).unwrap();
    let (request, _) = node.recorder.request(5);
    drop(armed);
    expect_in_use(&node, number);
    expect_silence(&one);
    node.rnic.reject(request, &[]).unwrap();
    read_startup(&mut one);

    client.connect_socket(number).unwrap();
    read_startup(&mut one);
    expect_in_use(&node, number);
    expect_silence(&one);
    one.write_all(b"500 what?").unwrap();
    assert_eq!(client.event(), Event::NonPeerRejected);
    (&other).read_exact(&mut [0; 9]).unwrap();
    talk(&other, &one);
    let armed = node.arm(number, 5);
    assert!(node.rnic.disarm_socket(armed), "the socket was returned");
}

#[test]
fn a_socket_that_carries_a_connection_is_not_taken_again() {
    let node = Node::new("lo 0");
    let (client, server) = (node.side(10), node.side(20));
    let memory = node.memory(8);
    let (one, other) = pair();
    let (one, other) = (one.into_raw_fd(), other.into_raw_fd());
    let armed = node.arm(other, 5);
    client.connect_socket(one).unwrap();
    let (request, _) = node.recorder.request(5);
    drop(armed);
    server.accept(request, &[]);
    for side in [&client, &server] {
        assert!(matches!(side.event(), Event::Established { .. }));
    }
    for number in [one, other] {
        expect_in_use(&node, number);
    }
    server.recv(1, &[memory.sge(0, 8)]);
    client.send(1, &[memory.sge(0, 8)]);
    assert_eq!(server.received().status, WcStatus::Success);
}

/// More bytes than fit into the buffers of a stream if the peer reads only a few of them.
const MUCH: usize = 16 << 20;

#[test]
fn a_final_message_that_the_peer_does_not_receive_is_a_failure_and_returns_the_socket() {
    let node = Node::new("lo 0 mpa_timeout_ms=200");
    for request in ["", REQUEST_REV1] {
        let (mut one, other) = pair();
        // An early Request, and the end of the peer's side, change nothing.
        one.write_all(&hex(request)).unwrap();
        if !request.is_empty() {
            one.shutdown(Shutdown::Write).unwrap();
        }
        let armed = node
            .rnic
            .arm_socket(other.as_raw_fd(), &vec![7; MUCH], ListenToken(5));
        assert_eq!(armed.unwrap_err(), SocketFault::FinalMessage);
        // The socket belongs to the consumer: the early bytes and the final message are one stream.
        expect_bytes(&other, &hex(request));
        other.shutdown(Shutdown::Write).unwrap();
        let mut sent = Vec::new();
        one.read_to_end(&mut sent).unwrap();
        assert!(sent.len() < MUCH && sent.iter().all(|byte| *byte == 7));
    }
    let upcall = node.recorder.try_next();
    assert!(upcall.is_none(), "{upcall:?}");
}

#[test]
fn a_peer_that_disconnects_during_the_final_message_causes_one_event() {
    let node = Node::new("lo 0");
    let (one, other) = pair();
    let armed = std::thread::scope(|scope| {
        scope.spawn(move || {
            // Unread bytes turn the close into a reset.
            (&one).read_exact(&mut [0; 1]).unwrap();
            drop(one);
        });
        let message = vec![7; MUCH];
        node.rnic
            .arm_socket(other.as_raw_fd(), &message, ListenToken(5))
    });
    let armed = armed.unwrap();
    node.recorder.socket_down(5);
    assert!(!node.rnic.disarm_socket(armed));
    let upcall = node.recorder.try_next();
    assert!(upcall.is_none(), "{upcall:?}");
}
