//! Taking events, and the effects of events on their objects.
//!
//! An EVD queues events and has no access to their objects. A receive is counted at its endpoint
//! when its event is taken. Only the event contains the handle of a connection request. So the
//! request ends with the event; its peer and its endpoint would otherwise wait for ever.
//! Module `triggers` takes the triggers of a CNO.

mod triggers;

use dat_abi::*;

use crate::cr::Cr;
use crate::ep::Ep;
use crate::error::DatResult;
use crate::evd::{Evd, WaitError, Woken};
use crate::handle::{self, Pinned};
use crate::ia::Child;
use crate::rnic::Rnic;

impl<R: Rnic> Evd<R> {
    /// Implements `dat_evd_dequeue`: returns the oldest event. Never blocks.
    pub fn dequeue(&self) -> DatResult<DatEvent> {
        let event = self.take_oldest()?;
        count_receive::<R>(&event);
        Ok(event)
    }

    /// Implements `dat_evd_wait`.
    pub fn wait(&self, timeout_us: DatTimeout, threshold: DatCount) -> Result<Woken, WaitError> {
        let woken = self.await_events(timeout_us, threshold)?;
        count_receive::<R>(&woken.event);
        Ok(woken)
    }

    /// Implements `dat_evd_free`. Drops unread events, and refuses the connection requests among
    /// them.
    pub fn free(this: &Pinned<Self>) -> DatResult {
        this.close_to_users()?;
        Self::abandon(this);
        Ok(())
    }
}

impl<R: Rnic> Child for Evd<R> {
    fn on_retired(this: &Pinned<Self>) {
        Self::close(this).iter().for_each(refuse_undelivered::<R>);
    }
}

/// Counts a received message at its endpoint. Called without the lock of the EVD, because the end
/// of this pin may drop the endpoint.
pub(crate) fn count_receive<R: Rnic>(event: &DatEvent) {
    if !matches!(
        event.event_number,
        DAT_DTO_COMPLETION_EVENT | DAT_IB_DTO_EVENT
    ) {
        return;
    }
    // SAFETY: the event number selects this member.
    let dto = unsafe { event.event_data.dto_completion_event_data };
    if dto.status == DAT_DTO_SUCCESS
        && is_receive(dto.operation)
        && let Some(ep) = handle::pin::<Ep<R>>(dto.ep_handle)
    {
        ep.count_receive(&dto);
    }
}

fn is_receive(operation: DatDtos) -> bool {
    matches!(
        operation,
        DAT_DTO_RECEIVE
            | DAT_DTO_RECEIVE_WITH_INVALIDATE
            | DAT_IB_DTO_RECV_IMMED
            | DAT_IB_DTO_RECV_MSG_IMMED
    )
}

/// Ends the connection request of an event that can no longer be taken.
fn refuse_undelivered<R: Rnic>(event: &DatEvent) {
    if event.event_number != DAT_CONNECTION_REQUEST_EVENT {
        return;
    }
    // SAFETY: the event number selects this member.
    let request = unsafe { event.event_data.cr_arrival_event_data }.cr_handle;
    if let Some(cr) = handle::pin::<Cr<R>>(request) {
        Cr::abandon(&cr);
    }
}
