//! Operations of the IB extension that this layer supports (`dat_ib_extensions.h` version 209):
//! RDMA Write with immediate data and the two atomics, if the RNIC supports them, and `counters`.
//!
//! Collectives and all operations for unreliable datagrams return "not implemented", as OFA's
//! providers do when built without them.

mod counters;

use dat_abi::*;

use crate::ep::{Ep, check_flags};
use crate::error::{DatError, DatResult};
use crate::rnic::{Rnic, SendOp, Sge};
use crate::thunk::guard::{arguments, pin, read, segments};

/// Arguments of both atomics after the EP handle; `second` is 0 for fetch and add.
#[repr(C)]
#[derive(Debug)]
struct AtomicArgs {
    first: u64,
    second: u64,
    cookie: u64,
    local: *const DatLmrTriplet,
    remote: *const DatRmrTriplet,
    flags: DatCompletionFlags,
}

/// Arguments of RDMA Write with immediate data after the EP handle.
#[repr(C)]
#[derive(Debug)]
struct WriteImmediateArgs {
    cookie: u64,
    local: *const DatLmrTriplet,
    remote: *const DatRmrTriplet,
    segments: DatCount,
    immediate: u32,
    flags: DatCompletionFlags,
}

unsafe extern "C" {
    fn access_read_fetch_and_add(args: DatVaList, out: *mut AtomicArgs);
    fn access_read_compare_and_swap(args: DatVaList, out: *mut AtomicArgs);
    fn access_read_write_immediate(args: DatVaList, out: *mut WriteImmediateArgs);
}

/// Executes operation `op` on `handle`. Returns `None` if there is no such operation.
///
/// # Safety
///
/// As for `iw_extension::handle`.
pub(crate) unsafe fn handle<R: Rnic>(
    handle: DatHandle,
    op: DatExtendedOp,
    args: DatVaList,
) -> Option<DatResult> {
    // SAFETY: the caller guarantees the contract of these functions, which is the same.
    unsafe {
        match op {
            DAT_IB_FETCH_AND_ADD_OP => Some(fetch_and_add::<R>(handle, args)),
            DAT_IB_CMP_AND_SWAP_OP => Some(compare_and_swap::<R>(handle, args)),
            DAT_IB_RDMA_WRITE_IMMED_OP => Some(write_immediate::<R>(handle, args)),
            DAT_IB_QUERY_COUNTERS_OP => Some(counters::query::<R>(handle, args)),
            DAT_IB_PRINT_COUNTERS_OP => Some(counters::print::<R>(handle, args)),
            DAT_IB_START_COUNTERS_OP => Some(counters::start::<R>(handle, args)),
            DAT_IB_STOP_COUNTERS_OP => Some(counters::stop::<R>(handle, args)),
            DAT_IB_UD_SEND_OP..=DAT_IB_UD_AH_FREE_OP => {
                Some(Err(DatError::bare(DAT_NOT_IMPLEMENTED, DAT_NO_SUBTYPE)))
            }
            _ => None,
        }
    }
}

/// # Safety
/// As for [`handle()`].
unsafe fn fetch_and_add<R: Rnic>(ep: DatEpHandle, va_list: DatVaList) -> DatResult {
    // SAFETY: the caller passes the va_list of this operation.
    let args = unsafe { arguments(access_read_fetch_and_add, va_list) };
    // SAFETY: the arguments follow the contract of the thunks.
    unsafe { atomic::<R>(ep, &args, 3, |place| SendOp::FetchAdd(place, args.first)) }
}

/// # Safety
/// As for [`handle()`].
unsafe fn compare_and_swap<R: Rnic>(ep: DatEpHandle, va_list: DatVaList) -> DatResult {
    // SAFETY: the caller passes the va_list of this operation.
    let args = unsafe { arguments(access_read_compare_and_swap, va_list) };
    let (compare, swap) = (args.first, args.second);
    // SAFETY: the arguments follow the contract of the thunks.
    unsafe {
        atomic::<R>(ep, &args, 4, |remote| SendOp::CompareSwap {
            remote,
            compare,
            swap,
        })
    }
}

/// Posts an atomic. Argument `local_argument` is the local triplet, the next are cookie and remote.
///
/// # Safety
/// As for [`handle()`].
unsafe fn atomic<R: Rnic>(
    ep: DatEpHandle,
    args: &AtomicArgs,
    local_argument: u32,
    op: impl FnOnce(crate::rnic::RemoteRange) -> SendOp,
) -> DatResult {
    let ep = pin_capable::<R>(ep)?;
    // SAFETY: the triplets follow the contract of the thunks.
    let (local, remote) = unsafe {
        (
            read(args.local, local_argument)?,
            read(args.remote, local_argument + 2)?,
        )
    };
    check_flags(args.flags, local_argument + 3)?;
    let local = Sge {
        addr: local.virtual_address,
        len: local.segment_length,
        lkey: local.lmr_context,
    };
    ep.post_atomic(op, &local, args.cookie, &remote, args.flags)
}

/// # Safety
/// As for [`handle()`].
unsafe fn write_immediate<R: Rnic>(ep: DatEpHandle, va_list: DatVaList) -> DatResult {
    // SAFETY: the caller passes the va_list of this operation.
    let args = unsafe { arguments(access_read_write_immediate, va_list) };
    let ep = pin_capable::<R>(ep)?;
    // SAFETY: list and triplet follow the contract of the thunks.
    let (sgl, remote) = unsafe { (segments(args.segments, args.local)?, read(args.remote, 5)?) };
    check_flags(args.flags, 7)?;
    ep.post_rdma_write_immediate(&sgl, args.cookie, &remote, args.immediate, args.flags)
}

/// Returns the endpoint, if its RNIC supports these operations.
fn pin_capable<R: Rnic>(ep: DatEpHandle) -> DatResult<crate::handle::Pinned<Ep<R>>> {
    let ep = pin::<Ep<R>>(ep, DAT_INVALID_HANDLE_EP)?;
    if ep.ia().attr().immediate_and_atomics {
        Ok(ep)
    } else {
        Err(DatError::bare(DAT_NOT_IMPLEMENTED, DAT_NO_SUBTYPE))
    }
}
