//! Remote memory regions.

use crate::handle::resolve_object;
use dat_abi::*;

forward! { |handle| resolve_object(handle, DAT_INVALID_HANDLE_PZ);
    dat_rmr_create => rmr_create(pz: DatPzHandle, rmr: *mut DatRmrHandle);
    dat_rmr_create_for_ep => rmr_create_for_ep(pz: DatPzHandle, rmr: *mut DatRmrHandle);
}

forward! { |handle| resolve_object(handle, DAT_INVALID_HANDLE_RMR);
    dat_rmr_query => rmr_query(rmr: DatRmrHandle, mask: DatRmrParamMask, param: *mut DatRmrParam);
    dat_rmr_bind => rmr_bind(
        rmr: DatRmrHandle,
        lmr: DatLmrHandle,
        lmr_triplet: *const DatLmrTriplet,
        privileges: DatMemPrivFlags,
        va_type: DatVaType,
        ep: DatEpHandle,
        cookie: DatRmrCookie,
        flags: DatCompletionFlags,
        rmr_context: *mut DatRmrContext,
    );
    dat_rmr_free => rmr_free(rmr: DatRmrHandle);
}
