//! The bytes of a page: a header, followed by records of one size.
//!
//! Everything that is written while other processes may read it is an atomic word. Numbers are in
//! the machine's own byte order, because a page is used on one machine only.

use std::mem::offset_of;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// The first word of a page that is complete; zero until then.
pub const MAGIC: u64 = u64::from_ne_bytes(*b"ops-page");
/// Raised with every change of the layout. A reader refuses other versions.
pub const VERSION: u32 = 3;

/// Bytes before the first record.
pub const HEADER_LEN: usize = 4096;
/// Bytes of a record.
pub const RECORD_LEN: usize = 384;
/// The maximum number of records in a page. Memory is allocated in chunks, as records
/// come into use.
pub const RECORDS_MAX: usize = 16 * 1024;
/// Bytes of a page.
pub const PAGE_LEN: usize = HEADER_LEN + RECORDS_MAX * RECORD_LEN;
/// Slots for reasons; the last one counts all further reasons together.
pub const REASONS_MAX: usize = 16;
/// Words of a description.
pub const WORDS: usize = 22;
/// Words of the text of a reason.
pub const REASON_WORDS: usize = 14;
/// Number of counters in a record.
pub const COUNTERS: usize = 24;

/// The number of fall-backs for one reason.
#[derive(Debug)]
#[repr(C)]
pub struct ReasonSlot {
    /// The number of fall-backs; zero while there is no text.
    pub count: AtomicU64,
    /// The text, padded with zeros; written before the first count and never changed.
    pub text: [AtomicU64; REASON_WORDS],
}

/// The header of a page.
#[derive(Debug)]
#[repr(C)]
pub struct Header {
    /// [`MAGIC`], written last.
    pub magic: AtomicU64,
    /// [`VERSION`].
    pub version: AtomicU32,
    /// The process id.
    pub pid: AtomicU32,
    /// The start time of the process, in clock ticks since the machine started. It distinguishes
    /// the process from a later one with the same id.
    pub started: AtomicU64,
    /// Inode of the process's PID namespace, in which the process id is valid.
    pub pid_space: AtomicU64,
    /// Inode of the process's network namespace when the page was made.
    pub net_space: AtomicU64,
    /// The number of records that have been used so far.
    pub records: AtomicU64,
    /// The number of sockets for which no record was free.
    pub unlisted: AtomicU64,
    /// The number of connections carried by an offload protocol since the page was made.
    pub offloaded: AtomicU64,
    /// The number of connections that stayed on TCP.
    pub tcp: AtomicU64,
    /// The sums of the counters of connections that are closed, indexed by
    /// [`Counter`](crate::observe::Counter). [`Credits`](crate::observe::Counter::Credits) is not
    /// added, because a closed connection has none.
    pub closed: [AtomicU64; COUNTERS],
    /// The reasons for which connections stayed on TCP.
    pub reasons: [ReasonSlot; REASONS_MAX],
}

/// The record of a socket.
#[derive(Debug)]
#[repr(C)]
pub struct Slot {
    /// Odd while the description is being written; a new even number for each socket.
    pub sequence: AtomicU32,
    /// A [`State`](crate::observe::State), or zero if the record is free.
    pub state: AtomicU32,
    /// The time at which the socket was listed, in nanoseconds since the machine started.
    pub since: AtomicU64,
    /// A [`Description`](crate::observe::Description), encoded.
    pub words: [AtomicU64; WORDS],
    /// The counters, indexed by [`Counter`](crate::observe::Counter); zero in a free record.
    pub counters: [AtomicU64; COUNTERS],
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
const _: () = assert!(offset_of!(Header, closed) == 72);
const _: () = assert!(offset_of!(Header, reasons) == 264);
const _: () = assert!(size_of::<ReasonSlot>() == 120);
const _: () = assert!(offset_of!(Slot, state) == 4);
const _: () = assert!(offset_of!(Slot, since) == 8);
const _: () = assert!(offset_of!(Slot, words) == 16);
const _: () = assert!(offset_of!(Slot, counters) == 192);
