//! Address handles.

use std::ffi::{c_int, c_void};

use rustix::io::Errno;
use verbs_dl::types::*;

use crate::abi::{AddressVector, Gid};
use crate::adapter;
use crate::domains::{Pd, pd_of};
use crate::fault::{self, Fault};
use crate::object::Object;
use crate::states;
use crate::users::Use;

use super::datagram::{GRH_LEN, addresses};

/// `struct ibv_ah`.
#[repr(C)]
#[derive(Debug)]
struct AddressHandle {
    context: *mut ibv_context,
    pd: *mut ibv_pd,
    handle: u32,
}

/// The destination of an address handle, and the domain that it uses.
struct CreatedAh {
    gid: Gid,
    _pd: Use<Pd>,
}

type AhObject = Object<AddressHandle, CreatedAh>;

/// The member of `struct ibv_send_wr` for datagrams.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Destination {
    pub(crate) ah: *mut c_void,
    pub(crate) number: u32,
    pub(crate) key: u32,
}

const _: () = {
    assert!(size_of::<Destination>() == size_of::<ibv_send_wr__bindgen_ty_2__bindgen_ty_3>());
};

pub(crate) fn set_destination(wr: &mut ibv_send_wr, destination: Destination) {
    // SAFETY: both types have the size of the C structure.
    unsafe { (&raw mut wr.wr.ud).cast::<Destination>().write(destination) };
}

/// Returns the destination of a Send.
///
/// # Safety
/// The program has written the member for datagrams, whose address handle is null or alive.
pub(super) unsafe fn destination(wr: &ibv_send_wr) -> Result<(Gid, Destination), Fault> {
    // SAFETY: the program has written the member (caller).
    let destination = unsafe { (&raw const wr.wr.ud).cast::<Destination>().read() };
    if destination.ah.is_null() {
        return Err(Errno::INVAL);
    }
    // SAFETY: the address handle is alive (caller).
    let own = unsafe { AhObject::own(destination.ah.cast()) };
    Ok((own.gid, destination))
}

fn create(pd: *mut ibv_pd, vector: &AddressVector) -> Result<*mut AddressHandle, Fault> {
    states::check_path(vector)?;
    // SAFETY: the program passes a live domain, which points to its context.
    let (own, context) = unsafe { (pd_of(pd), (*pd).context) };
    let c = AddressHandle {
        context,
        pd,
        handle: 0,
    };
    let created = CreatedAh {
        gid: vector.dgid,
        _pd: Use::of(own),
    };
    Ok(AhObject::create(c, created))
}

/// Returns the path to the sender of a message.
fn answer(
    context: *mut ibv_context,
    port: u8,
    wc: &ibv_wc,
    header: *const [u8; GRH_LEN],
) -> Result<AddressVector, Fault> {
    if wc.wc_flags & IBV_WC_GRH == 0 || header.is_null() {
        return Err(Errno::INVAL);
    }
    // SAFETY: the program passes the start of the receive, which has this header.
    let found = addresses(unsafe { &*header }).ok_or(Errno::INVAL)?;
    // SAFETY: the program passes a live context.
    let own = unsafe { adapter::of(context) }.gid;
    if Gid::of(found.1) != own {
        return Err(Errno::INVAL);
    }
    Ok(AddressVector {
        dlid: wc.slid,
        sl: wc.sl,
        src_path_bits: wc.dlid_path_bits,
        ..AddressVector::to(Gid::of(found.0), port)
    })
}

/// The functions of address handles; each does as its manual page says.
mod exported {
    use super::*;

    /// `ibv_create_ah(3)`.
    ///
    /// # Safety
    /// As the manual page says.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn ibv_create_ah(
        pd: *mut ibv_pd,
        attr: *const ibv_ah_attr,
    ) -> *mut AddressHandle {
        // SAFETY: the program passes its structure.
        fault::pointer(create(pd, &AddressVector::of(unsafe { &*attr })))
    }

    /// `ibv_init_ah_from_wc(3)`.
    ///
    /// # Safety
    /// As the manual page says.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn ibv_init_ah_from_wc(
        context: *mut ibv_context,
        port: u8,
        wc: *const ibv_wc,
        header: *const [u8; GRH_LEN],
        attr: *mut ibv_ah_attr,
    ) -> c_int {
        // SAFETY: the program passes its completion.
        let found = answer(context, port, unsafe { &*wc }, header);
        // SAFETY: the program passes a pointer to its structure, which has the size of ours.
        fault::minus_one(found.map(|vector| unsafe { attr.cast::<AddressVector>().write(vector) }))
    }

    /// `ibv_create_ah_from_wc(3)`.
    ///
    /// # Safety
    /// As the manual page says.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn ibv_create_ah_from_wc(
        pd: *mut ibv_pd,
        wc: *const ibv_wc,
        header: *const [u8; GRH_LEN],
        port: u8,
    ) -> *mut AddressHandle {
        // SAFETY: the program passes a live domain and its completion.
        let (context, wc) = unsafe { ((*pd).context, &*wc) };
        let vector = answer(context, port, wc, header);
        fault::pointer(vector.and_then(|vector| create(pd, &vector)))
    }

    /// `ibv_destroy_ah(3)`.
    ///
    /// # Safety
    /// As the manual page says.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn ibv_destroy_ah(ah: *mut AddressHandle) -> c_int {
        // SAFETY: the program passes a live handle and does not use it after this call.
        unsafe { AhObject::destroy(ah) };
        0
    }
}
