//! A scripted peer. It negotiates the carrier over TCP, and a test then controls what the peer
//! writes into the shared memory.
//!
//! The frames and the layout of the memory are defined here a second time, so that the script
//! shares no code with the implementation that it attacks.

use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

use super::{DEADLINE, Event, FIRST_WRITE, Side, accept_on, crc32c, hex, read_exact, read_startup};

/// A Request and a Reply of revision 2 with CRC whose first FPDU is a Read; IRD and ORD are 4.
const REQUEST_READ: &str = "4d504120 49442052 65712046 72616d65 50020004 80044004";
const REPLY_READ: &str = "4d504120 49442052 65702046 72616d65 50020004 80044004";
/// The numbers by which two ends of this implementation recognise each other, with the offer of
/// ULPDUs of 0x8000 bytes and of carrier messages.
const ASK: u64 = 0x8C53_E1B7_2D9A_0000 | 1 << 16 | 0x8000;
const ANSWER: u64 = 0x47F0_9B2E_D316_0000 | 1 << 16 | 0x8000;
/// The queue and the RDMAP opcode of carrier messages.
const CARRIER_QUEUE: u32 = 0x4441_5452;
const CARRIER: u8 = 0x4F;
const SEND: u8 = 0x43;

/// The seals that the memory must have.
pub const SEALED: SealFlags = SealFlags::SHRINK
    .union(SealFlags::GROW)
    .union(SealFlags::SEAL);
/// The length of a data area as this implementation creates it, in bytes.
pub const RING_LEN: usize = 256 * 1024;

/// Offsets of control words.
pub const RELEASED: usize = 0;
pub const ASLEEP: usize = 128;
pub const WAITING: usize = 256;
pub const KNOWN_ADDR: usize = 384;
pub const KNOWN_VALUE: usize = 392;
pub const CAN_PULL: usize = 512;
pub const SUPPLIED: usize = 640;

/// The kinds of records.
pub const INLINE: u64 = 1;
pub const REFERENCE: u64 = 2;
pub const SKIP: u64 = 3;

/// The TCP connection of a scripted peer that has agreed on carriers.
#[derive(Debug)]
pub struct Scripted {
    pub tcp: TcpStream,
    sends: u32,
    carriers: u32,
}

impl Scripted {
    /// Connects to `server`, which accepts and is established on return.
    pub fn initiator(server: &Side<'_>) -> Self {
        let (tcp, _reply) = accept_on(server, &hex(REQUEST_READ));
        let mut peer = Self::new(tcp);
        peer.send_segment(&[
            &[0x41, 0x41, 0, 0, 0, 0],
            &1_u32.to_be_bytes(),
            &1_u32.to_be_bytes(),
            &[0; 8],
            &ASK.to_be_bytes(),
            &[0; 16],
        ]);
        let answer = peer.read_segment();
        assert_eq!(answer[1] & 0xF, 2, "a Read Response");
        assert_eq!(answer[6..12], ANSWER.to_be_bytes()[..6], "{answer:x?}");
        let event = server.event();
        assert!(matches!(event, Event::Established { .. }), "{event:?}");
        peer
    }

    /// Accepts a connection of `client`, which is established on return.
    pub fn responder(client: &Side<'_>) -> Self {
        let mut tcp = client.connect_to_raw(b"hi");
        read_startup(&mut tcp);
        tcp.write_all(&hex(REPLY_READ)).unwrap();
        let mut peer = Self::new(tcp);
        let read = peer.read_segment();
        assert_eq!(read[1] & 0xF, 1, "a Read Request");
        peer.send_segment(&[&[0xC1, 0x42], &read[18..22], &ANSWER.to_be_bytes()]);
        let event = client.event();
        assert!(matches!(event, Event::Established { .. }), "{event:?}");
        peer
    }

    fn new(tcp: TcpStream) -> Self {
        tcp.set_nodelay(true).unwrap();
        Self {
            tcp,
            sends: 0,
            carriers: 0,
        }
    }

    /// Sends one segment as an FPDU.
    pub fn send_segment(&mut self, parts: &[&[u8]]) {
        self.try_send_segment(parts).unwrap();
    }

    pub fn try_send_segment(&mut self, parts: &[&[u8]]) -> std::io::Result<()> {
        let segment = parts.concat();
        let mut fpdu = (segment.len() as u16).to_be_bytes().to_vec();
        fpdu.extend(segment);
        fpdu.resize(fpdu.len().next_multiple_of(4), 0);
        // RFC 5044 section 4.1 defines the byte order.
        let crc = crc32c(&fpdu).to_le_bytes();
        fpdu.extend(crc);
        self.tcp.write_all(&fpdu)
    }

    /// Reads the segment of the next FPDU that is no repetition of a first frame. The victim
    /// repeats its first frame if this peer is late.
    pub fn read_segment(&mut self) -> Vec<u8> {
        let repetition = &hex(FIRST_WRITE)[2..16];
        loop {
            let segment = self.read_any_segment();
            if segment != repetition {
                return segment;
            }
        }
    }

    fn read_any_segment(&mut self) -> Vec<u8> {
        let len = read_exact(&mut self.tcp, 2);
        let len = usize::from(u16::from_be_bytes([len[0], len[1]]));
        let mut rest = read_exact(&mut self.tcp, (2 + len).next_multiple_of(4) - 2 + 4);
        rest.truncate(len);
        rest
    }

    /// The number of the next Send.
    pub fn next_send(&self) -> u32 {
        self.sends + 1
    }

    /// Returns the header of the next Send, which the caller transmits over TCP or shared memory.
    pub fn send_header(&mut self) -> Vec<u8> {
        self.sends += 1;
        let parts: [&[u8]; 4] = [
            &[0x41, SEND, 0, 0, 0, 0],
            &[0; 4],
            &self.sends.to_be_bytes(),
            &[0; 4],
        ];
        parts.concat()
    }

    /// Sends a message over TCP.
    pub fn send(&mut self, payload: &[u8]) {
        let header = self.send_header();
        self.send_segment(&[&header, payload]);
    }

    fn send_carrier(&mut self, message: &[u8]) {
        self.carriers += 1;
        let msn = self.carriers.to_be_bytes();
        let head = [0x41, CARRIER, 0, 0, 0, 0];
        self.send_segment(&[&head, &CARRIER_QUEUE.to_be_bytes(), &msn, &[0; 4], message]);
    }

    pub fn send_offer(&mut self, name: &[u8; 16], token: u64) {
        self.send_carrier(&[&[0, 0, 0, 1][..], name, &token.to_be_bytes()].concat());
    }

    pub fn send_moved(&mut self) {
        self.send_carrier(&[0, 0, 0, 2]);
    }

    /// Sends 20 messages, which `server` receives. Returns the name and the token of the offer that
    /// the peer then sends.
    pub fn provoke_offer(&mut self, server: &Side<'_>) -> ([u8; 16], u64) {
        for _ in 0..20 {
            server.recv(1, &[]);
            self.send(&[]);
            server.received();
        }
        let offer = self.read_segment();
        assert_eq!(offer[1], CARRIER, "{offer:x?}");
        assert_eq!(offer[18..22], [0, 0, 0, 1], "{offer:x?}");
        let token = u64::from_be_bytes(offer[38..46].try_into().unwrap());
        (offer[22..38].try_into().unwrap(), token)
    }

    /// Returns when the peer has sent `Moved`.
    pub fn await_moved(&mut self) {
        let moved = self.read_segment();
        assert_eq!((moved[1], &moved[18..22]), (CARRIER, &[0, 0, 0, 2][..]));
    }

    /// Reads until the peer has closed, and returns the bytes.
    pub fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        let _ = self.tcp.read_to_end(&mut rest);
        rest
    }
}

fn address(name: &[u8; 16]) -> SocketAddr {
    let name = format!("dat-rs-{:032x}", u128::from_be_bytes(*name));
    SocketAddr::from_abstract_name(name).unwrap()
}

/// The socket address of a name.
pub fn unix_address(name: &[u8; 16]) -> rustix::net::SocketAddrUnix {
    let name = format!("dat-rs-{:032x}", u128::from_be_bytes(*name));
    rustix::net::SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap()
}

/// Connects to the rendezvous that was offered.
pub fn dial(name: &[u8; 16]) -> UnixStream {
    let unix = UnixStream::connect_addr(&address(name)).unwrap();
    unix.set_read_timeout(Some(DEADLINE)).unwrap();
    unix
}

/// Listens at a name of the script.
pub fn listen(name: &[u8; 16]) -> UnixListener {
    UnixListener::bind_addr(&address(name)).unwrap()
}

/// A hello of the current version.
pub fn hello(token: u64, ring_len: usize) -> Vec<u8> {
    let parts: [&[u8]; 4] = [
        b"dat-ring",
        &1_u32.to_le_bytes(),
        &(ring_len as u32).to_le_bytes(),
        &token.to_le_bytes(),
    ];
    parts.concat()
}

/// Sends bytes with descriptors.
pub fn send_with(unix: &UnixStream, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)));
    }
    let pieces = [IoSlice::new(bytes)];
    rustix::net::sendmsg(unix, &pieces, &mut control, SendFlags::NOSIGNAL).unwrap();
}

/// The answer to a hello; `None` if the peer has closed without one.
pub fn answer(unix: &mut UnixStream) -> Option<u8> {
    let mut byte = [0];
    unix.read_exact(&mut byte).ok().map(|()| byte[0])
}

/// A half of the shared memory: its control words and its data area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Half {
    /// The half for messages from the process that created the memory.
    Creator,
    /// The half for messages from the process that received the memory.
    Adopter,
}

/// Shared memory, created or received by the script. Dropping this value removes the script's
/// mapping.
#[derive(Debug)]
pub struct Shared {
    pub fd: OwnedFd,
    base: NonNull<u8>,
    pub ring_len: usize,
}

impl Shared {
    /// Creates memory as the specification requires it.
    pub fn new() -> Self {
        Self::with(RING_LEN, SEALED)
    }

    /// Creates memory of this length with these seals.
    pub fn with(ring_len: usize, seals: SealFlags) -> Self {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create("script", flags).unwrap();
        rustix::fs::ftruncate(&fd, Self::total(ring_len) as u64).unwrap();
        rustix::fs::fcntl_add_seals(&fd, seals).unwrap();
        Self::of(fd, ring_len)
    }

    /// Maps the memory that a descriptor names.
    pub fn of(fd: OwnedFd, ring_len: usize) -> Self {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let len = Self::total(ring_len);
        // SAFETY: the kernel chooses a free address, so the new mapping replaces no other memory.
        let base = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), len, access, MapFlags::SHARED, &fd, 0)
        };
        let base = NonNull::new(base.unwrap().cast()).unwrap();
        Self { fd, base, ring_len }
    }

    fn total(ring_len: usize) -> usize {
        8192 + 2 * ring_len
    }

    fn at(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(offset + len <= Self::total(self.ring_len));
        // SAFETY: within the mapping (assertion).
        unsafe { self.base.as_ptr().add(offset) }
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the word is within the mapping, which lives as long as `self`. It is aligned,
        // because callers pass offsets that are multiples of 8.
        unsafe { AtomicU64::from_ptr(self.at(offset, 8).cast()) }
    }

    /// A control word.
    pub fn control(&self, half: Half, at: usize) -> &AtomicU64 {
        self.word(at + if half == Half::Creator { 0 } else { 4096 })
    }

    fn data(&self, half: Half) -> usize {
        8192 + if half == Half::Creator {
            0
        } else {
            self.ring_len
        }
    }

    /// A word of the data area, by its position in the sequence of all bytes.
    pub fn ring_word(&self, half: Half, position: u64) -> &AtomicU64 {
        let at = position as usize & (self.ring_len - 1);
        self.word(self.data(half) + at)
    }

    /// Writes bytes into the data area.
    pub fn write(&self, half: Half, position: u64, bytes: &[u8]) {
        let at = position as usize & (self.ring_len - 1);
        let target = self.at(self.data(half) + at, bytes.len());
        // SAFETY: `at` has checked that as many bytes are within the mapping, to which no Rust
        // reference to bytes exists.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len()) };
    }

    /// Writes an inline record as the specification says, and returns the position of the next one.
    pub fn push(&self, half: Half, position: u64, header: &[u8], payload: &[u8]) -> u64 {
        let payload_at = payload_at(header.len(), payload.len());
        let len = (payload_at + payload.len()).next_multiple_of(64) as u64;
        self.write(half, position + 8, header);
        self.write(half, position + payload_at as u64, payload);
        self.ring_word(half, position + len)
            .store(0, Ordering::Relaxed);
        let word = word(INLINE, header.len() as u64, position, payload.len() as u64);
        self.ring_word(half, position)
            .store(word, Ordering::Release);
        position + len
    }

    /// Writes a reference to pieces of memory, and returns the position of the next record.
    pub fn push_reference(
        &self,
        half: Half,
        position: u64,
        header: &[u8],
        (count, total): (u32, u64),
        pieces: &[(u64, u64)],
    ) -> u64 {
        let first = 16 + header.len().next_multiple_of(8);
        let len = (first + pieces.len() * 16).next_multiple_of(64) as u64;
        let state_and_count = 1 | u64::from(count) << 32;
        self.ring_word(half, position + 8)
            .store(state_and_count, Ordering::Relaxed);
        self.write(half, position + 16, header);
        for (index, (addr, len)) in pieces.iter().enumerate() {
            let at = position + (first + index * 16) as u64;
            self.ring_word(half, at).store(*addr, Ordering::Relaxed);
            self.ring_word(half, at + 8).store(*len, Ordering::Relaxed);
        }
        self.ring_word(half, position + len)
            .store(0, Ordering::Relaxed);
        let word = word(REFERENCE, header.len() as u64, position, total);
        self.ring_word(half, position)
            .store(word, Ordering::Release);
        position + len
    }

    /// Waits for a record at a position, and returns its word.
    pub fn await_word(&self, half: Half, position: u64) -> u64 {
        let deadline = std::time::Instant::now() + DEADLINE;
        loop {
            let word = self.ring_word(half, position).load(Ordering::Acquire);
            if word != 0 {
                return word;
            }
            assert!(
                std::time::Instant::now() < deadline,
                "no record at {position}"
            );
            std::thread::yield_now();
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: the mapping of `of`; references to its words end before `self`.
        let _ =
            unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), Self::total(self.ring_len)) };
    }
}

/// The word of a record.
pub fn word(kind: u64, header_len: u64, position: u64, len: u64) -> u64 {
    kind | header_len << 8 | ((position / 64) & 0xFFFF) << 16 | len << 32
}

fn payload_at(header_len: usize, payload_len: usize) -> usize {
    let after = 8 + header_len.next_multiple_of(8);
    if after + payload_len <= 64 {
        after
    } else {
        after.next_multiple_of(64)
    }
}

/// A scripted peer whose connection has moved in both directions: the script transmits through
/// [`Half::Creator`] and receives from [`Half::Adopter`].
#[derive(Debug)]
pub struct Moved {
    pub peer: Scripted,
    pub unix: UnixStream,
    pub shared: Shared,
    /// The position of the script's next record.
    pub tail: u64,
}

impl Moved {
    /// Moves the connection of a scripted initiator to shared memory. `prepare` changes the memory
    /// before the other side maps it.
    pub fn new(server: &Side<'_>, prepare: impl FnOnce(&Shared)) -> Self {
        let mut peer = Scripted::initiator(server);
        let (name, token) = peer.provoke_offer(server);
        let mut unix = dial(&name);
        let shared = Shared::new();
        prepare(&shared);
        send_with(&unix, &hello(token, RING_LEN), &[shared.fd.as_fd()]);
        assert_eq!(answer(&mut unix), Some(0));
        peer.send_moved();
        peer.await_moved();
        Self {
            peer,
            unix,
            shared,
            tail: 0,
        }
    }

    /// Moves such a connection to memory that contains a word of this process, whose memory the
    /// other side can then read.
    pub fn with_known_word(server: &Side<'_>) -> Self {
        static KNOWN: AtomicU64 = AtomicU64::new(0x1234_5678_9ABC);
        Self::new(server, |shared| {
            let word = |at| shared.control(Half::Creator, at);
            word(KNOWN_ADDR).store(KNOWN.as_ptr().expose_provenance() as u64, Ordering::Relaxed);
            word(KNOWN_VALUE).store(KNOWN.load(Ordering::Relaxed), Ordering::Relaxed);
        })
    }

    /// Moves such a connection, as a peer that can read the memory of the other side.
    pub fn with_pulls(server: &Side<'_>) -> Self {
        Self::new(server, |shared| {
            let can_pull = shared.control(Half::Adopter, CAN_PULL);
            can_pull.store(1, Ordering::Relaxed);
        })
    }

    /// Writes a message into the ring.
    pub fn push(&mut self, payload: &[u8]) {
        let header = self.peer.send_header();
        self.tail = self.shared.push(Half::Creator, self.tail, &header, payload);
    }

    /// Writes a message into the ring whose payload is elsewhere.
    pub fn push_reference(&mut self, count_and_total: (u32, u64), pieces: &[(u64, u64)]) {
        let header = self.peer.send_header();
        let shared = &self.shared;
        shared.push_reference(Half::Creator, self.tail, &header, count_and_total, pieces);
    }

    /// Sends a message through the ring, and wakes the other side.
    pub fn send(&mut self, payload: &[u8]) {
        self.push(payload);
        self.wake();
    }

    /// Wakes the other side.
    pub fn wake(&self) {
        let _ = (&self.unix).write(&[1]);
    }
}
