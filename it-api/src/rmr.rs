//! Remote memory regions: windows of a local region under a context of their own.

use std::sync::Mutex;

use dat_abi::*;
use host::locks::lock;

use crate::abi::*;
use crate::flags;
use crate::handle::{self, Kind, Object};
use crate::lmr;
use crate::pz;
use crate::queue;
use crate::status::*;

/// A window and its parameters. The slot's key is the endpoint on which it was linked last.
#[derive(Debug)]
pub(crate) struct Rmr(Mutex<RmrParam>);

impl Object for Rmr {
    const KIND: Kind = Kind::Rmr;
    const WRONG: Status = INVALID_RMR;
}

fn create(pz: Handle, kind: u32, rmr: Out<Handle>) -> Outcome {
    let (ia, _, dat_pz) = pz::with_adapter(pz)?;
    rmr.required()?;
    let mut dat = DAT_HANDLE_NULL;
    match kind {
        IT_RMR_TYPE_NARROW => call!(optional dat_rmr_create_for_ep(dat_pz, &raw mut dat))?,
        0 | IT_RMR_TYPE_WIDE => call!(dat_rmr_create(dat_pz, &raw mut dat))?,
        _ => return Err(INVALID_RMR_TYPE),
    }
    let object = Rmr(Mutex::new(RmrParam {
        ia,
        pz,
        is_linked: 0,
        lmr: Handle::NULL,
        address: 0,
        length: 0,
        privileges: 0,
        rmr_context: 0,
        kind: if kind == IT_RMR_TYPE_NARROW {
            IT_RMR_TYPE_NARROW
        } else {
            IT_RMR_TYPE_WIDE
        },
        address_mode: 0,
    }));
    let handle = handle::insert(ia, dat, 0, object)?;
    queue::name(dat, handle)?;
    rmr.write(handle);
    Ok(())
}

#[unsafe(no_mangle)]
extern "C" fn it_rmr_create10(pz: Handle, rmr: Out<Handle>) -> Status {
    answer(|| create(pz, IT_RMR_TYPE_WIDE, rmr))
}

#[unsafe(no_mangle)]
extern "C" fn it_rmr_create20(pz: Handle, kind: u32, rmr: Out<Handle>) -> Status {
    answer(|| create(pz, kind, rmr))
}

#[unsafe(no_mangle)]
extern "C" fn it_rmr_free(rmr: Handle) -> Status {
    answer(|| {
        let slot = handle::slot::<Rmr>(rmr)?;
        call!(dat_rmr_free(slot.dat()))?;
        handle::remove(rmr);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn it_rmr_query(rmr: Handle, mask: u32, params: Out<RmrParam>) -> Status {
    answer(|| {
        let (_, object) = handle::find::<Rmr>(rmr)?;
        check_mask(mask, 0x400)?;
        params.required()?.write(*lock(&object.0));
        Ok(())
    })
}

/// The part of a region that a window is linked to.
struct Part {
    lmr: Handle,
    address: u64,
    length: u64,
    address_mode: u32,
    privileges: u32,
}

/// Posts the bind of a window to a part, or to nothing. Returns the new context.
fn bind(rmr: Handle, part: Option<&Part>, ep: Handle, cookie: u64, flags: u32) -> Outcome<u64> {
    let (slot, object) = handle::find::<Rmr>(rmr)?;
    let dat_ep = handle::of_kind(ep, Kind::Ep).ok_or(INVALID_EP)?.dat();
    let flags = flags::of_request(flags)?;
    let mut triplet = DatLmrTriplet::zeroed();
    let (mut dat_lmr, mut mode, mut granted) = (DAT_HANDLE_NULL, DAT_VA_TYPE_VA, 0);
    if let Some(part) = part {
        dat_lmr = handle::slot::<lmr::Lmr>(part.lmr)?.dat();
        mode = lmr::address_mode(part.address_mode)?;
        granted = lmr::privileges(part.privileges)?;
        triplet.lmr_context = lmr::context(part.lmr)?;
        triplet.virtual_address = part.address;
        triplet.segment_length = DatSegLength::try_from(part.length).map_err(|_| INVALID_LENGTH)?;
    }
    let mut context = 0;
    let mut param = lock(&object.0);
    call!(dat_rmr_bind(
        slot.dat(),
        dat_lmr,
        &raw const triplet,
        granted,
        mode,
        dat_ep,
        DatContext::from_u64(cookie),
        flags,
        &raw mut context,
    ))
    .map_err(argument(RANGE))
    .map_err(instead(RESOURCES, TOO_MANY_POSTS))
    .map_err(instead(INVALID_EVD_STATE, INVALID_EP_STATE))?;
    slot.set_key(ep.0);
    param.is_linked = Boolean::from(part.is_some());
    if let Some(part) = part {
        param.lmr = part.lmr;
        param.address = part.address;
        param.length = part.length;
        param.privileges = part.privileges;
        param.address_mode = part.address_mode;
        param.rmr_context = u64::from(context);
    }
    Ok(u64::from(context))
}

#[unsafe(no_mangle)]
extern "C" fn it_rmr_link(
    rmr: Handle,
    lmr: Handle,
    address: u64,
    length: u64,
    address_mode: u32,
    privileges: u32,
    ep: Handle,
    cookie: u64,
    flags: u32,
    rmr_context: Out<u64>,
) -> Status {
    answer(|| {
        let part = Part {
            lmr,
            address,
            length,
            address_mode,
            privileges,
        };
        if length == 0 {
            return Err(INVALID_LENGTH);
        }
        rmr_context.write(bind(rmr, Some(&part), ep, cookie, flags)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn it_rmr_bind10(
    rmr: Handle,
    lmr: Handle,
    address: u64,
    length: u64,
    privileges: u32,
    ep: Handle,
    cookie: u64,
    flags: u32,
    rmr_context: Out<u64>,
) -> Status {
    // In version 1.0 a bind of length 0 unbinds.
    match length {
        0 => it_rmr_unlink(rmr, ep, cookie, flags),
        _ => it_rmr_link(
            rmr,
            lmr,
            address,
            length,
            0,
            privileges,
            ep,
            cookie,
            flags,
            rmr_context,
        ),
    }
}

#[unsafe(no_mangle)]
extern "C" fn it_rmr_unlink(rmr: Handle, ep: Handle, cookie: u64, flags: u32) -> Status {
    answer(|| bind(rmr, None, ep, cookie, flags).map(drop))
}

/// The context under which a window is linked.
pub(crate) fn context(rmr: Handle) -> Outcome<u64> {
    let (_, object) = handle::find::<Rmr>(rmr)?;
    let context = lock(&object.0).rmr_context;
    Ok(context)
}

/// Records that a link has failed, or that the peer has unlinked the window.
pub(crate) fn on_unlinked(rmr: Handle) {
    if let Ok((_, object)) = handle::find::<Rmr>(rmr) {
        lock(&object.0).is_linked = 0;
    }
}

/// The window of the adapter that is linked under a context; null if there is none.
pub(crate) fn of_context(ia: Handle, context: DatRmrContext) -> Handle {
    let is_it = |rmr: &Handle| {
        handle::find::<Rmr>(*rmr).is_ok_and(|(_, object)| {
            let param = lock(&object.0);
            param.is_linked != 0 && param.rmr_context == u64::from(context)
        })
    };
    let found = handle::of_adapter(ia).into_iter().find(is_it);
    found.unwrap_or(Handle::NULL)
}
