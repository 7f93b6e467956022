//! The parser from the bytes of a page to its contents, or to a fault.
//!
//! Any program may have written the bytes, and they may be incomplete. The parser never panics and
//! reports every fault.

use std::mem::offset_of;

use crate::observe::counter::Counter;
use crate::observe::description::{Description, text};
use crate::observe::layout::{
    COUNTERS, HEADER_LEN, Header, MAGIC, REASON_WORDS, REASONS_MAX, RECORD_LEN, RECORDS_MAX,
    ReasonSlot, Slot, VERSION, WORDS,
};
use crate::observe::state::State;

/// The reason why a file is not a valid page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The file is too short, or its header was never completed.
    #[error("it is not complete")]
    Incomplete,
    /// The file begins with another magic number.
    #[error("it is not a page of sockets")]
    Foreign,
    /// Another version of the library wrote the file.
    #[error("it has layout {0}, this program reads {VERSION}; use the opsrun of that library")]
    Version(u32),
    /// The process in the header is not the one in the file's name.
    #[error("its name and its header refer to different processes")]
    Process,
    /// The process belongs to another user.
    #[error("it belongs to another user's process")]
    Owner,
}

/// The totals of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Connections that an offload protocol carried or carries.
    pub offloaded: u64,
    /// Connections that stayed on TCP.
    pub tcp: u64,
    /// Sockets for which no record was free.
    pub unlisted: u64,
    closed: [u64; COUNTERS],
}

impl Totals {
    /// Returns the sum of a counter over all sockets that are closed.
    #[must_use]
    pub fn closed(&self, which: Counter) -> u64 {
        self.closed[which as usize]
    }
}

/// A socket in a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The properties of the socket.
    pub description: Description,
    /// The state of the socket.
    pub state: State,
    /// The time at which the socket was listed, in nanoseconds since the machine started.
    pub since: u64,
    counters: [u64; COUNTERS],
}

impl Row {
    /// Returns a counter.
    #[must_use]
    pub fn counter(&self, which: Counter) -> u64 {
        self.counters[which as usize]
    }
}

/// The contents of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The process id.
    pub pid: u32,
    /// The start time of the process, in clock ticks since the machine started.
    pub started: u64,
    /// Inode of its PID namespace.
    pub pid_space: u64,
    /// Inode of its network namespace.
    pub net_space: u64,
    /// The totals of the process.
    pub totals: Totals,
    /// The reasons for which connections stayed on TCP, with the number of each.
    pub reasons: Vec<(String, u64)>,
    /// The sockets of the process.
    pub rows: Vec<Row>,
    /// The number of records that changed while they were read.
    pub torn: usize,
}

/// Returns the number of bytes in use of a page with this header.
#[must_use]
pub fn len_used(header: &[u8]) -> usize {
    let records = number(header, offset_of!(Header, records)).unwrap_or(0);
    let records = usize::try_from(records).map_or(RECORDS_MAX, |count| count.min(RECORDS_MAX));
    HEADER_LEN + records * RECORD_LEN
}

impl Snapshot {
    /// Parses a page from three copies made one after the other. The contents of a record are taken
    /// from the second copy, and only if the sequence numbers of all three show that no write
    /// happened meanwhile.
    ///
    /// # Errors
    /// Fails if the bytes are not a page.
    pub fn parse(before: &[u8], bytes: &[u8], after: &[u8]) -> Result<Self, Fault> {
        let long = |at| number(bytes, at).ok_or(Fault::Incomplete);
        let short = |at| half(bytes, at).ok_or(Fault::Incomplete);
        match long(offset_of!(Header, magic))? {
            MAGIC => {}
            0 => return Err(Fault::Incomplete),
            _ => return Err(Fault::Foreign),
        }
        let version = short(offset_of!(Header, version))?;
        if version != VERSION {
            return Err(Fault::Version(version));
        }
        if bytes.len() < HEADER_LEN {
            return Err(Fault::Incomplete);
        }
        let mut snapshot = Self {
            pid: short(offset_of!(Header, pid))?,
            started: long(offset_of!(Header, started))?,
            pid_space: long(offset_of!(Header, pid_space))?,
            net_space: long(offset_of!(Header, net_space))?,
            totals: Totals {
                offloaded: long(offset_of!(Header, offloaded))?,
                tcp: long(offset_of!(Header, tcp))?,
                unlisted: long(offset_of!(Header, unlisted))?,
                closed: array(bytes, offset_of!(Header, closed)),
            },
            reasons: reasons(bytes),
            rows: Vec::new(),
            torn: 0,
        };
        let end = len_used(bytes).min(bytes.len());
        let mut at = HEADER_LEN;
        while at + RECORD_LEN <= end {
            match record(before, bytes, after, at) {
                Read::Socket(row) => snapshot.rows.push(*row),
                Read::Torn => snapshot.torn += 1,
                Read::Free => {}
            }
            at += RECORD_LEN;
        }
        Ok(snapshot)
    }
}

enum Read {
    Free,
    Torn,
    Socket(Box<Row>),
}

fn record(before: &[u8], bytes: &[u8], after: &[u8], at: usize) -> Read {
    let sequences = [before, bytes, after].map(|copy| half(copy, at));
    let [Some(first), second, third] = sequences else {
        // The record was added after the first copy.
        return Read::Torn;
    };
    if Some(first) != second || second != third || !first.is_multiple_of(2) {
        return Read::Torn;
    }
    let state = half(bytes, at + offset_of!(Slot, state)).unwrap_or(0);
    if first == 0 || state == 0 {
        return Read::Free;
    }
    let counters = array(bytes, at + offset_of!(Slot, counters));
    let words: [u64; WORDS] = array(bytes, at + offset_of!(Slot, words));
    match (State::of(state), Description::decode(&words)) {
        (Some(state), Some(description)) => Read::Socket(Box::new(Row {
            description,
            state,
            since: number(bytes, at + offset_of!(Slot, since)).unwrap_or(0),
            counters,
        })),
        // A record that this library did not write.
        _ => Read::Free,
    }
}

/// Returns the reasons with their counts. A text that several slots have is returned once.
fn reasons(bytes: &[u8]) -> Vec<(String, u64)> {
    let start = offset_of!(Header, reasons);
    let slots = (0..REASONS_MAX).map(|index| start + index * size_of::<ReasonSlot>());
    let counted = slots.filter_map(|at| {
        let count = number(bytes, at + offset_of!(ReasonSlot, count))?;
        let from = at + offset_of!(ReasonSlot, text);
        let reason = text(bytes.get(from..from + REASON_WORDS * 8)?);
        (count > 0).then_some((reason, count))
    });
    let mut sums: Vec<(String, u64)> = Vec::new();
    for (reason, count) in counted {
        match sums.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, sum)) => *sum = sum.saturating_add(count),
            None => sums.push((reason, count)),
        }
    }
    sums
}

fn number(bytes: &[u8], at: usize) -> Option<u64> {
    let word = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_ne_bytes(*word))
}

fn half(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_ne_bytes(*word))
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u64; N] {
    std::array::from_fn(|index| number(bytes, at + 8 * index).unwrap_or(0))
}
