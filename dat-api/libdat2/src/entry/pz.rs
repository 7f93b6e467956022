//! Protection zones.

use crate::handle::{resolve_ia, resolve_object};
use dat_abi::*;

forward! { resolve_ia;
    dat_pz_create => pz_create(ia: DatIaHandle, pz: *mut DatPzHandle);
}

forward! { |handle| resolve_object(handle, DAT_INVALID_HANDLE_PZ);
    dat_pz_query => pz_query(pz: DatPzHandle, mask: DatPzParamMask, param: *mut DatPzParam);
    dat_pz_free => pz_free(pz: DatPzHandle);
}
