//! Local memory region.

use dat_abi::*;

use super::guard::{Out, known_bits, pin, pin_ia};
use crate::error::{DatError, DatResult};
use crate::lmr::{Lmr, LmrSpec};
use crate::pz::Pz;
use crate::rnic::Rnic;

pub(crate) unsafe fn lmr_create<R: Rnic>(
    ia: DatIaHandle,
    mem_type: DatMemType,
    region: DatRegionDescription,
    length: DatVlen,
    pz: DatPzHandle,
    privileges: DatMemPrivFlags,
    va_type: DatVaType,
    lmr: *mut DatLmrHandle,
    lmr_context: *mut DatLmrContext,
    rmr_context: *mut DatRmrContext,
    registered_size: *mut DatVlen,
    registered_address: *mut DatVaddr,
) -> DatResult {
    let ia = pin_ia::<R>(ia)?;
    let pz = pin::<Pz<R>>(pz, DAT_INVALID_HANDLE_PZ)?;
    // Argument 7 in the numbering of all providers, which is that of DAT 1.
    let out = Out::required(lmr, 7)?;
    let spec = LmrSpec {
        mem_type,
        region,
        len: length,
        privileges,
        va_type,
    };
    let lmr = Lmr::create(&ia.to_arc(), &pz, spec)?;
    let (keys, (address, size)) = (lmr.keys(), lmr.registered());
    out.write(lmr.handle().as_dat());
    Out::optional(lmr_context).write(keys.lkey);
    Out::optional(rmr_context).write(keys.rkey);
    Out::optional(registered_size).write(size);
    Out::optional(registered_address).write(address);
    Ok(())
}

pub(crate) unsafe fn lmr_query<R: Rnic>(
    lmr: DatLmrHandle,
    mask: DatLmrParamMask,
    param: *mut DatLmrParam,
) -> DatResult {
    let lmr = pin::<Lmr<R>>(lmr, DAT_INVALID_HANDLE_LMR)?;
    known_bits(mask, DAT_LMR_FIELD_ALL, 2)?;
    Out::required(param, 3)?.write(lmr.query());
    Ok(())
}

pub(crate) unsafe fn lmr_free<R: Rnic>(lmr: DatLmrHandle) -> DatResult {
    Lmr::free(pin::<Lmr<R>>(lmr, DAT_INVALID_HANDLE_LMR)?)
}

pub(crate) unsafe fn lmr_sync_rdma_read<R: Rnic>(
    ia: DatIaHandle,
    segments: *const DatLmrTriplet,
    num_segments: DatVlen,
) -> DatResult {
    sync::<R>(ia, segments, num_segments)
}

pub(crate) unsafe fn lmr_sync_rdma_write<R: Rnic>(
    ia: DatIaHandle,
    segments: *const DatLmrTriplet,
    num_segments: DatVlen,
) -> DatResult {
    sync::<R>(ia, segments, num_segments)
}

/// Checks only that the segments are present. Memory is coherent on every machine that this library
/// supports.
fn sync<R: Rnic>(
    ia: DatIaHandle,
    segments: *const DatLmrTriplet,
    num_segments: DatVlen,
) -> DatResult {
    pin_ia::<R>(ia)?;
    if num_segments == 0 {
        return Ok(());
    }
    if segments.is_null() {
        return Err(DatError::invalid_arg(2));
    }
    let most = isize::MAX as usize / size_of::<DatLmrTriplet>();
    if usize::try_from(num_segments).map_or(true, |count| count > most) {
        return Err(DatError::invalid_arg(3));
    }
    Ok(())
}
