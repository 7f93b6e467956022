//! One function type for each slot of the provider table.
//!
//! A slot has the signature of the public call of the same name, unless its line says otherwise.
//! The IA handles that a slot receives are the provider's pointers and not the consumer's small
//! integers. None of these functions may unwind into its caller.

use crate::*;
use core::ffi::c_void;

/// Declares the types of calls and slots, which all return a [`DatReturn`].
macro_rules! functions {
    ($($(#[$meta:meta])* $call:ident: $name:ident($($arg:ident: $ty:ty),* $(,)?);)+) => {
        $(
            #[doc = concat!("The type of `", stringify!($call), "`.")] $(#[$meta])*
            pub type $name = unsafe extern "C" fn($($arg: $ty),*) -> DatReturn;
        )+
    };
}

functions! {
    /// It has no version arguments, unlike `dat_ia_openv`.
    ia_open: DatIaOpenFunc(
        name: DatNamePtr,
        async_evd_qlen: DatCount,
        async_evd: *mut DatEvdHandle,
        ia: *mut DatIaHandle,
    );
    dat_ia_query: DatIaQueryFunc(
        ia: DatIaHandle,
        async_evd: *mut DatEvdHandle,
        ia_mask: DatIaAttrMask,
        ia_attr: *mut DatIaAttr,
        provider_mask: DatProviderAttrMask,
        provider_attr: *mut DatProviderAttr,
    );
    dat_ia_close: DatIaCloseFunc(ia: DatIaHandle, flags: DatCloseFlags);
    dat_set_consumer_context: DatSetConsumerContextFunc(handle: DatHandle, context: DatContext);
    dat_get_consumer_context: DatGetConsumerContextFunc(
        handle: DatHandle,
        context: *mut DatContext,
    );
    dat_get_handle_type: DatGetHandleTypeFunc(handle: DatHandle, handle_type: *mut DatHandleType);
    dat_cno_create: DatCnoCreateFunc(
        ia: DatIaHandle,
        agent: DatOsWaitProxyAgent,
        cno: *mut DatCnoHandle,
    );
    dat_cno_modify_agent: DatCnoModifyAgentFunc(cno: DatCnoHandle, agent: DatOsWaitProxyAgent);
    dat_cno_query: DatCnoQueryFunc(
        cno: DatCnoHandle,
        mask: DatCnoParamMask,
        param: *mut DatCnoParam,
    );
    dat_cno_free: DatCnoFreeFunc(cno: DatCnoHandle);
    dat_cno_wait: DatCnoWaitFunc(cno: DatCnoHandle, timeout_us: DatTimeout, evd: *mut DatEvdHandle);
    dat_cr_query: DatCrQueryFunc(cr: DatCrHandle, mask: DatCrParamMask, param: *mut DatCrParam);
    dat_cr_accept: DatCrAcceptFunc(
        cr: DatCrHandle,
        ep: DatEpHandle,
        private_data_size: DatCount,
        private_data: *const c_void,
    );
    dat_cr_reject: DatCrRejectFunc(
        cr: DatCrHandle,
        private_data_size: DatCount,
        private_data: *const c_void,
    );
    dat_cr_handoff: DatCrHandoffFunc(cr: DatCrHandle, handoff: DatConnQual);
    dat_evd_create: DatEvdCreateFunc(
        ia: DatIaHandle,
        min_qlen: DatCount,
        cno: DatCnoHandle,
        flags: DatEvdFlags,
        evd: *mut DatEvdHandle,
    );
    dat_evd_query: DatEvdQueryFunc(
        evd: DatEvdHandle,
        mask: DatEvdParamMask,
        param: *mut DatEvdParam,
    );
    dat_evd_modify_cno: DatEvdModifyCnoFunc(evd: DatEvdHandle, cno: DatCnoHandle);
    dat_evd_enable: DatEvdEnableFunc(evd: DatEvdHandle);
    dat_evd_disable: DatEvdDisableFunc(evd: DatEvdHandle);
    dat_evd_wait: DatEvdWaitFunc(
        evd: DatEvdHandle,
        timeout_us: DatTimeout,
        threshold: DatCount,
        event: *mut DatEvent,
        nmore: *mut DatCount,
    );
    dat_evd_resize: DatEvdResizeFunc(evd: DatEvdHandle, min_qlen: DatCount);
    dat_evd_post_se: DatEvdPostSeFunc(evd: DatEvdHandle, event: *const DatEvent);
    dat_evd_dequeue: DatEvdDequeueFunc(evd: DatEvdHandle, event: *mut DatEvent);
    dat_evd_free: DatEvdFreeFunc(evd: DatEvdHandle);
    dat_ep_create: DatEpCreateFunc(
        ia: DatIaHandle,
        pz: DatPzHandle,
        recv_evd: DatEvdHandle,
        request_evd: DatEvdHandle,
        connect_evd: DatEvdHandle,
        attr: *const DatEpAttr,
        ep: *mut DatEpHandle,
    );
    dat_ep_query: DatEpQueryFunc(ep: DatEpHandle, mask: DatEpParamMask, param: *mut DatEpParam);
    dat_ep_modify: DatEpModifyFunc(ep: DatEpHandle, mask: DatEpParamMask, param: *const DatEpParam);
    dat_ep_connect: DatEpConnectFunc(
        ep: DatEpHandle,
        remote_address: DatIaAddressPtr,
        conn_qual: DatConnQual,
        timeout_us: DatTimeout,
        private_data_size: DatCount,
        private_data: *const c_void,
        qos: DatQos,
        flags: DatConnectFlags,
    );
    dat_ep_dup_connect: DatEpDupConnectFunc(
        ep: DatEpHandle,
        dup: DatEpHandle,
        timeout_us: DatTimeout,
        private_data_size: DatCount,
        private_data: *const c_void,
        qos: DatQos,
    );
    dat_ep_disconnect: DatEpDisconnectFunc(ep: DatEpHandle, flags: DatCloseFlags);
    dat_ep_post_send: DatEpPostSendFunc(
        ep: DatEpHandle,
        num_segments: DatCount,
        local_iov: *mut DatLmrTriplet,
        cookie: DatDtoCookie,
        flags: DatCompletionFlags,
    );
    dat_ep_post_recv: DatEpPostRecvFunc(
        ep: DatEpHandle,
        num_segments: DatCount,
        local_iov: *mut DatLmrTriplet,
        cookie: DatDtoCookie,
        flags: DatCompletionFlags,
    );
    dat_ep_post_rdma_read: DatEpPostRdmaReadFunc(
        ep: DatEpHandle,
        num_segments: DatCount,
        local_iov: *mut DatLmrTriplet,
        cookie: DatDtoCookie,
        remote: *const DatRmrTriplet,
        flags: DatCompletionFlags,
    );
    dat_ep_post_rdma_write: DatEpPostRdmaWriteFunc(
        ep: DatEpHandle,
        num_segments: DatCount,
        local_iov: *mut DatLmrTriplet,
        cookie: DatDtoCookie,
        remote: *const DatRmrTriplet,
        flags: DatCompletionFlags,
    );
    dat_ep_get_status: DatEpGetStatusFunc(
        ep: DatEpHandle,
        state: *mut DatEpState,
        recv_idle: *mut DatBoolean,
        request_idle: *mut DatBoolean,
    );
    dat_ep_free: DatEpFreeFunc(ep: DatEpHandle);
    dat_lmr_create: DatLmrCreateFunc(
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
    dat_lmr_query: DatLmrQueryFunc(
        lmr: DatLmrHandle,
        mask: DatLmrParamMask,
        param: *mut DatLmrParam,
    );
    dat_lmr_free: DatLmrFreeFunc(lmr: DatLmrHandle);
    dat_rmr_create: DatRmrCreateFunc(pz: DatPzHandle, rmr: *mut DatRmrHandle);
    dat_rmr_query: DatRmrQueryFunc(
        rmr: DatRmrHandle,
        mask: DatRmrParamMask,
        param: *mut DatRmrParam,
    );
    dat_rmr_bind: DatRmrBindFunc(
        rmr: DatRmrHandle,
        lmr: DatLmrHandle,
        lmr_triplet: *const DatLmrTriplet,
        privileges: DatMemPrivFlags,
        va_type: DatVaType,
        ep: DatEpHandle,
        cookie: DatRmrCookie,
        flags: DatCompletionFlags,
        rmr_context: *mut DatRmrContext,
    );
    dat_rmr_free: DatRmrFreeFunc(rmr: DatRmrHandle);
    dat_psp_create: DatPspCreateFunc(
        ia: DatIaHandle,
        conn_qual: DatConnQual,
        evd: DatEvdHandle,
        flags: DatPspFlags,
        psp: *mut DatPspHandle,
    );
    dat_psp_query: DatPspQueryFunc(
        psp: DatPspHandle,
        mask: DatPspParamMask,
        param: *mut DatPspParam,
    );
    dat_psp_free: DatPspFreeFunc(psp: DatPspHandle);
    dat_rsp_create: DatRspCreateFunc(
        ia: DatIaHandle,
        conn_qual: DatConnQual,
        ep: DatEpHandle,
        evd: DatEvdHandle,
        rsp: *mut DatRspHandle,
    );
    dat_rsp_query: DatRspQueryFunc(
        rsp: DatRspHandle,
        mask: DatRspParamMask,
        param: *mut DatRspParam,
    );
    dat_rsp_free: DatRspFreeFunc(rsp: DatRspHandle);
    dat_pz_create: DatPzCreateFunc(ia: DatIaHandle, pz: *mut DatPzHandle);
    dat_pz_query: DatPzQueryFunc(pz: DatPzHandle, mask: DatPzParamMask, param: *mut DatPzParam);
    dat_pz_free: DatPzFreeFunc(pz: DatPzHandle);
    dat_psp_create_any: DatPspCreateAnyFunc(
        ia: DatIaHandle,
        conn_qual: *mut DatConnQual,
        evd: DatEvdHandle,
        flags: DatPspFlags,
        psp: *mut DatPspHandle,
    );
    dat_ep_reset: DatEpResetFunc(ep: DatEpHandle);
    dat_evd_set_unwaitable: DatEvdSetUnwaitableFunc(evd: DatEvdHandle);
    dat_evd_clear_unwaitable: DatEvdClearUnwaitableFunc(evd: DatEvdHandle);
    dat_lmr_sync_rdma_read: DatLmrSyncRdmaReadFunc(
        ia: DatIaHandle,
        segments: *const DatLmrTriplet,
        num_segments: DatVlen,
    );
    dat_lmr_sync_rdma_write: DatLmrSyncRdmaWriteFunc(
        ia: DatIaHandle,
        segments: *const DatLmrTriplet,
        num_segments: DatVlen,
    );
    dat_ep_create_with_srq: DatEpCreateWithSrqFunc(
        ia: DatIaHandle,
        pz: DatPzHandle,
        recv_evd: DatEvdHandle,
        request_evd: DatEvdHandle,
        connect_evd: DatEvdHandle,
        srq: DatSrqHandle,
        attr: *const DatEpAttr,
        ep: *mut DatEpHandle,
    );
    dat_ep_recv_query: DatEpRecvQueryFunc(
        ep: DatEpHandle,
        nbufs_allocated: *mut DatCount,
        bufs_alloc_span: *mut DatCount,
    );
    dat_ep_set_watermark: DatEpSetWatermarkFunc(
        ep: DatEpHandle,
        soft_high_watermark: DatCount,
        hard_high_watermark: DatCount,
    );
    dat_srq_create: DatSrqCreateFunc(
        ia: DatIaHandle,
        pz: DatPzHandle,
        attr: *mut DatSrqAttr,
        srq: *mut DatSrqHandle,
    );
    dat_srq_free: DatSrqFreeFunc(srq: DatSrqHandle);
    dat_srq_post_recv: DatSrqPostRecvFunc(
        srq: DatSrqHandle,
        num_segments: DatCount,
        local_iov: *mut DatLmrTriplet,
        cookie: DatDtoCookie,
    );
    dat_srq_query: DatSrqQueryFunc(
        srq: DatSrqHandle,
        mask: DatSrqParamMask,
        param: *mut DatSrqParam,
    );
    dat_srq_resize: DatSrqResizeFunc(srq: DatSrqHandle, max_recv_dtos: DatCount);
    dat_srq_set_lw: DatSrqSetLwFunc(srq: DatSrqHandle, low_watermark: DatCount);
    dat_csp_create: DatCspCreateFunc(
        ia: DatIaHandle,
        comm: *mut DatComm,
        address: DatIaAddressPtr,
        evd: DatEvdHandle,
        csp: *mut DatCspHandle,
    );
    dat_csp_query: DatCspQueryFunc(
        csp: DatCspHandle,
        mask: DatCspParamMask,
        param: *mut DatCspParam,
    );
    dat_csp_free: DatCspFreeFunc(csp: DatCspHandle);
    dat_ep_common_connect: DatEpCommonConnectFunc(
        ep: DatEpHandle,
        remote_address: DatIaAddressPtr,
        timeout_us: DatTimeout,
        private_data_size: DatCount,
        private_data: *const c_void,
    );
    dat_rmr_create_for_ep: DatRmrCreateForEpFunc(pz: DatPzHandle, rmr: *mut DatRmrHandle);
    dat_ep_post_send_with_invalidate: DatEpPostSendWithInvalidateFunc(
        ep: DatEpHandle,
        num_segments: DatCount,
        local_iov: *mut DatLmrTriplet,
        cookie: DatDtoCookie,
        flags: DatCompletionFlags,
        invalidate: DatBoolean,
        rmr_context: DatRmrContext,
    );
    dat_ep_post_rdma_read_to_rmr: DatEpPostRdmaReadToRmrFunc(
        ep: DatEpHandle,
        local: *const DatRmrTriplet,
        cookie: DatDtoCookie,
        remote: *const DatRmrTriplet,
        flags: DatCompletionFlags,
    );
    dat_cno_fd_create: DatCnoFdCreateFunc(ia: DatIaHandle, fd: *mut DatFd, cno: *mut DatCnoHandle);
    dat_cno_trigger: DatCnoTriggerFunc(cno: DatCnoHandle, evd: *mut DatEvdHandle);
    /// It reports whether another provider can replace this IA. No registry calls it.
    ia_ha_related: DatIaHaRelatedFunc(
        ia: DatIaHandle,
        provider: DatNamePtr,
        answer: *mut DatBoolean,
    );
    /// An extension operation with its arguments as a `va_list`.
    handle_extendedop: DatHandleExtendedopFunc(
        handle: DatHandle,
        op: DatExtendedOp,
        args: DatVaList,
    );
    /// The public call behind the slot `ia_open`.
    dat_ia_openv: DatIaOpenvFunc(
        name: DatNamePtr,
        async_evd_qlen: DatCount,
        async_evd: *mut DatEvdHandle,
        ia: *mut DatIaHandle,
        major: DatUint32,
        minor: DatUint32,
        thread_safety: DatBoolean,
    );
}
