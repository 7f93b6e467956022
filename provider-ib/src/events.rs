//! Asynchronous events of the device.

use host::threads::catch_panic;
use rnic::{AsyncEvent, QpToken, SrqToken};
use verbs_dl::types::*;

use crate::adapter::Adapter;

/// An event, with the word by which this provider named the object to the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DeviceEvent {
    CqLost(u32),
    QpBroken(u64),
    QpLastReceive(u64),
    SrqLow(u64),
    SrqFailed(u64),
    /// The device was removed, with all its objects.
    DeviceGone,
    /// The port is down; connections over it break after their timeouts.
    PortDown,
    /// An event that requires no action of a consumer.
    Other,
}

/// Takes all events of the device and reports them, on the engine's thread.
pub(crate) fn take_all(adapter: &Adapter) {
    let mut event = ibv_async_event::default();
    let device = &adapter.shared.device;
    let (verbs, context) = (&device.libraries.verbs, device.context());
    // SAFETY: the device is open, its descriptor does not block, the out-pointer is of this frame.
    while unsafe { verbs.ibv_get_async_event(context, &raw mut event) } == 0 {
        // SAFETY: taken above and not acknowledged yet.
        let device_event = unsafe { read(&event) };
        tracing::debug!(
            kind = event.event_type,
            ?device_event,
            "event of the device"
        );
        // Acknowledged first, because the destruction of the object waits for this.
        // SAFETY: taken above, acknowledged once.
        unsafe { verbs.ibv_ack_async_event(&raw mut event) };
        catch_panic(|| dispatch(adapter, device_event));
    }
}

/// # Safety
/// The event was taken and is not acknowledged, which keeps its object alive.
unsafe fn read(event: &ibv_async_event) -> DeviceEvent {
    let element = event.element;
    match event.event_type {
        // SAFETY: the type selects this member; the object is alive (caller).
        IBV_EVENT_CQ_ERR => DeviceEvent::CqLost(unsafe { (*element.cq).cq_context }.addr() as u32),
        IBV_EVENT_QP_FATAL | IBV_EVENT_QP_REQ_ERR | IBV_EVENT_QP_ACCESS_ERR => {
            // SAFETY: the type selects this member; the object is alive (caller).
            DeviceEvent::QpBroken(unsafe { (*element.qp).qp_context }.addr() as u64)
        }
        IBV_EVENT_QP_LAST_WQE_REACHED => {
            // SAFETY: the type selects this member; the object is alive (caller).
            DeviceEvent::QpLastReceive(unsafe { (*element.qp).qp_context }.addr() as u64)
        }
        IBV_EVENT_SRQ_LIMIT_REACHED => {
            // SAFETY: the type selects this member; the object is alive (caller).
            DeviceEvent::SrqLow(unsafe { (*element.srq).srq_context }.addr() as u64)
        }
        IBV_EVENT_SRQ_ERR => {
            // SAFETY: the type selects this member; the object is alive (caller).
            DeviceEvent::SrqFailed(unsafe { (*element.srq).srq_context }.addr() as u64)
        }
        IBV_EVENT_DEVICE_FATAL => DeviceEvent::DeviceGone,
        IBV_EVENT_PORT_ERR => DeviceEvent::PortDown,
        _ => DeviceEvent::Other,
    }
}

fn dispatch(adapter: &Adapter, event: DeviceEvent) {
    let event = match event {
        DeviceEvent::CqLost(number) => match adapter.cqs.get(number) {
            Some(cq) => AsyncEvent::CqOverflow(cq.token),
            None => return,
        },
        DeviceEvent::QpBroken(token) => {
            adapter.cm.on_qp_failed(QpToken(token));
            return;
        }
        DeviceEvent::QpLastReceive(token) => {
            if let Some(qp) = adapter.qps.get(QpToken(token)) {
                qp.report_last_receive();
            }
            return;
        }
        DeviceEvent::SrqLow(token) => AsyncEvent::SrqLimit(SrqToken(token)),
        DeviceEvent::SrqFailed(token) => AsyncEvent::SrqFailed(SrqToken(token)),
        DeviceEvent::DeviceGone => {
            adapter.reader.fail();
            if !adapter.cm.on_device_removed() {
                return;
            }
            AsyncEvent::DeviceFatal
        }
        // As OFA's providers report it.
        DeviceEvent::PortDown => AsyncEvent::DeviceFatal,
        DeviceEvent::Other => return,
    };
    adapter.shared.upcall.async_event(event);
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    #[test]
    fn events_of_a_shared_receive_queue_name_it() {
        let (mut srq, mut event) = (ibv_srq::default(), ibv_async_event::default());
        srq.srq_context = ptr::without_provenance_mut(7);
        event.element.srq = &raw mut srq;
        for (kind, expected) in [
            (IBV_EVENT_SRQ_ERR, DeviceEvent::SrqFailed(7)),
            (IBV_EVENT_SRQ_LIMIT_REACHED, DeviceEvent::SrqLow(7)),
        ] {
            event.event_type = kind;
            // SAFETY: an event of a queue of this frame.
            assert_eq!(unsafe { read(&event) }, expected);
        }
    }
}
