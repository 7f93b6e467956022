//! Bytes that were written, headers, and the Sends in progress.

use std::collections::VecDeque;

use dat_api::{Privileges, Pz, Region, Result, Segment};
use sdp_proto::{
    AdvertId,
    wire::{HEADER_MAX, Header},
};

/// The number of bytes reserved for one header.
const SLOT: usize = 64;

/// A Send that has not completed.
#[derive(Debug)]
struct SendInProgress {
    number: u64,
    ring_bytes: usize,
    is_fin: bool,
    /// The caller's memory from which the bytes are sent.
    source: Option<AdvertId>,
    /// The number of RDMA Writes that were posted for it, before it.
    writes: usize,
}

/// The result of a completion.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Completed {
    /// True if the Send of DisConn was among those completed.
    pub(super) is_fin: bool,
}

/// The registered memory of the sending direction.
#[derive(Debug)]
pub(super) struct SendRing {
    pz: Pz,
    ring: Region,
    /// The largest length that the ring may grow to.
    longest: usize,
    /// The limit that the user has set on the bytes that the ring keeps (SO_SNDBUF).
    bound: usize,
    /// The position in the stream of the first byte of this ring.
    base: u64,
    headers: Region,
    slots: usize,
    /// Positions in the stream: bytes written, posted and completed so far.
    written: u64,
    posted: u64,
    completed: u64,
    /// The number of Sends so far.
    sends: u64,
    /// The Sends, and the ring bytes, that were posted since the last signalled Send.
    unsignaled: (usize, usize),
    in_progress: VecDeque<SendInProgress>,
    /// The number of RDMA Writes in progress.
    writes: usize,
    /// The part of `writes` whose Send was not posted.
    new_writes: usize,
}

impl SendRing {
    /// The most RDMA Writes for one Send: a payload that wraps around the end of the ring has two
    /// segments.
    pub(super) const WRITES: usize = 2;

    /// Creates a ring of `first` bytes, which may grow to `longest`.
    pub(super) fn new(pz: &Pz, (first, longest): (usize, usize), slots: usize) -> Result<Self> {
        const { assert!(HEADER_MAX <= SLOT) };
        Ok(Self {
            pz: pz.clone(),
            ring: Region::create(pz, first, Privileges::LOCAL_READ)?,
            longest,
            bound: usize::MAX,
            base: 0,
            headers: Region::create(pz, slots * SLOT, Privileges::LOCAL_READ)?,
            slots,
            written: 0,
            posted: 0,
            completed: 0,
            sends: 0,
            unsignaled: (0, 0),
            in_progress: VecDeque::new(),
            writes: 0,
            new_writes: 0,
        })
    }

    /// The number of bytes that can be written now.
    pub(super) fn free(&self) -> usize {
        let in_ring = (self.written - self.completed.max(self.base)) as usize;
        let bound = self.capacity().saturating_sub(self.uncompleted());
        bound.min(self.ring.len() - in_ring)
    }

    /// The number of bytes that the ring keeps at most.
    ///
    /// A reduced bound takes full effect at the next signalled Send. Until then the ring keeps up
    /// to four times the bytes that were posted since the last signalled Send, so that another Send
    /// can be written.
    pub(super) fn capacity(&self) -> usize {
        self.bound.max(4 * self.unsignaled.1).min(self.ring.len())
    }

    /// Sets the largest number of bytes to keep; `None`: the length of the ring.
    pub(super) fn set_bound(&mut self, bound: Option<usize>) {
        self.bound = bound.unwrap_or(usize::MAX).max(1);
    }

    /// The number of written bytes that no Send carries yet.
    pub(super) fn unposted(&self) -> usize {
        (self.written - self.posted) as usize
    }

    /// The number of written bytes without a Send that is known to have completed.
    pub(super) fn uncompleted(&self) -> usize {
        (self.written - self.completed) as usize
    }

    /// True if another Send may be posted, with up to [`Self::WRITES`] RDMA Writes before it. So
    /// the number of requests in progress may exceed the number of slots by [`Self::WRITES`].
    pub(super) fn has_slot(&self) -> bool {
        self.in_progress.len() + self.writes < self.slots
    }

    /// True if a Send from this memory of a caller is in progress.
    pub(super) fn uses(&self, source: AdvertId) -> bool {
        self.in_progress
            .iter()
            .any(|send| send.source == Some(source))
    }

    /// Replaces the ring by one of four times the length. This is done only when every byte of the
    /// old ring has been posted, so no message is in both. The endpoint keeps the regions of posted
    /// Sends alive.
    fn grow(&mut self) {
        let len = self.longest.min(4 * self.ring.len());
        let is_bounded = self.ring.len() >= self.bound;
        if is_bounded || len <= self.ring.len() || self.unposted() > 0 {
            return;
        }
        match Region::create(&self.pz, len, Privileges::LOCAL_READ) {
            Ok(ring) => {
                self.ring = ring;
                self.base = self.written;
            }
            Err(error) => {
                tracing::debug!(%error, "a socket's send ring does not grow");
                self.longest = self.ring.len();
            }
        }
    }

    /// Copies as much of `bytes` as fits.
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

    /// Copies a header to the registered memory of the next Send.
    pub(super) fn header(&self, header: &Header) -> Result<Segment<'_>> {
        let at = (self.sends as usize % self.slots) * SLOT;
        self.headers.write(at, header.as_bytes())?;
        self.headers.segment(at, header.as_bytes().len())
    }

    /// The next `len` bytes: one segment, or two around the end of the ring.
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

    /// True if the next Send must be signalled: a call waits for that Send, or a quarter of the
    /// slots, or of the bytes that the ring may keep, has been posted since the last signalled
    /// Send.
    pub(super) fn wants_completion(&self, ring_bytes: usize, has_waiter: bool) -> bool {
        has_waiter
            || (self.unsignaled.0 + 1) * 4 > self.slots
            || (self.unsignaled.1 + ring_bytes) * 4 > self.bound.min(self.ring.len())
    }

    /// Records posted RDMA Writes. Their Send follows.
    pub(super) const fn on_writes_posted(&mut self, count: usize) {
        self.writes += count;
        self.new_writes += count;
    }

    /// Records a posted Send, whose cookie holds [`Self::next_number`].
    pub(super) fn on_posted(
        &mut self,
        ring_bytes: usize,
        is_fin: bool,
        source: Option<AdvertId>,
        is_signaled: bool,
    ) {
        self.in_progress.push_back(SendInProgress {
            number: self.sends,
            ring_bytes,
            is_fin,
            source,
            writes: std::mem::take(&mut self.new_writes),
        });
        self.sends += 1;
        self.posted += ring_bytes as u64;
        self.unsignaled = if is_signaled {
            (0, 0)
        } else {
            (self.unsignaled.0 + 1, self.unsignaled.1 + ring_bytes)
        };
    }

    /// The number of the next Send.
    pub(super) const fn next_number(&self) -> u64 {
        self.sends
    }

    /// Called when the Send `number` has completed, and with it all earlier Sends.
    pub(super) fn on_completed(&mut self, number: u64) -> Completed {
        let mut completed = Completed::default();
        while let Some(send) = self.in_progress.pop_front_if(|send| send.number <= number) {
            self.completed += send.ring_bytes as u64;
            completed.is_fin |= send.is_fin;
            self.writes -= send.writes;
        }
        completed
    }

    /// Called when the transport has ended after it has sent everything that was posted, and the
    /// stream continues over another one.
    pub(super) fn on_resumed(&mut self) {
        self.on_completed(u64::MAX);
        self.on_gone();
        self.unsignaled = (0, 0);
    }

    /// Called when the transport has ended and uses no memory any more.
    pub(super) fn on_gone(&mut self) {
        self.in_progress.clear();
        self.writes = 0;
    }
}
