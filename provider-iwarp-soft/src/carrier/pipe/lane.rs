//! A direction of a pipe.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use host::locks::lock;

use super::Ended;

/// The capacity of a lane, in bytes.
const CAPACITY: usize = 32 * 1024;

/// A queue of bytes. A side that sleeps announces the sleep, and the next change rings it.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    state: Mutex<State>,
    may_have_bytes: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    bytes: VecDeque<u8>,
    /// The total number of bytes that were put in.
    written: u64,
    /// The position at which the lane ends, and the kind of end.
    end: Option<(u64, Ended)>,
    is_reader_asleep: bool,
    is_writer_asleep: bool,
}

impl State {
    fn room(&self) -> usize {
        CAPACITY.saturating_sub(self.bytes.len()).min(self.left())
    }

    /// The number of bytes before the end of the lane.
    fn left(&self) -> usize {
        let left = self.end.map_or(u64::MAX, |(at, _)| at - self.written);
        usize::try_from(left).unwrap_or(usize::MAX)
    }

    fn ended(&self) -> Option<Ended> {
        self.end
            .filter(|(at, _)| *at == self.written)
            .map(|it| it.1)
    }
}

impl Lane {
    /// Makes the lane end `count` bytes after those that were put in.
    pub(super) fn end_after(&self, count: u64, ended: Ended) {
        let mut state = lock(&self.state);
        state.end = Some((state.written + count, ended));
    }

    pub(super) fn written(&self) -> u64 {
        lock(&self.state).written
    }

    /// The number of bytes that can be put in; 0 at the end of the lane.
    pub(super) fn room(&self) -> usize {
        lock(&self.state).room()
    }

    pub(super) fn len(&self) -> usize {
        lock(&self.state).bytes.len()
    }

    pub(super) fn ended(&self) -> Option<Ended> {
        lock(&self.state).ended()
    }

    pub(super) fn may_have_bytes(&self) -> bool {
        self.may_have_bytes.load(Ordering::Acquire)
    }

    /// Puts bytes in, up to the end of the lane; the caller respects the [`room`](Self::room). Only
    /// the last message of a stream may exceed it. Returns true if the reader must be rung; `None`
    /// if the lane has ended.
    pub(super) fn put(&self, bytes: &[u8]) -> Option<bool> {
        let mut state = lock(&self.state);
        if state.ended().is_some() {
            return None;
        }
        let count = bytes.len().min(state.left());
        state.bytes.extend(&bytes[..count]);
        state.written += count as u64;
        let has_changed = count > 0 || state.ended().is_some();
        if has_changed {
            self.may_have_bytes.store(true, Ordering::Release);
        }
        Some(has_changed && std::mem::take(&mut state.is_reader_asleep))
    }

    /// Takes bytes out. Returns true if the writer must be rung.
    pub(super) fn take(&self, count: usize, out: &mut Vec<u8>) -> bool {
        let mut state = lock(&self.state);
        let (front, back) = state.bytes.as_slices();
        let from_front = count.min(front.len());
        out.extend_from_slice(&front[..from_front]);
        out.extend_from_slice(&back[..count - from_front]);
        state.bytes.drain(..count);
        let may_have_bytes = !state.bytes.is_empty() || state.ended().is_some();
        self.may_have_bytes.store(may_have_bytes, Ordering::Release);
        count > 0 && std::mem::take(&mut state.is_writer_asleep)
    }

    /// Called when the reader is about to sleep. Returns true if it must not.
    pub(super) fn announce_reader(&self) -> bool {
        let mut state = lock(&self.state);
        let has_work = !state.bytes.is_empty() || state.ended().is_some();
        state.is_reader_asleep = !has_work;
        has_work
    }

    /// Called when the writer is about to sleep until there is room. Returns true if it must not.
    pub(super) fn announce_writer(&self) -> bool {
        let mut state = lock(&self.state);
        let has_work = state.room() > 0 || state.ended().is_some();
        state.is_writer_asleep = !has_work;
        has_work
    }

    pub(super) fn wake_reader(&self) {
        lock(&self.state).is_reader_asleep = false;
    }

    pub(super) fn wake_writer(&self) {
        lock(&self.state).is_writer_asleep = false;
    }
}

/// The choices of one end (xorshift64*).
#[derive(Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32
    }

    /// A part of `count`: nothing, all, or something in between; sometimes a few bytes, which cut
    /// headers.
    pub(super) fn portion(&mut self, count: usize) -> usize {
        let chosen = self.next() as usize;
        match self.next() % 8 {
            0 => 0,
            1 | 2 => count,
            3 => chosen % count.clamp(1, 64),
            _ => chosen % count.max(1),
        }
    }

    pub(super) fn pause(&mut self) -> Duration {
        Duration::from_micros(self.next() % 300)
    }
}
