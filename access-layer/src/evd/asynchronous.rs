//! Asynchronous events of an IA, which are posted to its asynchronous EVD.

use dat_abi::*;

use super::Evd;
use crate::handle;
use crate::ia::Ia;
use crate::rnic::Rnic;

impl<R: Rnic> Ia<R> {
    /// Posts an asynchronous event. Only logs the event if the IA has no EVD for it.
    pub fn post_async(
        &self,
        number: DatEventNumber,
        object: DatHandle,
        reason: DatAsyncErrorReason,
    ) {
        let name = event_name(number);
        tracing::warn!(ia = %self.name(), name, ?object, reason, "asynchronous event");
        self.counters().bump(DCNT_IA_ASYNC_ERROR);
        match number {
            DAT_ASYNC_ERROR_EP_BROKEN => self.counters().bump(DCNT_IA_ASYNC_QP_ERROR),
            DAT_ASYNC_ERROR_EVD_OVERFLOW => self.counters().bump(DCNT_IA_ASYNC_CQ_ERROR),
            _ => {}
        }
        let mut event = DatEvent::zeroed();
        event.event_number = number;
        event.event_data.asynch_error_event_data = DatAsynchErrorEventData {
            dat_handle: object,
            reason,
        };
        let evd = self.own_async_evd().and_then(handle::pin_handle::<Evd<R>>);
        match evd {
            Some(evd) => evd.post(event),
            None => tracing::error!(ia = %self.name(), "no EVD for an asynchronous event"),
        }
    }

    /// Called when the device was removed or is unusable.
    pub fn on_device_fatal(&self) {
        // OFA's providers pass their own pointer of the IA here. Consumers can only compare the
        // pointer.
        self.post_async(
            DAT_ASYNC_ERROR_IA_CATASTROPHIC,
            self.handle().as_dat(),
            DAT_IA_CATASTROPHIC_ERROR,
        );
    }
}
