//! Readers' memory that the peer writes (Write Zcopy).
//!
//! A reader that would wait advertises its memory. The peer writes the next bytes of the stream
//! there, and they are not copied at this end. The advertisement ends before the read returns: the
//! peer has written, a message has used the advertisement up, or the peer has acknowledged a
//! cancel. A peer that does none of that within the close timeout loses its connection. In each
//! case the memory is deregistered before the read returns, so no byte is written to it later,
//! whatever the peer does.
//!
//! At the other end, a blocking writer whose peer advertises waits up to [`PATIENCE`] for the next
//! advertisement. A reader that is late costs it one such wait for each advertisement that it sees,
//! and readers advertise seldom while nobody uses their memory.
//!
//! The answer to a cancel needs a call of the peer's user, or the thread of the peer's stack, which
//! serves idle sockets every [`LONG`]. So a read with a timeout cancels its advertisement that long
//! before its deadline, and one that has less than twice that time does not advertise.
//!
//! No call of a socket uses the Transaction mechanism, in which SinkAvail carries a request and
//! offers memory for its answer: a write cannot know that a read follows, and a request that waits
//! for a read that is never made would be lost to the peer. Only bytes that still wait for a free
//! Send when a reader advertises its memory may be sent with the advertisement, because the
//! protocol does that by itself.

use std::{
    sync::MutexGuard,
    time::{Duration, Instant},
};

use sdp_proto::{AdvertId, ConnectionState, SinkAdvert, wire::Mode};

use super::{
    Inner, Socket,
    in_place::{Limit, Use},
    inner::UserRead,
    receive::ReceiveFlags,
    send::ADVERT_MAX,
};
use crate::{adapter::LONG, user_memory::UserMemory};

/// The longest time for which a writer waits for an advertisement. A reader that has received much
/// and reads it without a pause advertises its memory within this time.
const PATIENCE: Duration = Duration::from_micros(250);

impl Socket {
    /// Waits until a reader advertises its memory for the write of `bytes`, if readers of the peer
    /// have done so, but not for long. Bytes that were sent before the advertisement arrives would
    /// use it up, so without this wait a stream in one direction would seldom be written into the
    /// memory of its reader.
    ///
    /// The bytes are registered before the wait, while the reader still handles the last ones.
    pub(super) fn await_sink<'a>(
        &'a self,
        mut inner: MutexGuard<'a, Inner>,
        bytes: &[u8],
        deadline: Option<Instant>,
        may_wait: bool,
    ) -> (MutexGuard<'a, Inner>, Option<UserMemory>) {
        let is_pipelined = inner.connection.send_mode() == Mode::Pipelined;
        if !is_pipelined || bytes.len() < self.config.write_min as usize {
            // The write sends what waits, and polls the completions if it has no room.
            self.poll_end(&mut inner);
            return (inner, None);
        }
        // A message would use up an advertisement that was received and not handled.
        self.progress(&mut inner);
        if !self.lacks_sink(&inner, bytes.len(), may_wait) {
            return (inner, None);
        }
        inner.statistics.stalls.sink += 1;
        let bytes = &bytes[..bytes.len().min(ADVERT_MAX)];
        // Posted work cannot be taken back at a timeout.
        let may_post = deadline.is_none();
        let memory = may_post.then(|| UserMemory::source(&self.adapter.pz, bytes));
        let memory = memory.and_then(Result::ok);
        let until = Instant::now() + PATIENCE;
        let until = deadline.map_or(until, |deadline| deadline.min(until));
        while self.lacks_sink(&inner, bytes.len(), may_wait) {
            inner = self.wait(inner, Some(until)).unwrap_or_else(|_| {
                let mut inner = self.lock();
                inner.expects_sink = false;
                inner
            });
        }
        (inner, memory)
    }

    /// True if a write of `len` bytes is to wait for a reader's memory.
    fn lacks_sink(&self, inner: &Inner, len: usize, may_wait: bool) -> bool {
        may_wait
            && inner.expects_sink
            && inner.connection.sink_room().is_none()
            && len >= self.config.pipelined_threshold
            && inner.sources.is_empty()
            && inner.error.is_none()
            && inner.connection.may_write()
    }

    /// True if a reader that waits with `room` bytes of memory may advertise it.
    fn suits_sink(&self, inner: &Inner, room: usize) -> bool {
        let threshold = inner.options.sink_threshold;
        let threshold = threshold.unwrap_or(self.config.sink_threshold);
        let least = threshold.max(inner.connection.sink_min() as usize);
        room >= least
            && threshold < usize::MAX
            && inner.sink.is_none()
            && inner.receive.is_clear()
            && inner.reads.is_empty()
            && inner.link.may_post()
            && !inner.link.is_gone()
            && inner.connection.state() == ConnectionState::Established
    }

    /// True if this reader, which is about to wait, advertises its memory.
    pub(super) fn may_advertise_sink(
        &self,
        inner: &mut Inner,
        room: usize,
        flags: ReceiveFlags,
        limit: &Limit<'_>,
    ) -> bool {
        let left = match limit {
            Limit::Deadline(Some(at)) => at.saturating_duration_since(Instant::now()),
            Limit::Deadline(None) | Limit::Caller { .. } => Duration::MAX,
        };
        if flags.peek || left < 2 * LONG || !self.suits_sink(inner, room) {
            return false;
        }
        if inner.connection.receive_mode() == Mode::Combined {
            inner.connection.ask_pipelined();
            return false;
        }
        inner.sink_pace.on_wait()
    }

    /// Advertises the caller's memory, and waits until the peer no longer writes to it. Returns the
    /// number of bytes that the peer has written. Cancels the advertisement in time for an answer
    /// before a deadline. Does not wait if there are bytes to read or if the memory cannot be
    /// advertised.
    pub(super) fn receive_written<'a>(
        &'a self,
        mut inner: MutexGuard<'a, Inner>,
        into: &mut [u8],
        limit: &mut Limit<'_>,
    ) -> (MutexGuard<'a, Inner>, usize) {
        // Bytes that have been received and not handled would make the advertisement useless.
        self.progress(&mut inner);
        if !self.suits_sink(&inner, into.len()) {
            return (inner, 0);
        }
        let max = into.len().min(self.adapter.read_max).min(ADVERT_MAX);
        let sink = match UserMemory::sink(&self.adapter.pz, &mut into[..max], true) {
            Ok(sink) => sink,
            Err(error) => {
                tracing::debug!(%error, "memory is not registered; its bytes are copied");
                inner.sink_pace.on_end(false);
                return (inner, 0);
            }
        };
        inner.adverts += 1;
        let id = AdvertId(inner.adverts);
        let remote = sink.remote();
        let is_advertised = inner.connection.advertise_sink(SinkAdvert {
            id,
            len: max as u32,
            stag: remote.context,
            address: remote.addr,
        });
        let mut written = 0;
        if is_advertised {
            inner.statistics.sinks += 1;
            inner.sink = Some(UserRead { id, written: None });
            self.pump(&mut inner);
            inner = match limit {
                Limit::Deadline(at) => {
                    let until = at.map(|at| at.checked_sub(LONG).unwrap_or(at));
                    self.wait_for_memory(inner, Use::Sink, &mut Limit::Deadline(until))
                }
                limit => self.wait_for_memory(inner, Use::Sink, limit),
            };
            let done = inner.sink.take();
            written = done.and_then(|done| done.written).unwrap_or(0) as usize;
            inner.statistics.sinks_used += u64::from(written > 0);
        }
        inner.sink_pace.on_end(written > 0);
        drop(sink);
        inner.statistics.bytes_received += written as u64;
        inner.statistics.bytes_written_by_peer += written as u64;
        inner.statistics.bytes_direct += written as u64;
        self.wake_followers(&inner);
        (inner, written)
    }
}
