//! Capture files of TCP connections that never took place.

use std::fs;
use std::path::Path;

use anyhow::Result;
use stack_tests::frame_writer::{self, Fpdu, Frame};

/// The end that sends a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sender {
    Client,
    Server,
}

impl Sender {
    const fn index(self) -> usize {
        match self {
            Self::Client => 0,
            Self::Server => 1,
        }
    }

    const fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// The link type of packets that begin with an IP header.
const LINKTYPE_RAW: u32 = 101;
const ADDRESSES: [[u8; 4]; 2] = [[192, 0, 2, 1], [192, 0, 2, 2]];
const PORTS: [u16; 2] = [40_000, 5_001];
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;

/// A capture of one TCP connection over IPv4, in pcap format.
#[derive(Debug)]
pub(crate) struct Pcap {
    bytes: Vec<u8>,
    /// The next sequence number of each end.
    next: [u32; 2],
    /// The number of Sends of each end.
    sends: [u32; 2],
    packets: u32,
}

impl Pcap {
    /// Creates a capture with the three packets of TCP's handshake.
    pub(crate) fn new() -> Self {
        let mut bytes = Vec::new();
        bytes.extend(0xa1b2_c3d4_u32.to_le_bytes());
        bytes.extend([2_u16, 4].iter().flat_map(|part| part.to_le_bytes()));
        let rest = [0, 0, 0x4_0000, LINKTYPE_RAW];
        bytes.extend(rest.iter().flat_map(|word: &u32| word.to_le_bytes()));
        let mut pcap = Self {
            bytes,
            next: [1_000, 90_000],
            sends: [0; 2],
            packets: 0,
        };
        pcap.segment(Sender::Client, SYN, &[]);
        pcap.segment(Sender::Server, SYN | ACK, &[]);
        pcap.segment(Sender::Client, ACK, &[]);
        pcap
    }

    /// Appends a packet of the client with the request, and a packet of the server with the reply.
    pub(crate) fn start_up(&mut self, request: &Frame, reply: &Frame) {
        self.segment(Sender::Client, ACK, &request.bytes());
        self.segment(Sender::Server, ACK, &reply.bytes());
    }

    /// Appends a packet with a Send for each of these messages.
    pub(crate) fn sends(&mut self, by: Sender, messages: &[&[u8]]) {
        let mut bytes = Vec::new();
        for message in messages {
            bytes.extend(self.send(by, frame_writer::SEND, message));
        }
        self.segment(by, ACK, &bytes);
    }

    /// Appends a Send of another kind.
    pub(crate) fn send_as(&mut self, by: Sender, opcode: u8, message: &[u8]) {
        let bytes = self.send(by, opcode, message);
        self.segment(by, ACK, &bytes);
    }

    /// Appends a Send in segments of `len` bytes, each in a packet.
    pub(crate) fn send_in_segments(&mut self, by: Sender, message: &[u8], len: usize) {
        let msn = self.next_msn(by);
        let count = message.len().div_ceil(len);
        for (index, part) in message.chunks(len).enumerate() {
            let segment = frame_writer::send(frame_writer::SEND, msn, part)
                .with("mo", (index * len) as u128)
                .with("l", u128::from(index + 1 == count));
            self.segment(by, ACK, &Fpdu::new(&segment).bytes());
        }
    }

    /// Appends a packet with this FPDU.
    pub(crate) fn fpdu(&mut self, by: Sender, segment: &Frame) {
        self.segment(by, ACK, &Fpdu::new(segment).bytes());
    }

    pub(crate) fn write(&self, file: &Path) -> Result<()> {
        Ok(fs::write(file, &self.bytes)?)
    }

    fn next_msn(&mut self, by: Sender) -> u32 {
        let sends = &mut self.sends[by.index()];
        *sends += 1;
        *sends
    }

    fn send(&mut self, by: Sender, opcode: u8, message: &[u8]) -> Vec<u8> {
        let msn = self.next_msn(by);
        Fpdu::new(&frame_writer::send(opcode, msn, message)).bytes()
    }

    fn segment(&mut self, by: Sender, flags: u8, data: &[u8]) {
        let (from, to) = (by.index(), by.other().index());
        let tcp = Frame::new(
            &[
                ("source", 16, PORTS[from].into()),
                ("destination", 16, PORTS[to].into()),
                ("sequence", 32, self.next[from].into()),
                ("acknowledgement", 32, self.next[to].into()),
                ("offset", 8, 0x50),
                ("flags", 8, flags.into()),
                ("window", 16, 0xffff),
                ("checksum", 16, 0),
                ("urgent", 16, 0),
            ],
            data,
        )
        .bytes();
        let ip = Frame::new(
            &[
                ("version", 16, 0x4500),
                ("length", 16, 20 + tcp.len() as u128),
                ("identification", 16, self.packets.into()),
                ("fragment", 16, 0x4000),
                ("ttl", 8, 64),
                ("protocol", 8, 6),
                ("checksum", 16, 0),
                ("source", 32, u32::from_be_bytes(ADDRESSES[from]).into()),
                ("destination", 32, u32::from_be_bytes(ADDRESSES[to]).into()),
            ],
            &tcp,
        )
        .bytes();
        let len = ip.len() as u32;
        for word in [1_000 + self.packets, 0, len, len] {
            self.bytes.extend(word.to_le_bytes());
        }
        self.bytes.extend(ip);
        self.packets += 1;
        self.next[from] += data.len() as u32 + u32::from(flags & SYN != 0);
    }
}
