//! The file format of a recorded connection: what one end sent and received, in its order.
//!
//! A record is one byte of direction, four bytes (big-endian) of the message's length, one byte
//! that says how many of its first bytes follow, and those.

use std::io::{self, Write};

use crate::{Broken, Checker, Side};

const HELLO: u8 = 0;
const HELLO_ACK: u8 = 1;
const SENT: u8 = 2;
const RECEIVED: u8 = 3;

/// Bytes of a message that a record keeps at most.
const KEPT_MAX: usize = 200;

/// Writes the record of a connection, at one of its ends.
#[derive(Debug)]
pub struct TraceWriter<W> {
    to: W,
}

impl<W: Write> TraceWriter<W> {
    /// Starts a record.
    pub const fn new(to: W) -> Self {
        Self { to }
    }

    /// The private data of the request.
    pub fn hello(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.record(HELLO, bytes, bytes.len())
    }

    /// The private data of the reply.
    pub fn hello_ack(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.record(HELLO_ACK, bytes, bytes.len())
    }

    /// This end sends a message of `len` bytes that starts with `head`.
    pub fn sent(&mut self, head: &[u8], len: usize) -> io::Result<()> {
        self.record(SENT, head, len)
    }

    /// It received one.
    pub fn received(&mut self, head: &[u8], len: usize) -> io::Result<()> {
        self.record(RECEIVED, head, len)
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

/// Where and how a record breaks a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceFault {
    /// A rule is broken.
    #[error("record {record}: {broken}")]
    Broken {
        /// Which record, from 0.
        record: u64,
        /// Which rule.
        broken: Broken,
    },
    /// The file is not a record of a connection.
    #[error("record {0} is cut or of an unknown kind")]
    Form(u64),
}

/// Checks the record that the `side` end has written: the checker with everything in it.
pub fn check_trace(side: Side, mut bytes: &[u8]) -> Result<Checker, TraceFault> {
    let mut checker = Checker::new();
    let mut record = 0;
    while !bytes.is_empty() {
        let [kind, l0, l1, l2, l3, kept, rest @ ..] = bytes else {
            return Err(TraceFault::Form(record));
        };
        let len = u32::from_be_bytes([*l0, *l1, *l2, *l3]) as usize;
        let Some((head, rest)) = rest.split_at_checked(usize::from(*kept)) else {
            return Err(TraceFault::Form(record));
        };
        let result = match *kind {
            HELLO => checker.hello(head),
            HELLO_ACK => checker.hello_ack(head),
            SENT => checker.sent(side, head, len),
            RECEIVED => checker.arrived(side.other(), head, len),
            _ => return Err(TraceFault::Form(record)),
        };
        result.map_err(|broken| TraceFault::Broken { record, broken })?;
        bytes = rest;
        record += 1;
    }
    Ok(checker)
}
