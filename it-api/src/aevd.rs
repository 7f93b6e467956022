//! Taking events of aggregate event dispatchers.
//!
//! Without `IT_EVD_DEQUEUE_NOTIFICATIONS` an AEVD returns the events of its SEVDs, which take
//! turns. With the flag it returns notifications, each of which names an SEVD that has received
//! events.

use std::time::{Duration, Instant};

use dat_abi::*;
use host::locks::lock;

use crate::abi::*;
use crate::address;
use crate::asynchronous::take_triggers;
use crate::event;
use crate::handle::{self, Slot};
use crate::queue::{self, Evd};
use crate::status::*;

/// The flag `IT_EVD_DEQUEUE_NOTIFICATIONS`.
pub(crate) const DEQUEUE_NOTIFICATIONS: u32 = 1;

/// The end of a wait; `None` if it has none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline(Option<Instant>);

impl Deadline {
    /// All ones mean no limit. Limits beyond the clock's range have none either.
    pub(crate) fn after(us: u64) -> Self {
        let limited = (us != u64::MAX).then(|| Duration::from_micros(us));
        Self(limited.and_then(|limit| Instant::now().checked_add(limit)))
    }

    /// The remaining time for DAT, which is limited to an hour: a wait continues after that.
    pub(crate) fn left(self) -> DatTimeout {
        let Some(end) = self.0 else {
            return DAT_TIMEOUT_INFINITE;
        };
        let left = end.saturating_duration_since(Instant::now());
        address::timeout(left.as_micros().min(3_600_000_000) as u64)
    }

    pub(crate) fn is_over(self) -> bool {
        self.0.is_some_and(|end| Instant::now() >= end)
    }
}

/// Takes an event without blocking.
pub(crate) fn dequeue(aevd: Handle, slot: &Slot, object: &Evd, event: Out<Event>) -> Outcome {
    if object.flags & DEQUEUE_NOTIFICATIONS != 0 {
        return notification(aevd, slot, 0, event);
    }
    loop {
        let polled = poll(object, event);
        // A trigger is taken only when nothing is queued, because the descriptor of the AEVD is
        // readable for as long as a trigger is pending.
        if polled != Err(QUEUE_EMPTY) || !take_trigger(slot.dat()) {
            return polled;
        }
        take_triggers(slot.dat());
    }
}

/// Waits for an event.
pub(crate) fn wait(
    aevd: Handle,
    slot: &Slot,
    object: &Evd,
    deadline: Deadline,
    event: Out<Event>,
) -> Outcome {
    loop {
        let taken = match object.flags & DEQUEUE_NOTIFICATIONS {
            0 => poll(object, event),
            _ => notification(aevd, slot, deadline.left(), event),
        };
        if taken != Err(QUEUE_EMPTY) {
            return taken;
        }
        if deadline.is_over() {
            return Err(TIMEOUT_EXPIRED);
        }
        if object.flags & DEQUEUE_NOTIFICATIONS == 0 {
            let mut evd = DAT_HANDLE_NULL;
            let waited = call!(dat_cno_wait(slot.dat(), deadline.left(), &raw mut evd));
            waited.or_else(|status| (status == QUEUE_EMPTY).then_some(()).ok_or(status))?;
        }
    }
}

fn take_trigger(cno: DatCnoHandle) -> bool {
    let mut evd = DAT_HANDLE_NULL;
    call!(dat_cno_wait(cno, 0, &raw mut evd)) == Ok(())
}

/// Takes a trigger as a notification.
fn notification(aevd: Handle, slot: &Slot, timeout: DatTimeout, event: Out<Event>) -> Outcome {
    let mut evd = DAT_HANDLE_NULL;
    call!(dat_cno_wait(slot.dat(), timeout, &raw mut evd))?;
    let sevd = queue::named(evd);
    // An SEVD that was freed meanwhile has nothing to dequeue.
    if sevd.is_null() {
        return Err(QUEUE_EMPTY);
    }
    event.as_member().write(NotificationEvent {
        number: AEVD_NOTIFICATION,
        aevd,
        sevd,
    });
    Ok(())
}

/// Polls the SEVDs once. The one that had an event is polled last next time.
fn poll(object: &Evd, event: Out<Event>) -> Outcome {
    let mut members = lock(&object.members);
    for index in 0..members.len() {
        let sevd = members[index];
        let Ok(slot) = handle::slot::<Evd>(sevd) else {
            continue;
        };
        match event::take(sevd, slot, event) {
            Err(QUEUE_EMPTY) => {}
            // A thread waits for this SEVD itself.
            Err(INVALID_EVD_STATE) => {}
            taken => {
                members[index..].rotate_left(1);
                return taken;
            }
        }
    }
    Err(QUEUE_EMPTY)
}
