//! Posting work requests.

use std::sync::MutexGuard;
use std::sync::atomic::{Ordering, compiler_fence, fence};

use rnic::{RecvWr, Resource, RnicError, SendOp, SendWr, WcStatus};

use crate::carrier::End;
use crate::conn::{Conn, Owner};
use crate::tally::Tally;
use crate::work::{RecvSlot, SegmentList, SendSlot};

use super::{Effects, Link, Mode, Qp, lock};

/// The most payload that is held back to wait for more: enough for a few sends at full efficiency
/// and a smaller one, and not so much that the peer becomes idle.
const HOLD_BYTES_MAX: u32 = 1024 * 1024;
/// The limit for a carrier on which publishing a record costs a fence: enough to share the fence.
const HOLD_BYTES_MAX_LOCAL: u32 = 1024;
/// Operands and results of atomics.
const ATOMIC_LEN: u32 = 8;

/// The outcome of a post.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Posted {
    /// The request will be sent with later ones; nothing has completed.
    Held,
    /// The request was sent, as far as the socket took it; some requests may have completed.
    Sent,
}

/// The result of an attempt to carry out or frame a request without queueing it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AtOnce {
    /// The request is carried out.
    Done,
    /// The request is framed and must be transmitted.
    Framed,
    No,
}

impl Qp {
    /// Posts a send-queue work request, and sends it on this thread if no other thread holds the
    /// connection.
    pub(crate) fn post_send(&self, wr: &SendWr<'_>) -> Result<(), RnicError> {
        let len = self.check_send(wr)?;
        let at_once = |conn: &mut Conn| {
            let (stream, memory) = (self.stream(), &self.shared.memory);
            if conn.copy_at_once(stream, memory, wr, len) {
                AtOnce::Done
            } else if conn.frame_at_once(stream, memory, wr, len) {
                AtOnce::Framed
            } else {
                AtOnce::No
            }
        };
        self.post(at_once, || SendSlot::new(wr, len))
    }

    /// Posts an entry that sends nothing.
    pub(crate) fn post_bind(&self, slot: SendSlot) -> Result<(), RnicError> {
        self.post(|_| AtOnce::No, || slot)
    }

    /// Posts an entry: by `at_once` if that succeeds and no earlier post waits, or as `slot`.
    fn post(
        &self,
        at_once: impl FnOnce(&mut Conn) -> AtOnce,
        slot: impl FnOnce() -> SendSlot,
    ) -> Result<(), RnicError> {
        match self.try_lock_link() {
            Some(link) => self.post_holding(link, at_once, slot),
            None => self.submit(slot()),
        }
    }

    /// Posts an entry. The caller holds the connection.
    fn post_holding(
        &self,
        mut link: MutexGuard<'_, Link>,
        at_once: impl FnOnce(&mut Conn) -> AtOnce,
        slot: impl FnOnce() -> SendSlot,
    ) -> Result<(), RnicError> {
        let mut effects = Effects::default();
        let end = match &mut *link {
            Link::Up(conn) if conn.lifecycle.is_open() => {
                if let Err(full) = check_room(&self.sends, self.attr.send_wr_max) {
                    drop(link);
                    self.catch_up();
                    return Err(full);
                }
                self.sends.add_by_link();
                let posted = self.post_now(conn, at_once, slot);
                conn.update_watch();
                match posted {
                    // The queued request may be done already: a bind has nothing to send.
                    Ok(Posted::Held) if conn.outstanding.is_empty() => {
                        drop(link);
                        self.catch_up();
                        return Ok(());
                    }
                    posted => {
                        self.settle(conn, &mut effects);
                        posted
                            .err()
                            .or_else(|| self.request_ring(conn, &mut effects).err())
                    }
                }
            }
            _ => {
                drop(link);
                return self.submit(slot());
            }
        };
        if let Some(end) = end {
            self.finish(&mut link, end, &mut effects);
        }
        drop(link);
        self.after(&effects);
        Ok(())
    }

    /// Makes the peer of an armed connection ring the doorbell when the peer has made room or has
    /// read a referenced payload, if this end waits for that.
    fn request_ring(&self, conn: &mut Conn, effects: &mut Effects) -> Result<(), End> {
        if conn.place.is_armed() && conn.waits_for_peer() && conn.arm_local()? {
            self.step(conn, true, effects)?;
        }
        Ok(())
    }

    fn check_send(&self, wr: &SendWr<'_>) -> Result<u32, RnicError> {
        if wr.sgl.len() > self.attr.send_sge_max as usize {
            return Err(RnicError::Length(
                "more segments than the queue pair allows",
            ));
        }
        let total = SegmentList::total(wr.sgl)
            .ok_or(RnicError::Length("the segments exceed the longest message"))?;
        match wr.op {
            SendOp::Write(to) | SendOp::WriteImmediate { to, .. } if to.len < total => Err(
                RnicError::Length("the remote range is shorter than the segments"),
            ),
            SendOp::Read(from) if from.len < total => Err(RnicError::Length(
                "the remote range is shorter than the segments",
            )),
            SendOp::ReadToWindow { local, .. } => Ok(local.len),
            SendOp::FetchAdd(at, _) | SendOp::CompareSwap { remote: at, .. } => {
                if total != ATOMIC_LEN || at.addr % u64::from(ATOMIC_LEN) != 0 {
                    return Err(RnicError::Length(
                        "an atomic is eight bytes at a multiple of eight",
                    ));
                }
                Ok(total)
            }
            _ => Ok(total),
        }
    }

    /// Queues a request for the thread that holds the connection. If there is no connection, the
    /// request fails or is flushed.
    fn submit(&self, slot: SendSlot) -> Result<(), RnicError> {
        let mut queue = lock(&self.submitted);
        match queue.mode {
            Mode::Open => {
                check_room(&self.sends, self.attr.send_wr_max)?;
                self.sends.add_by_queue();
                queue.slots.push_back(slot);
                self.has_submitted.store(true, Ordering::Release);
                drop(queue);
                self.after(&Effects::default());
                Ok(())
            }
            Mode::Idle => Err(RnicError::InvalidState("the queue pair is not connected")),
            Mode::Flushing => {
                check_room(&self.sends, self.attr.send_wr_max)?;
                self.sends.add_flushed();
                let mut effects = Effects::default();
                let flushed = slot.report().completion(self.token, WcStatus::Flushed);
                self.publish(
                    &mut flushed.into_iter().collect(),
                    &mut Vec::new(),
                    &mut effects,
                );
                drop(queue);
                self.make_upcalls(&effects);
                Ok(())
            }
        }
    }

    /// Frames a request or submits it to the protocol, and sends it, unless waiting for more
    /// requests is worthwhile.
    fn post_now(
        &self,
        conn: &mut Conn,
        at_once: impl FnOnce(&mut Conn) -> AtOnce,
        slot: impl FnOnce() -> SendSlot,
    ) -> Result<Posted, End> {
        let at_once = match self.has_submitted.load(Ordering::Acquire) {
            true => AtOnce::No,
            false => at_once(conn),
        };
        if at_once == AtOnce::Done {
            return Ok(Posted::Sent);
        }
        if at_once == AtOnce::No {
            let slot = slot();
            if let Err(end) = self.take_submitted(conn) {
                // An earlier request ends the connection. This one is flushed together with the
                // queued ones after it.
                lock(&self.submitted).slots.push_back(slot);
                return Err(end);
            }
            conn.submit(self.stream(), &self.shared.memory, slot)?;
        }
        if conn.is_blocked {
            return Ok(Posted::Sent);
        }
        if self.holds_back(conn) {
            conn.burst.is_held = true;
            return Ok(Posted::Held);
        }
        self.transmit(conn)?;
        Ok(Posted::Sent)
    }

    /// Decides by [`crate::conn::Burst`]. Only a polled connection holds requests back: they are
    /// sent by the next poll, or by the thread that arms the connection.
    fn holds_back(&self, conn: &mut Conn) -> bool {
        let progress = &self.shared.progress;
        let is_one_of_many = conn.burst.on_post(progress.polls());
        if conn.burst.penalty > 0 {
            conn.burst.penalty -= 1;
            return false;
        }
        let hold_max = match conn.proto.has_tx_moved() {
            true => HOLD_BYTES_MAX_LOCAL,
            false => HOLD_BYTES_MAX,
        };
        let has_more_to_take = self.send_cq.as_ref().is_some_and(|cq| !cq.is_empty());
        if !(is_one_of_many || has_more_to_take) || conn.burst.bytes >= hold_max {
            return false;
        }
        if conn.place.is_armed() && progress.can_adopt() {
            conn.start_polling();
        }
        conn.place.is_polled()
    }

    /// Submits the requests that other threads queued while the connection was held. Returns
    /// `false` if there were none.
    pub(super) fn take_submitted(&self, conn: &mut Conn) -> Result<bool, End> {
        if !conn.lifecycle.is_open() || !self.has_submitted.load(Ordering::Acquire) {
            return Ok(false);
        }
        let mut queue = lock(&self.submitted);
        let mut slots = std::mem::take(&mut queue.slots);
        self.has_submitted.store(false, Ordering::Release);
        drop(queue);
        let mut result = Ok(());
        while let Some(slot) = slots.pop_front() {
            result = conn.submit(self.stream(), &self.shared.memory, slot);
            if result.is_err() {
                break;
            }
        }
        if !slots.is_empty() {
            // The connection ends now. The remaining requests are flushed in their order in the
            // queue.
            let mut queue = lock(&self.submitted);
            slots.append(&mut queue.slots);
            queue.slots = slots;
        }
        result.map(|()| true)
    }

    /// Reports the effects of a drive, and handles requests that were queued too late for it.
    pub(crate) fn after(&self, effects: &Effects) {
        self.make_upcalls(effects);
        self.catch_up();
    }

    /// Handles requests that were queued too late for the drive that has just ended.
    pub(super) fn catch_up(&self) {
        loop {
            fence_after_unlock();
            if !self.has_submitted.load(Ordering::Acquire) {
                return;
            }
            let Some(mut link) = self.try_lock_link() else {
                return;
            };
            let Link::Up(conn) = &mut *link else { return };
            if !conn.lifecycle.is_open() {
                return;
            }
            let socket = conn.socket.clone();
            let effects = self.or_fail(&socket, move || {
                let mut effects = Effects::default();
                if let Link::Up(conn) = &mut *link
                    && let Err(end) = self.step(conn, false, &mut effects)
                {
                    self.finish(&mut link, end, &mut effects);
                }
                Some(effects)
            });
            // A consumer's socket must be closed before its owner is notified of the end.
            drop(socket);
            self.make_upcalls(&effects.unwrap_or_default());
        }
    }

    /// Posts a receive.
    pub(crate) fn post_recv(&self, wr: &RecvWr<'_>) -> Result<(), RnicError> {
        if self.srq.is_some() {
            return Err(RnicError::InvalidState(
                "receives must be posted to the shared receive queue",
            ));
        }
        if wr.sgl.len() > self.attr.recv_sge_max as usize {
            return Err(RnicError::Length(
                "more segments than the queue pair allows",
            ));
        }
        let total = SegmentList::total(wr.sgl)
            .ok_or(RnicError::Length("the segments exceed the longest message"))?;
        let slot = RecvSlot::new(wr, total);
        let mut queue = lock(&self.receives);
        check_room(&self.recvs, self.attr.recv_wr_max)?;
        if queue.mode != Mode::Flushing {
            self.recvs.add_by_queue();
            queue.slots.push_back(slot);
            let wakes = queue.wakes.take();
            drop(queue);
            self.wake_for_receive(wakes);
            return Ok(());
        }
        self.recvs.add_flushed();
        let mut effects = Effects::default();
        let flushed = slot.failed(self.token, WcStatus::Flushed);
        self.publish(&mut Vec::new(), &mut vec![flushed], &mut effects);
        drop(queue);
        self.make_upcalls(&effects);
        Ok(())
    }
}

fn check_room(tally: &Tally, max: u32) -> Result<(), RnicError> {
    if tally.places() < max {
        Ok(())
    } else {
        Err(RnicError::NoResources(Resource::WorkRequest))
    }
}

/// Orders the check of `submitted` after the unlock that precedes it: of the connection for its
/// holder, of the queue for a poster. So if a holder and a poster race, at least one of them sees
/// the other's store.
fn fence_after_unlock() {
    // On x86-64 unlocking is a locked instruction, which is a full barrier for the processor.
    if cfg!(target_arch = "x86_64") {
        compiler_fence(Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests;
