//! Conversations as lists of steps.

use crate::{Broken, Checker, Records, Side, TraceWriter};

/// A message without MSeq and MSeqAck. Only the length of its payload is stored.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    mid: u8,
    flags: u8,
    words: [u32; 5],
    words_used: usize,
    payload: u32,
    /// The number of received messages that MSeqAck does not acknowledge.
    unacknowledged: u32,
}

const fn message(mid: u8, words: [u32; 5], words_used: usize) -> Message {
    Message {
        mid,
        flags: 0,
        words,
        words_used,
        payload: 0,
        unacknowledged: 0,
    }
}

const fn bare(mid: u8) -> Message {
    message(mid, [0; 5], 0)
}

const fn with_number(mid: u8, number: u32) -> Message {
    message(mid, [number, 0, 0, 0, 0], 1)
}

impl Message {
    pub(super) const fn payload(mut self, bytes: u32) -> Self {
        self.payload = bytes;
        self
    }

    pub(super) const fn flags(mut self, flags: u8) -> Self {
        self.flags = flags;
        self
    }

    /// Lets MSeqAck omit the last `count` received messages.
    pub(super) const fn unacknowledged(mut self, count: u32) -> Self {
        self.unacknowledged = count;
        self
    }

    pub(super) const fn mid(&self) -> u8 {
        self.mid
    }

    fn head(&self, seq: u32, received: u32) -> (Vec<u8>, usize) {
        let mut head = vec![self.mid, self.flags, 0, 64];
        let len = 16 + 4 * self.words_used as u32 + self.payload;
        let ack = received.saturating_sub(self.unacknowledged);
        for word in [len, seq, ack] {
            head.extend(word.to_be_bytes());
        }
        for word in &self.words[..self.words_used] {
            head.extend(word.to_be_bytes());
        }
        (head, len as usize)
    }
}

pub(super) const HELLO: Message = bare(0x00);
pub(super) const HELLO_ACK: Message = bare(0x01);
pub(super) const DIS_CONN: Message = bare(0x02);
pub(super) const ABORT_CONN: Message = bare(0x03);
pub(super) const SEND_SM: Message = bare(0x04);
pub(super) const SRC_CANCEL: Message = bare(0x08);
pub(super) const SINK_CANCEL: Message = bare(0x09);
pub(super) const SINK_CANCEL_ACK: Message = bare(0x0a);
pub(super) const SUSP_COMM: Message = message(0x0d, [0, 0x11390, 0, 0, 0], 2);
pub(super) const SUSP_COMM_ACK: Message = bare(0x0e);
pub(super) const UPDATE: Message = bare(0xff);
/// ModeChange messages that a data source sends.
pub(super) const TO_BUFFERED: Message = mode(0x00);
pub(super) const TO_PIPELINED: Message = mode(0x20);
pub(super) const TO_COMBINED: Message = mode(0x10);
/// The ModeChange message that a data sink sends.
pub(super) const SINK_TO_COMBINED: Message = mode(0x90);

pub(super) const fn data(bytes: u32) -> Message {
    bare(0xff).payload(bytes)
}

/// RdmaWrCompl for `bytes` bytes.
pub(super) const fn written(bytes: u32) -> Message {
    with_number(0x05, bytes)
}

/// RdmaRdCompl for `bytes` bytes.
pub(super) const fn read(bytes: u32) -> Message {
    with_number(0x06, bytes)
}

/// ModeChange whose own header begins with this byte.
pub(super) const fn mode(byte: u8) -> Message {
    with_number(0x07, (byte as u32) << 24)
}

pub(super) const fn resize(size: u32) -> Message {
    with_number(0x0b, size)
}

pub(super) const fn resized(size: u32) -> Message {
    with_number(0x0c, size)
}

/// SinkAvail for `len` bytes.
pub(super) const fn sink_avail(len: u32, non_discards: u32) -> Message {
    message(0xfd, [len, 0x0a0b_0c0d, 0, 0, non_discards], 5)
}

/// SrcAvail for `len` bytes, of which `inline` are in the message.
pub(super) const fn src_avail(len: u32, inline: u32) -> Message {
    message(0xfe, [len, 0x1234_5678, 0, 0, 0], 4).payload(inline)
}

/// A step of a conversation.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// A side sends a message, which is received at once.
    Delivers(Side, Message),
    /// A side sends a message, which stays in flight.
    Sends(Side, Message),
    /// A side receives all messages in flight to it.
    Receives(Side),
}

/// The length of a receive buffer.
pub(super) const SIZE: u32 = 116;
/// The payload of a receive buffer.
pub(super) const ROOM: u32 = SIZE - 16;

fn hello(adverts: u8) -> Vec<u8> {
    let mut bytes = vec![0; 92];
    (bytes[3], bytes[7]) = (64, 92);
    bytes[16..20].copy_from_slice(&[0x22, 0x40, 0, adverts]);
    bytes[27] = SIZE as u8;
    bytes
}

fn hello_ack(adverts: u8) -> Vec<u8> {
    let mut bytes = vec![1; 1];
    bytes.resize(196, 0);
    (bytes[3], bytes[7]) = (64, 196);
    bytes[16..20].copy_from_slice(&[0x22, 0, 0, adverts]);
    bytes[23] = SIZE as u8;
    bytes
}

/// Both ends of a connection: the checker, and the trace that each end would write.
pub(super) struct Connection {
    pub(super) checker: Checker,
    traces: [TraceWriter<Vec<u8>>; 2],
    sent: [u32; 2],
    received: [u32; 2],
    in_flight: [Vec<(Vec<u8>, usize)>; 2],
}

const fn index(side: Side) -> usize {
    match side {
        Side::Active => 0,
        Side::Passive => 1,
    }
}

impl Connection {
    /// A connection of two ends with this MaxAdverts.
    pub(super) fn new(adverts: u8) -> Self {
        let (hello, hello_ack) = (hello(adverts), hello_ack(adverts));
        let mut checker = Checker::new();
        checker.hello(&hello).expect("a good Hello");
        checker.hello_ack(&hello_ack).expect("a good HelloAck");
        let traces = [(); 2].map(|()| {
            let mut trace = TraceWriter::new(Vec::new());
            trace.hello(&hello).expect("a vector takes all");
            trace.hello_ack(&hello_ack).expect("a vector takes all");
            trace
        });
        Self {
            checker,
            traces,
            sent: [0; 2],
            received: [0; 2],
            in_flight: [Vec::new(), Vec::new()],
        }
    }

    /// Makes a step. Returns the verdict about the message that the step sends, if any.
    pub(super) fn step(&mut self, step: Step) -> Result<(), Broken> {
        match step {
            Step::Delivers(side, message) => {
                let result = self.send(side, message);
                self.receive(side.other());
                result
            }
            Step::Sends(side, message) => self.send(side, message),
            Step::Receives(side) => {
                self.receive(side);
                Ok(())
            }
        }
    }

    /// Returns the verdict about a message without sending it.
    pub(super) fn would_send(&self, side: Side, message: Message) -> Result<(), Broken> {
        let at = index(side);
        let (head, len) = message.head(self.sent[at] + 1, self.received[at]);
        self.checker.clone().sent(side, &head, len)
    }

    fn send(&mut self, side: Side, message: Message) -> Result<(), Broken> {
        let at = index(side);
        let (head, len) = message.head(self.sent[at] + 1, self.received[at]);
        let result = self.checker.sent(side, &head, len);
        self.sent[at] += 1;
        self.traces[at]
            .sent(&head, len)
            .expect("a vector takes all");
        self.in_flight[index(side.other())].push((head, len));
        result
    }

    fn receive(&mut self, side: Side) {
        let at = index(side);
        for (head, len) in std::mem::take(&mut self.in_flight[at]) {
            self.checker.received(side);
            self.received[at] += 1;
            self.traces[at]
                .received(&head, len)
                .expect("a vector takes all");
        }
    }

    /// Returns the verdict about each end's trace.
    pub(super) fn traces(self) -> [Result<(), Broken>; 2] {
        let mut sides = [Side::Active, Side::Passive].into_iter();
        self.traces.map(|trace| {
            let side = sides.next().expect("two sides");
            let mut checker = Checker::new();
            Records::of(&trace.into_inner()).try_for_each(|record| {
                let record = record.expect("a record");
                record.check(&mut checker, side)
            })
        })
    }
}

/// Checks a conversation. All steps but the last must keep all rules. Returns the verdict about the
/// last step, which is the same in the traces of both ends.
pub(super) fn verdict(adverts: u8, steps: &[Step]) -> Result<(), Broken> {
    let mut connection = Connection::new(adverts);
    let (last, before) = steps.split_last().expect("a step");
    for step in before {
        if let Err(broken) = connection.step(*step) {
            panic!("{step:?}: {broken}");
        }
    }
    let result = connection.step(*last);
    for side in [Side::Active, Side::Passive] {
        connection.receive(side);
    }
    assert_eq!(connection.traces(), [result; 2], "the traces of {steps:#?}");
    result
}
