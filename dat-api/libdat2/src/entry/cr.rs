//! Connection requests.

use crate::handle::resolve_object;
use dat_abi::*;
use std::ffi::c_void;

forward! { |handle| resolve_object(handle, DAT_INVALID_HANDLE_CR);
    dat_cr_query => cr_query(cr: DatCrHandle, mask: DatCrParamMask, param: *mut DatCrParam);
    dat_cr_accept => cr_accept(
        cr: DatCrHandle,
        ep: DatEpHandle,
        private_data_size: DatCount,
        private_data: *const c_void,
    );
    dat_cr_reject => cr_reject(
        cr: DatCrHandle,
        private_data_size: DatCount,
        private_data: *const c_void,
    );
    dat_cr_handoff => cr_handoff(cr: DatCrHandle, handoff: DatConnQual);
}
