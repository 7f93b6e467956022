//! Shared receive queues.

use std::sync::Mutex;

use dat_abi::*;
use host::locks::lock;

use crate::abi::*;
use crate::handle::{self, Kind, Object};
use crate::pz;
use crate::queue;
use crate::status::*;

const MAX_RECV_DTO: u32 = 0x8;
const LOW_WATERMARK: u32 = 0x20;

/// A shared receive queue and its parameters.
#[derive(Debug)]
pub(crate) struct Srq(Mutex<SrqParam>);

impl Object for Srq {
    const KIND: Kind = Kind::Srq;
    const WRONG: Status = INVALID_SRQ;
}

/// A number of the program as a count of DAT.
pub(crate) fn count(number: usize, wrong: Status) -> Outcome<DatCount> {
    DatCount::try_from(number).map_err(|_| wrong)
}

#[unsafe(no_mangle)]
extern "C" fn it_srq_create(
    pz: Handle,
    max_recv_segments: usize,
    max_recv_dtos: usize,
    srq: Out<Handle>,
) -> Status {
    answer(|| {
        let (ia, dat_ia, dat_pz) = pz::with_adapter(pz)?;
        srq.required()?;
        let mut attr = DatSrqAttr {
            max_recv_dtos: count(max_recv_dtos, INVALID_SRQ_SIZE)?,
            max_recv_iov: count(max_recv_segments, INVALID_SRQ_SIZE)?,
            low_watermark: DAT_SRQ_LW_DEFAULT,
        };
        let mut dat = DAT_HANDLE_NULL;
        call!(dat_srq_create(dat_ia, dat_pz, &raw mut attr, &raw mut dat))
            .map_err(argument(INVALID_SRQ_SIZE))?;
        let object = Srq(Mutex::new(SrqParam {
            ia,
            pz,
            max_recv_dtos,
            max_recv_segments,
            low_watermark: 0,
        }));
        let handle = handle::insert(ia, dat, 0, object)?;
        queue::name(dat, handle)?;
        srq.write(handle);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn it_srq_free(srq: Handle) -> Status {
    answer(|| {
        let slot = handle::slot::<Srq>(srq)?;
        call!(dat_srq_free(slot.dat()))?;
        handle::remove(srq);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn it_srq_query(srq: Handle, mask: u32, params: Out<SrqParam>) -> Status {
    answer(|| {
        let (_, object) = handle::find::<Srq>(srq)?;
        check_mask(mask, LOW_WATERMARK)?;
        params.required()?.write(*lock(&object.0));
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn it_srq_modify(srq: Handle, mask: u32, params: In<SrqParam>) -> Status {
    answer(|| {
        let (slot, object) = handle::find::<Srq>(srq)?;
        if mask == 0 || mask & !(MAX_RECV_DTO | LOW_WATERMARK) != 0 {
            return Err(INVALID_MASK);
        }
        let wanted = params.read()?;
        let mut param = lock(&object.0);
        if mask & MAX_RECV_DTO != 0 {
            let depth = count(wanted.max_recv_dtos, INVALID_SRQ_SIZE)?;
            call!(dat_srq_resize(slot.dat(), depth))
                .map_err(argument(INVALID_SRQ_SIZE))
                .map_err(instead(INVALID_EVD_STATE, INVALID_SRQ_SIZE))?;
            param.max_recv_dtos = wanted.max_recv_dtos;
        }
        if mask & LOW_WATERMARK != 0 {
            let watermark = count(wanted.low_watermark, INVALID_WATERMARK)?;
            call!(dat_srq_set_lw(slot.dat(), watermark)).map_err(argument(INVALID_WATERMARK))?;
            param.low_watermark = wanted.low_watermark;
        }
        Ok(())
    })
}
