//! MPA markers (RFC 5044 section 4.3) against a peer of plain TCP that inserts and removes them
//! byte by byte, written from the text of the RFC only.

use std::io::{BufReader, Read, Write};
use std::net::TcpStream;

use crate::support::*;
use rnic::*;

/// Bytes of a receive.
const ROOM: usize = 1100;
/// Octets of the stream between the starts of two markers.
const INTERVAL: usize = 512;

/// Writes a stream with markers, or without.
struct Writer {
    marked: bool,
    crc: bool,
    out: Vec<u8>,
    /// Octets since the start of full operation.
    position: usize,
}

impl Writer {
    fn new(marked: bool, crc: bool) -> Self {
        Self {
            marked,
            crc,
            out: Vec::new(),
            position: 0,
        }
    }

    /// Appends an FPDU around a DDP segment.
    fn fpdu(&mut self, segment: &[u8]) {
        let begin = self.out.len();
        let mut bytes = (segment.len() as u16).to_be_bytes().to_vec();
        bytes.extend_from_slice(segment);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        let mut start = None;
        for byte in bytes {
            self.marker_if_due(&mut start);
            start.get_or_insert(self.position);
            self.out.push(byte);
            self.position += 1;
        }
        self.marker_if_due(&mut start);
        let crc = if self.crc {
            crc32c(&self.out[begin..])
        } else {
            0
        };
        self.out.extend(crc.to_le_bytes());
        self.position += 4;
    }

    /// Appends a marker, which holds the distance back to the length field of its FPDU. The
    /// distance is 0 if the FPDU begins directly after the marker.
    fn marker_if_due(&mut self, start: &mut Option<usize>) {
        if self.marked && self.position.is_multiple_of(INTERVAL) {
            let back = start.map_or(0, |start| self.position - start) as u32;
            self.out.extend(back.to_be_bytes());
            self.position += 4;
        }
    }

    /// Appends a Send message of one segment.
    fn send(&mut self, msn: u32, payload: &[u8]) {
        let mut segment = hex("4143 00000000 00000000");
        segment.extend(msn.to_be_bytes());
        segment.extend([0; 4]);
        segment.extend_from_slice(payload);
        self.fpdu(&segment);
    }

    fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }
}

/// Reads a stream that [`Writer`] could have written.
struct Reader {
    stream: BufReader<TcpStream>,
    marked: bool,
    crc: bool,
    position: usize,
    /// Markers that pointed into the middle of an FPDU.
    inner: usize,
}

impl Reader {
    fn over(stream: &TcpStream, marked: bool, crc: bool) -> Self {
        Self {
            stream: BufReader::new(stream.try_clone().unwrap()),
            marked,
            crc,
            position: 0,
            inner: 0,
        }
    }

    /// Returns the next FPDU's DDP segment. Checks its markers and its CRC.
    fn fpdu(&mut self) -> Vec<u8> {
        let mut covered = Vec::new();
        let mut start = None;
        let mut bytes = Vec::new();
        while bytes.len() < 2 || bytes.len() < (2 + length_of(&bytes)).next_multiple_of(4) {
            self.marker_if_due(&mut covered, start);
            start.get_or_insert(self.position);
            let [byte] = self.bytes();
            self.position += 1;
            covered.push(byte);
            bytes.push(byte);
        }
        self.marker_if_due(&mut covered, start);
        let field: [u8; 4] = self.bytes();
        self.position += 4;
        let crc = if self.crc { crc32c(&covered) } else { 0 };
        assert_eq!(field, crc.to_le_bytes());
        bytes[2..2 + length_of(&bytes)].to_vec()
    }

    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.stream.read_exact(&mut bytes).unwrap();
        bytes
    }

    fn marker_if_due(&mut self, covered: &mut Vec<u8>, start: Option<usize>) {
        if !self.marked || !self.position.is_multiple_of(INTERVAL) {
            return;
        }
        let marker: [u8; 4] = self.bytes();
        let back = start.map_or(0, |start| self.position - start);
        self.inner += usize::from(start.is_some());
        assert_eq!(marker, (back as u32).to_be_bytes(), "at {}", self.position);
        covered.extend(marker);
        self.position += 4;
    }
}

fn length_of(bytes: &[u8]) -> usize {
    usize::from(u16::from_be_bytes([bytes[0], bytes[1]]))
}

/// A node, its accepted side, and the raw initiator with the Reply's flags.
///
/// The Request has the flags `flags_of_request`: 0x80 markers, 0x40 CRC.
fn accepted<'n>(
    node: &'n Node,
    flags_of_request: u8,
    receives: usize,
    memory: &Memory,
) -> (Side<'n>, TcpStream, u8) {
    let server = node.side(20);
    for id in 0..receives {
        server.recv(id as u64, &[memory.sge(id * ROOM, ROOM)]);
    }
    let mut request = b"MPA ID Req Frame\x00\x01\x00\x00".to_vec();
    request[16] = flags_of_request;
    let (raw, reply) = accept_on(&server, &request);
    assert!(matches!(server.event(), Event::Established { .. }));
    (server, raw, reply[16])
}

/// Lengths that make FPDUs begin, end and be cut at every possible distance from a marker.
fn lengths() -> impl Iterator<Item = usize> {
    (0..200).map(|i| (i * 37) % 1100)
}

#[test]
fn sent_markers_are_where_the_peer_expects_them() {
    for (settings, flags_of_request) in [("lo 0", 0xC0), ("lo 0 crc=off", 0x80)] {
        let node = Node::new(settings);
        let memory = node.memory(4096);
        memory.fill(0);
        let (server, mut raw, flags) = accepted(&node, flags_of_request, 1, &memory);
        let crc = flags & 0x40 != 0;
        assert_eq!(crc, flags_of_request & 0x40 != 0);
        assert_eq!(flags & 0x80, 0, "we do not ask for markers");
        let mut writer = Writer::new(false, crc);
        writer.send(1, b"");
        raw.write_all(&writer.take()).unwrap();
        assert_eq!(server.received().status, WcStatus::Success);
        let mut reader = Reader::over(&raw, true, crc);
        for (index, len) in lengths().enumerate() {
            server.send(index as u64, &[memory.sge(index, len)]);
        }
        for (index, len) in lengths().enumerate() {
            let segment = reader.fpdu();
            assert_eq!(segment[..2], [0x41, 0x43]);
            assert_eq!(segment[18..], patterned(index, len), "message {index}");
            assert_eq!(server.sent().status, WcStatus::Success);
        }
        assert!(reader.inner > 150, "{} markers inside", reader.inner);
    }
}

#[test]
fn messages_of_a_peer_are_parsed_wherever_they_are_split() {
    let count = lengths().count();
    for (settings, pieces) in [
        ("lo 0 markers=on", [7, 1448]),
        ("lo 0 markers=on crc=off", [3, 100_000]),
    ] {
        for piece in pieces {
            let node = Node::new(settings);
            let memory = node.memory(count * ROOM);
            let crc = !settings.contains("crc=off");
            let (server, raw, flags) = accepted(&node, if crc { 0x40 } else { 0 }, count, &memory);
            assert_eq!(flags & 0x80, 0x80, "we ask for markers");
            let mut writer = Writer::new(true, crc);
            for (index, len) in lengths().enumerate() {
                writer.send(index as u32 + 1, &patterned(index, len));
            }
            let mut sender = raw.try_clone().unwrap();
            let writing = std::thread::spawn(move || {
                for bytes in writer.take().chunks(piece) {
                    sender.write_all(bytes).unwrap();
                }
            });
            for (index, len) in lengths().enumerate() {
                let done = server.received();
                assert_eq!(
                    (done.status, done.byte_len),
                    (WcStatus::Success, len as u32)
                );
                let arrived = memory.copy(index * ROOM, len);
                assert_eq!(arrived, patterned(index, len), "message {index}");
            }
            writing.join().unwrap();
        }
    }
}

#[test]
fn the_active_side_puts_markers_from_its_first_frame_on() {
    let node = Node::new("lo 0");
    let client = node.side(10);
    let mut raw = client.connect_to_raw(b"");
    assert_eq!(
        read_startup(&mut raw)[16],
        0x50,
        "CRC and words, no markers"
    );
    // A Reply of revision 2 that asks for markers.
    let reply = "4d504120 49442052 65702046 72616d65 d0020004 80048004";
    raw.write_all(&hex(reply)).unwrap();
    assert!(matches!(client.event(), Event::Established { .. }));
    let mut reader = Reader::over(&raw, true, true);
    assert_eq!(reader.fpdu()[..6], [0xC1, 0x40, 0, 0, 0, 1]);
    let memory = node.memory(4096);
    memory.fill(3);
    client.send(1, &[memory.sge(0, 1000)]);
    assert_eq!(reader.fpdu()[18..], patterned(3, 1000));
}

#[test]
fn our_own_ends_exchange_everything_with_markers_each_way() {
    for settings in [
        ["lo 0 markers=on", "lo 0 markers=on"],
        ["lo 0 markers=on crc=off", "lo 0 crc=off"],
        ["lo 0", "lo 0 markers=on fpdu_max=1400"],
    ] {
        let (a, b) = (Node::new(settings[0]), Node::new(settings[1]));
        let (client, server) = connected(&a, &b);
        let (source, target) = (a.memory(200_000), b.memory(200_000));
        let back = a.memory(200_000);
        source.fill(9);
        let len = 150_001;
        server.recv(1, &[target.sge(0, 200_000)]);
        client.write(1, target.remote(0, len), &[source.sge(0, len)]);
        client.read(2, target.remote(0, len), &[back.sge(0, len)]);
        assert_eq!(client.sent().status, WcStatus::Success);
        assert_eq!(client.sent().status, WcStatus::Success);
        assert_eq!(back.copy(0, len), patterned(9, len), "{settings:?}");
        client.send(3, &[source.sge(5, len)]);
        assert_eq!(server.received().byte_len, len as u32);
        assert_eq!(target.copy(0, len), patterned(14, len), "{settings:?}");
    }
}

#[test]
fn markers_that_disagree_and_bad_crcs_end_the_connection() {
    // Without or with CRC, which byte is changed (2 and 514 are in markers), and the code.
    let rows = [
        (true, 514, 3),
        (true, 2, 3),
        (false, 514, 2),
        (false, 700, 2),
    ];
    for (crc_off, at, code) in rows {
        let node = Node::new(if crc_off {
            "lo 0 markers=on crc=off"
        } else {
            "lo 0 markers=on"
        });
        let memory = node.memory(4096);
        let (server, mut raw, _) = accepted(&node, if crc_off { 0 } else { 0x40 }, 2, &memory);
        let mut writer = Writer::new(true, !crc_off);
        writer.send(1, &[1; 1000]);
        let mut bytes = writer.take();
        bytes[at] ^= 4;
        raw.write_all(&bytes).unwrap();
        let mut answer = Vec::new();
        raw.read_to_end(&mut answer).unwrap();
        assert_eq!(answer[20..22], [0x20, code], "{crc_off} {at}");
        assert_eq!(server.event(), Event::Broken);
    }
}
