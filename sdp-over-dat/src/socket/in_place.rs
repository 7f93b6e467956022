//! Callers' memory that is in use until their calls return.
//!
//! A write registers its memory, and the bytes are sent from where they are, or the peer reads them
//! (Read Zcopy). A read registers its memory, and this end reads the peer's advertised bytes into
//! it, or the peer writes there (Write Zcopy). The call ends when nothing uses the memory any more:
//! the bytes were transferred, or this end has taken the memory back. Only then is the memory
//! deregistered, so no byte of it is accessed later, whatever the peer does.
//!
//! A write costs a registration and, for Read Zcopy, a SrcAvail and its answer. The bytes are not
//! copied at this end.

use std::{
    io::{self, IoSlice},
    sync::MutexGuard,
    time::{Duration, Instant},
};

use rustix::io::Errno;
use sdp_proto::{Advert, AdvertId, OnCancel};

use super::{
    Inner, Socket,
    inner::UserWrite,
    send::{ADVERT_MAX, Mover, check_writable},
};
use crate::{errors, user_memory::UserMemory};

/// The fewest bytes of advertised memory that are sent with the advertisement.
const INLINE: u32 = 1;

/// The longest time between two questions to the caller of a write.
const ASK_EVERY: Duration = Duration::from_millis(5);

/// The decision of a caller about a call whose memory is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// The call continues.
    Continue,
    /// The memory to which no bytes were transferred is taken back. The peer's answer may take
    /// long.
    TakeBack,
    /// The memory is taken back, and the call must return. The connection of a peer that does not
    /// answer within [`crate::Config::close_timeout`] is aborted.
    Return,
}

/// The conditions on which a call takes its memory back.
pub(super) enum Limit<'a> {
    /// At this time.
    Deadline(Option<Instant>),
    /// As the caller decides.
    Caller {
        /// The argument is the number of bytes that have been transferred.
        ask: &'a mut dyn FnMut(usize) -> Decision,
        last: Decision,
    },
}

/// A use of a caller's memory.
#[derive(Debug, Clone, Copy)]
pub(super) enum Use {
    /// A write whose memory is sent, or advertised.
    Source(AdvertId),
    /// The RDMA Read of this number into a reader's memory.
    Read(u64),
    /// The advertised memory of a reader.
    Sink,
}

impl Socket {
    /// Writes `bytes` without a copy at this end, whatever the options say. Returns `None` if
    /// `bytes` are below the thresholds, or if their memory cannot be used now.
    pub(crate) fn send_in_place(
        &self,
        bytes: &[u8],
        decide: &mut dyn FnMut(usize) -> Decision,
    ) -> io::Result<Option<usize>> {
        let bytes = &bytes[..bytes.len().min(ADVERT_MAX)];
        let mut inner = self.lock();
        self.begin(&mut inner);
        let (mut inner, sent) = self.send_in_parts(inner, bytes, decide);
        self.hand_over(&mut inner);
        sent
    }

    /// Writes `bytes` without a copy, in as many parts as the peer's readers advertise memory.
    fn send_in_parts<'a>(
        &'a self,
        mut inner: MutexGuard<'a, Inner>,
        bytes: &[u8],
        decide: &mut dyn FnMut(usize) -> Decision,
    ) -> (MutexGuard<'a, Inner>, io::Result<Option<usize>>) {
        let mut sent = 0;
        loop {
            let (again, memory) = self.await_sink(inner, &bytes[sent..], None, true);
            inner = again;
            self.end_half_closed(&mut inner);
            let may_write = check_writable(&mut inner);
            if let (Err(error), 0) = (may_write, sent) {
                return (inner, Err(error));
            }
            let part = self.part_for_sink(&mut inner, &bytes[sent..]);
            let mover = self.mover_in_place(&inner, part.len(), true);
            let memory = match mover {
                Mover::Copy => None,
                _ => memory.or_else(|| self.register(part)),
            };
            let Some(memory) = memory else {
                return (inner, Ok((sent > 0).then_some(sent)));
            };
            let mut limit = Limit::Caller {
                ask: &mut |transferred| decide(sent + transferred),
                last: Decision::Continue,
            };
            let id = self.begin_source(&mut inner, mover, memory, None);
            let (again, taken) = self.wait_for_source(inner, id, &mut limit);
            let is_over = limit.is_over();
            inner = again;
            self.end_source(&mut inner, id);
            let is_short = taken < part.len();
            sent += taken;
            if is_over || is_short || sent == bytes.len() {
                return (inner, Ok(Some(sent)));
            }
        }
    }

    /// The part of `bytes` that the memory of the peer's reader takes, or all of them. Long parts
    /// change the direction to pipelined mode.
    pub(super) fn part_for_sink<'b>(&self, inner: &mut Inner, bytes: &'b [u8]) -> &'b [u8] {
        // Bytes after the advertised memory wait for the next advertisement.
        let room = inner.connection.sink_room().map(|room| room as usize);
        let part = &bytes[..room.unwrap_or(bytes.len()).min(bytes.len())];
        if part.len() >= self.config.pipelined_threshold {
            inner.connection.go_pipelined();
        }
        part
    }

    /// Registers memory that is to be sent from where it is.
    fn register(&self, bytes: &[u8]) -> Option<UserMemory> {
        let memory = UserMemory::source(&self.adapter.pz, bytes);
        memory
            .inspect_err(|error| tracing::debug!(%error, "memory is not registered"))
            .ok()
    }

    /// Sends `bytes` straight from the caller's memory. Waits until the peer or its transport has
    /// them, or until `deadline`: bytes that were not transferred by then are taken back.
    pub(super) fn send_from_user<'a>(
        &'a self,
        mut inner: MutexGuard<'a, Inner>,
        mover: Mover,
        (bytes, memory): (&[u8], Option<UserMemory>),
        deadline: Option<Instant>,
    ) -> (MutexGuard<'a, Inner>, io::Result<usize>) {
        let bytes = &bytes[..bytes.len().min(ADVERT_MAX)];
        let Some(memory) = memory.or_else(|| self.register(bytes)) else {
            let copied = self.copy_in(&mut inner, &[IoSlice::new(bytes)]);
            return (inner, copied);
        };
        let id = self.begin_source(&mut inner, mover, memory, None);
        let mut limit = Limit::Deadline(deadline);
        let (mut inner, taken) = self.wait_for_source(inner, id, &mut limit);
        self.end_source(&mut inner, id);
        (inner, Ok(taken))
    }

    /// Begins to transfer registered memory, after everything that was written before.
    fn begin_source(
        &self,
        inner: &mut Inner,
        mover: Mover,
        memory: UserMemory,
        owned: Option<Vec<u8>>,
    ) -> AdvertId {
        inner.adverts += 1;
        let id = AdvertId(inner.adverts);
        let remote = memory.remote();
        let advert = Advert {
            id,
            len: remote.len,
            stag: remote.context,
            address: remote.addr,
            inline: INLINE,
        };
        inner.sources.push_back(UserWrite {
            id,
            memory,
            owned,
            posted: 0,
            taken: None,
            is_abandoned: false,
        });
        let is_accepted = match mover {
            Mover::Advertised => inner.connection.advertise(advert),
            Mover::Copy | Mover::Registered => inner.connection.write_registered(advert),
        };
        if let Some(source) = inner.source(id).filter(|_| !is_accepted) {
            source.taken = Some(0);
        }
        self.pump(inner);
        id
    }

    /// The number of bytes of the memory that the peer has, if nothing uses the memory any more.
    fn released(&self, inner: &mut Inner, id: AdvertId) -> Option<usize> {
        let is_free = !inner.send.uses(id);
        let taken = inner.source(id).map_or(Some(0), |source| source.taken);
        match taken {
            Some(taken) if is_free => Some(taken as usize),
            _ if inner.has_no_transport() && is_free => Some(taken.unwrap_or(0) as usize),
            _ => None,
        }
    }

    /// Deregisters memory that nothing uses any more, and counts its bytes. Returns the memory, if
    /// the socket owns it.
    fn end_source(&self, inner: &mut Inner, id: AdvertId) -> Vec<u8> {
        let at = inner.sources.iter().position(|source| source.id == id);
        let source = at.and_then(|at| inner.sources.remove(at));
        let owned = source.map(|source| {
            inner.count_source(&source);
            inner.statistics.bytes_sent += u64::from(source.taken.unwrap_or(0));
            let UserWrite { memory, owned, .. } = source;
            // The registration ends before its memory is returned.
            drop(memory);
            owned
        });
        inner.show();
        self.wake_followers(inner);
        owned.flatten().unwrap_or_default()
    }

    /// Waits until nothing uses the memory of a write. Returns the number of its bytes that the
    /// peer has.
    fn wait_for_source<'a>(
        &'a self,
        inner: MutexGuard<'a, Inner>,
        id: AdvertId,
        limit: &mut Limit<'_>,
    ) -> (MutexGuard<'a, Inner>, usize) {
        let mut inner = self.wait_for_memory(inner, Use::Source(id), limit);
        let taken = self.released(&mut inner, id).unwrap_or(0);
        (inner, taken)
    }

    /// Waits until a use of a caller's memory has ended.
    ///
    /// The memory is taken back as `limit` says, and when this half is shut. If the call has to
    /// return and the peer does not release the memory within the close timeout, its connection is
    /// aborted, because nothing else ends the peer's use of it. An RDMA Read cannot be taken back.
    pub(super) fn wait_for_memory<'a>(
        &'a self,
        mut inner: MutexGuard<'a, Inner>,
        it: Use,
        limit: &mut Limit<'_>,
    ) -> MutexGuard<'a, Inner> {
        // The time at which the connection is aborted, once the call has to return.
        let mut abort_at: Option<Instant> = None;
        let (mut is_asked_back, mut has_aborted) = (false, false);
        loop {
            if self.has_ended_use(&mut inner, it) {
                return inner;
            }
            let now = Instant::now();
            let decided;
            (inner, decided) = self.ask(inner, it, limit);
            // Checked with the lock that is held until the sleep, so that a shutdown by another
            // thread wakes this one.
            let is_open = match it {
                Use::Source(_) => inner.connection.may_write(),
                Use::Read(_) | Use::Sink => !inner.read_half.is_shut(),
            };
            let decision = if is_open { decided } else { Decision::Return };
            if decision != Decision::Continue && !is_asked_back {
                is_asked_back = true;
                self.take_back(&mut inner, it);
            }
            if decision == Decision::Return && abort_at.is_none() {
                abort_at = self.close_deadline();
            }
            if abort_at.is_some_and(|at| at <= now) && !has_aborted {
                has_aborted = true;
                self.abort_unanswered(&mut inner);
                self.progress(&mut inner);
            }
            if self.has_ended_use(&mut inner, it) {
                return inner;
            }
            let until = match abort_at {
                Some(at) => Some(at).filter(|_| !has_aborted),
                None => limit.next_question(now),
            };
            inner = match self.wait(inner, until) {
                Ok(inner) => inner,
                Err(error) => {
                    let mut inner = self.lock();
                    if error.kind() != io::ErrorKind::TimedOut {
                        // Without events the state of the memory is unknown, so the transport must
                        // end.
                        self.abort_connection(&mut inner);
                        self.progress(&mut inner);
                    }
                    inner
                }
            };
        }
    }

    /// Asks the caller, without the lock, if the caller decides.
    pub(super) fn ask<'a>(
        &'a self,
        mut inner: MutexGuard<'a, Inner>,
        it: Use,
        limit: &mut Limit<'_>,
    ) -> (MutexGuard<'a, Inner>, Decision) {
        let decided = match limit {
            Limit::Deadline(at) if at.is_some_and(|at| at <= Instant::now()) => Decision::Return,
            Limit::Deadline(_) => Decision::Continue,
            Limit::Caller { ask, last } => {
                let progress = match it {
                    Use::Source(id) => {
                        let read = inner.connection.taken(id).unwrap_or(0);
                        let posted = inner.source(id).map_or(0, |source| source.posted);
                        posted.max(u64::from(read))
                    }
                    Use::Read(_) | Use::Sink => inner.statistics.bytes_received,
                };
                drop(inner);
                *last = ask(progress as usize);
                inner = self.lock();
                *last
            }
        };
        (inner, decided)
    }

    fn has_ended_use(&self, inner: &mut Inner, it: Use) -> bool {
        match it {
            Use::Source(id) => self.released(inner, id).is_some(),
            Use::Read(number) => inner.reads.iter().all(|read| read.number != number),
            Use::Sink => {
                inner.link.is_gone() || inner.sink.as_ref().is_none_or(|it| it.written.is_some())
            }
        }
    }

    fn take_back(&self, inner: &mut Inner, it: Use) {
        match it {
            Use::Source(id) => inner.connection.cancel(id, OnCancel::TakeBack),
            Use::Sink => inner.connection.cancel_sinks(),
            Use::Read(_) => return,
        }
        self.progress(inner);
    }
}

impl Socket {
    /// Begins a write of `bytes`, which stay where they are, and does not wait.
    pub(crate) fn submit(&self, bytes: Vec<u8>) -> io::Result<AdvertId> {
        if !(1..=ADVERT_MAX).contains(&bytes.len()) {
            return Err(Errno::INVAL.into());
        }
        let mut inner = self.lock();
        self.begin(&mut inner);
        self.end_half_closed(&mut inner);
        check_writable(&mut inner)?;
        let memory = UserMemory::source(&self.adapter.pz, &bytes);
        let memory = memory.map_err(|error| errors::of_dat(&error))?;
        let mover = match bytes.len() >= self.config.zcopy_threshold {
            true => Mover::Advertised,
            false => Mover::Registered,
        };
        let id = self.begin_source(&mut inner, mover, memory, Some(bytes));
        self.hand_over(&mut inner);
        Ok(id)
    }

    /// Ends the submission if nothing uses its memory any more.
    pub(crate) fn poll_submission(&self, id: AdvertId) -> Option<(usize, Vec<u8>)> {
        let mut inner = self.lock();
        self.progress(&mut inner);
        let written = self.released(&mut inner, id);
        let done = written.map(|written| (written, self.end_source(&mut inner, id)));
        self.hand_over(&mut inner);
        done
    }

    /// Waits for the end of a submission.
    pub(crate) fn wait_submission(&self, id: AdvertId) -> (usize, Vec<u8>) {
        let mut inner = self.lock();
        self.progress(&mut inner);
        loop {
            if let Some(written) = self.released(&mut inner, id) {
                let bytes = self.end_source(&mut inner, id);
                self.hand_over(&mut inner);
                return (written, bytes);
            }
            inner = self.wait(inner, None).unwrap_or_else(|_| {
                // Without events the state of the memory is unknown, so the transport must end.
                let mut inner = self.lock();
                self.abort_connection(&mut inner);
                self.progress(&mut inner);
                inner
            });
        }
    }

    /// Takes the bytes of a submission back that were not transferred.
    pub(crate) fn cancel_submission(&self, id: AdvertId) {
        let mut inner = self.lock();
        inner.connection.cancel(id, OnCancel::TakeBack);
        self.progress(&mut inner);
        self.hand_over(&mut inner);
    }

    /// Leaves a submission to the socket, which frees its memory when nothing uses it any more.
    pub(crate) fn abandon_submission(&self, id: AdvertId) {
        let mut inner = self.lock();
        if let Some(source) = inner.source(id) {
            source.is_abandoned = true;
        }
        self.end_abandoned(&mut inner);
    }

    /// Ends the abandoned submissions whose memory nothing uses any more.
    pub(super) fn end_abandoned(&self, inner: &mut Inner) {
        let abandoned = inner.sources.iter().filter(|source| source.is_abandoned);
        let ids: Vec<AdvertId> = abandoned.map(|source| source.id).collect();
        for id in ids {
            if self.released(inner, id).is_some() {
                drop(self.end_source(inner, id));
            }
        }
    }
}

impl Limit<'_> {
    /// The time at which the limit is to be asked again, whatever happens until then.
    pub(super) fn next_question(&self, now: Instant) -> Option<Instant> {
        match self {
            Self::Deadline(at) => *at,
            Self::Caller { .. } => now.checked_add(ASK_EVERY),
        }
    }

    /// True if the caller wants its memory back.
    pub(super) fn is_over(&self) -> bool {
        matches!(self, Self::Caller { last, .. } if *last != Decision::Continue)
    }
}
