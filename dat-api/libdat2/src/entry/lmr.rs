//! Local memory regions.

use crate::handle::{resolve_ia, resolve_object};
use dat_abi::*;

forward! { resolve_ia;
    dat_lmr_create => lmr_create(
        ia: DatIaHandle,
        mem_type: DatMemType,
        region: DatRegionDescription,
        length: DatVlen,
        pz: DatPzHandle,
        privileges: DatMemPrivFlags,
        va_type: DatVaType,
        lmr: *mut DatLmrHandle,
        lmr_context: *mut DatLmrContext,
        rmr_context: *mut DatRmrContext,
        registered_size: *mut DatVlen,
        registered_address: *mut DatVaddr,
    );
    dat_lmr_sync_rdma_read => lmr_sync_rdma_read(
        ia: DatIaHandle,
        segments: *const DatLmrTriplet,
        num_segments: DatVlen,
    );
    dat_lmr_sync_rdma_write => lmr_sync_rdma_write(
        ia: DatIaHandle,
        segments: *const DatLmrTriplet,
        num_segments: DatVlen,
    );
}

forward! { |handle| resolve_object(handle, DAT_INVALID_HANDLE_LMR);
    dat_lmr_query => lmr_query(lmr: DatLmrHandle, mask: DatLmrParamMask, param: *mut DatLmrParam);
    dat_lmr_free => lmr_free(lmr: DatLmrHandle);
}
