//! SDP messages: a parsed message is emitted as the same bytes, and a second parser accepts no
//! message that the first refuses.
//!
//! Input: the message.

use sdp_checker::{Checker, Side};
use sdp_proto::wire::{Bsdh, Message};

use crate::seed::{Seed, hex, seed};

/// Runs one input.
pub fn run(data: &[u8]) {
    let parsed = Message::parse(data, data.len());
    if let Ok(message) = parsed {
        let header = message.emit();
        let header_len = message.header_len();
        assert_eq!(header.as_bytes().len(), header_len);
        assert_eq!(data.len(), header_len + message.payload_len as usize);
        // Reserved bits are ignored and written as zero, so only the meaning is the same.
        let mut again = header.as_bytes().to_vec();
        again.extend_from_slice(&data[header_len..]);
        assert_eq!(Message::parse(&again, again.len()), Ok(message));
        assert!(Bsdh::parse(data).is_ok());
        // A header alone identifies the message.
        let head = &data[..data.len().min(36)];
        assert_eq!(Message::parse(head, data.len()), Ok(message));
    }
    // The second parser may refuse more, because it also checks the state of the connection.
    let mut checker = connection();
    let is_accepted = checker.sent(Side::Active, data, data.len()).is_ok();
    assert!(
        !is_accepted || parsed.is_ok(),
        "the checker accepts {data:02x?}"
    );
}

fn connection() -> Checker {
    let mut checker = Checker::new();
    checker.hello(&hex(HELLO)).expect("a good Hello");
    checker.hello_ack(&hex(HELLO_ACK)).expect("a good HelloAck");
    checker
}

pub(crate) const HELLO: &str = "00000040 0000005c 00000000 00000000 22400001 00008010 00008010 \
                                9c400000 00000000 00000000 00000000 c0000201 00000000 00000000 \
                                00000000 c0000202";
pub(crate) const HELLO_ACK: &str = "01000040 000000c4 00000000 00000000 22000001 00008010";

/// A message of each kind.
pub(crate) const MESSAGES: [(&str, &str); 19] = [
    ("data", "ff000040 00000015 00000001 00000000 68656c6c 6f"),
    ("update", "ff000040 00000010 00000001 00000000"),
    ("urgent", "ff030040 00000011 00000001 00000000 21"),
    (
        "src-avail",
        "fe000040 00000021 00000001 00000000 00020000 12345678 00007f00 deadb000 41",
    ),
    ("read", "0600003f 00000014 00000001 00000000 0001ffff"),
    ("disconn", "02000040 00000010 00000001 00000000"),
    ("abort", "03000040 00000010 00000001 00000000"),
    ("send-sm", "0400003f 00000010 00000001 00000000"),
    ("src-cancel", "08000040 00000010 00000001 00000000"),
    (
        "sink-avail",
        "fd00003f 00000024 00000001 00000000 00010000 0a0b0c0d 00007f00 c0de0000 00000002",
    ),
    ("written", "05000040 00000014 00000001 00000000 00010000"),
    ("sink-cancel", "09000040 00000010 00000001 00000000"),
    ("sink-cancelled", "0a000040 00000010 00000001 00000000"),
    ("buffered", "07000040 00000014 00000001 00000000 00000000"),
    ("pipelined", "07000040 00000014 00000001 00000000 20000000"),
    ("resize", "0b000040 00000014 00000001 00000000 00020010"),
    ("resized", "0c00003f 00000014 00000001 00000000 00008010"),
    (
        "suspend",
        "0d000040 00000018 00000001 00000000 00000000 00011390",
    ),
    ("suspended", "0e000040 00000010 00000001 00000000"),
];

/// The initial inputs of the corpus.
pub(crate) fn seeds() -> Vec<Seed> {
    MESSAGES
        .map(|(name, text)| seed("sdp_message", name, hex(text)))
        .into()
}
