//! An engine in memory: it holds the bytes that the protocol does not see, and checks the
//! protocol's promises.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::{IpAddr, SocketAddr},
};

use crate::{
    Advert, AdvertId, Connection, ConnectionState, Event, Failure, Inbound, OnCancel, Payload,
    PeerMemory, Read, SinkAdvert, Transmit,
};

/// The address of the first byte of all registered memory. The STag is the identifier.
pub(super) const ADDRESS: u64 = 0x10_0000;

/// A frame; `fin` is true if it is DisConn.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) bytes: Vec<u8>,
    pub(super) header_len: usize,
    pub(super) fin: bool,
    /// Bytes that an RDMA Write places before the message is received.
    pub(super) write: Option<(PeerMemory, Vec<u8>)>,
}

/// The bytes that a user wrote with one call.
#[derive(Debug)]
struct Written {
    bytes: Vec<u8>,
    advert: Option<AdvertId>,
}

/// Bytes of one receive buffer, or of memory of a reader, that the user has not read.
#[derive(Debug)]
struct Held {
    bytes: VecDeque<u8>,
    urgent: bool,
    is_buffer: bool,
}

/// The uses of mechanisms that no message alone shows.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Uses {
    /// Sink advertisements that were filled in part, filled, and used up by a message or retired.
    pub(super) written_in_part: u64,
    pub(super) written_whole: u64,
    pub(super) not_written: u64,
    /// Requests for larger and smaller buffers that were granted, and requests that were refused.
    pub(super) grown: u64,
    pub(super) shrunk: u64,
    pub(super) kept: u64,
    /// SinkAvails with payload.
    pub(super) transactions: u64,
    /// The most advertisements of the peer that were being read at a time.
    pub(super) reads_ahead: usize,
    /// Continuations after a suspension.
    pub(super) continued: u64,
}

impl Uses {
    pub(super) fn add(&mut self, other: Self) {
        self.written_in_part += other.written_in_part;
        self.written_whole += other.written_whole;
        self.not_written += other.not_written;
        self.grown += other.grown;
        self.shrunk += other.shrunk;
        self.kept += other.kept;
        self.transactions += other.transactions;
        self.continued += other.continued;
        self.reads_ahead = self.reads_ahead.max(other.reads_ahead);
    }

    pub(super) fn counts(self) -> [(&'static str, u64); 8] {
        [
            ("memory written in part", self.written_in_part),
            ("memory written whole", self.written_whole),
            ("memory not written", self.not_written),
            ("larger buffers", self.grown),
            ("smaller buffers", self.shrunk),
            ("larger buffers refused", self.kept),
            ("transactions", self.transactions),
            ("continuations", self.continued),
        ]
    }
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
    /// Memory of readers that the peer may write.
    pub(super) sinks: BTreeMap<AdvertId, Vec<u8>>,
    /// The sizes of the receive buffers that are posted, in the order of their use.
    posted: VecDeque<u32>,
    /// The size of buffers that are posted from now on.
    buffer_size: u32,
    /// The size that the peer asked for and that all posted buffers must have before the answer.
    growing: Option<u32>,
    pub(super) uses: Uses,
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
    pub(super) fn new(connection: Connection, buffers: u16, buffer_size: u32) -> Self {
        Self {
            connection,
            written: Vec::new(),
            outgoing: VecDeque::new(),
            registered: BTreeMap::new(),
            adverts: 0,
            sinks: BTreeMap::new(),
            posted: (0..buffers).map(|_| buffer_size).collect(),
            buffer_size,
            growing: None,
            uses: Uses::default(),
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

    pub(super) fn write_registered(&mut self, bytes: Vec<u8>) -> Option<AdvertId> {
        self.give(bytes, 1, Connection::write_registered)
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
            address: ADDRESS,
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
        let payload = match transmit.payload {
            Payload::Nothing => Vec::new(),
            Payload::Stream(len) => self.outgoing.drain(..len as usize).collect(),
            Payload::Advert { id, offset, len } => {
                let memory = self.registered.get(&id).expect("memory that is not let go");
                let from = offset as usize;
                memory[from..from + len as usize].to_vec()
            }
        };
        let write = match transmit.into {
            Some(into) => Some((into, payload)),
            None => {
                bytes.extend(payload);
                None
            }
        };
        self.uses.transactions += u64::from(bytes[0] == 0xfd && bytes.len() > header_len);
        Frame {
            bytes,
            header_len,
            fin: transmit.fin,
            write,
        }
    }

    pub(super) fn receive(&mut self, bytes: &[u8]) {
        if self.connection.state().has_ended() {
            return;
        }
        let size = self.posted.pop_front();
        let size = size.expect("a message and no receive buffer");
        let fits = bytes.len() <= size as usize;
        assert!(fits, "a message longer than its buffer");
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
            is_buffer: true,
        });
    }

    fn repost(&mut self) {
        self.posted.push_back(self.buffer_size);
        self.connection.handle_posted();
        self.check_growth();
    }

    /// Answers a request for larger buffers once all posted ones are larger.
    fn check_growth(&mut self) {
        if let Some(size) = self.growing
            && self.posted.iter().all(|one| *one >= size)
        {
            self.growing = None;
            self.uses.grown += 1;
            self.connection.answer_buffers(size);
        }
    }

    /// Answers a request for larger buffers although smaller ones are still posted.
    pub(super) fn end_growth(&mut self) {
        if self.growing.take().is_some() {
            let least = self.posted.iter().min().copied();
            let size = least.unwrap_or(self.buffer_size);
            self.connection.answer_buffers(size);
        }
    }

    /// Called when the peer asks for receive buffers of `size` bytes.
    fn on_asked(&mut self, size: u32) {
        self.growing = None;
        if size > 8_000 {
            self.uses.kept += 1;
            self.connection.answer_buffers(self.buffer_size);
        } else if size > self.buffer_size {
            self.buffer_size = size;
            self.growing = Some(size);
            self.check_growth();
        } else {
            self.uses.shrunk += 1;
            self.connection.answer_buffers(size);
        }
    }

    /// A reader waits with `len` bytes of memory.
    pub(super) fn advertise_sink(&mut self, len: u32) -> Option<AdvertId> {
        if !self.held.is_empty() {
            return None;
        }
        let id = AdvertId(self.adverts + 1);
        let advert = SinkAdvert {
            id,
            len,
            stag: id.0 as u32,
            address: ADDRESS,
        };
        if !self.connection.advertise_sink(advert) {
            return None;
        }
        self.adverts += 1;
        self.sinks.insert(id, vec![0; len as usize]);
        Some(id)
    }

    /// The peer's RDMA Write.
    pub(super) fn be_written(&mut self, into: PeerMemory, bytes: &[u8]) {
        let id = AdvertId(u64::from(into.stag));
        let memory = self.sinks.get_mut(&id);
        let memory = memory.expect("a write to memory that was let go");
        let from = (into.address - ADDRESS) as usize;
        memory[from..from + bytes.len()].copy_from_slice(bytes);
    }

    fn take_sink(&mut self, id: AdvertId, written: u32) {
        let memory = self.sinks.remove(&id);
        let mut memory = memory.expect("memory that was not let go before");
        match written as usize {
            0 => self.uses.not_written += 1,
            len if len < memory.len() => self.uses.written_in_part += 1,
            _ => self.uses.written_whole += 1,
        }
        memory.truncate(written as usize);
        if !memory.is_empty() {
            self.held.push_back(Held {
                bytes: memory.into(),
                urgent: false,
                is_buffer: false,
            });
        }
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
            let is_buffer = held.is_buffer;
            self.held.pop_front();
            if is_buffer {
                self.repost();
            }
        }
    }

    /// The user reads the peer's memory, when its bytes are next in the stream.
    pub(super) fn begin_read(&mut self, max: u32) {
        if self.held.is_empty()
            && let Some(read) = self.connection.begin_read(max)
        {
            self.reads.push_back(read);
            let stags: BTreeSet<_> = self.reads.iter().map(|read| read.stag).collect();
            self.uses.reads_ahead = self.uses.reads_ahead.max(stags.len());
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
                Event::SinkDone { id, written } => self.take_sink(id, written),
                Event::SinkOffered => (),
                Event::BuffersAsked(size) => self.on_asked(size),
                Event::BuffersAnswered(_) => (),
                Event::BuffersKnown(size) => self.buffer_size = size,
                Event::Disconnect => self.wants_disconnect = true,
                Event::Failed(failure) => {
                    let is_first = self.failure.is_none();
                    assert!(is_first, "the first cause is the one that counts");
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
        if self.connection.continues_at().is_some() {
            assert!(self.reads.is_empty() && self.sinks.is_empty());
            return;
        }
        self.reads.clear();
        self.registered.clear();
        self.sinks.clear();
    }

    /// Continues the connection that the peer has suspended. Returns the bytes of Hello.
    pub(super) fn resume(&mut self, local: SocketAddr, peer: IpAddr) -> Vec<u8> {
        if self.posted.len() < usize::from(crate::BUFFERS_MIN) {
            self.read(usize::MAX);
        }
        let unread = self.held.iter().filter(|held| held.is_buffer).count();
        let posted = self.posted.len() as u16;
        let hello = self
            .connection
            .resume(posted + unread as u16, posted, local, peer)
            .expect("the peer has suspended the connection");
        self.post_anew(hello.own_size);
        hello.trimmed(64).expect("room enough")
    }

    /// Another process continues the connection that this end has suspended, and gets the bytes
    /// that were not read.
    pub(super) fn replace(&mut self, connection: Connection, buffers: u16, size: u32) {
        assert!(self.registered.is_empty() && self.sinks.is_empty() && self.outgoing.is_empty());
        self.connection = connection;
        self.is_closed = false;
        self.posted = (0..buffers).map(|_| size).collect();
        for held in &mut self.held {
            held.is_buffer = false;
        }
        self.post_anew(size);
    }

    fn post_anew(&mut self, size: u32) {
        self.buffer_size = size;
        self.growing = None;
        self.posted.iter_mut().for_each(|one| *one = size);
        self.uses.continued += 1;
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
