//! Consumer notification objects.

use crate::handle::{resolve_ia, resolve_object};
use dat_abi::*;

forward! { resolve_ia;
    dat_cno_create => cno_create(
        ia: DatIaHandle,
        agent: DatOsWaitProxyAgent,
        cno: *mut DatCnoHandle,
    );
    dat_cno_fd_create => cno_fd_create(ia: DatIaHandle, fd: *mut DatFd, cno: *mut DatCnoHandle);
}

forward! { |handle| resolve_object(handle, DAT_INVALID_HANDLE_CNO);
    dat_cno_modify_agent => cno_modify_agent(cno: DatCnoHandle, agent: DatOsWaitProxyAgent);
    dat_cno_query => cno_query(cno: DatCnoHandle, mask: DatCnoParamMask, param: *mut DatCnoParam);
    dat_cno_free => cno_free(cno: DatCnoHandle);
    dat_cno_wait => cno_wait(cno: DatCnoHandle, timeout_us: DatTimeout, evd: *mut DatEvdHandle);
    dat_cno_trigger => cno_trigger(cno: DatCnoHandle, evd: *mut DatEvdHandle);
}
