//! Endpoints: life cycle, connections, posting.

use crate::handle::{resolve_ia, resolve_object};
use dat_abi::*;
use std::ffi::c_void;

forward! { resolve_ia;
    dat_ep_create => ep_create(
        ia: DatIaHandle,
        pz: DatPzHandle,
        recv_evd: DatEvdHandle,
        request_evd: DatEvdHandle,
        connect_evd: DatEvdHandle,
        attr: *const DatEpAttr,
        ep: *mut DatEpHandle,
    );
    dat_ep_create_with_srq => ep_create_with_srq(
        ia: DatIaHandle,
        pz: DatPzHandle,
        recv_evd: DatEvdHandle,
        request_evd: DatEvdHandle,
        connect_evd: DatEvdHandle,
        srq: DatSrqHandle,
        attr: *const DatEpAttr,
        ep: *mut DatEpHandle,
    );
}

forward! { |handle| resolve_object(handle, DAT_INVALID_HANDLE_EP);
    dat_ep_query => ep_query(ep: DatEpHandle, mask: DatEpParamMask, param: *mut DatEpParam);
    dat_ep_modify => ep_modify(ep: DatEpHandle, mask: DatEpParamMask, param: *const DatEpParam);
    dat_ep_connect => ep_connect(
        ep: DatEpHandle,
        remote_address: DatIaAddressPtr,
        conn_qual: DatConnQual,
        timeout_us: DatTimeout,
        private_data_size: DatCount,
        private_data: *const c_void,
        qos: DatQos,
        flags: DatConnectFlags,
    );
    dat_ep_dup_connect => ep_dup_connect(
        ep: DatEpHandle,
        dup: DatEpHandle,
        timeout_us: DatTimeout,
        private_data_size: DatCount,
        private_data: *const c_void,
        qos: DatQos,
    );
    dat_ep_common_connect => ep_common_connect(
        ep: DatEpHandle,
        remote_address: DatIaAddressPtr,
        timeout_us: DatTimeout,
        private_data_size: DatCount,
        private_data: *const c_void,
    );
    dat_ep_disconnect => ep_disconnect(ep: DatEpHandle, flags: DatCloseFlags);
    dat_ep_post_send => ep_post_send(
        ep: DatEpHandle,
        num_segments: DatCount,
        local_iov: *mut DatLmrTriplet,
        cookie: DatDtoCookie,
        flags: DatCompletionFlags,
    );
    dat_ep_post_send_with_invalidate => ep_post_send_with_invalidate(
        ep: DatEpHandle,
        num_segments: DatCount,
        local_iov: *mut DatLmrTriplet,
        cookie: DatDtoCookie,
        flags: DatCompletionFlags,
        invalidate: DatBoolean,
        rmr_context: DatRmrContext,
    );
    dat_ep_post_recv => ep_post_recv(
        ep: DatEpHandle,
        num_segments: DatCount,
        local_iov: *mut DatLmrTriplet,
        cookie: DatDtoCookie,
        flags: DatCompletionFlags,
    );
    dat_ep_post_rdma_read => ep_post_rdma_read(
        ep: DatEpHandle,
        num_segments: DatCount,
        local_iov: *mut DatLmrTriplet,
        cookie: DatDtoCookie,
        remote: *const DatRmrTriplet,
        flags: DatCompletionFlags,
    );
    dat_ep_post_rdma_read_to_rmr => ep_post_rdma_read_to_rmr(
        ep: DatEpHandle,
        local: *const DatRmrTriplet,
        cookie: DatDtoCookie,
        remote: *const DatRmrTriplet,
        flags: DatCompletionFlags,
    );
    dat_ep_post_rdma_write => ep_post_rdma_write(
        ep: DatEpHandle,
        num_segments: DatCount,
        local_iov: *mut DatLmrTriplet,
        cookie: DatDtoCookie,
        remote: *const DatRmrTriplet,
        flags: DatCompletionFlags,
    );
    dat_ep_get_status => ep_get_status(
        ep: DatEpHandle,
        state: *mut DatEpState,
        recv_idle: *mut DatBoolean,
        request_idle: *mut DatBoolean,
    );
    dat_ep_free => ep_free(ep: DatEpHandle);
    dat_ep_reset => ep_reset(ep: DatEpHandle);
    dat_ep_recv_query => ep_recv_query(
        ep: DatEpHandle,
        nbufs_allocated: *mut DatCount,
        bufs_alloc_span: *mut DatCount,
    );
    dat_ep_set_watermark => ep_set_watermark(
        ep: DatEpHandle,
        soft_high_watermark: DatCount,
        hard_high_watermark: DatCount,
    );
}
