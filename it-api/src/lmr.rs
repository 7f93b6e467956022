//! Local memory regions.

use std::ffi::c_char;
use std::sync::Mutex;

use dat_abi::*;
use host::locks::lock;

use crate::abi::*;
use crate::handle::{self, Kind, Object};
use crate::ia::Ia;
use crate::pz;
use crate::status::*;

const PRIV_ALL: u32 = 0x1F;
const FLAG_SHARED: u32 = 2;
const FLAGS: u32 = 0xF;

/// A region and its parameters.
#[derive(Debug)]
pub(crate) struct Lmr(Mutex<LmrParam>);

impl Object for Lmr {
    const KIND: Kind = Kind::Lmr;
    const WRONG: Status = INVALID_LMR;
}

/// `it_mem_priv_t` in DAT.
pub(crate) fn privileges(privileges: u32) -> Outcome<DatMemPrivFlags> {
    const TABLE: [(u32, DatMemPrivFlags); 5] = [
        (1, DAT_MEM_PRIV_LOCAL_READ_FLAG),
        (2, DAT_MEM_PRIV_LOCAL_WRITE_FLAG),
        (4, DAT_MEM_PRIV_REMOTE_READ_FLAG),
        (8, DAT_MEM_PRIV_REMOTE_WRITE_FLAG),
        (16, DAT_IB_MEM_PRIV_REMOTE_ATOMIC),
    ];
    if privileges & !PRIV_ALL != 0 {
        return Err(INVALID_PRIVS);
    }
    let granted = TABLE.iter().filter(|(bit, _)| privileges & bit != 0);
    Ok(granted.fold(DAT_MEM_PRIV_NONE_FLAG, |all, (_, flag)| all | flag))
}

/// `it_addr_mode_t` in DAT.
pub(crate) fn address_mode(mode: u32) -> Outcome<DatVaType> {
    match mode {
        0 => Ok(DAT_VA_TYPE_VA),
        1 => Ok(DAT_VA_TYPE_ZB),
        _ => Err(INVALID_ADDR_MODE),
    }
}

/// The context by which local segments name the region.
pub(crate) fn context(lmr: Handle) -> Outcome<DatLmrContext> {
    Ok(handle::slot::<Lmr>(lmr)?.key() as DatLmrContext)
}

/// Registers the memory that `param` describes, and fills the members that the adapter decides.
/// Returns DAT's region and its local context.
fn register(param: &mut LmrParam) -> Outcome<(DatLmrHandle, DatLmrContext)> {
    let (ia, dat_ia, dat_pz) = pz::with_adapter(param.pz)?;
    param.ia = ia;
    let granted = privileges(param.privileges)?;
    let mode = address_mode(param.address_mode)?;
    let mut cookie = [0; DAT_LMR_COOKIE_SIZE];
    let mut region = DatRegionDescription::zeroed();
    let memory = std::ptr::with_exposed_provenance_mut(param.address as usize);
    let kind = match param.flags & FLAG_SHARED {
        0 => {
            region.for_va = memory;
            DAT_MEM_TYPE_VIRTUAL
        }
        _ => {
            for (place, byte) in cookie.iter_mut().zip(param.shared_id.to_ne_bytes()) {
                *place = c_char::from_ne_bytes([byte]);
            }
            region.for_shared_memory = DatSharedMemory {
                virtual_address: memory,
                shared_memory_id: &raw mut cookie,
            };
            DAT_MEM_TYPE_SHARED_VIRTUAL
        }
    };
    let mut dat = DAT_HANDLE_NULL;
    let (mut local, mut remote) = (0, 0);
    call!(dat_lmr_create(
        dat_ia,
        kind,
        region,
        param.length,
        dat_pz,
        granted,
        mode,
        &raw mut dat,
        &raw mut local,
        &raw mut remote,
        &raw mut param.actual_length,
        &raw mut param.actual_address,
    ))
    .map_err(argument(INVALID_ADDRESS))?;
    param.rmr_context = remote.into();
    Ok((dat, local))
}

/// The arguments that all versions of `it_lmr_create` have.
struct Wanted {
    pz: Handle,
    address: u64,
    length: u64,
    address_mode: u32,
    privileges: u32,
    flags: u32,
    shared_id: u32,
}

fn create(wanted: &Wanted, lmr: Out<Handle>, rmr_context: Out<u64>) -> Outcome {
    lmr.required()?;
    if wanted.flags & !FLAGS != 0 {
        return Err(INVALID_FLAGS);
    }
    let mut param = LmrParam {
        ia: Handle::NULL,
        pz: wanted.pz,
        address: wanted.address,
        length: wanted.length,
        privileges: wanted.privileges,
        flags: wanted.flags,
        shared_id: wanted.shared_id,
        rmr_context: 0,
        actual_address: 0,
        actual_length: 0,
        address_mode: wanted.address_mode,
        is_linked: 1,
        iobl_elements: 0,
        iobl_type: 0,
    };
    let (dat, local) = register(&mut param)?;
    let handle = handle::insert(param.ia, dat, local.into(), Lmr(Mutex::new(param)));
    lmr.write(handle.inspect_err(|_| {
        let _ = call!(dat_lmr_free(dat));
    })?);
    rmr_context.write(param.rmr_context);
    Ok(())
}

#[unsafe(no_mangle)]
extern "C" fn it_lmr_create10(
    pz: Handle,
    address: u64,
    length: u64,
    privileges: u32,
    flags: u32,
    shared_id: u32,
    lmr: Out<Handle>,
    rmr_context: Out<u64>,
) -> Status {
    it_lmr_create20(
        pz,
        address,
        length,
        0,
        privileges,
        flags,
        shared_id,
        lmr,
        rmr_context,
    )
}

#[unsafe(no_mangle)]
extern "C" fn it_lmr_create20(
    pz: Handle,
    address: u64,
    length: u64,
    address_mode: u32,
    privileges: u32,
    flags: u32,
    shared_id: u32,
    lmr: Out<Handle>,
    rmr_context: Out<u64>,
) -> Status {
    let wanted = Wanted {
        pz,
        address,
        length,
        address_mode,
        privileges,
        flags,
        shared_id,
    };
    answer(|| create(&wanted, lmr, rmr_context))
}

#[unsafe(no_mangle)]
extern "C" fn it_lmr_create21(
    pz: Handle,
    address: u64,
    io_buffers: In<u64>,
    length: u64,
    address_mode: u32,
    privileges: u32,
    flags: u32,
    shared_id: u32,
    lmr: Out<Handle>,
    rmr_context: Out<u64>,
) -> Status {
    // Lists of I/O buffers are for privileged programs.
    if !io_buffers.is_null() {
        return PRIV_OPS_UNAVAILABLE;
    }
    it_lmr_create20(
        pz,
        address,
        length,
        address_mode,
        privileges,
        flags,
        shared_id,
        lmr,
        rmr_context,
    )
}

#[unsafe(no_mangle)]
extern "C" fn it_lmr_free(lmr: Handle) -> Status {
    answer(|| {
        let slot = handle::slot::<Lmr>(lmr)?;
        call!(dat_lmr_free(slot.dat())).map_err(instead(INVALID_EVD_STATE, LMR_BUSY))?;
        handle::remove(lmr);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn it_lmr_query(lmr: Handle, mask: u32, params: Out<LmrParam>) -> Status {
    answer(|| {
        let (_, object) = handle::find::<Lmr>(lmr)?;
        check_mask(mask, 0x4000)?;
        params.required()?.write(*lock(&object.0));
        Ok(())
    })
}

/// Changes zone and privileges. DAT cannot change a region, so the memory is registered again; the
/// region gets another RMR context.
#[unsafe(no_mangle)]
extern "C" fn it_lmr_modify(lmr: Handle, mask: u32, params: In<LmrParam>) -> Status {
    const PZ: u32 = 0x4;
    const PRIVILEGES: u32 = 0x20;
    answer(|| {
        let (slot, object) = handle::find::<Lmr>(lmr)?;
        if mask == 0 || mask & !(PZ | PRIVILEGES) != 0 {
            return Err(INVALID_MASK);
        }
        let wanted = params.read()?;
        let mut param = lock(&object.0);
        let mut changed = *param;
        if mask & PZ != 0 {
            changed.pz = wanted.pz;
        }
        if mask & PRIVILEGES != 0 {
            changed.privileges = wanted.privileges;
        }
        let (dat, local) = register(&mut changed)?;
        let old = slot.dat();
        if let Err(status) = call!(dat_lmr_free(old)) {
            let _ = call!(dat_lmr_free(dat));
            return Err(instead(INVALID_EVD_STATE, LMR_BUSY)(status));
        }
        slot.set_dat(dat);
        slot.set_key(local.into());
        *param = changed;
        Ok(())
    })
}

/// The segments as DAT's, and the adapter of the first.
fn synchronized(segments: In<Triplet>, count: usize) -> Outcome<(DatIaHandle, Vec<DatLmrTriplet>)> {
    let first = handle::slot::<Lmr>(segments.read()?.region)?;
    let ia = handle::slot::<Ia>(first.ia())?.dat();
    let triplets = (0..count).map(|index| {
        let segment = segments.read_at(index)?;
        Ok(DatLmrTriplet {
            virtual_address: segment.address,
            segment_length: DatSegLength::try_from(segment.length).map_err(|_| INVALID_LENGTH)?,
            lmr_context: context(segment.region)?,
        })
    });
    Ok((ia, triplets.collect::<Outcome<_>>()?))
}

#[unsafe(no_mangle)]
extern "C" fn it_lmr_flush_to_mem(segments: In<Triplet>, count: usize) -> Status {
    answer(|| {
        let (ia, list) = synchronized(segments, count)?;
        call!(dat_lmr_sync_rdma_read(ia, list.as_ptr(), count as u64))
    })
}

#[unsafe(no_mangle)]
extern "C" fn it_lmr_refresh_from_mem(segments: In<Triplet>, count: usize) -> Status {
    answer(|| {
        let (ia, list) = synchronized(segments, count)?;
        call!(dat_lmr_sync_rdma_write(ia, list.as_ptr(), count as u64))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_privilege_has_its_flag() {
        assert_eq!(privileges(0), Ok(0));
        assert_eq!(privileges(3), Ok(0x11));
        assert_eq!(privileges(0xC), Ok(0x22));
        assert_eq!(privileges(0x1F), Ok(0x73));
        assert_eq!(privileges(0x20), Err(INVALID_PRIVS));
    }
}
