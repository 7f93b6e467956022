//! Work requests and completions: the header's structures and those of the RNIC.

use rnic::{Completion, RecvWr, RemoteRange, RnicError, SendOp, Sge, WcOpcode, WcStatus};
use rustix::io::Errno;
use verbs_dl::types::*;

use crate::fault::{Fault, errno_of};

const _: () = {
    assert!(size_of::<ibv_sge>() == size_of::<Sge>());
    assert!(std::mem::offset_of!(ibv_sge, length) == std::mem::offset_of!(Sge, len));
    assert!(std::mem::offset_of!(ibv_sge, lkey) == std::mem::offset_of!(Sge, lkey));
};

/// Returns the segments of a request.
///
/// # Safety
/// `list` points to `count` segments that are not written during `'a`.
unsafe fn segments<'a>(list: *const ibv_sge, count: libc::c_int) -> Result<&'a [Sge], Fault> {
    let count = usize::try_from(count).map_err(|_| Errno::INVAL)?;
    if count == 0 {
        return Ok(&[]);
    }
    if list.is_null() {
        return Err(Errno::INVAL);
    }
    // SAFETY: the caller guarantees the list, and both types have the same members.
    Ok(unsafe { std::slice::from_raw_parts(list.cast(), count) })
}

/// Calls `post` with a receive. The list of segments is not used after the return.
pub(crate) fn with_receive<T>(
    wr: &ibv_recv_wr,
    post: impl FnOnce(&RecvWr<'_>) -> Result<T, RnicError>,
) -> Result<T, Fault> {
    let request = RecvWr {
        wr_id: wr.wr_id,
        // SAFETY: the program passes a valid request, which is read during the call.
        sgl: unsafe { segments(wr.sg_list, wr.num_sge) }?,
        signalled: true,
    };
    post(&request).map_err(|error| errno_of(&error))
}

/// Returns the segments of a send.
pub(crate) fn send_segments(wr: &ibv_send_wr) -> Result<&[Sge], Fault> {
    // SAFETY: the program passes a valid request, which is read during the call.
    unsafe { segments(wr.sg_list, wr.num_sge) }
}

/// Returns the operation of a send with `len` bytes of local segments.
///
/// # Errors
/// `EOPNOTSUPP` for operations that the RNIC lacks.
pub(crate) fn operation(wr: &ibv_send_wr, len: u32) -> Result<SendOp, Fault> {
    let solicited = wr.send_flags & IBV_SEND_SOLICITED != 0;
    // SAFETY: every member of these unions is an integer, of which each pattern is a value; the
    // operation decides which one the program has written.
    let (rdma, atomic, number) = unsafe {
        let number = wr.__bindgen_anon_1.imm_data;
        (wr.wr.rdma, wr.wr.atomic, number)
    };
    let range = RemoteRange {
        addr: rdma.remote_addr,
        len,
        rkey: rdma.rkey,
    };
    let eight = RemoteRange {
        addr: atomic.remote_addr,
        len,
        rkey: atomic.rkey,
    };
    Ok(match wr.opcode {
        IBV_WR_SEND => SendOp::Send {
            solicited,
            invalidate: None,
        },
        IBV_WR_SEND_WITH_IMM => SendOp::SendImmediate {
            value: u32::from_be(number),
            solicited,
        },
        IBV_WR_LOCAL_INV => SendOp::LocalInvalidate(number),
        IBV_WR_SEND_WITH_INV => SendOp::Send {
            solicited,
            invalidate: Some(number),
        },
        IBV_WR_RDMA_WRITE => SendOp::Write(range),
        IBV_WR_RDMA_WRITE_WITH_IMM => SendOp::WriteImmediate {
            to: range,
            value: u32::from_be(number),
            solicited,
        },
        IBV_WR_RDMA_READ => SendOp::Read(range),
        IBV_WR_ATOMIC_FETCH_AND_ADD => SendOp::FetchAdd(eight, atomic.compare_add),
        IBV_WR_ATOMIC_CMP_AND_SWP => SendOp::CompareSwap {
            remote: eight,
            compare: atomic.compare_add,
            swap: atomic.swap,
        },
        _ => return Err(Errno::OPNOTSUPP),
    })
}

/// Returns a completion of the queue pair `number` as the program sees it.
pub(crate) fn completion(from: &Completion, number: u32) -> ibv_wc {
    let mut wc = ibv_wc {
        wr_id: from.wr_id,
        status: status(from.status),
        opcode: opcode(from.opcode),
        byte_len: from.byte_len,
        qp_num: number,
        ..ibv_wc::default()
    };
    if let Some(value) = from.immediate {
        wc.wc_flags = IBV_WC_WITH_IMM;
        wc.__bindgen_anon_1.imm_data = value.to_be();
    } else if let Some(key) = from.invalidated {
        wc.wc_flags = IBV_WC_WITH_INV;
        wc.__bindgen_anon_1.invalidated_rkey = key;
    }
    wc
}

fn status(status: WcStatus) -> ibv_wc_status {
    match status {
        WcStatus::Success => IBV_WC_SUCCESS,
        WcStatus::Flushed => IBV_WC_WR_FLUSH_ERR,
        WcStatus::LocalLength => IBV_WC_LOC_LEN_ERR,
        WcStatus::LocalQpOperation => IBV_WC_LOC_QP_OP_ERR,
        WcStatus::LocalProtection => IBV_WC_LOC_PROT_ERR,
        WcStatus::BadResponse => IBV_WC_BAD_RESP_ERR,
        WcStatus::RemoteAccess => IBV_WC_REM_ACCESS_ERR,
        WcStatus::RemoteInvalidRequest => IBV_WC_REM_INV_REQ_ERR,
        WcStatus::RemoteOperation => IBV_WC_REM_OP_ERR,
        WcStatus::Transport => IBV_WC_RETRY_EXC_ERR,
        WcStatus::ReceiverNotReady => IBV_WC_RNR_RETRY_EXC_ERR,
        WcStatus::BindFailed => IBV_WC_MW_BIND_ERR,
    }
}

fn opcode(opcode: WcOpcode) -> ibv_wc_opcode {
    match opcode {
        WcOpcode::Send => IBV_WC_SEND,
        WcOpcode::RdmaWrite | WcOpcode::RdmaWriteImmediate => IBV_WC_RDMA_WRITE,
        WcOpcode::RdmaRead => IBV_WC_RDMA_READ,
        WcOpcode::Recv | WcOpcode::RecvInvalidate | WcOpcode::RecvSendImmediate => IBV_WC_RECV,
        WcOpcode::RecvImmediate => IBV_WC_RECV_RDMA_WITH_IMM,
        WcOpcode::FetchAdd => IBV_WC_FETCH_ADD,
        WcOpcode::CompareSwap => IBV_WC_COMP_SWAP,
        WcOpcode::BindMw => IBV_WC_BIND_MW,
        WcOpcode::LocalInvalidate => IBV_WC_LOCAL_INV,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn immediate_data_has_the_byte_order_of_the_network() {
        let from = Completion {
            status: WcStatus::Success,
            opcode: WcOpcode::RecvImmediate,
            immediate: Some(0x0102_0304),
            ..Completion::EMPTY
        };
        let wc = completion(&from, 9);
        assert_eq!((wc.qp_num, wc.opcode), (9, IBV_WC_RECV_RDMA_WITH_IMM));
        // SAFETY: both members are integers.
        let bytes = unsafe { wc.__bindgen_anon_1.imm_data }.to_ne_bytes();
        assert_eq!(bytes, [1, 2, 3, 4]);
        let mut wr = ibv_send_wr {
            opcode: IBV_WR_RDMA_WRITE_WITH_IMM,
            ..ibv_send_wr::default()
        };
        wr.__bindgen_anon_1.imm_data = u32::from_ne_bytes(bytes);
        let sent = operation(&wr, 0);
        assert!(matches!(
            sent,
            Ok(SendOp::WriteImmediate {
                value: 0x0102_0304,
                ..
            })
        ));
    }

    #[test]
    fn operations_without_counterpart_are_not_supported() {
        for opcode in [IBV_WR_BIND_MW, IBV_WR_TSO, 77] {
            let wr = ibv_send_wr {
                opcode,
                ..ibv_send_wr::default()
            };
            assert_eq!(operation(&wr, 8).err(), Some(Errno::OPNOTSUPP), "{opcode}");
        }
    }

    #[test]
    fn a_negative_number_of_segments_is_invalid() {
        // SAFETY: no segment is read.
        let found = unsafe { segments(std::ptr::null(), -1) };
        assert_eq!(found, Err(Errno::INVAL));
        // SAFETY: as above.
        let found = unsafe { segments(std::ptr::null(), 1) };
        assert_eq!(found, Err(Errno::INVAL));
    }
}
