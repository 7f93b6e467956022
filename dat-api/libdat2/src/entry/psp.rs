//! Public service points.

use crate::handle::{resolve_ia, resolve_object};
use dat_abi::*;

forward! { resolve_ia;
    dat_psp_create => psp_create(
        ia: DatIaHandle,
        conn_qual: DatConnQual,
        evd: DatEvdHandle,
        flags: DatPspFlags,
        psp: *mut DatPspHandle,
    );
    dat_psp_create_any => psp_create_any(
        ia: DatIaHandle,
        conn_qual: *mut DatConnQual,
        evd: DatEvdHandle,
        flags: DatPspFlags,
        psp: *mut DatPspHandle,
    );
}

forward! { |handle| resolve_object(handle, DAT_INVALID_HANDLE_PSP);
    dat_psp_query => psp_query(psp: DatPspHandle, mask: DatPspParamMask, param: *mut DatPspParam);
    dat_psp_free => psp_free(psp: DatPspHandle);
}
