//! Reserved service points.

use crate::handle::{resolve_ia, resolve_object};
use dat_abi::*;

forward! { resolve_ia;
    dat_rsp_create => rsp_create(
        ia: DatIaHandle,
        conn_qual: DatConnQual,
        ep: DatEpHandle,
        evd: DatEvdHandle,
        rsp: *mut DatRspHandle,
    );
}

forward! { |handle| resolve_object(handle, DAT_INVALID_HANDLE_RSP);
    dat_rsp_query => rsp_query(rsp: DatRspHandle, mask: DatRspParamMask, param: *mut DatRspParam);
    dat_rsp_free => rsp_free(rsp: DatRspHandle);
}
