//! Writes whose bytes stay in the caller's memory.
//!
//! The memory is registered, and its bytes are sent from where they are, or the peer reads them
//! (Read Zcopy). The write ends when nothing uses the memory any more: the peer or the transport
//! has the bytes, or this end has taken them back. Only then is the memory deregistered, so no byte
//! of it is read later, whatever the peer does.
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

/// The decision of a caller about a write whose bytes are in the caller's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// The write continues.
    Continue,
    /// The bytes that were not transferred are taken back. The peer's answer may take long.
    TakeBack,
    /// The bytes that were not transferred are taken back, and the call must return. The connection
    /// of a peer that does not answer within [`crate::Config::close_timeout`] is aborted.
    Return,
}

/// The conditions on which a write takes its memory back.
pub(super) enum Limit<'a> {
    /// At this time.
    Deadline(Option<Instant>),
    /// As the caller decides. The argument is the number of bytes that have been transferred.
    Caller(&'a mut dyn FnMut(usize) -> Decision),
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
        self.end_half_closed(&mut inner);
        check_writable(&mut inner)?;
        let mover = self.mover_in_place(&inner, bytes.len(), true);
        let memory = match mover {
            Mover::Copy => None,
            _ => self.register(bytes),
        };
        let sent = match memory {
            None => None,
            Some(memory) => {
                let id = self.begin_source(&mut inner, mover, memory, None);
                let (mut again, taken) = self.wait_for_source(inner, id, Limit::Caller(decide));
                self.end_source(&mut again, id);
                inner = again;
                Some(taken)
            }
        };
        self.hand_over(&mut inner);
        Ok(sent)
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
        let (mut inner, taken) = self.wait_for_source(inner, id, Limit::Deadline(deadline));
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

    /// The number of bytes that have been transferred or posted so far.
    fn progress_of_source(inner: &mut Inner, id: AdvertId) -> usize {
        let read = inner.connection.taken(id).unwrap_or(0);
        let posted = inner.source(id).map_or(0, |source| source.posted);
        posted.max(u64::from(read)) as usize
    }

    /// Waits until nothing uses the memory any more. Returns the number of its bytes that the peer
    /// has.
    ///
    /// The memory is taken back as `limit` says, and when this half is shut. If the call has to
    /// return and the peer does not release the memory within the close timeout, its connection is
    /// aborted, because nothing else ends the peer's use of it.
    fn wait_for_source<'a>(
        &'a self,
        mut inner: MutexGuard<'a, Inner>,
        id: AdvertId,
        mut limit: Limit<'_>,
    ) -> (MutexGuard<'a, Inner>, usize) {
        // The time at which the connection is aborted, once the call has to return.
        let mut abort_at: Option<Instant> = None;
        let (mut is_asked_back, mut has_aborted) = (false, false);
        loop {
            if let Some(taken) = self.released(&mut inner, id) {
                return (inner, taken);
            }
            let now = Instant::now();
            let decided = match &mut limit {
                Limit::Deadline(at) if at.is_some_and(|at| at <= now) => Decision::Return,
                Limit::Deadline(_) => Decision::Continue,
                Limit::Caller(decide) => {
                    let progress = Self::progress_of_source(&mut inner, id);
                    drop(inner);
                    let decided = decide(progress);
                    inner = self.lock();
                    decided
                }
            };
            // Checked with the lock that is held until the sleep, so that a shutdown by another
            // thread wakes this one.
            let decision = match inner.connection.may_write() {
                true => decided,
                false => Decision::Return,
            };
            if decision != Decision::Continue && !is_asked_back {
                is_asked_back = true;
                inner.connection.cancel(id, OnCancel::TakeBack);
                self.progress(&mut inner);
            }
            if decision == Decision::Return && abort_at.is_none() {
                abort_at = self.close_deadline();
            }
            if abort_at.is_some_and(|at| at <= now) && !has_aborted {
                has_aborted = true;
                self.abort_unanswered(&mut inner);
                self.progress(&mut inner);
            }
            if let Some(taken) = self.released(&mut inner, id) {
                return (inner, taken);
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
    /// The time at which the limit must be asked again, whatever happens until then.
    fn next_question(&self, now: Instant) -> Option<Instant> {
        match self {
            Self::Deadline(at) => *at,
            Self::Caller(_) => now.checked_add(ASK_EVERY),
        }
    }
}
