//! Extension operations: Socket Service Points (iWARP extensions for DAT 2.0), and the dispatch to
//! those of the IB extension.
//!
//! The two extensions were numbered independently: 0 to 3 have one meaning on an IA or a socket
//! service point and another on an endpoint. The kind of the handle distinguishes them, with one
//! exception: on an endpoint, 3 is also "UD send" of IB. That operation needs a kind of endpoint
//! that this layer does not create, so 3 is the socket connect.
//!
//! Arguments are passed as a `va_list`, which only C can read; `csrc/iw_extension.c` converts it to
//! one of the structures below.

use std::ffi::c_void;

use dat_abi::*;

use crate::ep::{Ep, SocketConnectArgs};
use crate::error::{DatError, DatResult};
use crate::evd::Evd;
use crate::handle::{self, Kind};
use crate::ia::Ia;
use crate::ib_extension;
use crate::rnic::Rnic;
use crate::sp::{Ssp, SspArgs};
use crate::thunk::guard::{Out, arguments, pin, pin_or_null, private_data};

/// Numbers of the original header; the numbers of dat-rs are in `dat_abi`.
const FIRST_SSP_CREATE: DatExtendedOp = 0;
const FIRST_SSP_FREE: DatExtendedOp = 1;
const FIRST_SSP_QUERY: DatExtendedOp = 2;
const FIRST_SOCKET_CONNECT: DatExtendedOp = 3;

/// Arguments of `dat_iw_ssp_create` after the IA handle.
#[repr(C)]
#[derive(Debug)]
struct SspCreateArgs {
    ep_handle: DatEpHandle,
    evd_handle: DatEvdHandle,
    final_message: DatPvoid,
    ssp_handle: *mut DatIwSspHandle,
    socket: DatIwSocket,
    final_message_len: DatCount,
}

/// Arguments of `dat_iw_ssp_query` after the SSP handle.
#[repr(C)]
#[derive(Debug)]
struct SspQueryArgs {
    param: *mut DatIwSspParam,
    mask: DatIwSspParamMask,
}

/// Arguments of `dat_iw_socket_connect` after the EP handle.
#[repr(C)]
#[derive(Debug)]
struct ConnectArgs {
    private_data: *const c_void,
    socket: DatIwSocket,
    timeout_us: DatTimeout,
    private_data_size: DatCount,
}

unsafe extern "C" {
    fn access_read_ssp_create(args: DatVaList, out: *mut SspCreateArgs);
    fn access_read_ssp_query(args: DatVaList, out: *mut SspQueryArgs);
    fn access_read_socket_connect(args: DatVaList, out: *mut ConnectArgs);
}

/// Executes operation `op` on `handle`. Returns `None` if there is no such operation.
///
/// # Safety
///
/// `args` is the `va_list` of a call with the arguments of the operation, each of which follows the
/// contract of the thunks.
pub(crate) unsafe fn handle<R: Rnic>(
    handle: DatHandle,
    op: DatExtendedOp,
    args: DatVaList,
) -> Option<DatResult> {
    let kind = handle::kind_of(handle);
    // SAFETY: the caller guarantees the contract of these functions, which is the same.
    let result = unsafe {
        match (op, kind) {
            (DAT_IW_SSP_CREATE_OP, _) | (FIRST_SSP_CREATE, Some(Kind::Ia)) => {
                ssp_create::<R>(handle, args)
            }
            (DAT_IW_SSP_FREE_OP, _) | (FIRST_SSP_FREE, Some(Kind::Ssp)) => ssp_free::<R>(handle),
            (DAT_IW_SSP_QUERY_OP, _) | (FIRST_SSP_QUERY, Some(Kind::Ssp)) => {
                ssp_query::<R>(handle, args)
            }
            (DAT_IW_SOCKET_CONNECT_OP, _) | (FIRST_SOCKET_CONNECT, Some(Kind::Ep)) => {
                socket_connect::<R>(handle, args)
            }
            _ => ib_extension::handle::<R>(handle, op, args)?,
        }
    };
    Some(result)
}

/// # Safety
/// As for [`handle()`].
unsafe fn ssp_create<R: Rnic>(ia: DatIaHandle, va_list: DatVaList) -> DatResult {
    // SAFETY: the caller passes the va_list of this operation.
    let args = unsafe { arguments(access_read_ssp_create, va_list) };
    let out = Out::required(args.ssp_handle, 7)?;
    let ia = pin::<Ia<R>>(ia, DAT_INVALID_HANDLE_IA)?;
    let ep = pin_or_null::<Ep<R>>(args.ep_handle, DAT_INVALID_HANDLE_EP)?;
    let evd = pin::<Evd<R>>(args.evd_handle, DAT_INVALID_HANDLE_EVD_CR)?;
    // SAFETY: the message follows the contract of the thunks.
    let final_message = unsafe { bytes(args.final_message, 5, args.final_message_len, 6) }?;
    let args = SspArgs {
        socket: args.socket,
        ep,
        evd: evd.to_arc(),
        final_message,
    };
    let ssp = Ssp::create(&ia.to_arc(), args)?;
    out.write(ssp.as_dat());
    Ok(())
}

fn ssp_free<R: Rnic>(ssp: DatIwSspHandle) -> DatResult {
    Ssp::free(&pin::<Ssp<R>>(ssp, DAT_NO_SUBTYPE)?)
}

/// # Safety
/// As for [`handle()`].
unsafe fn ssp_query<R: Rnic>(ssp: DatIwSspHandle, va_list: DatVaList) -> DatResult {
    // SAFETY: the caller passes the va_list of this operation.
    let args = unsafe { arguments(access_read_ssp_query, va_list) };
    let ssp = pin::<Ssp<R>>(ssp, DAT_NO_SUBTYPE)?;
    let out = Out::required(args.param, 3)?;
    out.write(ssp.query(args.mask)?);
    Ok(())
}

/// # Safety
/// As for [`handle()`].
unsafe fn socket_connect<R: Rnic>(ep: DatEpHandle, va_list: DatVaList) -> DatResult {
    // SAFETY: the caller passes the va_list of this operation.
    let args = unsafe { arguments(access_read_socket_connect, va_list) };
    let ep = pin::<Ep<R>>(ep, DAT_INVALID_HANDLE_EP)?;
    // SAFETY: the private data follows the contract of the thunks.
    let private_data = unsafe { private_data(args.private_data_size, args.private_data, 4) }?;
    ep.socket_connect(&SocketConnectArgs {
        socket: args.socket,
        timeout_us: args.timeout_us,
        private_data,
    })
}

/// Returns a byte string from argument `pointer_argument` and its length, argument `len_argument`.
///
/// # Safety
/// As for `private_data`.
unsafe fn bytes<'a>(
    pointer: DatPvoid,
    pointer_argument: u32,
    len: DatCount,
    len_argument: u32,
) -> DatResult<&'a [u8]> {
    let len = usize::try_from(len).map_err(|_| DatError::invalid_arg(len_argument))?;
    match len {
        0 => Ok(&[]),
        _ if pointer.is_null() => Err(DatError::invalid_arg(pointer_argument)),
        // SAFETY: the pointer is not null, so it points at `len` bytes.
        _ => Ok(unsafe { std::slice::from_raw_parts(pointer.cast(), len) }),
    }
}

#[cfg(test)]
mod tests;
