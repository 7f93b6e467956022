//! The file format of a recorded connection: the messages that one end sent and received, in order.
//!
//! A record has one byte for the kind, four bytes (big-endian) for the length of the message, and
//! one byte for the number of bytes that follow. These are the first bytes of the message. Each
//! record is written with one call. The last record may be incomplete, if the process was killed
//! during that call.

use std::io::{self, Write};

use crate::{Broken, Checker, Side};

const HELLO: u8 = 0;
const HELLO_ACK: u8 = 1;
const SENT: u8 = 2;
const RECEIVED: u8 = 3;

/// The largest number of bytes of a message that a record keeps.
const KEPT_MAX: usize = 200;

/// Writes the trace of a connection at one of its ends.
#[derive(Debug)]
pub struct TraceWriter<W> {
    to: W,
}

impl<W: Write> TraceWriter<W> {
    /// Starts a trace.
    pub const fn new(to: W) -> Self {
        Self { to }
    }

    /// Records the private data of the request.
    pub fn hello(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.record(HELLO, bytes, bytes.len())
    }

    /// Records the private data of the reply.
    pub fn hello_ack(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.record(HELLO_ACK, bytes, bytes.len())
    }

    /// Records that this end sends a message of `len` bytes that starts with `head`.
    pub fn sent(&mut self, head: &[u8], len: usize) -> io::Result<()> {
        self.record(SENT, head, len)
    }

    /// Records that this end received a message of `len` bytes that starts with `head`.
    pub fn received(&mut self, head: &[u8], len: usize) -> io::Result<()> {
        self.record(RECEIVED, head, len)
    }

    /// Ends the trace and returns the destination.
    pub fn into_inner(self) -> W {
        self.to
    }

    fn record(&mut self, kind: u8, head: &[u8], len: usize) -> io::Result<()> {
        let kept = &head[..head.len().min(KEPT_MAX)];
        let mut record = vec![kind];
        record.extend((len as u32).to_be_bytes());
        record.push(kept.len() as u8);
        record.extend_from_slice(kept);
        self.to.write_all(&record)
    }
}

/// A fault in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceFault {
    /// A rule is broken.
    #[error("record {record}, sent by the {sender:?} side: {broken}")]
    Broken {
        /// The number of the record, from 0.
        record: u64,
        /// The side that broke the rule.
        sender: Side,
        /// The broken rule.
        broken: Broken,
    },
    /// The file is not a trace of a connection.
    #[error("record {0} has an unknown kind: the file is not a trace, or bytes are missing")]
    Form(u64),
}

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The private data of the connection request.
    Hello,
    /// The private data of the reply.
    HelloAck,
    /// A message that this end sent.
    Sent,
    /// A message that this end received.
    Received,
}

/// A message of a recorded connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The kind of the record.
    pub kind: Kind,
    /// The first bytes of the message.
    pub head: &'a [u8],
    /// The length of the whole message in bytes.
    pub len: usize,
}

impl Record<'_> {
    /// Returns the sender of the message. `side` is the end that wrote the trace.
    #[must_use]
    pub const fn sender(&self, side: Side) -> Side {
        match self.kind {
            Kind::Hello => Side::Active,
            Kind::HelloAck => Side::Passive,
            Kind::Sent => side,
            Kind::Received => side.other(),
        }
    }

    /// Passes the message to the checker.
    pub fn check(&self, checker: &mut Checker, side: Side) -> Result<(), Broken> {
        match self.kind {
            Kind::Hello => checker.hello(self.head),
            Kind::HelloAck => checker.hello_ack(self.head),
            Kind::Sent => checker.sent(side, self.head, self.len),
            Kind::Received => checker.arrived(side.other(), self.head, self.len),
        }
    }
}

/// The records of a file, in order. An incomplete record at the end is skipped. A record of an
/// unknown kind is a fault and ends the iteration.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    rest: &'a [u8],
    read: u64,
}

impl<'a> Records<'a> {
    /// The records of a file with this content.
    #[must_use]
    pub const fn of(bytes: &'a [u8]) -> Self {
        Self {
            rest: bytes,
            read: 0,
        }
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, TraceFault>;

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = std::mem::take(&mut self.rest);
        let kind = match *bytes.first()? {
            HELLO => Kind::Hello,
            HELLO_ACK => Kind::HelloAck,
            SENT => Kind::Sent,
            RECEIVED => Kind::Received,
            _ => return Some(Err(TraceFault::Form(self.read))),
        };
        let [_, l0, l1, l2, l3, kept, rest @ ..] = bytes else {
            return None;
        };
        let (head, rest) = rest.split_at_checked(usize::from(*kept))?;
        let len = u32::from_be_bytes([*l0, *l1, *l2, *l3]) as usize;
        self.rest = rest;
        self.read += 1;
        Some(Ok(Record { kind, head, len }))
    }
}

/// Checks the trace that the `side` end has written. Returns the checker after all records. An
/// incomplete last record is skipped.
pub fn check_trace(side: Side, bytes: &[u8]) -> Result<Checker, TraceFault> {
    let mut checker = Checker::new();
    for (number, record) in (0..).zip(Records::of(bytes)) {
        let record = record?;
        record
            .check(&mut checker, side)
            .map_err(|broken| TraceFault::Broken {
                record: number,
                sender: record.sender(side),
                broken,
            })?;
    }
    Ok(checker)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Vec<u8> {
        let mut bytes = vec![0; 92];
        bytes[3] = 0x40;
        bytes[7] = 92;
        bytes[16..20].copy_from_slice(&[0x22, 0x40, 0, 1]);
        bytes[22..24].copy_from_slice(&[0x80, 0x10]);
        bytes[26..28].copy_from_slice(&[0x80, 0x10]);
        bytes[28..30].copy_from_slice(&[0x9c, 0x40]);
        bytes
    }

    fn hello_ack() -> Vec<u8> {
        let mut bytes = vec![0; 196];
        bytes[0] = 1;
        bytes[3] = 0x40;
        bytes[7] = 196;
        bytes[16..20].copy_from_slice(&[0x22, 0, 0, 1]);
        bytes[22..24].copy_from_slice(&[0x80, 0x10]);
        bytes
    }

    const DATA: [u8; 21] =
        *b"\xff\x00\x00\x40\x00\x00\x00\x15\x00\x00\x00\x01\x00\x00\x00\x00hello";

    fn conversation() -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut writer = TraceWriter::new(&mut bytes);
        writer.hello(&hello())?;
        writer.hello_ack(&hello_ack())?;
        writer.sent(&DATA[..16], DATA.len())?;
        Ok(bytes)
    }

    /// Counts the calls of `write`.
    struct Writes(usize);

    impl Write for Writes {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += 1;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_record_is_written_at_once() -> io::Result<()> {
        let mut writes = Writes(0);
        TraceWriter::new(&mut writes).sent(&DATA, DATA.len())?;
        assert_eq!(writes.0, 1);
        Ok(())
    }

    /// The process may be killed while it writes. All complete records are checked, wherever the
    /// file ends.
    #[test]
    fn an_incomplete_last_record_is_skipped() -> io::Result<()> {
        let bytes = conversation()?;
        for len in 0..=bytes.len() {
            let checker = check_trace(Side::Active, &bytes[..len]).expect("keeps every rule");
            let frames = checker.frames();
            assert_eq!(frames, u64::from(len == bytes.len()), "{len} bytes");
        }
        Ok(())
    }

    #[test]
    fn the_end_that_broke_a_rule_is_named() -> io::Result<()> {
        let mut unfit = DATA;
        unfit[11] = 2;
        for (side, sender) in [(Side::Active, Side::Passive), (Side::Passive, Side::Active)] {
            let mut bytes = Vec::new();
            let mut writer = TraceWriter::new(&mut bytes);
            writer.hello(&hello())?;
            writer.hello_ack(&hello_ack())?;
            writer.received(&unfit, unfit.len())?;
            let fault = TraceFault::Broken {
                record: 2,
                sender,
                broken: Broken::Sequence,
            };
            assert_eq!(check_trace(side, &bytes).map(|_| ()), Err(fault));
        }
        Ok(())
    }

    #[test]
    fn a_record_of_an_unknown_kind_is_a_fault_even_at_the_end() -> io::Result<()> {
        let mut bytes = conversation()?;
        bytes.push(RECEIVED + 1);
        let fault = check_trace(Side::Active, &bytes).map(|_| ());
        assert_eq!(fault, Err(TraceFault::Form(3)));
        Ok(())
    }
}
