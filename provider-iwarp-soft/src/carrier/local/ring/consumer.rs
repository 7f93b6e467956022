//! The consuming end of a ring.

use std::sync::atomic::{Ordering, fence};

use iwarp_proto::HEADER_MAX;

use super::super::record::{
    self, Body, COUNT_AT, Corrupt, Kind, PIECE_LEN, PIECES_MAX, Piece, Position, Record, STATE_AT,
    State, Word,
};
use super::super::segment::{Half, LINE, RETURN_AFTER};
use super::{KnownWord, control, line};

/// The consuming end of a ring.
#[derive(Debug)]
pub(crate) struct Consumer {
    half: Half,
    /// The position of the next record.
    position: u64,
    /// The position up to which the producer was notified that records are released.
    released: u64,
    /// The copy of the record at `position`, and its length.
    current: Option<(Record, usize)>,
    /// The pieces of the current record, if it is a reference.
    pieces: [Piece; PIECES_MAX],
    piece_count: usize,
    /// True if room was released, or a pull has ended, since the last
    /// [`must_notify`](Self::must_notify).
    has_progress: bool,
    /// True from the moment when this side has declined the current record until it has all bytes.
    is_declined: bool,
    /// The number of pieces that were taken from the supply area.
    supply_taken: u64,
}

impl Consumer {
    /// Creates the consumer of a ring that is not in use yet.
    pub(crate) fn new(half: Half) -> Self {
        Self {
            half,
            position: 0,
            released: 0,
            current: None,
            pieces: [Piece::default(); PIECES_MAX],
            piece_count: 0,
            has_progress: false,
            is_declined: false,
            supply_taken: 0,
        }
    }

    /// Returns the next record without taking it; `None` if there is none. The record is copied and
    /// checked once: until [`advance`](Self::advance) this call returns the same copy.
    #[inline]
    pub(crate) fn peek(&mut self) -> Result<Option<Record>, Corrupt> {
        if let Some((record, _)) = &self.current {
            return Ok(Some(*record));
        }
        let mut bits = self.load_word();
        if bits == 0 {
            self.prefetch_second_line();
            return Ok(None);
        }
        let mut word = Word::parse(bits, Position(self.position))?;
        if word.kind == Kind::Skip {
            self.skip(word)?;
            bits = self.load_word();
            if bits == 0 {
                return Ok(None);
            }
            word = Word::parse(bits, Position(self.position))?;
        }
        let current = match word.kind {
            Kind::Inline => self.copy_inline(word)?,
            Kind::Reference => self.copy_reference(word)?,
            // A skip ends at the front of the data area, where there is nothing to skip.
            Kind::Skip => return Err(Corrupt::SkipLen(word.len)),
        };
        self.current = Some(current);
        Ok(Some(current.0))
    }

    /// Returns the pieces of the record that [`peek`](Self::peek) has returned, if it is a
    /// reference.
    pub(crate) fn pieces(&self) -> &[Piece] {
        &self.pieces[..self.piece_count]
    }

    /// The position of the next record.
    #[allow(dead_code, reason = "not by the fuzz bodies")]
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// The offset of the next record in the data area.
    pub(crate) fn next_offset(&self) -> usize {
        self.offset()
    }

    /// Returns the memory of the ring, in which a caller can check for a record without the
    /// consumer.
    pub(crate) fn half(&self) -> &Half {
        &self.half
    }

    /// Returns true if [`peek`](Self::peek) would return a record that can be handled.
    #[inline]
    pub(crate) fn has_record(&self) -> bool {
        if self.is_declined {
            return self.has_supply();
        }
        self.current.is_some() || self.load_word() != 0
    }

    /// Begins to pull the payload of the current record. Returns false if the producer has revoked
    /// the record, so that its memory must not be read.
    pub(crate) fn begin_pull(&mut self) -> Result<bool, Corrupt> {
        let exchanged = self.state().compare_exchange(
            State::Offered as u32,
            State::Pulling as u32,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        match exchanged.map_err(State::parse) {
            Ok(_) => Ok(true),
            Err(Ok(State::Revoked)) => Ok(false),
            Err(Ok(state)) => Err(Corrupt::State(state as u32)),
            Err(Err(corrupt)) => Err(corrupt),
        }
    }

    /// Returns true if the producer has not revoked the reference that is being pulled, so that the
    /// bytes that were read before this call may be used.
    pub(crate) fn may_use_pulled(&self) -> bool {
        self.state().load(Ordering::Acquire) == State::Pulling as u32
    }

    /// Ends the pull that [`begin_pull`](Self::begin_pull) has begun. Returns false if the producer
    /// has revoked the reference meanwhile, so that the bytes must not be used.
    pub(crate) fn end_pull(&mut self) -> bool {
        self.exchange(State::Pulling, State::Done)
    }

    /// Declines the reference that is being pulled, because its memory cannot be read. The producer
    /// supplies the bytes. Returns false if the producer has revoked the reference meanwhile.
    pub(crate) fn decline(&mut self) -> bool {
        self.is_declined = self.exchange(State::Pulling, State::Declined);
        self.is_declined
    }

    /// Returns true if a piece of the declined record can be taken, or if the producer has revoked
    /// the record.
    fn has_supply(&self) -> bool {
        self.supplied().is_some() || self.is_supply_revoked()
    }

    /// Returns the next piece of the payload of the declined record, up to [`Self::take_supply`];
    /// `None` if the producer has not supplied it yet. The piece has the number of bytes that are
    /// missing, at most [`SUPPLY_MAX`](super::SUPPLY_MAX); the peer may change them at any time.
    pub(crate) fn supplied(&self) -> Option<*const u8> {
        let word = self.half.control_word(control::SUPPLIED);
        let is_supplied = word.load(Ordering::Acquire) != self.supply_taken;
        is_supplied.then(|| self.half.supply().cast_const())
    }

    /// Takes the piece that [`Self::supplied`] has returned.
    pub(crate) fn take_supply(&mut self) {
        self.supply_taken += 1;
        let word = self.half.control_word(control::SUPPLY_TAKEN);
        word.store(self.supply_taken, Ordering::Release);
        self.has_progress = true;
    }

    /// Returns true if the producer has revoked the declined record.
    pub(crate) fn is_supply_revoked(&self) -> bool {
        self.state().load(Ordering::Acquire) != State::Declined as u32
    }

    /// Ends a declined record, all bytes of which are in their place. Returns false if the producer
    /// has revoked the record meanwhile.
    pub(crate) fn end_supply(&mut self) -> bool {
        self.is_declined = false;
        self.exchange(State::Declined, State::Done)
    }

    /// Changes the state of the current record. Returns false if the producer has changed it.
    fn exchange(&mut self, before: State, after: State) -> bool {
        let exchanged = self.state().compare_exchange(
            before as u32,
            after as u32,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        self.has_progress = true;
        exchanged.is_ok()
    }

    /// Takes the record that [`peek`](Self::peek) has returned. If it was a reference, its room is
    /// released at once; otherwise it is released together with the room of other records.
    #[inline]
    pub(crate) fn advance(&mut self) {
        let Some((record, len)) = self.current.take() else {
            return;
        };
        self.position += len as u64;
        self.piece_count = 0;
        let unreleased = (self.position - self.released) as usize;
        let is_reference = matches!(record.body, Body::Reference { .. });
        if is_reference || unreleased >= self.half.len() / 4 {
            self.release();
        }
    }

    /// True if the producer waits for the release of every record.
    #[allow(dead_code, reason = "not by the fuzz bodies")]
    pub(crate) fn must_release(&self) -> bool {
        self.half
            .control_word(control::RELEASE_ALL)
            .load(Ordering::Relaxed)
            != 0
    }

    /// Releases the room of all records that were taken.
    pub(crate) fn release(&mut self) {
        if self.released != self.position {
            let word = self.half.control_word(control::RELEASED);
            word.store(self.position, Ordering::Release);
            self.released = self.position;
            self.has_progress = true;
        }
    }

    /// Returns true if the producer waits for a release or a pull and must be woken, once for each
    /// wait. Must be called after a batch of records.
    #[inline]
    pub(crate) fn must_notify(&mut self) -> bool {
        std::mem::take(&mut self.has_progress)
            && super::producer::take_flag(&self.half, control::WAITING)
    }

    /// Announces that this side will sleep until a record is published. Returns true if there is a
    /// record, so that this side must not sleep yet. A record that was returned and not taken does
    /// not count.
    ///
    /// Releases all room, so that the producer can return the memory of an idle ring.
    /// [`must_notify`](Self::must_notify) must be called afterwards.
    pub(crate) fn announce_sleep(&mut self) -> bool {
        if self.position - self.released >= RETURN_AFTER {
            // The producer may sleep already and would then not return the memory.
            self.half.return_pages(self.released, self.position);
        }
        self.release();
        let flag = self.half.control_word(control::ASLEEP);
        flag.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let has_record = if self.is_declined {
            self.has_supply()
        } else {
            self.current.is_none() && self.load_word() != 0
        };
        if has_record {
            self.wake();
        }
        has_record
    }

    /// Announces that this side does not sleep any more.
    #[inline]
    pub(crate) fn wake(&mut self) {
        let flag = self.half.control_word(control::ASLEEP);
        flag.store(0, Ordering::Relaxed);
    }

    /// Announces to the producer whether this side reads references.
    pub(crate) fn set_can_pull(&mut self, can_pull: bool) {
        let word = self.half.control_word(control::CAN_PULL);
        word.store(can_pull.into(), Ordering::Release);
    }

    /// Returns the address and the value of the word by which the process of the producer can be
    /// recognised. The peer may have written any address and any value.
    pub(crate) fn known_word(&self) -> KnownWord {
        let load = |at| self.half.control_word(at).load(Ordering::Acquire);
        KnownWord {
            value: load(control::KNOWN_VALUE),
            addr: load(control::KNOWN_ADDR),
        }
    }

    #[inline]
    fn offset(&self) -> usize {
        self.position as usize & (self.half.len() - 1)
    }

    #[inline]
    fn load_word(&self) -> u64 {
        self.half.word(self.offset()).load(Ordering::Acquire)
    }

    /// Prefetches the line after the polled word. The second line of a record of two lines is often
    /// written first, so it is in the cache when the first is written.
    #[inline]
    fn prefetch_second_line(&self) {
        let second = (self.offset() + LINE) & (self.half.len() - 1);
        line::prefetch(self.half.bytes(second, LINE));
    }

    /// The greatest length of a record at this position, in bytes.
    #[inline]
    fn len_max(&self) -> usize {
        let to_end = self.half.len() - self.offset();
        to_end.min(record::record_max(self.half.len()))
    }

    /// Moves the position to the front of the data area.
    #[cold]
    fn skip(&mut self, word: Word) -> Result<(), Corrupt> {
        let at = self.offset();
        if at == 0 || word.len as usize != self.half.len() - at {
            return Err(Corrupt::SkipLen(word.len));
        }
        self.position += u64::from(word.len);
        Ok(())
    }

    #[inline]
    fn copy_inline(&self, word: Word) -> Result<(Record, usize), Corrupt> {
        let (at, len_max) = (self.offset(), self.len_max());
        let (header_len, len) = (usize::from(word.header_len), word.len as usize);
        if len > len_max || record::inline_len(header_len, len) > len_max {
            return Err(Corrupt::PayloadLen(word.len));
        }
        let body = if len == 0 {
            Body::None
        } else {
            let ptr = self
                .half
                .bytes(at + record::payload_at(header_len, len), len);
            Body::Inline { ptr, len }
        };
        Ok((self.record(word, body), record::inline_len(header_len, len)))
    }

    fn copy_reference(&mut self, word: Word) -> Result<(Record, usize), Corrupt> {
        let at = self.offset();
        let header_len = usize::from(word.header_len);
        let stated = self.half.half_word(at + COUNT_AT).load(Ordering::Relaxed);
        let count = stated as usize;
        let fits = (1..=PIECES_MAX).contains(&count)
            && record::reference_len(header_len, count) <= self.len_max();
        if !fits {
            return Err(Corrupt::PieceCount(stated));
        }
        let mut total = 0_u64;
        let first = at + record::pieces_at(header_len);
        let offsets = (first..).step_by(PIECE_LEN);
        for (piece, at) in self.pieces[..count].iter_mut().zip(offsets) {
            let len = self.half.word(at + 8).load(Ordering::Relaxed);
            piece.addr = self.half.word(at).load(Ordering::Relaxed);
            piece.len = match u32::try_from(len) {
                Ok(len) if len > 0 => len,
                _ => return Err(Corrupt::PieceLen(len)),
            };
            total += len;
        }
        if total != u64::from(word.len) {
            return Err(Corrupt::PieceLen(total));
        }
        self.piece_count = count;
        let body = Body::Reference { total: word.len };
        Ok((
            self.record(word, body),
            record::reference_len(header_len, count),
        ))
    }

    /// Copies the header. The record is within the data area, header included.
    #[inline]
    fn record(&self, word: Word, body: Body) -> Record {
        let at = self.offset() + record::header_at(word.kind);
        let mut header = [0; HEADER_MAX];
        let (words, _) = header.as_chunks_mut::<8>();
        let count = usize::from(word.header_len).div_ceil(8);
        for (to, at) in words.iter_mut().zip((at..).step_by(8)).take(count) {
            *to = self.half.word(at).load(Ordering::Relaxed).to_ne_bytes();
        }
        Record {
            header,
            header_len: word.header_len,
            body,
        }
    }

    fn state(&self) -> &std::sync::atomic::AtomicU32 {
        self.half.half_word(self.offset() + STATE_AT)
    }
}
