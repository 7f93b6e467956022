//! Hello and HelloAck.

use std::net::{IpAddr, SocketAddr};

use super::hex;
use crate::{
    Config, Connection, ConnectionState, Event, Failure, ProtocolError,
    wire::{Hello, HelloAck, TrimError, Version, WireError},
};

const HELLO: &str = "00000040 0000005c 00000000 00000000 22400001 00008010 00008010 9c400000 \
                     00000000 00000000 00000000 c0000201 00000000 00000000 00000000 c0000202";
const HELLO_V6: &str = "00000040 0000005c 00000000 00000000 22600001 00008010 00008010 9c400000 \
                        20010db8 00000000 00000000 00000001 20010db8 00000000 00000000 00000002";
const HELLO_ACK: &str = "01000040 000000c4 00000000 00000000 22000001 00008010";

const CONFIG: Config = Config {
    buffers: 64,
    buffer_size: 32_784,
    send_size_max: 32_784,
    adverts_max: 1,
    write_min: 1,
};

fn padded(text: &str, len: usize) -> Vec<u8> {
    let mut bytes = hex(text);
    bytes.resize(len, 0);
    bytes
}

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn connect() -> (Connection, Hello) {
    let local: SocketAddr = "192.0.2.1:40000".parse().expect("an address");
    Connection::connect(CONFIG, local, address("192.0.2.2"))
}

#[test]
fn hello_is_what_the_table_says() {
    let (_, hello) = connect();
    let bytes = padded(HELLO, 92);
    assert_eq!(hello.emit().as_slice(), bytes);
    assert_eq!(Hello::parse(&bytes), Ok(hello));
}

#[test]
fn hello_for_ipv6_is_what_the_table_says() {
    let bytes = padded(HELLO_V6, 92);
    let hello = Hello::parse(&bytes).expect("a good Hello");
    assert_eq!(hello.source, address("2001:db8::1"));
    assert_eq!(hello.destination, address("2001:db8::2"));
    assert_eq!(hello.port, 40_000);
    assert_eq!(hello.emit().as_slice(), bytes);
}

#[test]
fn hello_ack_is_what_the_table_says() {
    let (_, hello) = connect();
    let (_, ack) = Connection::accept(CONFIG, &hello);
    let bytes = padded(HELLO_ACK, 196);
    assert_eq!(ack.emit().as_slice(), bytes);
    assert_eq!(HelloAck::parse(&bytes), Ok(ack));
}

#[test]
fn only_zeros_are_trimmed_and_padding_is_ignored() {
    let (_, hello) = connect();
    for available in [64, 80, 92, 512] {
        let bytes = hello.trimmed(available).expect("room enough");
        assert_eq!(bytes.len(), available.min(92));
        assert_eq!(Hello::parse(&bytes), Ok(hello), "{available}");
    }
    let error = TrimError {
        needed: 64,
        available: 63,
    };
    assert_eq!(hello.trimmed(63), Err(error));

    let many = Hello {
        adverts_max: 300,
        ..hello
    };
    assert_eq!(many.needed_len(), 68);
    let bytes = many.trimmed(68).expect("room enough");
    assert_eq!(Hello::parse(&bytes), Ok(many));
    assert!(many.trimmed(67).is_err());

    let mut longer = hello.emit().to_vec();
    longer.resize(196, 0);
    assert_eq!(Hello::parse(&longer), Ok(hello));
    longer[195] = 1;
    let parsed = Hello::parse(&longer);
    assert!(matches!(parsed, Err(WireError::Length { .. })));

    let (_, ack) = Connection::accept(CONFIG, &hello);
    for available in [24, 160, 196, 256] {
        let bytes = ack.trimmed(available).expect("room enough");
        assert_eq!(HelloAck::parse(&bytes), Ok(ack), "{available}");
    }
    assert!(ack.trimmed(23).is_err());
}

#[test]
fn both_major_versions_are_taken() {
    for (byte, major, minor) in [(0x11, 1, 1), (0x20, 2, 0), (0x22, 2, 2), (0x2f, 2, 15)] {
        let mut bytes = padded(HELLO, 92);
        bytes[16] = byte;
        let hello = Hello::parse(&bytes).expect("a version that is spoken");
        assert_eq!(hello.version, Version { major, minor });
    }
    for byte in [0x00, 0x0f, 0x30, 0xff] {
        let mut bytes = padded(HELLO, 92);
        bytes[16] = byte;
        let is_refused = matches!(Hello::parse(&bytes), Err(WireError::Version { .. }));
        assert!(is_refused, "Hello with {byte:#x}");
        let mut bytes = padded(HELLO_ACK, 196);
        bytes[16] = byte;
        let is_refused = matches!(HelloAck::parse(&bytes), Err(WireError::Version { .. }));
        assert!(is_refused, "HelloAck with {byte:#x}");
    }
}

#[test]
fn what_allows_no_stream_is_refused() {
    type Row = (usize, u8, fn(&WireError) -> bool);
    let rows: [Row; 9] = [
        (0, 1, |error| matches!(error, WireError::Misplaced(_))),
        (3, 2, |error| *error == WireError::BufferCount(2)),
        (7, 0x5b, |error| matches!(error, WireError::Length { .. })),
        (11, 1, |error| *error == WireError::Numbered),
        (15, 1, |error| *error == WireError::Numbered),
        (17, 0x50, |error| *error == WireError::AddressFamily(5)),
        (19, 0, |error| *error == WireError::NoAdverts),
        (26, 0, |error| matches!(error, WireError::BufferSize(_))),
        (32, 1, |error| *error == WireError::Ipv4Padding),
    ];
    for (at, byte, is_expected) in rows {
        let mut bytes = padded(HELLO, 92);
        bytes[at] = byte;
        let error = Hello::parse(&bytes).expect_err("not a Hello to take");
        assert!(is_expected(&error), "byte {at}: {error}");
    }
    for len in 0..16 {
        let error = Hello::parse(&padded(HELLO, 92)[..len]).expect_err("cut");
        assert_eq!(error, WireError::Short { len });
    }
}

#[test]
fn a_bad_answer_ends_the_connection() {
    let (mut connection, _) = connect();
    let mut bytes = padded(HELLO_ACK, 196);
    bytes[19] = 0;
    let refused = connection.handle_hello_ack(&bytes);
    assert_eq!(refused, Err(WireError::NoAdverts));
    let failure = Failure::Protocol(ProtocolError::Wire(WireError::NoAdverts));
    assert_eq!(connection.state(), ConnectionState::Failed(failure));
    assert_eq!(connection.poll_event(), Some(Event::Failed(failure)));
    assert_eq!(connection.poll_event(), Some(Event::Disconnect));
    assert_eq!(connection.poll_event(), None);
}

#[test]
fn an_answer_establishes_and_a_refusal_says_so() {
    let (mut connection, _) = connect();
    connection
        .handle_hello_ack(&padded(HELLO_ACK, 196))
        .expect("a good answer");
    assert_eq!(connection.poll_event(), Some(Event::Established));
    assert_eq!(connection.credits(), 64);
    assert_eq!(connection.payload_max(), 32_768);

    let (mut connection, _) = connect();
    connection.handle_disconnected();
    let event = connection.poll_event();
    assert_eq!(event, Some(Event::Failed(Failure::Refused)));
}

#[test]
fn a_first_message_that_overtakes_ready_establishes() {
    let (_, hello) = connect();
    let (mut connection, _) = Connection::accept(CONFIG, &hello);
    assert!(connection.write(5));
    let early = connection.poll_transmit();
    assert_eq!(early, None, "the peer may not be ready");
    let message = hex("ff000040 00000015 00000001 00000000 68656c6c 6f");
    let inbound = connection
        .handle_message(&message, 21)
        .expect("a good message");
    assert_eq!((inbound.payload_at, inbound.payload_len), (16, 5));
    assert_eq!(connection.poll_event(), Some(Event::Established));
    connection.handle_established();
    assert_eq!(connection.poll_event(), None);
    assert!(connection.poll_transmit().is_some());
}

#[test]
fn nothing_may_come_before_the_answer() {
    let (mut connection, _) = connect();
    let message = hex("ff000040 00000015 00000001 00000000 68656c6c 6f");
    let error = connection.handle_message(&message, 21);
    assert!(matches!(error, Err(ProtocolError::NotEstablished(_))));
    assert!(connection.state().has_ended());
}
