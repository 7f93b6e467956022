//! The bytes of a page: a header, and records of one size behind it.
//!
//! Whatever is written while others may read is an atomic word. Numbers are in the machine's own
//! byte order, because a page never leaves its machine.

use std::mem::offset_of;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// The first word of a page that is complete; zero until then.
pub const MAGIC: u64 = u64::from_ne_bytes(*b"ops-page");
/// Raised with every change of the layout. A reader refuses what it does not know.
pub const VERSION: u32 = 1;

/// Bytes before the first record.
pub const HEADER_LEN: usize = 4096;
/// Bytes of a record.
pub const RECORD_LEN: usize = 256;
/// Records of a page. Memory is taken for those that are used.
pub const RECORDS_MAX: usize = 16 * 1024;
/// Bytes of a page.
pub const PAGE_LEN: usize = HEADER_LEN + RECORDS_MAX * RECORD_LEN;
/// Reasons that are counted by themselves.
pub const REASONS_MAX: usize = 16;
/// Words of a description.
pub const WORDS: usize = 22;
/// Words of the text of a reason.
pub const REASON_WORDS: usize = 14;
/// Counters of a record.
pub const COUNTERS: usize = 8;

/// How often sockets fell back for one reason.
#[derive(Debug)]
#[repr(C)]
pub struct ReasonSlot {
    /// Zero while there is no text.
    pub count: AtomicU64,
    /// The text, filled up with zeros; written before the first count and never again.
    pub text: [AtomicU64; REASON_WORDS],
}

/// What stands at the beginning.
#[derive(Debug)]
#[repr(C)]
pub struct Header {
    /// [`MAGIC`], written last.
    pub magic: AtomicU64,
    /// [`VERSION`].
    pub version: AtomicU32,
    /// The process.
    pub pid: AtomicU32,
    /// When it started, in clock ticks since the machine did, which tells it from a later process
    /// of the same number.
    pub started: AtomicU64,
    /// Inode of the process's PID namespace, within which the number means something.
    pub pid_space: AtomicU64,
    /// Inode of its network namespace when the page was made.
    pub net_space: AtomicU64,
    /// Records up to here have been used.
    pub records: AtomicU64,
    /// Sockets for which there was no record.
    pub unlisted: AtomicU64,
    /// Connections carried by an offload protocol, since the page was made.
    pub offloaded: AtomicU64,
    /// Connections left to TCP.
    pub tcp: AtomicU64,
    /// Bytes that offloaded connections sent that are closed.
    pub sent: AtomicU64,
    /// Bytes that they received.
    pub received: AtomicU64,
    /// Why connections were left to TCP.
    pub reasons: [ReasonSlot; REASONS_MAX],
}

/// One socket.
#[derive(Debug)]
#[repr(C)]
pub struct Slot {
    /// Odd while the description is being written, another even number for each socket.
    pub sequence: AtomicU32,
    /// A [`State`](crate::State); zero: the record is free.
    pub state: AtomicU32,
    /// The time since the machine started when the socket came here, in nanoseconds.
    pub since: AtomicU64,
    /// By [`Counter`](crate::Counter).
    pub counters: [AtomicU64; COUNTERS],
    /// A [`Description`](crate::Description), encoded.
    pub words: [AtomicU64; WORDS],
}

const _: () = assert!(size_of::<Header>() <= HEADER_LEN);
const _: () = assert!(size_of::<Slot>() == RECORD_LEN);
const _: () = assert!(offset_of!(Header, version) == 8);
const _: () = assert!(offset_of!(Header, pid) == 12);
const _: () = assert!(offset_of!(Header, started) == 16);
const _: () = assert!(offset_of!(Header, pid_space) == 24);
const _: () = assert!(offset_of!(Header, net_space) == 32);
const _: () = assert!(offset_of!(Header, records) == 40);
const _: () = assert!(offset_of!(Header, unlisted) == 48);
const _: () = assert!(offset_of!(Header, offloaded) == 56);
const _: () = assert!(offset_of!(Header, tcp) == 64);
const _: () = assert!(offset_of!(Header, sent) == 72);
const _: () = assert!(offset_of!(Header, received) == 80);
const _: () = assert!(offset_of!(Header, reasons) == 88);
const _: () = assert!(size_of::<ReasonSlot>() == 120);
const _: () = assert!(offset_of!(Slot, state) == 4);
const _: () = assert!(offset_of!(Slot, since) == 8);
const _: () = assert!(offset_of!(Slot, counters) == 16);
const _: () = assert!(offset_of!(Slot, words) == 80);
