//! Shared receive queues.

use crate::handle::{resolve_ia, resolve_object};
use dat_abi::*;

forward! { resolve_ia;
    dat_srq_create => srq_create(
        ia: DatIaHandle,
        pz: DatPzHandle,
        attr: *mut DatSrqAttr,
        srq: *mut DatSrqHandle,
    );
}

forward! { |handle| resolve_object(handle, DAT_INVALID_HANDLE_SRQ);
    dat_srq_query => srq_query(srq: DatSrqHandle, mask: DatSrqParamMask, param: *mut DatSrqParam);
    dat_srq_set_lw => srq_set_lw(srq: DatSrqHandle, low_watermark: DatCount);
    dat_srq_free => srq_free(srq: DatSrqHandle);
    dat_srq_resize => srq_resize(srq: DatSrqHandle, max_recv_dtos: DatCount);
    dat_srq_post_recv => srq_post_recv(
        srq: DatSrqHandle,
        num_segments: DatCount,
        local_iov: *mut DatLmrTriplet,
        cookie: DatDtoCookie,
    );
}
