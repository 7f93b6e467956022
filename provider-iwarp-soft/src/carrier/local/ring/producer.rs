//! The producing end of a ring.

use std::sync::atomic::{Ordering, fence};

use iwarp_proto::HEADER_MAX;

use super::super::record::{
    self, COUNT_AT, Corrupt, Kind, PIECE_LEN, PIECES_MAX, Piece, Position, STATE_AT, State, Word,
};
use super::super::segment::{Half, LINE, RETURN_AFTER};
use super::{KnownWord, control, line};

/// Bytes that only [`Producer::push_last`] uses: its record (two lines), a skip before it (one
/// line), and the word after it.
const RESERVE: usize = 4 * LINE;
/// The word of the next record, which is always free.
const NEXT: usize = LINE;
/// A value that is no position. It records that a reference was taken, which freed its room.
const TAKEN: u64 = u64::MAX;
/// Maximum number of outstanding references.
const REFERENCES_MAX: usize = 64;

/// The reason why a record was not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The consumer must release records first.
    Full,
    /// The record does not fit into a ring of this length.
    TooLong,
    /// The payload does not exist any more.
    Unreadable,
    /// The consumer has written a value that no correct consumer writes.
    Corrupt(Corrupt),
}

/// The end of a reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The consumer has the bytes.
    Pulled,
    /// The producer has revoked the reference before the consumer began.
    Revoked,
}

/// A reference that is no longer outstanding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Finished {
    pub(crate) position: Position,
    pub(crate) outcome: Outcome,
}

/// The result of an attempt to revoke a reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Revoked {
    /// The consumer will not read the memory any more.
    Taken,
    /// The consumer is reading the memory now.
    Pulling,
    /// The consumer has read the memory and will not do so again.
    AlreadyDone,
}

/// The beginning of the first record that is not published: its word, its header, and a payload
/// that fits into the first line. [`Producer::publish`] writes all of it at once. With two writes
/// and a locked instruction between them, the line would move to the consumer, which polls the
/// line, and back.
#[derive(Debug)]
struct Withheld {
    /// False if all records are published.
    is_any: bool,
    /// The offset of the record, and its word.
    at: usize,
    word: u64,
    /// The offset of `bytes` in the ring, and their number.
    bytes_at: usize,
    len: usize,
    /// The first line from the header on, at its final offsets. A copy that is moved as a whole
    /// right after it was written in pieces stalls until all stores before it are done.
    bytes: [u8; HEADER_MAX],
}

/// The producing end of a ring.
#[derive(Debug)]
pub(crate) struct Producer {
    half: Half,
    /// The position of the record before the next one.
    last: u64,
    /// The position of the next record.
    tail: u64,
    /// The position up to which records are published.
    published: u64,
    /// The position up to which the consumer had released records when the index was loaded last.
    released: u64,
    /// The value of `released` when a record was last refused or a wait last announced, or
    /// [`TAKEN`] if a reference was taken since.
    released_before_wait: u64,
    withheld: Withheld,
    references: References,
    /// The tail when memory was last returned to the kernel.
    returned: u64,
    /// The number of pieces that were copied to the supply area.
    supplied: u64,
}

impl Withheld {
    const NONE: Self = Self {
        is_any: false,
        at: 0,
        word: 0,
        bytes_at: 0,
        len: 0,
        bytes: [0; HEADER_MAX],
    };
}

impl Producer {
    /// Creates the producer of a ring that is not in use yet.
    pub(crate) fn new(half: Half) -> Self {
        Self {
            half,
            last: 0,
            tail: 0,
            published: 0,
            released: 0,
            released_before_wait: 0,
            withheld: Withheld::NONE,
            references: References::default(),
            returned: 0,
            supplied: 0,
        }
    }

    /// The length of the longest payload that an inline record of this ring can have, with any
    /// header.
    pub(crate) fn payload_max(&self) -> usize {
        record::record_max(self.half.len()) - record::payload_at(HEADER_MAX, LINE)
    }

    /// Writes a record of a header and `len` bytes, which `write` copies to the pointer that it
    /// receives. The record is visible to the consumer after [`publish`](Self::publish).
    #[inline]
    pub(crate) fn push(
        &mut self,
        header: &[u8],
        len: usize,
        write: impl FnOnce(*mut u8) -> bool,
    ) -> Result<Position, Refused> {
        self.push_inline(header, len, RESERVE, write)
    }

    /// Writes the last record of a connection, which has a header only. There is always room for
    /// one such record, even in a full ring.
    pub(crate) fn push_last(&mut self, header: &[u8]) -> Result<Position, Refused> {
        self.push_inline(header, 0, NEXT, |_| true)
    }

    #[inline]
    fn push_inline(
        &mut self,
        header: &[u8],
        len: usize,
        spare: usize,
        write: impl FnOnce(*mut u8) -> bool,
    ) -> Result<Position, Refused> {
        if header.len() > HEADER_MAX || len > self.half.len() {
            return Err(Refused::TooLong);
        }
        let record_len = record::inline_len(header.len(), len);
        let at = self.claim(record_len, spare)?;
        let payload_at = record::payload_at(header.len(), len);
        let mut first_len = header.len();
        if len > 0 {
            let is_withheld = !self.withheld.is_any && payload_at < LINE;
            let target = if is_withheld {
                let from_header = payload_at - record::header_at(Kind::Inline);
                first_len = from_header + len;
                self.withheld.bytes[from_header..first_len].as_mut_ptr()
            } else {
                self.half.bytes(at + payload_at, len)
            };
            if !write(target) {
                return Err(Refused::Unreadable);
            }
        }
        let word = Word {
            kind: Kind::Inline,
            header_len: header.len() as u8,
            len: len as u32,
        };
        Ok(self.finish(word, header, first_len, record_len))
    }

    /// Writes a record whose payload the consumer reads from the memory of this process: 1 to
    /// [`PIECES_MAX`] pieces, none of them empty. The pieces must stay readable until
    /// [`poll_reference`](Self::poll_reference) or a [`Revoker`] reports the end of the reference.
    ///
    /// State, count and pieces are stored in the ring at once. The consumer cannot see them before
    /// [`publish`](Self::publish), because it reads records in order and stops at a word that is
    /// zero. The word of the first unpublished record is zero, and `publish` stores that word with
    /// release ordering, after everything that was stored here.
    pub(crate) fn push_reference(
        &mut self,
        header: &[u8],
        pieces: &[Piece],
    ) -> Result<Position, Refused> {
        let total: u64 = pieces.iter().map(|piece| u64::from(piece.len)).sum();
        let is_valid = (1..=PIECES_MAX).contains(&pieces.len())
            && pieces.iter().all(|piece| piece.len > 0)
            && header.len() <= HEADER_MAX;
        let Some(total) = u32::try_from(total).ok().filter(|_| is_valid) else {
            return Err(Refused::TooLong);
        };
        if self.references.is_full() {
            return Err(Refused::Full);
        }
        let record_len = record::reference_len(header.len(), pieces.len());
        let at = self.claim(record_len, RESERVE)?;
        let state = self.half.half_word(at + STATE_AT);
        state.store(State::Offered as u32, Ordering::Relaxed);
        let count = self.half.half_word(at + COUNT_AT);
        count.store(pieces.len() as u32, Ordering::Relaxed);
        let first = at + record::pieces_at(header.len());
        for (piece, at) in pieces.iter().zip((first..).step_by(PIECE_LEN)) {
            self.half.word(at).store(piece.addr, Ordering::Relaxed);
            let len = u64::from(piece.len);
            self.half.word(at + 8).store(len, Ordering::Relaxed);
        }
        let word = Word {
            kind: Kind::Reference,
            header_len: header.len() as u8,
            len: total,
        };
        let position = self.finish(word, header, header.len(), record_len);
        self.references.push(position);
        Ok(position)
    }

    /// Publishes all records that were written since the last call.
    #[inline]
    pub(crate) fn publish(&mut self) {
        let first = &self.withheld;
        if first.is_any {
            self.write_bytes(first.bytes_at, &first.bytes[..first.len]);
            let word = self.half.word(first.at);
            word.store(first.word, Ordering::Release);
            self.withheld.is_any = false;
            self.published = self.tail;
        }
    }

    /// Moves the second line of the record that was published last towards the consumer, which then
    /// reads the line sooner. This costs about a cache miss, and is worthwhile only if the consumer
    /// awaits this record and the producer has nothing else to send. Must be called after
    /// [`publish`](Self::publish).
    #[inline]
    pub(crate) fn expedite(&self) {
        let second = self.last + LINE as u64;
        if second < self.tail {
            line::demote(self.half.bytes(self.offset(second), LINE));
        }
    }

    /// Returns true if the consumer sleeps and must be woken, once for each sleep. Must be called
    /// after [`publish`](Self::publish), once for a batch.
    #[inline]
    pub(crate) fn must_ring(&mut self) -> bool {
        take_flag(&self.half, control::ASLEEP)
    }

    /// Announces that this side will sleep until records are released or pulled. Returns true if
    /// some were released or pulled, or a reference was taken, since a record was last refused or
    /// a wait last announced, so that this side must not sleep yet.
    pub(crate) fn announce_wait(&mut self) -> Result<bool, Corrupt> {
        let flag = self.half.control_word(control::WAITING);
        flag.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.load_released()?;
        let before = std::mem::replace(&mut self.released_before_wait, self.released);
        let has_room = self.released != before || self.oldest_outcome()?.is_some();
        if has_room {
            self.end_wait();
        }
        Ok(has_room)
    }

    /// Announces that this side does not sleep any more.
    pub(crate) fn end_wait(&mut self) {
        let flag = self.half.control_word(control::WAITING);
        flag.store(0, Ordering::Relaxed);
    }

    /// Asks the consumer to release records after each batch.
    #[allow(dead_code, reason = "not by the fuzz bodies")]
    pub(crate) fn await_releases(&self) {
        let word = self.half.control_word(control::RELEASE_ALL);
        word.store(1, Ordering::Relaxed);
    }

    /// Returns the memory of the ring.
    #[allow(dead_code, reason = "not by the fuzz bodies")]
    pub(crate) fn half(&self) -> &Half {
        &self.half
    }

    /// Returns the position up to which the consumer has released records.
    pub(crate) fn consumed(&mut self) -> Result<Position, Corrupt> {
        self.load_released()?;
        Ok(Position(self.released))
    }

    /// Returns true if the consumer has released every record that was pushed.
    #[allow(dead_code, reason = "tests call it")]
    pub(crate) fn is_drained(&mut self) -> Result<bool, Corrupt> {
        self.load_released()?;
        Ok(self.released == self.tail && self.references.oldest().is_none())
    }

    /// Takes the oldest outstanding reference, if the consumer has finished with it.
    pub(crate) fn poll_reference(&mut self) -> Result<Option<Finished>, Corrupt> {
        let finished = self.oldest_outcome()?;
        if finished.is_some() {
            self.references.pop();
            // The consumer does not announce this room, which it may have released long ago.
            self.released_before_wait = TAKEN;
        }
        Ok(finished)
    }

    fn oldest_outcome(&mut self) -> Result<Option<Finished>, Corrupt> {
        let Some(position) = self.references.oldest() else {
            return Ok(None);
        };
        // The index is loaded first, because the consumer stores the state before the index.
        self.load_released()?;
        let outcome = match State::parse(self.state(position).load(Ordering::Acquire))? {
            State::Done => Outcome::Pulled,
            State::Revoked => Outcome::Revoked,
            State::Offered | State::Pulling | State::Declined if self.released > position.0 => {
                return Err(Corrupt::NotPulled);
            }
            State::Offered | State::Pulling | State::Declined => return Ok(None),
        };
        Ok(Some(Finished { position, outcome }))
    }

    /// Returns true if the consumer has declined the oldest reference and has taken all pieces that
    /// were supplied, so that the next piece can be supplied.
    pub(crate) fn can_supply(&self) -> bool {
        let Some(position) = self.references.oldest() else {
            return false;
        };
        let taken = self.half.control_word(control::SUPPLY_TAKEN);
        self.state(position).load(Ordering::Acquire) == State::Declined as u32
            && taken.load(Ordering::Acquire) == self.supplied
    }

    /// Supplies the next piece of the oldest reference. `write` copies at most
    /// [`SUPPLY_MAX`](super::SUPPLY_MAX) bytes to the pointer that it receives. Must follow
    /// [`Self::can_supply`]; [`Self::must_ring`] must be called afterwards.
    pub(crate) fn supply<E>(
        &mut self,
        write: impl FnOnce(*mut u8) -> Result<(), E>,
    ) -> Result<(), E> {
        write(self.half.supply())?;
        self.supplied += 1;
        let word = self.half.control_word(control::SUPPLIED);
        word.store(self.supplied, Ordering::Release);
        Ok(())
    }

    /// The position of the next record.
    #[allow(dead_code, reason = "not by the fuzz bodies")]
    pub(crate) fn tail(&self) -> u64 {
        self.tail
    }

    /// Returns true if the consumer reads the payload of the oldest reference at the moment.
    #[allow(dead_code, reason = "not by the fuzz bodies")]
    pub(crate) fn is_pulled(&self) -> bool {
        self.references.oldest().is_some_and(|position| {
            self.state(position).load(Ordering::Relaxed) == State::Pulling as u32
        })
    }

    /// Returns a handle that revokes references, for any thread.
    pub(crate) fn revoker(&self) -> Revoker {
        Revoker {
            half: self.half.clone(),
        }
    }

    /// True if the peer claims that the consumer reads references.
    pub(crate) fn consumer_can_pull(&self) -> bool {
        let word = self.half.control_word(control::CAN_PULL);
        word.load(Ordering::Acquire) != 0
    }

    /// True if an inline record of a header and `len` bytes has room now.
    pub(crate) fn has_room(&mut self, header_len: usize, len: usize) -> bool {
        let record_len = record::inline_len(header_len, len);
        if record_len > record::record_max(self.half.len()) {
            return false;
        }
        let to_end = self.half.len() - self.offset(self.tail);
        let skip = if record_len > to_end { to_end } else { 0 };
        let need = skip + record_len + RESERVE;
        need <= self.room() || (self.load_released().is_ok() && need <= self.room())
    }

    /// Returns the memory of the free room to the kernel, if much was used since the last time.
    /// Must be called before this side sleeps.
    pub(crate) fn return_pages(&mut self) {
        if self.tail - self.returned < RETURN_AFTER {
            return;
        }
        // The next push reports an index that the consumer has corrupted.
        let _ = self.load_released();
        self.returned = self.tail;
        let used = self.half.len() - self.room();
        let end = self.tail - used as u64 + self.half.len() as u64;
        // The word of the next record is cleared already.
        self.half.return_pages(self.tail + LINE as u64, end);
    }

    /// Publishes the word by which the peer can recognise this process.
    pub(crate) fn set_known_word(&mut self, known: KnownWord) {
        let word = |at| self.half.control_word(at);
        word(control::KNOWN_ADDR).store(known.addr, Ordering::Relaxed);
        word(control::KNOWN_VALUE).store(known.value, Ordering::Release);
    }

    fn state(&self, position: Position) -> &std::sync::atomic::AtomicU32 {
        self.half.half_word(self.offset(position.0) + STATE_AT)
    }

    #[inline]
    fn offset(&self, position: u64) -> usize {
        position as usize & (self.half.len() - 1)
    }

    /// Checks that there is room for a record and `spare` bytes, clears the word after the record,
    /// and returns the offset of the record.
    #[inline]
    fn claim(&mut self, record_len: usize, spare: usize) -> Result<usize, Refused> {
        if record_len > record::record_max(self.half.len()) {
            return Err(Refused::TooLong);
        }
        let at = self.offset(self.tail);
        let to_end = self.half.len() - at;
        let skip = if record_len > to_end { to_end } else { 0 };
        let need = skip + record_len + spare;
        if need > self.room() {
            self.load_released().map_err(Refused::Corrupt)?;
            if need > self.room() {
                self.released_before_wait = self.released;
                return Err(Refused::Full);
            }
        }
        if skip == 0 {
            self.clear_word(self.tail + record_len as u64);
            return Ok(at);
        }
        self.clear_word(self.tail + skip as u64);
        let word = Word {
            kind: Kind::Skip,
            header_len: 0,
            len: skip as u32,
        };
        self.finish(word, &[], 0, skip);
        self.clear_word(self.tail + record_len as u64);
        Ok(0)
    }

    /// Sets the word of a record to "not published".
    #[inline]
    fn clear_word(&self, position: u64) {
        let word = self.half.word(self.offset(position));
        word.store(0, Ordering::Relaxed);
    }

    /// Returns the number of bytes that may be written. A reference keeps its room until
    /// [`poll_reference`](Self::poll_reference) takes it, because its state is in the record.
    #[inline]
    fn room(&self) -> usize {
        let oldest = self.references.oldest().map_or(u64::MAX, |oldest| oldest.0);
        self.half.len() - (self.tail - self.released.min(oldest)) as usize
    }

    #[inline]
    fn write_bytes(&self, at: usize, bytes: &[u8]) {
        let target = self.half.bytes(at, bytes.len());
        // SAFETY: the target is this many bytes of the data area, which is not memory of Rust's, so
        // the two do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len()) };
    }

    /// Completes the record at the tail, after which there is no word yet. `first_len` is the
    /// length of the header and of the withheld bytes after it.
    #[inline]
    fn finish(
        &mut self,
        word: Word,
        header: &[u8],
        first_len: usize,
        record_len: usize,
    ) -> Position {
        let position = Position(self.tail);
        let at = self.offset(self.tail);
        self.last = self.tail;
        self.tail += record_len as u64;
        let bits = word.emit(position);
        // Prefetches two lines, two short records ahead, which the consumer does not poll. A line
        // that is in this cache already does not stall the next locked instruction.
        for ahead in [4, 5] {
            let line = self.offset(self.tail + ahead * LINE as u64);
            line::prefetch_to_write(self.half.bytes(line, LINE));
        }
        let header_at = at + record::header_at(word.kind);
        if self.withheld.is_any {
            self.write_bytes(header_at, header);
            self.half.word(at).store(bits, Ordering::Relaxed);
        } else {
            let first = &mut self.withheld;
            first.is_any = true;
            (first.at, first.word) = (at, bits);
            (first.bytes_at, first.len) = (header_at, first_len);
            first.bytes[..header.len()].copy_from_slice(header);
        }
        position
    }

    fn load_released(&mut self) -> Result<(), Corrupt> {
        let word = self.half.control_word(control::RELEASED);
        let released = word.load(Ordering::Acquire);
        let is_valid = (self.released..=self.published).contains(&released)
            && released.is_multiple_of(LINE as u64);
        if !is_valid {
            return Err(Corrupt::Released(released));
        }
        self.released = released;
        Ok(())
    }
}

/// Revokes outstanding references.
#[derive(Debug, Clone)]
pub(crate) struct Revoker {
    half: Half,
}

impl Revoker {
    /// Revokes an outstanding reference, unless the consumer has begun to pull it. A state that the
    /// consumer has corrupted counts as `AlreadyDone`.
    pub(crate) fn revoke(&self, position: Position) -> Revoked {
        // The peer reads no memory for a declined reference; the producer copies it.
        for before in [State::Offered, State::Declined] {
            match self.exchange(position, before).map_err(State::parse) {
                Ok(_) | Err(Ok(State::Revoked)) => return Revoked::Taken,
                Err(Ok(State::Pulling)) => return Revoked::Pulling,
                Err(Ok(State::Offered | State::Declined | State::Done) | Err(_)) => {}
            }
        }
        Revoked::AlreadyDone
    }

    /// Revokes a reference that is in the state `before`.
    fn exchange(&self, position: Position, before: State) -> Result<u32, u32> {
        let at = position.0 as usize & (self.half.len() - 1);
        let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
        self.half.half_word(at + STATE_AT).compare_exchange(
            before as u32,
            State::Revoked as u32,
            success,
            failure,
        )
    }

    /// Revokes a reference that the consumer has begun to pull and does not finish. The bytes that
    /// the consumer has read are not used.
    pub(crate) fn abandon(&self, position: Position) {
        if self.exchange(position, State::Pulling).is_err() {
            // The consumer has finished, which has the same effect, or has declined.
            self.revoke(position);
        }
    }
}

/// Takes a flag of the other end, after a full fence. Returns true if the flag was set.
#[inline]
pub(super) fn take_flag(half: &Half, flag: usize) -> bool {
    let flag = half.control_word(flag);
    fence(Ordering::SeqCst);
    flag.load(Ordering::Relaxed) != 0 && flag.swap(0, Ordering::AcqRel) != 0
}

/// The positions of outstanding references, oldest first.
#[derive(Debug)]
struct References {
    positions: [Position; REFERENCES_MAX],
    first: usize,
    len: usize,
}

impl Default for References {
    fn default() -> Self {
        Self {
            positions: [Position(0); REFERENCES_MAX],
            first: 0,
            len: 0,
        }
    }
}

impl References {
    fn is_full(&self) -> bool {
        self.len == REFERENCES_MAX
    }

    #[inline]
    fn oldest(&self) -> Option<Position> {
        (self.len > 0).then(|| self.positions[self.first])
    }

    /// Adds a reference. The caller has checked that there is room.
    fn push(&mut self, position: Position) {
        self.positions[(self.first + self.len) % REFERENCES_MAX] = position;
        self.len += 1;
    }

    fn pop(&mut self) {
        self.first = (self.first + 1) % REFERENCES_MAX;
        self.len -= 1;
    }
}
