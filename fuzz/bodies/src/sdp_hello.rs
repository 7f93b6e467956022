//! Hello and HelloAck: an accepted message is emitted, trimmed or whole, as bytes that parse to the
//! same message, and opens a connection.
//!
//! Input: the private data of a request or a reply.

use sdp_proto::{
    Config, Connection, ConnectionState, Event,
    wire::{Hello, HelloAck},
};

use crate::{
    sdp_message::{HELLO, HELLO_ACK},
    seed::{Seed, hex, seed},
};

const CONFIG: Config = Config {
    buffers: 8,
    buffer_size: 1_024,
    send_size_max: 1_024,
    adverts_max: 1,
    write_min: 1,
};

/// Runs one input.
pub fn run(data: &[u8]) {
    if let Ok(hello) = Hello::parse(data) {
        check_hello(&hello);
    }
    if let Ok(ack) = HelloAck::parse(data) {
        assert_eq!(HelloAck::parse(&ack.emit()), Ok(ack));
        let trimmed = ack.trimmed(HelloAck::NEEDED_LEN).expect("room enough");
        assert_eq!(HelloAck::parse(&trimmed), Ok(ack));
    }
    check_reply(data);
}

fn check_hello(hello: &Hello) {
    // The bytes may differ: a small number of advertisements has two encodings.
    assert_eq!(Hello::parse(&hello.emit()).as_ref(), Ok(hello));
    let trimmed = hello.trimmed(hello.needed_len()).expect("room enough");
    assert_eq!(Hello::parse(&trimmed).as_ref(), Ok(hello));
    assert!(hello.trimmed(hello.needed_len() - 1).is_err());
    let (mut connection, ack) = Connection::accept(CONFIG, hello);
    assert!(HelloAck::parse(&ack.emit()).is_ok());
    connection.handle_established();
    assert_eq!(connection.poll_event(), Some(Event::Established));
    assert!(connection.write(100));
    let first = connection
        .poll_transmit()
        .map(|transmit| transmit.payload.len());
    assert!(first.is_none_or(|len| len >= 1 && len + 16 <= hello.own_size));
}

/// Checks that a reply opens the connection or ends it.
fn check_reply(data: &[u8]) {
    let local = ([192, 0, 2, 1], 7).into();
    let (mut connection, _) = Connection::connect(CONFIG, local, [192, 0, 2, 2].into());
    let is_accepted = connection.handle_hello_ack(data).is_ok();
    assert_eq!(is_accepted, HelloAck::parse(data).is_ok());
    let state = connection.state();
    assert_eq!(is_accepted, state == ConnectionState::Established);
    assert_eq!(!is_accepted, state.has_ended());
}

/// The initial inputs of the corpus.
pub(crate) fn seeds() -> Vec<Seed> {
    let mut whole = hex(HELLO);
    whole.resize(92, 0);
    let mut v6 = whole.clone();
    v6[17] = 0x60;
    let mut many = whole.clone();
    many[17] = 0x42;
    many[67] = 9;
    let mut ack = hex(HELLO_ACK);
    let trimmed_ack = ack.clone();
    ack.resize(196, 0);
    [
        ("trimmed", hex(HELLO)),
        ("whole", whole),
        ("ipv6", v6),
        ("extended", many),
        ("ack", ack),
        ("trimmed-ack", trimmed_ack),
    ]
    .map(|(name, bytes)| seed("sdp_hello", name, bytes))
    .into()
}
