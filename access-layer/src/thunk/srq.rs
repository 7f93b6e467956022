//! Shared receive queue.

use dat_abi::*;

use super::guard::{Out, known_bits, pin, pin_ia, read, segments};
use crate::ep::Ep;
use crate::error::DatResult;
use crate::handle::Pinned;
use crate::pz::Pz;
use crate::rnic::Rnic;
use crate::srq::Srq;

fn pin_srq<R: Rnic>(srq: DatSrqHandle) -> DatResult<Pinned<Srq<R>>> {
    pin(srq, DAT_INVALID_HANDLE_SRQ)
}

pub(crate) unsafe fn srq_create<R: Rnic>(
    ia: DatIaHandle,
    pz: DatPzHandle,
    attr: *mut DatSrqAttr,
    srq: *mut DatSrqHandle,
) -> DatResult {
    let ia = pin_ia::<R>(ia)?;
    let pz = pin::<Pz<R>>(pz, DAT_INVALID_HANDLE_PZ)?;
    // SAFETY: by the contract of all thunks.
    let attr = unsafe { read(attr, 3) }?;
    let out = Out::required(srq, 4)?;
    out.write(Srq::create(&ia.to_arc(), &pz, &attr)?.as_dat());
    Ok(())
}

pub(crate) unsafe fn srq_free<R: Rnic>(srq: DatSrqHandle) -> DatResult {
    Srq::free(&pin_srq::<R>(srq)?)
}

pub(crate) unsafe fn srq_post_recv<R: Rnic>(
    srq: DatSrqHandle,
    num_segments: DatCount,
    local_iov: *mut DatLmrTriplet,
    cookie: DatDtoCookie,
) -> DatResult {
    let srq = pin_srq::<R>(srq)?;
    // SAFETY: by the contract of all thunks; the list is not used after the call.
    let sgl = unsafe { segments(num_segments, local_iov) }?;
    srq.post_recv(&sgl, cookie.to_u64())
}

pub(crate) unsafe fn srq_query<R: Rnic>(
    srq: DatSrqHandle,
    mask: DatSrqParamMask,
    param: *mut DatSrqParam,
) -> DatResult {
    let srq = pin_srq::<R>(srq)?;
    known_bits(mask, DAT_SRQ_FIELD_ALL, 2)?;
    Out::required(param, 3)?.write(srq.query(Ep::outstanding_of(&srq)));
    Ok(())
}

pub(crate) unsafe fn srq_resize<R: Rnic>(srq: DatSrqHandle, max_recv_dtos: DatCount) -> DatResult {
    pin_srq::<R>(srq)?.resize(max_recv_dtos)
}

pub(crate) unsafe fn srq_set_lw<R: Rnic>(srq: DatSrqHandle, low_watermark: DatCount) -> DatResult {
    pin_srq::<R>(srq)?.set_low_watermark(low_watermark)
}
