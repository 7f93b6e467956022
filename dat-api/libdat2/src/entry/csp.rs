//! Common service points.

use crate::handle::{resolve_ia, resolve_object};
use dat_abi::*;

forward! { resolve_ia;
    dat_csp_create => csp_create(
        ia: DatIaHandle,
        comm: *mut DatComm,
        address: DatIaAddressPtr,
        evd: DatEvdHandle,
        csp: *mut DatCspHandle,
    );
}

forward! { |handle| resolve_object(handle, DAT_INVALID_HANDLE_CSP);
    dat_csp_query => csp_query(csp: DatCspHandle, mask: DatCspParamMask, param: *mut DatCspParam);
    dat_csp_free => csp_free(csp: DatCspHandle);
}
