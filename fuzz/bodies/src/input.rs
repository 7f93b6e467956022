//! Turns the bytes of an input into choices.
//!
//! All values are taken from the front, so that a seed can be written down byte by byte. An input
//! that ends too early continues with zeros.

use arbitrary::Unstructured;

/// The bytes of an input that have not been consumed.
#[derive(Debug)]
pub struct Input<'a>(Unstructured<'a>);

impl<'a> Input<'a> {
    /// Reads from the whole of `data`.
    #[must_use]
    pub fn new(data: &'a [u8]) -> Self {
        Self(Unstructured::new(data))
    }

    /// Reads one byte.
    pub fn byte(&mut self) -> u8 {
        self.0.arbitrary().unwrap_or(0)
    }

    /// Reads a number below `bound`, from one byte.
    pub fn below(&mut self, bound: usize) -> usize {
        usize::from(self.byte()) % bound.max(1)
    }

    /// Reads two bytes, least significant first.
    pub fn short(&mut self) -> u16 {
        self.0.arbitrary().unwrap_or(0)
    }

    /// Reads four bytes, least significant first.
    pub fn word(&mut self) -> u32 {
        self.0.arbitrary().unwrap_or(0)
    }

    /// Reads eight bytes, least significant first.
    pub fn long(&mut self) -> u64 {
        self.0.arbitrary().unwrap_or(0)
    }

    /// Chooses an element of `choices`, from one byte.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// Reads up to `len` bytes.
    pub fn bytes(&mut self, len: usize) -> &'a [u8] {
        let len = len.min(self.0.len());
        self.0.bytes(len).unwrap_or_default()
    }

    /// All remaining bytes.
    pub fn rest(&mut self) -> &'a [u8] {
        self.bytes(usize::MAX)
    }

    /// Returns true if no bytes remain.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Calls `feed` with the pieces of `stream`. Each piece is as long as the next byte of `cuts` says
/// (0 means one byte), and the cuts repeat. Without cuts the stream is one piece.
pub fn in_pieces(stream: &[u8], cuts: &[u8], mut feed: impl FnMut(&[u8])) {
    let mut lengths = cuts.iter().map(|&cut| usize::from(cut).max(1)).cycle();
    let mut left = stream;
    while !left.is_empty() {
        let len = lengths.next().unwrap_or(left.len()).min(left.len());
        let (piece, rest) = left.split_at(len);
        feed(piece);
        left = rest;
    }
}
