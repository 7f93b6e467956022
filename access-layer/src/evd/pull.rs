//! Conversion of a CQ entry to a `DAT_EVENT`.
//!
//! Only binds need a table. For all other operations the queue pair's token is the EP's handle, and
//! the work request id is the consumer's cookie.

use dat_abi::*;

use crate::handle::Handle;
use crate::ia::Binds;
use crate::rnic::{Completion, WcOpcode, WcStatus};

/// Returns the event of a completion that was taken from the CQ of `evd`.
pub(super) fn event_of(completion: &Completion, evd: Handle, binds: &Binds) -> DatEvent {
    let mut event = DatEvent::zeroed();
    event.evd_handle = evd.as_dat();
    match completion.opcode {
        WcOpcode::BindMw => fill_bind(&mut event, completion, binds),
        opcode => fill_dto(&mut event, completion, opcode),
    }
    event
}

fn fill_bind(event: &mut DatEvent, completion: &Completion, binds: &Binds) {
    let done = binds.finish(completion.wr_id);
    event.event_number = DAT_RMR_BIND_COMPLETION_EVENT;
    event.event_data.rmr_completion_event_data = DatRmrBindCompletionEventData {
        rmr_handle: done.rmr,
        user_cookie: DatContext::from_u64(done.cookie),
        status: status_of(completion.status),
    };
}

fn fill_dto(event: &mut DatEvent, completion: &Completion, opcode: WcOpcode) {
    let extension = extension_of(opcode);
    event.event_number = if extension.is_some() {
        DAT_IB_DTO_EVENT
    } else {
        DAT_DTO_COMPLETION_EVENT
    };
    let operation = match (opcode, completion.invalidated) {
        (WcOpcode::Recv, Some(_)) => DAT_DTO_RECEIVE_WITH_INVALIDATE,
        _ => operation_of(opcode),
    };
    event.event_data.dto_completion_event_data = DatDtoCompletionEventData {
        ep_handle: Handle::from_token(completion.qp.0).map_or(DAT_HANDLE_NULL, Handle::as_dat),
        user_cookie: DatContext::from_u64(completion.wr_id),
        status: status_of(completion.status),
        transfered_length: completion.byte_len,
        operation,
        rmr_context: completion.invalidated.unwrap_or(0),
    };
    if let Some(kind) = extension {
        // Words of DAT_IB_EXTENSION_EVENT_DATA: type and status, then the immediate data.
        let status = u64::from(status_of(completion.status));
        event.event_extension_data[0] = u64::from(kind) | status << 32;
        event.event_extension_data[1] = u64::from(completion.immediate.unwrap_or(0));
    }
}

fn operation_of(opcode: WcOpcode) -> DatDtos {
    match opcode {
        WcOpcode::Send => DAT_DTO_SEND,
        WcOpcode::RdmaWrite => DAT_DTO_RDMA_WRITE,
        WcOpcode::RdmaRead => DAT_DTO_RDMA_READ,
        WcOpcode::Recv => DAT_DTO_RECEIVE,
        WcOpcode::RecvInvalidate => DAT_DTO_RECEIVE_WITH_INVALIDATE,
        WcOpcode::RecvImmediate => DAT_IB_DTO_RECV_IMMED,
        WcOpcode::RecvSendImmediate => DAT_IB_DTO_RECV_MSG_IMMED,
        WcOpcode::RdmaWriteImmediate => DAT_IB_DTO_RDMA_WRITE_IMMED,
        WcOpcode::FetchAdd => DAT_IB_DTO_FETCH_ADD,
        WcOpcode::CompareSwap => DAT_IB_DTO_CMP_SWAP,
        // The access layer posts no local invalidation; an unbind is a bind.
        WcOpcode::BindMw | WcOpcode::LocalInvalidate => DAT_DTO_BIND_MW,
    }
}

/// Returns the type of the extension data, for the operations that have such data.
fn extension_of(opcode: WcOpcode) -> Option<DatIbExtType> {
    match opcode {
        WcOpcode::RecvImmediate => Some(DAT_IB_RDMA_WRITE_IMMED_DATA),
        WcOpcode::RecvSendImmediate => Some(DAT_IB_RECV_IMMED_DATA),
        WcOpcode::RdmaWriteImmediate => Some(DAT_IB_RDMA_WRITE_IMMED),
        WcOpcode::FetchAdd => Some(DAT_IB_FETCH_AND_ADD),
        WcOpcode::CompareSwap => Some(DAT_IB_CMP_AND_SWAP),
        _ => None,
    }
}

fn status_of(status: WcStatus) -> DatDtoCompletionStatus {
    match status {
        WcStatus::Success => DAT_DTO_SUCCESS,
        WcStatus::Flushed => DAT_DTO_ERR_FLUSHED,
        WcStatus::LocalLength => DAT_DTO_ERR_LOCAL_LENGTH,
        WcStatus::LocalQpOperation => DAT_DTO_ERR_LOCAL_EP,
        WcStatus::LocalProtection => DAT_DTO_ERR_LOCAL_PROTECTION,
        WcStatus::BadResponse => DAT_DTO_ERR_BAD_RESPONSE,
        WcStatus::RemoteAccess => DAT_DTO_ERR_REMOTE_ACCESS,
        WcStatus::RemoteInvalidRequest | WcStatus::RemoteOperation => DAT_DTO_ERR_REMOTE_RESPONDER,
        WcStatus::Transport => DAT_DTO_ERR_TRANSPORT,
        WcStatus::ReceiverNotReady => DAT_DTO_ERR_RECEIVER_NOT_READY,
        WcStatus::BindFailed => DAT_RMR_OPERATION_FAILED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn immediate_data_of_writes_and_messages_are_distinguished() {
        for (opcode, operation, kind) in [
            (
                WcOpcode::RecvImmediate,
                DAT_IB_DTO_RECV_IMMED,
                DAT_IB_RDMA_WRITE_IMMED_DATA,
            ),
            (
                WcOpcode::RecvSendImmediate,
                DAT_IB_DTO_RECV_MSG_IMMED,
                DAT_IB_RECV_IMMED_DATA,
            ),
        ] {
            let mut event = DatEvent::zeroed();
            let completion = Completion {
                opcode,
                status: WcStatus::Success,
                immediate: Some(0x7777),
                ..Completion::EMPTY
            };
            fill_dto(&mut event, &completion, opcode);
            assert_eq!(event.event_number, DAT_IB_DTO_EVENT);
            // SAFETY: the event number selects this member.
            let dto = unsafe { event.event_data.dto_completion_event_data };
            assert_eq!(dto.operation, operation);
            assert_eq!(event.event_extension_data[..2], [u64::from(kind), 0x7777]);
        }
    }
}
