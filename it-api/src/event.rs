//! Taking an event of DAT and writing it as an `it_event_t`.

use dat_abi::*;

use crate::abi::*;
use crate::address::{self, SPIGOT};
use crate::cm;
use crate::ep;
use crate::handle::{self, Kind, Slot};
use crate::queue::{self, Evd, Made};
use crate::rmr;
use crate::status::*;

/// Takes the oldest event of an SEVD.
pub(crate) fn take(evd: Handle, slot: &Slot, event: Out<Event>) -> Outcome {
    loop {
        let mut dat = DatEvent::zeroed();
        call!(dat_evd_dequeue(slot.dat(), &raw mut dat))?;
        // An event that cannot be delivered, such as a request for which there is no memory, is
        // dropped.
        if deliver(evd, slot, &dat, event) {
            return Ok(());
        }
    }
}

/// Writes an event. Returns false if there is nothing to deliver.
pub(crate) fn deliver(evd: Handle, slot: &Slot, dat: &DatEvent, event: Out<Event>) -> bool {
    match dat.event_number {
        DAT_DTO_COMPLETION_EVENT | DAT_IB_DTO_EVENT => {
            // SAFETY: these events have this member.
            let data = unsafe { dat.event_data.dto_completion_event_data };
            event.as_member().write(completion(evd, slot, &data));
        }
        DAT_RMR_BIND_COMPLETION_EVENT => {
            // SAFETY: this event has this member.
            let data = unsafe { dat.event_data.rmr_completion_event_data };
            event.as_member().write(link(evd, &data));
        }
        DAT_CONNECTION_REQUEST_EVENT => {
            // SAFETY: this event has this member.
            let data = unsafe { dat.event_data.cr_arrival_event_data };
            match cm::request_event(evd, slot.ia(), &data) {
                Ok(request) => event.as_member().write(request),
                Err(status) => {
                    tracing::warn!(?status, "a connection request was rejected");
                    let _ = call!(dat_cr_reject(data.cr_handle, 0, std::ptr::null()));
                    return false;
                }
            }
        }
        DAT_SOFTWARE_EVENT => {
            // SAFETY: this event has this member.
            let data = unsafe { dat.event_data.software_event_data };
            return software(evd, slot, data.pointer, event);
        }
        number => {
            let Some(kind) = connection_kind(number) else {
                return false;
            };
            // SAFETY: connection events have this member.
            let data = unsafe { dat.event_data.connect_event_data };
            event.as_member().write(connection(evd, kind, &data));
        }
    }
    true
}

/// `it_dto_status_t` of a status of DAT. The numbers differ.
fn dto_status(status: DatDtoCompletionStatus) -> u32 {
    match status {
        DAT_DTO_SUCCESS => 0,
        DAT_DTO_ERR_LOCAL_LENGTH => 1,
        DAT_DTO_ERR_LOCAL_EP => 2,
        DAT_DTO_ERR_LOCAL_PROTECTION => 3,
        DAT_DTO_ERR_FLUSHED => 4,
        DAT_RMR_OPERATION_FAILED => 5,
        DAT_DTO_ERR_BAD_RESPONSE => 6,
        DAT_DTO_ERR_REMOTE_ACCESS => 7,
        DAT_DTO_ERR_REMOTE_RESPONDER => 8,
        DAT_DTO_ERR_TRANSPORT => 9,
        DAT_DTO_ERR_RECEIVER_NOT_READY => 10,
        DAT_DTO_ERR_PARTIAL_PACKET => 11,
        _ => 12,
    }
}

fn operation(operation: DatDtos) -> EventNumber {
    match operation {
        DAT_DTO_SEND => SEND_CMPL,
        DAT_DTO_RDMA_WRITE | DAT_IB_DTO_RDMA_WRITE_IMMED => RDMA_WRITE_CMPL,
        DAT_DTO_RDMA_READ => RDMA_READ_CMPL,
        DAT_DTO_BIND_MW => RMR_LINK_CMPL,
        DAT_IB_DTO_FETCH_ADD => FETCH_ADD_CMPL,
        DAT_IB_DTO_CMP_SWAP => CMP_SWAP_CMPL,
        _ => RC_RECV_CMPL,
    }
}

fn completion(evd: Handle, slot: &Slot, data: &DatDtoCompletionEventData) -> DtoEvent {
    let mut unlinked = Handle::NULL;
    let is_invalidate = data.operation == DAT_DTO_RECEIVE_WITH_INVALIDATE;
    if is_invalidate && data.status == DAT_DTO_SUCCESS {
        unlinked = rmr::of_context(slot.ia(), data.rmr_context);
        rmr::on_unlinked(unlinked);
    }
    DtoEvent {
        number: operation(data.operation),
        evd,
        ep: queue::named(data.ep_handle),
        cookie: data.user_cookie.to_u64(),
        status: dto_status(data.status),
        transferred_length: data.transfered_length,
        unlinked,
    }
}

fn link(evd: Handle, data: &DatRmrBindCompletionEventData) -> DtoEvent {
    let rmr = queue::named(data.rmr_handle);
    if data.status != DAT_RMR_BIND_SUCCESS {
        rmr::on_unlinked(rmr);
    }
    let ep = handle::of_kind(rmr, Kind::Rmr).map_or(0, Slot::key);
    DtoEvent {
        number: RMR_LINK_CMPL,
        evd,
        ep: Handle(ep),
        cookie: data.user_cookie.to_u64(),
        status: dto_status(data.status),
        transferred_length: 0,
        unlinked: Handle::NULL,
    }
}

/// The number of a connection event, and the reason if the request did not reach the peer.
fn connection_kind(number: DatEventNumber) -> Option<(EventNumber, RejectCode)> {
    Some(match number {
        DAT_CONNECTION_EVENT_ESTABLISHED => (CONN_ESTABLISHED, REJ_OTHER),
        DAT_CONNECTION_EVENT_PEER_REJECTED => (CONN_PEER_REJECT, REJ_OTHER),
        DAT_CONNECTION_EVENT_NON_PEER_REJECTED | DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR => {
            (CONN_NONPEER_REJECT, REJ_OTHER)
        }
        DAT_CONNECTION_EVENT_TIMED_OUT => (CONN_NONPEER_REJECT, REJ_TIMEOUT),
        DAT_CONNECTION_EVENT_UNREACHABLE => (CONN_NONPEER_REJECT, REJ_BAD_PATH),
        DAT_CONNECTION_EVENT_DISCONNECTED => (CONN_DISCONNECT, REJ_OTHER),
        DAT_CONNECTION_EVENT_BROKEN => (CONN_BROKEN, REJ_OTHER),
        _ => return None,
    })
}

fn connection(
    evd: Handle,
    (number, reason): (EventNumber, RejectCode),
    data: &DatConnectionEventData,
) -> ConnectionEvent {
    let param = match number {
        CONN_ESTABLISHED => ep::query(data.ep_handle).ok(),
        _ => None,
    };
    let (ird, ord, path) = match &param {
        Some(param) => (
            param.ep_attr.max_rdma_read_in.unsigned_abs(),
            param.ep_attr.max_rdma_read_out.unsigned_abs(),
            ep::path_of(param),
        ),
        None => (0, 0, address::path(None, None)),
    };
    ConnectionEvent {
        number,
        evd,
        private_data: cm::copied(data.private_data, data.private_data_size),
        has_private_data: Boolean::from(data.private_data_size > 0),
        id: Handle::NULL,
        ep: queue::named(data.ep_handle),
        rdma_read_ird: ird,
        rdma_read_ord: ord,
        path,
        reason,
    }
}

/// Writes the event of the program, or the one that the library has made.
fn software(evd: Handle, slot: &Slot, data: DatPvoid, event: Out<Event>) -> bool {
    if slot.key() == u64::from(SOFTWARE_STREAM) {
        event.as_member().write(WordEvent {
            number: SOFTWARE_EVENT,
            evd,
            word: data.expose_provenance() as u64,
        });
        return true;
    }
    let made = handle::find::<Evd>(evd).map(|(_, object)| object.take_made());
    match made {
        Ok(Some(Made::Affiliated { number, cause })) => event.as_member().write(WordEvent {
            number,
            evd,
            word: cause.0,
        }),
        Ok(Some(Made::Unaffiliated { number })) => event.as_member().write(UnaffiliatedEvent {
            number,
            evd,
            ia: slot.ia(),
            spigot: SPIGOT,
        }),
        Ok(Some(Made::NotConverted { ep })) => {
            let data = DatConnectionEventData {
                ep_handle: handle::of_kind(ep, Kind::Ep).map_or(DAT_HANDLE_NULL, Slot::dat),
                private_data_size: 0,
                private_data: std::ptr::null_mut(),
            };
            let kind = (CONN_NONPEER_REJECT, REJ_OTHER);
            event.as_member().write(connection(evd, kind, &data));
        }
        Ok(None) | Err(_) => return false,
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_of_dat_has_its_number_in_the_header() {
        let statuses: Vec<u32> = (0..=13).map(dto_status).collect();
        assert_eq!(statuses, [0, 4, 1, 2, 3, 6, 7, 8, 9, 10, 11, 5, 12, 12]);
    }

    #[test]
    fn every_connection_event_of_dat_is_translated() {
        let numbers = 0x4001..=0x4008;
        let events: Vec<_> = numbers.filter_map(connection_kind).collect();
        let wanted = [
            (0x2002, 0),
            (0x2004, 0),
            (0x2005, 0),
            (0x2005, 0),
            (0x2003, 0),
            (0x2006, 0),
            (0x2005, 1),
            (0x2005, 2),
        ];
        assert_eq!(events, wanted);
        assert_eq!(connection_kind(0x4009), None);
    }
}
