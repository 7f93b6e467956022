//! Receive buffers, staging memory, and the bytes that were received and not read.

use std::{collections::VecDeque, ops::Range};

use dat_api::{Error, Privileges, Pz, Region, Result, Segment};
use sdp_proto::wire::HEADER_MAX;

/// A run of bytes of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Piece {
    /// In a receive buffer.
    Buffer { index: usize, at: usize, len: usize },
    /// In staging memory: the half, the offset and the length.
    Staged { half: usize, at: usize, len: usize },
    /// The urgent mark: the position of the urgent byte. The byte is the next piece or was removed.
    Mark,
    /// The urgent byte at its position, after the mark. It belongs to the stream while SO_OOBINLINE
    /// is set, as over TCP.
    Urgent {
        byte: u8,
        /// The receive buffer of an urgent byte that belonged to the stream when it was received.
        /// The buffer is posted again only after the byte was read, as with other bytes. Otherwise
        /// a peer could fill this end's memory with urgent bytes.
        holds: Option<usize>,
    },
}

/// The registered memory of the receiving direction.
#[derive(Debug)]
pub(super) struct ReceiveQueue {
    pz: Pz,
    /// Receive buffers, `per_region` in each region.
    buffers: Vec<Region>,
    per_region: usize,
    size: usize,
    /// The number of buffers whose bytes were read since buffers were last added.
    emptied_since: usize,
    /// The staging memory, which the first RDMA Read creates.
    staging: Option<Region>,
    staging_len: usize,
    sink: Privileges,
    /// True for each half that holds bytes or has a read in progress.
    is_busy: [bool; 2],
    next_half: usize,
    pieces: VecDeque<Piece>,
    /// Buffers that hold no bytes any more, to be posted again.
    emptied: Vec<usize>,
    urgent: Option<u8>,
    /// The option SO_OOBINLINE.
    is_inline: bool,
}

impl ReceiveQueue {
    pub(super) fn new(
        pz: &Pz,
        count: usize,
        size: usize,
        staging: usize,
        needs_remote_write: bool,
    ) -> Result<Self> {
        let sink = if needs_remote_write {
            Privileges::LOCAL_WRITE | Privileges::REMOTE_WRITE
        } else {
            Privileges::LOCAL_WRITE
        };
        Ok(Self {
            pz: pz.clone(),
            buffers: vec![Region::create(pz, count * size, Privileges::LOCAL_WRITE)?],
            per_region: count,
            size,
            emptied_since: 0,
            staging: None,
            staging_len: staging,
            sink,
            is_busy: [false; 2],
            next_half: 0,
            pieces: VecDeque::new(),
            emptied: Vec::new(),
            urgent: None,
            is_inline: false,
        })
    }

    /// Sets SO_OOBINLINE: true if the urgent byte is read at its position in the stream.
    pub(super) const fn set_inline(&mut self, inline: bool) {
        self.is_inline = inline;
    }

    /// The segment of buffer `index`, for a Receive.
    pub(super) fn segment(&self, index: usize) -> Result<Segment<'_>> {
        let (region, at) = self.buffer(index)?;
        region.segment(at, self.size)
    }

    /// The region of buffer `index`, and the buffer's offset in it.
    fn buffer(&self, index: usize) -> Result<(&Region, usize)> {
        let region = self.buffers.get(index / self.per_region);
        let region = region.ok_or(Error::OutOfBounds {
            offset: index,
            len: 1,
            region_len: self.count(),
        })?;
        Ok((region, index % self.per_region * self.size))
    }

    /// The number of buffers.
    pub(super) fn count(&self) -> usize {
        self.buffers.len() * self.per_region
    }

    /// Doubles the number of buffers, up to `most`, if twice as many buffers as exist were emptied
    /// since the last growth. Returns the numbers of the new buffers.
    pub(super) fn grow(&mut self, most: usize) -> Range<usize> {
        let count = self.count();
        let room = most.saturating_sub(count) / self.per_region;
        if self.emptied_since < 2 * count || room == 0 {
            return count..count;
        }
        self.emptied_since = 0;
        for _ in 0..room.min(self.buffers.len()) {
            let len = self.per_region * self.size;
            match Region::create(&self.pz, len, Privileges::LOCAL_WRITE) {
                Ok(region) => self.buffers.push(region),
                Err(error) => {
                    tracing::debug!(%error, "a socket gets no more receive buffers");
                    break;
                }
            }
        }
        count..self.count()
    }

    /// The first bytes of the message in buffer `index`.
    pub(super) fn head<'a>(
        &self,
        index: usize,
        len: usize,
        into: &'a mut [u8; HEADER_MAX],
    ) -> Result<&'a [u8]> {
        let len = len.min(HEADER_MAX).min(self.size);
        let (region, at) = self.buffer(index)?;
        region.read(at, &mut into[..len])?;
        Ok(&into[..len])
    }

    /// Adds `len` bytes of the stream in buffer `index`. If `urgent`, the last one is urgent.
    pub(super) fn push(&mut self, index: usize, at: usize, len: usize, urgent: bool) -> Result<()> {
        let keeps = if urgent { len - 1 } else { len };
        if keeps > 0 {
            let piece = Piece::Buffer {
                index,
                at,
                len: keeps,
            };
            self.pieces.push_back(piece);
        }
        if !urgent {
            return Ok(());
        }
        // There is one mark at a time: a newer one replaces it. The former urgent byte becomes an
        // ordinary byte of the stream, or was never in the stream.
        let inline = self.is_inline;
        let mut released = Vec::new();
        self.pieces.retain(|piece| match piece {
            Piece::Mark => false,
            Piece::Urgent { holds, .. } => {
                released.extend(holds.filter(|_| !inline));
                inline
            }
            Piece::Buffer { .. } | Piece::Staged { .. } => true,
        });
        for index in released {
            self.release(index);
        }
        let mut byte = [0];
        let (region, start) = self.buffer(index)?;
        region.read(start + at + keeps, &mut byte)?;
        let [byte] = byte;
        self.pieces.push_back(Piece::Mark);
        self.pieces.push_back(Piece::Urgent {
            byte,
            holds: inline.then_some(index),
        });
        self.urgent = Some(byte);
        Ok(())
    }

    /// Called when a piece of buffer `index` was removed. After its last piece, the buffer is to be
    /// posted again.
    fn release(&mut self, index: usize) {
        if !self.holds(index) {
            self.emptied.push(index);
            self.emptied_since += 1;
        }
    }

    /// Called when the message in buffer `index` was handled. A buffer without bytes is to be
    /// posted again.
    pub(super) fn on_handled(&mut self, index: usize) {
        if !self.holds(index) {
            self.emptied.push(index);
        }
    }

    /// The buffers that hold no bytes. They are all to be posted on another transport.
    pub(super) fn free(&self) -> Vec<usize> {
        (0..self.count()).filter(|at| !self.holds(*at)).collect()
    }

    /// Called when the free buffers are posted on another transport.
    pub(super) fn on_resumed(&mut self) {
        self.emptied.clear();
    }

    /// True if buffer `index` holds bytes that were not read.
    fn holds(&self, index: usize) -> bool {
        self.pieces.iter().any(|piece| match piece {
            Piece::Buffer { index: one, .. } => *one == index,
            Piece::Urgent { holds, .. } => *holds == Some(index),
            Piece::Staged { .. } | Piece::Mark => false,
        })
    }

    /// The half of the staging memory for the next read, and the length of that half, if it is
    /// free. Reads complete in order, so the halves are used alternately.
    pub(super) fn free_half(&self) -> Option<(usize, usize)> {
        let half = self.next_half;
        (!self.is_busy[half]).then_some((half, self.staging_len / 2))
    }

    /// The destination of a read of `len` bytes into that half. Creates the staging memory if
    /// needed.
    pub(super) fn half(&mut self, half: usize, len: usize) -> Result<Segment<'_>> {
        let staging = match &mut self.staging {
            Some(staging) => staging,
            none => none.insert(Region::create(&self.pz, self.staging_len, self.sink)?),
        };
        staging.segment(half * (self.staging_len / 2), len)
    }

    /// Called when a read into that half begins.
    pub(super) fn on_staging(&mut self, half: usize) {
        self.is_busy[half] = true;
        self.next_half = 1 - half;
    }

    /// Called when the read into that half has completed.
    pub(super) fn on_staged(&mut self, half: usize, len: usize) {
        let at = half * (self.staging_len / 2);
        self.pieces.push_back(Piece::Staged { half, at, len });
    }

    pub(super) fn readable(&self) -> usize {
        self.pieces.iter().map(|piece| self.len_of(piece)).sum()
    }

    /// The number of bytes before the mark, or all of them if the urgent byte belongs to the
    /// stream.
    pub(super) fn readable_before_mark(&self) -> usize {
        let ends = |piece: &&Piece| self.is_inline || **piece != Piece::Mark;
        let before = self.pieces.iter().take_while(ends);
        before.map(|piece| self.len_of(piece)).sum()
    }

    /// True if there is nothing to read.
    pub(super) fn is_empty(&self) -> bool {
        self.pieces.iter().all(|piece| self.len_of(piece) == 0)
    }

    /// True if `low` bytes can be read, or some bytes if the peer can send few more before they are
    /// read.
    pub(super) fn has_at_least(&self, low: usize) -> bool {
        let is_filling = || self.pieces.len() * 2 >= self.count() || self.is_busy == [true; 2];
        !self.is_empty() && (low <= 1 || self.readable() >= low || is_filling())
    }

    /// True if there is nothing to read and no mark to pass.
    pub(super) fn is_clear(&self) -> bool {
        self.pieces.is_empty()
    }

    /// The number of bytes of a piece that a read returns.
    fn len_of(&self, piece: &Piece) -> usize {
        match piece {
            Piece::Buffer { len, .. } | Piece::Staged { len, .. } => *len,
            Piece::Urgent { .. } => usize::from(self.is_inline),
            Piece::Mark => 0,
        }
    }

    /// True if the next read starts at the mark.
    pub(super) fn is_at_mark(&self) -> bool {
        self.pieces.front() == Some(&Piece::Mark)
    }

    /// The urgent byte. Unless `peek`, it is removed.
    pub(super) fn take_urgent(&mut self, peek: bool) -> Option<u8> {
        if peek {
            self.urgent
        } else {
            self.urgent.take()
        }
    }

    pub(super) const fn has_urgent(&self) -> bool {
        self.urgent.is_some()
    }

    /// True if at least a quarter of the buffers are to be posted again. With fewer, the peer still
    /// has enough credits.
    pub(super) fn has_many_emptied(&self) -> bool {
        self.emptied.len() * 4 >= self.count()
    }

    /// Removes and returns a buffer that is to be posted again.
    pub(super) fn next_emptied(&mut self) -> Option<usize> {
        self.emptied.pop()
    }

    /// Copies bytes to `into` and returns their number. Unless `peek`, removes the bytes. A read
    /// ends at the mark, unless it starts there.
    pub(super) fn take(&mut self, into: &mut [u8], peek: bool) -> Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        let taken = self.take_pieces(into, peek)?;
        let is_urgent = |piece: &Piece| matches!(piece, Piece::Urgent { .. });
        let may_pass = self.urgent.is_some() && taken > 0 && !peek && !self.is_inline;
        if may_pass && !self.pieces.iter().any(is_urgent) {
            // The program has read bytes after the mark, so it no longer gets the urgent byte.
            self.urgent = None;
        }
        Ok(taken)
    }

    fn take_pieces(&mut self, into: &mut [u8], peek: bool) -> Result<usize> {
        let mut taken = 0;
        let mut next = 0;
        loop {
            let Some(piece) = self.pieces.get(next).copied() else {
                return Ok(taken);
            };
            let room = into.len() - taken;
            match piece {
                Piece::Mark if taken > 0 => return Ok(taken),
                Piece::Mark if peek => next += 1,
                Piece::Urgent { .. } if !self.is_inline && peek => next += 1,
                Piece::Urgent { holds, .. } if !self.is_inline => self.pass_urgent(holds),
                Piece::Mark => drop(self.pieces.pop_front()),
                _ if room == 0 => return Ok(taken),
                Piece::Urgent { byte, holds } => {
                    into[taken] = byte;
                    taken += 1;
                    if peek {
                        next += 1;
                    } else {
                        self.pass_urgent(holds);
                        self.urgent = None;
                    }
                }
                Piece::Buffer { index, at, len } => {
                    let some = len.min(room);
                    let to = &mut into[taken..taken + some];
                    let (region, start) = self.buffer(index)?;
                    region.read(start + at, to)?;
                    taken += some;
                    if peek {
                        next += 1;
                    } else if self.consume(some) {
                        self.release(index);
                    } else {
                        return Ok(taken);
                    }
                }
                Piece::Staged { half, at, len } => {
                    let some = len.min(room);
                    let to = &mut into[taken..taken + some];
                    if let Some(staging) = &self.staging {
                        staging.read(at, to)?;
                    }
                    taken += some;
                    if peek {
                        next += 1;
                    } else if self.consume(some) {
                        self.is_busy[half] = false;
                    } else {
                        return Ok(taken);
                    }
                }
            }
        }
    }

    /// Removes the urgent byte, which is the first piece.
    fn pass_urgent(&mut self, holds: Option<usize>) {
        self.pieces.pop_front();
        if let Some(index) = holds {
            self.release(index);
        }
    }

    /// Removes `some` bytes from the first piece. Returns true if that was all of it.
    fn consume(&mut self, some: usize) -> bool {
        let (Some(Piece::Buffer { at, len, .. }) | Some(Piece::Staged { at, len, .. })) =
            self.pieces.front_mut()
        else {
            return false;
        };
        *at += some;
        *len -= some;
        let is_all = *len == 0;
        if is_all {
            self.pieces.pop_front();
        }
        is_all
    }
}
