//! An engine in memory: it holds the bytes that the protocol does not see, and checks the
//! protocol's promises.

use std::collections::{BTreeMap, VecDeque};

use crate::{
    Advert, AdvertId, Connection, ConnectionState, Event, Failure, Inbound, OnCancel, Payload,
    Read, Transmit,
};

/// A frame; `fin` is true if it is DisConn.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) bytes: Vec<u8>,
    pub(super) header_len: usize,
    pub(super) fin: bool,
}

/// The bytes that a user wrote with one call.
#[derive(Debug)]
struct Written {
    bytes: Vec<u8>,
    advert: Option<AdvertId>,
}

/// Bytes of one receive buffer that the user has not read.
#[derive(Debug)]
struct Held {
    bytes: VecDeque<u8>,
    urgent: bool,
}

#[derive(Debug)]
pub(super) struct Engine {
    pub(super) connection: Connection,
    /// Everything that was written and not taken back, in order.
    written: Vec<Written>,
    /// Bytes that wait for a message.
    outgoing: VecDeque<u8>,
    /// Memory that the peer may read.
    pub(super) registered: BTreeMap<AdvertId, Vec<u8>>,
    adverts: u64,
    /// Receive buffers that are posted.
    posted: u16,
    held: VecDeque<Held>,
    pub(super) reads: VecDeque<Read>,
    /// The bytes that the user has read.
    pub(super) received: Vec<u8>,
    pub(super) urgent_sent: Vec<u64>,
    pub(super) urgent_received: Vec<u64>,
    pub(super) urgent_announced: u32,
    pub(super) saw_end: bool,
    pub(super) failure: Option<Failure>,
    pub(super) wants_disconnect: bool,
    pub(super) is_closed: bool,
    pub(super) is_established: bool,
}

impl Engine {
    pub(super) fn new(connection: Connection, buffers: u16) -> Self {
        Self {
            connection,
            written: Vec::new(),
            outgoing: VecDeque::new(),
            registered: BTreeMap::new(),
            adverts: 0,
            posted: buffers,
            held: VecDeque::new(),
            reads: VecDeque::new(),
            received: Vec::new(),
            urgent_sent: Vec::new(),
            urgent_received: Vec::new(),
            urgent_announced: 0,
            saw_end: false,
            failure: None,
            wants_disconnect: false,
            is_closed: false,
            is_established: false,
        }
    }

    pub(super) fn write(&mut self, bytes: Vec<u8>) {
        if self.connection.write(bytes.len() as u32) {
            self.outgoing.extend(&bytes);
            self.written.push(Written {
                bytes,
                advert: None,
            });
        }
    }

    pub(super) fn write_urgent(&mut self, byte: u8) {
        if self.connection.write_urgent() {
            self.outgoing.push_back(byte);
            self.written.push(Written {
                bytes: vec![byte],
                advert: None,
            });
            // The index of the urgent byte among the writes. Its position in the stream is known
            // only at the end.
            self.urgent_sent.push(self.written.len() as u64 - 1);
        }
    }

    pub(super) fn advertise(&mut self, bytes: Vec<u8>, inline: u32) -> Option<AdvertId> {
        self.give(bytes, inline, Connection::advertise)
    }

    pub(super) fn lend(&mut self, bytes: Vec<u8>) -> Option<AdvertId> {
        self.give(bytes, 1, Connection::lend)
    }

    fn give(
        &mut self,
        bytes: Vec<u8>,
        inline: u32,
        how: fn(&mut Connection, Advert) -> bool,
    ) -> Option<AdvertId> {
        self.adverts += 1;
        let id = AdvertId(self.adverts);
        let advert = Advert {
            id,
            len: bytes.len() as u32,
            stag: id.0 as u32,
            address: 0x10_0000,
            inline,
        };
        let is_taken = how(&mut self.connection, advert);
        if is_taken {
            self.registered.insert(id, bytes.clone());
            self.written.push(Written {
                bytes,
                advert: Some(id),
            });
        }
        is_taken.then_some(id)
    }

    pub(super) fn cancel(&mut self, then: OnCancel, newest: bool) {
        let mut ids = self.registered.keys();
        let id = if newest { ids.next_back() } else { ids.next() };
        if let Some(id) = id.copied() {
            self.connection.cancel(id, then);
            self.take_events();
        }
    }

    /// The next frame, with the payload that the protocol requested.
    pub(super) fn transmit(&mut self) -> Option<Frame> {
        let transmit = self.connection.poll_transmit()?;
        let frame = self.assemble(&transmit);
        self.take_events();
        Some(frame)
    }

    fn assemble(&mut self, transmit: &Transmit) -> Frame {
        let mut bytes = transmit.header.as_bytes().to_vec();
        let header_len = bytes.len();
        match transmit.payload {
            Payload::Nothing => (),
            Payload::Stream(len) => bytes.extend(self.outgoing.drain(..len as usize)),
            Payload::Advert { id, offset, len } => {
                let memory = self.registered.get(&id).expect("memory that is not let go");
                let from = offset as usize;
                bytes.extend(&memory[from..from + len as usize]);
            }
        }
        Frame {
            bytes,
            header_len,
            fin: transmit.fin,
        }
    }

    pub(super) fn receive(&mut self, bytes: &[u8]) {
        if self.connection.state().has_ended() {
            return;
        }
        assert!(self.posted > 0, "a message and no receive buffer");
        self.posted -= 1;
        let inbound = self.connection.handle_message(bytes, bytes.len());
        let inbound = inbound.unwrap_or_default();
        self.take_events();
        if inbound.payload_len == 0 {
            self.repost();
            return;
        }
        self.hold(bytes, inbound);
    }

    fn hold(&mut self, bytes: &[u8], inbound: Inbound) {
        let at = inbound.payload_at as usize;
        let end = at + inbound.payload_len as usize;
        self.held.push_back(Held {
            bytes: bytes[at..end].iter().copied().collect(),
            urgent: inbound.urgent,
        });
    }

    fn repost(&mut self) {
        self.posted += 1;
        self.connection.handle_posted();
    }

    /// The user reads at most `max` bytes of those received.
    pub(super) fn read(&mut self, mut max: usize) {
        while max > 0
            && let Some(held) = self.held.front_mut()
        {
            let taken = held.bytes.len().min(max);
            max -= taken;
            self.received.extend(held.bytes.drain(..taken));
            if !held.bytes.is_empty() {
                return;
            }
            if held.urgent {
                self.urgent_received.push(self.received.len() as u64 - 1);
            }
            self.held.pop_front();
            self.repost();
        }
    }

    /// The user reads the peer's memory, when its bytes are next in the stream.
    pub(super) fn begin_read(&mut self, max: u32) {
        if self.held.is_empty()
            && let Some(read) = self.connection.begin_read(max)
        {
            self.reads.push_back(read);
        }
    }

    /// The oldest read has completed with `bytes`.
    pub(super) fn finish_read(&mut self, bytes: &[u8]) {
        self.reads.pop_front();
        self.received.extend(bytes);
        self.connection.finish_read(bytes.len() as u32);
        self.take_events();
    }

    pub(super) fn has_unread(&self) -> bool {
        !self.held.is_empty() || self.connection.readable() > 0 || !self.reads.is_empty()
    }

    pub(super) fn take_events(&mut self) {
        while let Some(event) = self.connection.poll_event() {
            match event {
                Event::Established => self.is_established = true,
                Event::UrgentComing => self.urgent_announced += 1,
                Event::EndOfStream => self.saw_end = true,
                Event::AdvertDone { id, taken } => self.let_go(id, taken),
                Event::Disconnect => self.wants_disconnect = true,
                Event::Failed(failure) => {
                    assert!(
                        self.failure.is_none(),
                        "the first cause is the one that counts"
                    );
                    self.failure = Some(failure);
                }
                Event::Closed => self.is_closed = true,
            }
        }
    }

    fn let_go(&mut self, id: AdvertId, taken: u32) {
        let memory = self.registered.remove(&id);
        assert!(memory.is_some(), "{id:?} was let go twice");
        let written = self.written.iter_mut().find(|one| one.advert == Some(id));
        let written = written.expect("what was advertised was written");
        written.bytes.truncate(taken as usize);
    }

    /// The stream that the peer should see, and the positions of its urgent bytes.
    pub(super) fn stream(&self) -> (Vec<u8>, Vec<u64>) {
        let mut stream = Vec::new();
        let mut urgent = Vec::new();
        for (index, written) in self.written.iter().enumerate() {
            if self.urgent_sent.contains(&(index as u64)) {
                urgent.push(stream.len() as u64);
            }
            stream.extend(&written.bytes);
        }
        (stream, urgent)
    }

    /// The transport has ended. No read is in progress any more, so all memory may be released.
    pub(super) fn disconnected(&mut self) {
        self.connection.handle_disconnected();
        self.take_events();
        self.reads.clear();
        self.registered.clear();
    }

    pub(super) fn has_ended(&self) -> bool {
        let state = self.connection.state();
        let agrees = match state {
            ConnectionState::Failed(failure) => self.failure == Some(failure),
            ConnectionState::Closed => self.is_closed && self.failure.is_none(),
            _ => true,
        };
        assert!(agrees, "{state:?} and {:?}", self.failure);
        state.has_ended()
    }
}
