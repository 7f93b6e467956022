//! Protection zones.

use dat_abi::*;

use crate::abi::*;
use crate::handle::{self, Kind, Object};
use crate::ia::Ia;
use crate::status::*;

/// A protection zone.
#[derive(Debug)]
pub(crate) struct Pz;

impl Object for Pz {
    const KIND: Kind = Kind::Pz;
    const WRONG: Status = INVALID_PZ;
}

/// The adapter of a zone and its DAT handle, and the zone's DAT handle.
pub(crate) fn with_adapter(pz: Handle) -> Outcome<(Handle, DatIaHandle, DatPzHandle)> {
    let slot = handle::slot::<Pz>(pz)?;
    let ia = handle::slot::<Ia>(slot.ia()).map_err(|_| INVALID_PZ)?;
    Ok((slot.ia(), ia.dat(), slot.dat()))
}

#[unsafe(no_mangle)]
extern "C" fn it_pz_create(ia: Handle, pz: Out<Handle>) -> Status {
    answer(|| {
        let slot = handle::slot::<Ia>(ia)?;
        pz.required()?;
        let mut dat = DAT_HANDLE_NULL;
        call!(dat_pz_create(slot.dat(), &raw mut dat))?;
        pz.write(handle::insert(ia, dat, 0, Pz)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn it_pz_free(pz: Handle) -> Status {
    answer(|| {
        let slot = handle::slot::<Pz>(pz)?;
        call!(dat_pz_free(slot.dat()))?;
        handle::remove(pz);
        Ok(())
    })
}

/// `it_pz_param_t` has one member.
#[unsafe(no_mangle)]
extern "C" fn it_pz_query(pz: Handle, mask: u32, params: Out<Handle>) -> Status {
    answer(|| {
        let slot = handle::slot::<Pz>(pz)?;
        check_mask(mask, 0x2)?;
        params.required()?.write(slot.ia());
        Ok(())
    })
}
