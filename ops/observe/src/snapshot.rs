//! From the bytes of a page to what they say, or to a fault.
//!
//! The bytes may be anybody's, half written or cut. Nothing here can fail but by saying so.

use std::mem::offset_of;

use crate::description::{Description, text};
use crate::layout::{
    COUNTERS, HEADER_LEN, Header, MAGIC, REASON_WORDS, REASONS_MAX, RECORD_LEN, RECORDS_MAX,
    ReasonSlot, Slot, VERSION, WORDS,
};
use crate::record::Counter;
use crate::state::State;

/// Why a file is no page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It is too short or was never begun.
    #[error("it is not complete")]
    Incomplete,
    /// It begins with something else.
    #[error("it is no page of sockets")]
    Foreign,
    /// Another version of the library wrote it.
    #[error("it has layout {0} and this program knows {VERSION}; use the opsrun of that library")]
    Version(u32),
    /// It says that it belongs to another process than its name does.
    #[error("its name and its contents speak of different processes")]
    Process,
    /// The process belongs to another user.
    #[error("it speaks of another user's process")]
    Owner,
}

/// What a process has counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Connections that an offload protocol carried or carries.
    pub offloaded: u64,
    /// Connections left to TCP.
    pub tcp: u64,
    /// Bytes sent by offloaded connections that are closed.
    pub sent: u64,
    /// Bytes received by them.
    pub received: u64,
    /// Sockets for which there was no record.
    pub unlisted: u64,
}

/// One socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// What it is.
    pub description: Description,
    /// Its state.
    pub state: State,
    /// When it came, in nanoseconds since the machine started.
    pub since: u64,
    counters: [u64; COUNTERS],
}

impl Row {
    /// A counter.
    #[must_use]
    pub fn counter(&self, which: Counter) -> u64 {
        self.counters[which as usize]
    }
}

/// What a page says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The process.
    pub pid: u32,
    /// When it started.
    pub started: u64,
    /// Inode of its PID namespace.
    pub pid_space: u64,
    /// Inode of its network namespace.
    pub net_space: u64,
    /// What it has counted.
    pub totals: Totals,
    /// Why connections were left to TCP, and how often.
    pub reasons: Vec<(String, u64)>,
    /// Its sockets.
    pub rows: Vec<Row>,
    /// Records that changed while they were read.
    pub torn: usize,
}

/// Bytes of a page that matter, from its first ones.
#[must_use]
pub fn len_used(header: &[u8]) -> usize {
    let records = number(header, offset_of!(Header, records)).unwrap_or(0);
    let records = usize::try_from(records).map_or(RECORDS_MAX, |count| count.min(RECORDS_MAX));
    HEADER_LEN + records * RECORD_LEN
}

impl Snapshot {
    /// Reads a page of which three copies were made one after the other. What a record says is in
    /// the second, and is believed where all three agree that nobody wrote meanwhile.
    ///
    /// # Errors
    /// When it is no page.
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
                sent: long(offset_of!(Header, sent))?,
                received: long(offset_of!(Header, received))?,
                unlisted: long(offset_of!(Header, unlisted))?,
            },
            reasons: reasons(bytes),
            rows: Vec::new(),
            torn: 0,
        };
        let end = len_used(bytes).min(bytes.len());
        let mut at = HEADER_LEN;
        while at + RECORD_LEN <= end {
            match record(before, bytes, after, at) {
                Read::Socket(row) => snapshot.rows.push(row),
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
    Socket(Row),
}

fn record(before: &[u8], bytes: &[u8], after: &[u8], at: usize) -> Read {
    let sequences = [before, bytes, after].map(|copy| half(copy, at));
    let [Some(first), second, third] = sequences else {
        // It was not there yet.
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
        (Some(state), Some(description)) => Read::Socket(Row {
            description,
            state,
            since: number(bytes, at + offset_of!(Slot, since)).unwrap_or(0),
            counters,
        }),
        // Nobody of ours wrote that.
        _ => Read::Free,
    }
}

fn reasons(bytes: &[u8]) -> Vec<(String, u64)> {
    let start = offset_of!(Header, reasons);
    let slots = (0..REASONS_MAX).map(|index| start + index * size_of::<ReasonSlot>());
    slots
        .filter_map(|at| {
            let count = number(bytes, at + offset_of!(ReasonSlot, count))?;
            let from = at + offset_of!(ReasonSlot, text);
            let reason = text(bytes.get(from..from + REASON_WORDS * 8)?);
            (count > 0).then_some((reason, count))
        })
        .collect()
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
