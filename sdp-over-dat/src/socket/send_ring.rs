//! Bytes that were written, headers, and the Sends under way.

use std::collections::VecDeque;

use dat_api::{Privileges, Pz, Region, Result, Segment};
use sdp_proto::wire::{HEADER_MAX, Header};

/// Bytes kept for one header.
const SLOT: usize = 64;

/// A Send that has not completed.
#[derive(Debug)]
struct UnderWay {
    number: u64,
    ring_bytes: usize,
    fin: bool,
    from_user: bool,
}

/// What a completion brought.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Completed {
    /// DisConn was among what completed.
    pub(super) fin: bool,
}

/// The registered memory of the sending direction.
#[derive(Debug)]
pub(super) struct SendRing {
    pz: Pz,
    ring: Region,
    /// The longest that it may become.
    longest: usize,
    /// The byte, counted from the start of time, with which this ring began.
    base: u64,
    headers: Region,
    slots: usize,
    /// Bytes from the start of time: written, posted, completed.
    written: u64,
    posted: u64,
    completed: u64,
    /// Sends from the start of time.
    sends: u64,
    /// Sends and ring bytes since one that asked for its completion.
    silent: (usize, usize),
    under_way: VecDeque<UnderWay>,
}

impl SendRing {
    /// A ring of so many bytes at first, and at most.
    pub(super) fn new(pz: &Pz, (first, longest): (usize, usize), slots: usize) -> Result<Self> {
        const { assert!(HEADER_MAX <= SLOT) };
        Ok(Self {
            pz: pz.clone(),
            ring: Region::create(pz, first, Privileges::LOCAL_READ)?,
            longest,
            base: 0,
            headers: Region::create(pz, slots * SLOT, Privileges::LOCAL_READ)?,
            slots,
            written: 0,
            posted: 0,
            completed: 0,
            sends: 0,
            silent: (0, 0),
            under_way: VecDeque::new(),
        })
    }

    /// Bytes that can be written.
    pub(super) fn free(&self) -> usize {
        self.ring.len() - (self.written - self.completed.max(self.base)) as usize
    }

    pub(super) fn capacity(&self) -> usize {
        self.ring.len()
    }

    /// Bytes that no Send has taken.
    pub(super) fn unposted(&self) -> usize {
        (self.written - self.posted) as usize
    }

    /// Bytes whose Sends are not known to have completed, or that no Send has taken.
    pub(super) fn uncompleted(&self) -> usize {
        (self.written - self.completed) as usize
    }

    /// Whether another Send may be posted.
    pub(super) fn has_slot(&self) -> bool {
        self.under_way.len() < self.slots
    }

    /// Whether a Send from the caller's memory is under way.
    pub(super) fn uses_user_memory(&self) -> bool {
        self.under_way.iter().any(|send| send.from_user)
    }

    /// Goes on with a ring of four times the length, where every byte of this one has been posted:
    /// so no message is in two of them. The endpoint keeps the regions of what was posted to it.
    fn grow(&mut self) {
        let len = self.longest.min(4 * self.ring.len());
        if len <= self.ring.len() || self.unposted() > 0 {
            return;
        }
        match Region::create(&self.pz, len, Privileges::LOCAL_READ) {
            Ok(ring) => {
                self.ring = ring;
                self.base = self.written;
            }
            Err(error) => {
                tracing::debug!(%error, "a socket has to do with the ring that it has");
                self.longest = self.ring.len();
            }
        }
    }

    /// Copies as much of `bytes` as there is room for.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        if bytes.len() > self.free() {
            self.grow();
        }
        let len = bytes.len().min(self.free());
        let at = ((self.written - self.base) % self.ring.len() as u64) as usize;
        let first = len.min(self.ring.len() - at);
        self.ring.write(at, &bytes[..first])?;
        self.ring.write(0, &bytes[first..len])?;
        self.written += len as u64;
        Ok(len)
    }

    /// Puts a header where a Send can take it from.
    pub(super) fn header(&self, header: &Header) -> Result<Segment<'_>> {
        let at = (self.sends as usize % self.slots) * SLOT;
        self.headers.write(at, header.as_bytes())?;
        self.headers.segment(at, header.as_bytes().len())
    }

    /// The next `len` bytes: one piece, or two around the end of the ring.
    pub(super) fn next(&self, len: usize) -> Result<(Segment<'_>, Option<Segment<'_>>)> {
        let at = ((self.posted - self.base) % self.ring.len() as u64) as usize;
        let first = len.min(self.ring.len() - at);
        let wrapped = len - first;
        let second = match wrapped {
            0 => None,
            wrapped => Some(self.ring.segment(0, wrapped)?),
        };
        Ok((self.ring.segment(at, first)?, second))
    }

    /// Whether the Send that is being made should tell of its completion: when a quarter of the
    /// slots or of the ring waits for one, and for everything that somebody waits for.
    pub(super) fn wants_completion(&self, ring_bytes: usize, somebody_waits: bool) -> bool {
        somebody_waits
            || (self.silent.0 + 1) * 4 > self.slots
            || (self.silent.1 + ring_bytes) * 4 > self.ring.len()
    }

    /// A Send was posted; its number is the one that it was given as a cookie.
    pub(super) fn on_posted(&mut self, ring_bytes: usize, fin: bool, from_user: bool, loud: bool) {
        self.under_way.push_back(UnderWay {
            number: self.sends,
            ring_bytes,
            fin,
            from_user,
        });
        self.sends += 1;
        self.posted += ring_bytes as u64;
        self.silent = if loud {
            (0, 0)
        } else {
            (self.silent.0 + 1, self.silent.1 + ring_bytes)
        };
    }

    /// The number of the next Send.
    pub(super) const fn next_number(&self) -> u64 {
        self.sends
    }

    /// Send `number` has completed, and all before it.
    pub(super) fn on_completed(&mut self, number: u64) -> Completed {
        let mut completed = Completed::default();
        while let Some(send) = self.under_way.pop_front_if(|send| send.number <= number) {
            self.completed += send.ring_bytes as u64;
            completed.fin |= send.fin;
        }
        completed
    }

    /// The transport is gone and works on nothing any more.
    pub(super) fn on_gone(&mut self) {
        self.under_way.clear();
    }
}
