//! What the lock of a completion queue guards.

use std::collections::{HashMap, VecDeque};
use std::ptr::NonNull;
use std::sync::{Arc, Weak};

use access_layer::rnic::{Completion, Notify, WcOpcode, WcStatus};
use slab::Slab;
use verbs_dl::types::*;

use super::wc;
use crate::qp::Qp;
use crate::work::{At, Kind, PLACES, Posted, Ticket, Work};

/// Entries taken from the device by one call.
pub(super) const BATCH: usize = 16;

/// Who is to be told about the next completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Armed {
    No,
    Any,
    SolicitedOnly,
}

/// Completions, and the queue pairs whose they are.
pub(super) struct Inner {
    hw: NonNull<ibv_cq>,
    /// Completions that came otherwise than by a poll: flushed without the device, or taken from
    /// it to see what they are.
    pub(super) queue: VecDeque<Completion>,
    works: Slab<Arc<Work>>,
    /// The place of a queue pair in `works`, by its number: receives of a shared queue carry no
    /// ticket of their queue pair.
    places: HashMap<u32, u32>,
    pub(super) armed: Armed,
    /// Something came that the queue is armed for.
    pub(super) fired: bool,
    /// The device has said that a solicited message is among those to come.
    pub(super) heard_solicited: bool,
    /// Queue pairs whose work failed, to be reported when the lock is free.
    pub(super) failures: Vec<Weak<Qp>>,
    batch: Box<[ibv_wc; BATCH]>,
}

// SAFETY: the pointer is to a verbs object, which any thread may use.
unsafe impl Send for Inner {}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner")
            .field("queued", &self.queue.len())
            .field("armed", &self.armed)
            .finish_non_exhaustive()
    }
}

impl Inner {
    pub(super) fn new(hw: NonNull<ibv_cq>) -> Self {
        Self {
            hw,
            queue: VecDeque::new(),
            works: Slab::new(),
            places: HashMap::new(),
            armed: Armed::No,
            fired: false,
            heard_solicited: false,
            failures: Vec::new(),
            // SAFETY: structures of numbers, for which zero is a value.
            batch: Box::new(unsafe { std::mem::zeroed() }),
        }
    }

    /// Adds the work of a queue pair, which has this number; `None` when there are too many.
    pub(super) fn attach(&mut self, work: &Arc<Work>, num: u32) -> Option<u32> {
        if self.works.len() >= PLACES {
            return None;
        }
        let place = self.works.insert(work.clone()) as u32;
        self.places.insert(num, place);
        Some(place)
    }

    pub(super) fn rename(&mut self, place: u32, old: u32, new: u32) {
        self.forget_number(place, old);
        self.places.insert(new, place);
    }

    pub(super) fn detach(&mut self, place: u32, num: u32) {
        self.forget_number(place, num);
        self.works.try_remove(place as usize);
    }

    /// The device may have given the number to another queue pair of this queue meanwhile.
    fn forget_number(&mut self, place: u32, num: u32) {
        if self.places.get(&num) == Some(&place) {
            self.places.remove(&num);
        }
    }

    /// Takes completions in order.
    pub(super) fn poll(&mut self, out: &mut [Completion]) -> usize {
        let mut count = 0;
        while count < out.len() {
            let Some(completion) = self.queue.pop_front() else {
                break;
            };
            out[count] = completion;
            count += 1;
        }
        while count < out.len() {
            let room = BATCH.min(out.len() - count);
            let got = self.take_from_device(room);
            for index in 0..got {
                let entry = self.batch[index];
                if let Some(completion) = self.translate(&entry) {
                    out[count] = completion;
                    count += 1;
                }
            }
            if got < room {
                break;
            }
        }
        count
    }

    /// Takes everything from the device into the queue.
    pub(super) fn pull(&mut self) {
        loop {
            let got = self.take_from_device(BATCH);
            for index in 0..got {
                let entry = self.batch[index];
                if let Some(completion) = self.translate(&entry) {
                    self.push(completion);
                }
            }
            if got < BATCH {
                return;
            }
        }
    }

    /// Adds a completion behind all others.
    pub(super) fn push(&mut self, completion: Completion) {
        self.fired |= self.deserves(&completion);
        self.queue.push_back(completion);
    }

    /// Flushes what is left of a queue pair's requests, without the device.
    pub(super) fn flush_sends(&mut self, work: &Work) {
        while let Some(posted) = work.sends.pop_unfinished() {
            self.push(work.flushed(&posted));
        }
    }

    /// Flushes what is left of a queue pair's receives, without the device.
    pub(super) fn flush_recvs(&mut self, work: &Work) {
        while let Some(posted) = work.recvs.pop_unfinished() {
            self.push(work.flushed(&posted));
        }
    }

    fn take_from_device(&mut self, room: usize) -> usize {
        // SAFETY: alive as long as the queue that this is a part of.
        let got = unsafe { verbs_dl::poll_cq(self.hw.as_ptr(), &mut self.batch[..room]) };
        // A queue that cannot be polled is broken; the device tells that by an event of its own.
        got.unwrap_or(0)
    }

    /// `None`: nobody wants to hear of it, or it is of a queue pair that is gone.
    fn translate(&mut self, entry: &ibv_wc) -> Option<Completion> {
        let ticket = Ticket::decode(entry.wr_id)?;
        let place = match ticket.kind {
            Kind::SharedRecv => *self.places.get(&entry.qp_num)?,
            Kind::Send | Kind::Recv => ticket.place,
        };
        let work = self.works.get(place as usize)?;
        let posted = match ticket.kind {
            Kind::SharedRecv => work.srq.as_ref()?.take(ticket.sequence)?,
            Kind::Send | Kind::Recv if ticket.epoch != work.epoch() => return None,
            Kind::Send => work.sends.take(ticket.sequence)?,
            Kind::Recv => work.recvs.take(ticket.sequence)?,
        };
        let status = wc::status_of(entry.status);
        if !matches!(status, WcStatus::Success | WcStatus::Flushed) {
            tracing::debug!(
                qp = work.token.0,
                ?status,
                vendor = entry.vendor_err,
                "work failed"
            );
            self.failures.extend(work.note_failure());
        }
        complete(work, &posted, status, entry, &mut self.heard_solicited)
    }

    fn deserves(&self, completion: &Completion) -> bool {
        let failed = completion.status != WcStatus::Success;
        match self.armed {
            Armed::No => false,
            Armed::Any => failed || completion.notify != Notify::Never,
            Armed::SolicitedOnly => failed || completion.notify == Notify::Solicited,
        }
    }
}

fn complete(
    work: &Work,
    posted: &Posted,
    status: WcStatus,
    entry: &ibv_wc,
    heard_solicited: &mut bool,
) -> Option<Completion> {
    if posted.at == At::Marker {
        return None;
    }
    if status != WcStatus::Success {
        return Some(work.completion(posted, status));
    }
    if posted.opcode != WcOpcode::Recv {
        return posted.told.then(|| work.completion(posted, status));
    }
    let mut completion = wc::received(work, posted, entry);
    // An entry does not say whether its message was solicited, only the event does: so it is said
    // of the first receive after the event.
    if *heard_solicited && completion.notify == Notify::Always {
        completion.notify = Notify::Solicited;
        *heard_solicited = false;
    }
    Some(completion)
}
