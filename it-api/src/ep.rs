//! Endpoints.

use std::sync::Mutex;

use dat_abi::*;
use host::locks::lock;

use crate::abi::*;
use crate::address::{self, SPIGOT};
use crate::asynchronous;
use crate::handle::{self, Kind, Object};
use crate::ia::{Ia, Limits};
use crate::pz;
use crate::queue;
use crate::srq::{Srq, count};
use crate::status::*;

const FLAG_REUSEADDR: u32 = 1;
const FLAG_SRQ: u32 = 2;

/// The value of a hard watermark that is off.
const WATERMARK_OFF: usize = usize::MAX;

/// An endpoint.
#[derive(Debug)]
pub(crate) struct Ep {
    pub(crate) pz: Handle,
    pub(crate) request_sevd: Handle,
    pub(crate) recv_sevd: Handle,
    pub(crate) connect_sevd: Handle,
    attr: Mutex<EpAttributes>,
}

impl Object for Ep {
    const KIND: Kind = Kind::Ep;
    const WRONG: Status = INVALID_EP;
}

/// Compares the attributes with the adapter, which names the one that is too large.
fn check(attr: &EpAttributes, limits: &Limits) -> Outcome {
    let wanted = [
        (attr.max_request_dtos, limits.dtos, RESOURCE_REQ_DTO),
        (attr.max_recv_dtos, limits.dtos, RESOURCE_RECV_DTO),
        (attr.max_send_segments, limits.segments, RESOURCE_SSEG),
        (attr.max_recv_segments, limits.segments, RESOURCE_RSEG),
        (
            attr.max_rdma_read_segments,
            limits.read_segments,
            RESOURCE_RRSEG,
        ),
        (
            attr.max_rdma_write_segments,
            limits.write_segments,
            RESOURCE_RWSEG,
        ),
        (attr.rdma_read_ird as usize, limits.ird, RESOURCE_IRD),
        (attr.rdma_read_ord as usize, limits.ord, RESOURCE_ORD),
    ];
    let over = wanted.iter().find(|(wanted, limit, _)| wanted > limit);
    over.map_or(Ok(()), |(_, _, status)| Err(*status))
}

fn to_dat(attr: &EpAttributes) -> Outcome<DatEpAttr> {
    let count = |number| count(number, INVALID_EP_ATTR);
    let mut dat = DatEpAttr::zeroed();
    dat.service_type = DAT_SERVICE_TYPE_RC;
    dat.max_message_size = DatSegLength::try_from(attr.max_dto_payload_size).unwrap_or(u32::MAX);
    dat.recv_completion_flags = DAT_COMPLETION_EVD_THRESHOLD_FLAG;
    dat.request_completion_flags = DAT_COMPLETION_EVD_THRESHOLD_FLAG;
    dat.max_recv_dtos = count(attr.max_recv_dtos)?;
    dat.max_request_dtos = count(attr.max_request_dtos)?;
    dat.max_recv_iov = count(attr.max_recv_segments)?;
    dat.max_request_iov = count(attr.max_send_segments)?;
    dat.max_rdma_read_in = count(attr.rdma_read_ird as usize)?;
    dat.max_rdma_read_out = count(attr.rdma_read_ord as usize)?;
    dat.max_rdma_read_iov = count(attr.max_rdma_read_segments)?;
    dat.max_rdma_write_iov = count(attr.max_rdma_write_segments)?;
    Ok(dat)
}

/// Sets the marks of an endpoint with a shared receive queue.
fn set_watermarks(dat: DatEpHandle, attr: &EpAttributes) -> Outcome {
    let mark = |mark, off| match mark == off {
        true => Ok(DAT_WATERMARK_INFINITE),
        false => count(mark, INVALID_WATERMARK),
    };
    let soft = mark(attr.soft_hi_watermark, 0)?;
    let hard = mark(attr.hard_hi_watermark, WATERMARK_OFF)?;
    call!(dat_ep_set_watermark(dat, soft, hard)).map_err(argument(INVALID_WATERMARK))
}

/// The DAT objects of an endpoint.
struct Parts {
    ia: DatIaHandle,
    pz: DatPzHandle,
    request: DatEvdHandle,
    recv: DatEvdHandle,
    connect: DatEvdHandle,
}

fn create(parts: &Parts, attr: &EpAttributes, srq: Option<Handle>) -> Outcome<DatEpHandle> {
    let dat_attr = to_dat(attr)?;
    let mut dat = DAT_HANDLE_NULL;
    let Some(srq) = srq else {
        call!(dat_ep_create(
            parts.ia,
            parts.pz,
            parts.recv,
            parts.request,
            parts.connect,
            &raw const dat_attr,
            &raw mut dat,
        ))
        .map_err(argument(INVALID_EP_ATTR))?;
        return Ok(dat);
    };
    call!(dat_ep_create_with_srq(
        parts.ia,
        parts.pz,
        parts.recv,
        parts.request,
        parts.connect,
        handle::slot::<Srq>(srq)?.dat(),
        &raw const dat_attr,
        &raw mut dat,
    ))
    .map_err(argument(INVALID_EP_ATTR))?;
    // Providers without watermarks refuse the call, so it is made for a program that wants one.
    if attr.soft_hi_watermark != 0 || attr.hard_hi_watermark != WATERMARK_OFF {
        set_watermarks(dat, attr).inspect_err(|_| {
            let _ = call!(dat_ep_free(dat));
        })?;
    }
    Ok(dat)
}

#[unsafe(no_mangle)]
extern "C" fn it_ep_rc_create(
    pz: Handle,
    request_sevd: Handle,
    recv_sevd: Handle,
    connect_sevd: Handle,
    flags: u32,
    attr: In<EpAttributes>,
    ep: Out<Handle>,
) -> Status {
    answer(|| {
        let (ia, dat_ia, dat_pz) = pz::with_adapter(pz)?;
        // Every port can be used again, with or without the flag.
        if flags & !(FLAG_REUSEADDR | FLAG_SRQ) != 0 {
            return Err(INVALID_FLAGS);
        }
        let mut attr = attr.read()?;
        ep.required()?;
        let srq = (flags & FLAG_SRQ != 0).then_some(attr.srq);
        if srq.is_none() {
            attr.srq = Handle::NULL;
        }
        let (_, adapter) = handle::find::<Ia>(ia)?;
        check(&attr, &adapter.limits)?;
        // Programs of IBM's library have one SEVD for requests and for connections.
        let connect_streams = [CM_MSG_STREAM, CM_REQ_STREAM];
        let parts = Parts {
            ia: dat_ia,
            pz: dat_pz,
            request: queue::sevd(request_sevd, ia, &[DTO_STREAM], INVALID_REQ_EVD)?,
            recv: queue::sevd(recv_sevd, ia, &[DTO_STREAM], INVALID_RECV_EVD)?,
            connect: queue::sevd(connect_sevd, ia, &connect_streams, INVALID_CONN_EVD)?,
        };
        let dat = create(&parts, &attr, srq)?;
        let object = Ep {
            pz,
            request_sevd,
            recv_sevd,
            connect_sevd,
            attr: Mutex::new(attr),
        };
        let handle = handle::insert(ia, dat, u64::from(srq.is_some()), object)?;
        queue::name(dat, handle)?;
        ep.write(handle);
        Ok(())
    })
}

/// Frees the endpoint. A socket that waits for the peer's request belongs to the program again.
#[unsafe(no_mangle)]
extern "C" fn it_ep_free(ep: Handle) -> Status {
    answer(|| {
        let slot = handle::slot::<Ep>(ep)?;
        asynchronous::abandon(slot.ia(), ep);
        call!(dat_ep_free(slot.dat()))?;
        handle::remove(ep);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn it_ep_reset(ep: Handle) -> Status {
    answer(|| {
        let slot = handle::slot::<Ep>(ep)?;
        call!(dat_ep_reset(slot.dat())).map_err(instead(INVALID_EP_STATE, CANNOT_RESET))
    })
}

/// DAT carries no data with the end of a connection.
#[unsafe(no_mangle)]
extern "C" fn it_ep_disconnect(ep: Handle, _data: In<u8>, data_len: usize) -> Status {
    answer(|| {
        let slot = handle::slot::<Ep>(ep)?;
        if data_len != 0 {
            return Err(INVALID_PDATA_LENGTH);
        }
        if asynchronous::abandon(slot.ia(), ep) {
            return Ok(());
        }
        call!(dat_ep_disconnect(slot.dat(), DAT_CLOSE_GRACEFUL_FLAG))
            .map_err(argument(INVALID_EP_STATE))
    })
}

/// `it_ep_state_rc_t` of a state of DAT.
fn state(state: DatEpState) -> EpState {
    match state {
        DAT_EP_STATE_UNCONNECTED | DAT_EP_STATE_UNCONFIGURED_UNCONNECTED => EP_UNCONNECTED,
        DAT_EP_STATE_RESERVED | DAT_EP_STATE_UNCONFIGURED_RESERVED => {
            EP_PASSIVE_WAIT_RDMA_TRANS_REQ
        }
        DAT_EP_STATE_ACTIVE_CONNECTION_PENDING => EP_ACTIVE1_CONNECTION_PENDING,
        DAT_EP_STATE_PASSIVE_CONNECTION_PENDING
        | DAT_EP_STATE_UNCONFIGURED_PASSIVE
        | DAT_EP_STATE_TENTATIVE_CONNECTION_PENDING
        | DAT_EP_STATE_UNCONFIGURED_TENTATIVE
        | DAT_EP_STATE_COMPLETION_PENDING => EP_PASSIVE_CONNECTION_PENDING,
        DAT_EP_STATE_CONNECTED
        | DAT_EP_STATE_CONNECTED_SINGLE_PATH
        | DAT_EP_STATE_CONNECTED_MULTI_PATH => EP_CONNECTED,
        _ => EP_NONOPERATIONAL,
    }
}

/// DAT's parameters of an endpoint.
pub(crate) fn query(dat: DatEpHandle) -> Outcome<DatEpParam> {
    // SAFETY: the structure has integers and pointers, of which zero is a value.
    let mut param: DatEpParam = unsafe { std::mem::zeroed() };
    call!(dat_ep_query(dat, DAT_EP_FIELD_ALL, &raw mut param))?;
    Ok(param)
}

/// The path of a connection.
pub(crate) fn path_of(param: &DatEpParam) -> Path {
    let [local, remote] = [param.local_ia_address_ptr, param.remote_ia_address_ptr]
        .map(|address| address::of_dat(address).map(|address| address.ip()));
    address::path(local, remote)
}

#[unsafe(no_mangle)]
extern "C" fn it_ep_query(ep: Handle, mask: u32, params: Out<EpParam>) -> Status {
    answer(|| {
        let (slot, object) = handle::find::<Ep>(ep)?;
        check_mask(mask, 0x0800_0000)?;
        params.required()?;
        let dat = query(slot.dat())?;
        let mut attr = *lock(&object.attr);
        attr.rdma_read_ird = dat.ep_attr.max_rdma_read_in.unsigned_abs();
        attr.rdma_read_ord = dat.ep_attr.max_rdma_read_out.unsigned_abs();
        params.write(EpParam {
            ia: slot.ia(),
            spigot: SPIGOT,
            state: state(dat.ep_state),
            service_type: IT_RC_SERVICE,
            dst_path: path_of(&dat),
            pz: object.pz,
            request_sevd: object.request_sevd,
            recv_sevd: object.recv_sevd,
            connect_sevd: object.connect_sevd,
            attr,
        });
        Ok(())
    })
}

/// An attribute that can be modified: its bit, DAT's field, and its copy.
type Modifiable = (u32, DatEpParamMask, fn(&mut EpAttributes, &EpAttributes));

const MODIFIABLE: [Modifiable; 9] = [
    (
        0x1000,
        DAT_EP_FIELD_EP_ATTR_MAX_RDMA_READ_IOV,
        |to, from| {
            to.max_rdma_read_segments = from.max_rdma_read_segments;
        },
    ),
    (
        0x2000,
        DAT_EP_FIELD_EP_ATTR_MAX_RDMA_WRITE_IOV,
        |to, from| {
            to.max_rdma_write_segments = from.max_rdma_write_segments;
        },
    ),
    (0x4000, DAT_EP_FIELD_EP_ATTR_MAX_RDMA_READ_IN, |to, from| {
        to.rdma_read_ird = from.rdma_read_ird;
    }),
    (
        0x8000,
        DAT_EP_FIELD_EP_ATTR_MAX_RDMA_READ_OUT,
        |to, from| {
            to.rdma_read_ord = from.rdma_read_ord;
        },
    ),
    (
        0x4_0000,
        DAT_EP_FIELD_EP_ATTR_MAX_MESSAGE_SIZE,
        |to, from| {
            to.max_dto_payload_size = from.max_dto_payload_size;
        },
    ),
    (
        0x8_0000,
        DAT_EP_FIELD_EP_ATTR_MAX_REQUEST_DTOS,
        |to, from| {
            to.max_request_dtos = from.max_request_dtos;
        },
    ),
    (0x10_0000, DAT_EP_FIELD_EP_ATTR_MAX_RECV_DTOS, |to, from| {
        to.max_recv_dtos = from.max_recv_dtos;
    }),
    (
        0x20_0000,
        DAT_EP_FIELD_EP_ATTR_MAX_REQUEST_IOV,
        |to, from| {
            to.max_send_segments = from.max_send_segments;
        },
    ),
    (0x40_0000, DAT_EP_FIELD_EP_ATTR_MAX_RECV_IOV, |to, from| {
        to.max_recv_segments = from.max_recv_segments;
    }),
];

const SOFT_HI_WATERMARK: u32 = 0x100_0000;
const HARD_HI_WATERMARK: u32 = 0x200_0000;

#[unsafe(no_mangle)]
extern "C" fn it_ep_modify(ep: Handle, mask: u32, attr: In<EpAttributes>) -> Status {
    answer(|| {
        let (slot, object) = handle::find::<Ep>(ep)?;
        let watermarks = SOFT_HI_WATERMARK | HARD_HI_WATERMARK;
        let known = MODIFIABLE
            .iter()
            .fold(watermarks, |all, (bit, ..)| all | bit);
        if mask == 0 || mask & !known != 0 {
            return Err(INVALID_MASK);
        }
        let wanted = attr.read()?;
        let mut attr = lock(&object.attr);
        let mut changed = *attr;
        let mut fields = 0;
        for (bit, field, copy) in MODIFIABLE {
            if mask & bit != 0 {
                fields |= field;
                copy(&mut changed, &wanted);
            }
        }
        check(&changed, &handle::find::<Ia>(slot.ia())?.1.limits)?;
        if fields != 0 {
            // SAFETY: the structure has integers and pointers, of which zero is a value.
            let mut param: DatEpParam = unsafe { std::mem::zeroed() };
            param.ep_attr = to_dat(&changed)?;
            call!(dat_ep_modify(slot.dat(), fields, &raw const param))
                .map_err(argument(INVALID_EP_ATTR))
                .map_err(instead(INVALID_EVD_STATE, INVALID_EP_STATE))?;
        }
        if mask & SOFT_HI_WATERMARK != 0 {
            changed.soft_hi_watermark = wanted.soft_hi_watermark;
        }
        if mask & HARD_HI_WATERMARK != 0 {
            changed.hard_hi_watermark = wanted.hard_hi_watermark;
        }
        if mask & watermarks != 0 {
            set_watermarks(slot.dat(), &changed)?;
        }
        *attr = changed;
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_of_dat_has_one_of_the_header() {
        let states: Vec<EpState> = (0..16).map(state).collect();
        assert_eq!(states, [0, 0, 6, 6, 3, 3, 1, 3, 3, 4, 5, 5, 3, 4, 4, 5]);
    }
}
