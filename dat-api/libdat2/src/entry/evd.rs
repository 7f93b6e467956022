//! Event dispatchers.

use crate::handle::{resolve_ia, resolve_object};
use dat_abi::*;

forward! { resolve_ia;
    dat_evd_create => evd_create(
        ia: DatIaHandle,
        min_qlen: DatCount,
        cno: DatCnoHandle,
        flags: DatEvdFlags,
        evd: *mut DatEvdHandle,
    );
}

forward! { |handle| resolve_object(handle, DAT_INVALID_HANDLE_EVD_REQUEST);
    dat_evd_query => evd_query(evd: DatEvdHandle, mask: DatEvdParamMask, param: *mut DatEvdParam);
    dat_evd_modify_cno => evd_modify_cno(evd: DatEvdHandle, cno: DatCnoHandle);
    dat_evd_enable => evd_enable(evd: DatEvdHandle);
    dat_evd_disable => evd_disable(evd: DatEvdHandle);
    dat_evd_set_unwaitable => evd_set_unwaitable(evd: DatEvdHandle);
    dat_evd_clear_unwaitable => evd_clear_unwaitable(evd: DatEvdHandle);
    dat_evd_wait => evd_wait(
        evd: DatEvdHandle,
        timeout_us: DatTimeout,
        threshold: DatCount,
        event: *mut DatEvent,
        nmore: *mut DatCount,
    );
    dat_evd_resize => evd_resize(evd: DatEvdHandle, min_qlen: DatCount);
    dat_evd_post_se => evd_post_se(evd: DatEvdHandle, event: *const DatEvent);
    dat_evd_dequeue => evd_dequeue(evd: DatEvdHandle, event: *mut DatEvent);
    dat_evd_free => evd_free(evd: DatEvdHandle);
}
