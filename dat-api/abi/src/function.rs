//! The slots of the provider table, and one function type for each.
//!
//! A slot has the signature of the public call of the same name, unless its line says otherwise.
//! The IA handles that a slot receives are the provider's pointers and not the consumer's small
//! integers. None of these functions may unwind into its caller.

use crate::*;
use core::ffi::c_void;

/// Calls the macro `$then` with every slot in the order of the table: the public call, the slot,
/// its type, and its arguments. The word in brackets is the kind of the first argument, by which a
/// registry finds the provider; `-` marks calls of which the slot is only a part. Every registry
/// library exports the calls of the group `required`; OFA's library lacks those of `optional`. The
/// names are those of this crate, and `c_void` from `core::ffi`.
#[doc(hidden)]
#[macro_export]
macro_rules! for_each_slot {
    ($then:ident) => { $then! {
        provider {
            /// The slot has no version arguments, unlike `dat_ia_openv`.
            dat_ia_open => ia_open: DatIaOpenFunc [-](
                name: DatNamePtr,
                async_evd_qlen: DatCount,
                async_evd: *mut DatEvdHandle,
                ia: *mut DatIaHandle,
            );
        }
        required {
            dat_ia_query => ia_query: DatIaQueryFunc [ia](
                ia: DatIaHandle,
                async_evd: *mut DatEvdHandle,
                ia_mask: DatIaAttrMask,
                ia_attr: *mut DatIaAttr,
                provider_mask: DatProviderAttrMask,
                provider_attr: *mut DatProviderAttr,
            );
            dat_ia_close => ia_close: DatIaCloseFunc [-](ia: DatIaHandle, flags: DatCloseFlags);
            dat_set_consumer_context => set_consumer_context: DatSetConsumerContextFunc [any](
                handle: DatHandle,
                context: DatContext,
            );
            dat_get_consumer_context => get_consumer_context: DatGetConsumerContextFunc [any](
                handle: DatHandle,
                context: *mut DatContext,
            );
            dat_get_handle_type => get_handle_type: DatGetHandleTypeFunc [any](
                handle: DatHandle,
                handle_type: *mut DatHandleType,
            );
            dat_cno_create => cno_create: DatCnoCreateFunc [ia](
                ia: DatIaHandle,
                agent: DatOsWaitProxyAgent,
                cno: *mut DatCnoHandle,
            );
            dat_cno_modify_agent => cno_modify_agent: DatCnoModifyAgentFunc [cno](
                cno: DatCnoHandle,
                agent: DatOsWaitProxyAgent,
            );
            dat_cno_query => cno_query: DatCnoQueryFunc [cno](
                cno: DatCnoHandle,
                mask: DatCnoParamMask,
                param: *mut DatCnoParam,
            );
            dat_cno_free => cno_free: DatCnoFreeFunc [cno](cno: DatCnoHandle);
            dat_cno_wait => cno_wait: DatCnoWaitFunc [cno](
                cno: DatCnoHandle,
                timeout_us: DatTimeout,
                evd: *mut DatEvdHandle,
            );
            dat_cr_query => cr_query: DatCrQueryFunc [cr](
                cr: DatCrHandle,
                mask: DatCrParamMask,
                param: *mut DatCrParam,
            );
            dat_cr_accept => cr_accept: DatCrAcceptFunc [cr](
                cr: DatCrHandle,
                ep: DatEpHandle,
                private_data_size: DatCount,
                private_data: *const c_void,
            );
            dat_cr_reject => cr_reject: DatCrRejectFunc [cr](
                cr: DatCrHandle,
                private_data_size: DatCount,
                private_data: *const c_void,
            );
            dat_cr_handoff => cr_handoff: DatCrHandoffFunc [cr](
                cr: DatCrHandle,
                handoff: DatConnQual,
            );
            dat_evd_create => evd_create: DatEvdCreateFunc [ia](
                ia: DatIaHandle,
                min_qlen: DatCount,
                cno: DatCnoHandle,
                flags: DatEvdFlags,
                evd: *mut DatEvdHandle,
            );
            dat_evd_query => evd_query: DatEvdQueryFunc [evd](
                evd: DatEvdHandle,
                mask: DatEvdParamMask,
                param: *mut DatEvdParam,
            );
            dat_evd_modify_cno => evd_modify_cno: DatEvdModifyCnoFunc [evd](
                evd: DatEvdHandle,
                cno: DatCnoHandle,
            );
            dat_evd_enable => evd_enable: DatEvdEnableFunc [evd](evd: DatEvdHandle);
            dat_evd_disable => evd_disable: DatEvdDisableFunc [evd](evd: DatEvdHandle);
            dat_evd_wait => evd_wait: DatEvdWaitFunc [evd](
                evd: DatEvdHandle,
                timeout_us: DatTimeout,
                threshold: DatCount,
                event: *mut DatEvent,
                nmore: *mut DatCount,
            );
            dat_evd_resize => evd_resize: DatEvdResizeFunc [evd](
                evd: DatEvdHandle,
                min_qlen: DatCount,
            );
            dat_evd_post_se => evd_post_se: DatEvdPostSeFunc [evd](
                evd: DatEvdHandle,
                event: *const DatEvent,
            );
            dat_evd_dequeue => evd_dequeue: DatEvdDequeueFunc [evd](
                evd: DatEvdHandle,
                event: *mut DatEvent,
            );
            dat_evd_free => evd_free: DatEvdFreeFunc [evd](evd: DatEvdHandle);
            dat_ep_create => ep_create: DatEpCreateFunc [ia](
                ia: DatIaHandle,
                pz: DatPzHandle,
                recv_evd: DatEvdHandle,
                request_evd: DatEvdHandle,
                connect_evd: DatEvdHandle,
                attr: *const DatEpAttr,
                ep: *mut DatEpHandle,
            );
            dat_ep_query => ep_query: DatEpQueryFunc [ep](
                ep: DatEpHandle,
                mask: DatEpParamMask,
                param: *mut DatEpParam,
            );
            dat_ep_modify => ep_modify: DatEpModifyFunc [ep](
                ep: DatEpHandle,
                mask: DatEpParamMask,
                param: *const DatEpParam,
            );
            dat_ep_connect => ep_connect: DatEpConnectFunc [ep](
                ep: DatEpHandle,
                remote_address: DatIaAddressPtr,
                conn_qual: DatConnQual,
                timeout_us: DatTimeout,
                private_data_size: DatCount,
                private_data: *const c_void,
                qos: DatQos,
                flags: DatConnectFlags,
            );
            dat_ep_dup_connect => ep_dup_connect: DatEpDupConnectFunc [ep](
                ep: DatEpHandle,
                dup: DatEpHandle,
                timeout_us: DatTimeout,
                private_data_size: DatCount,
                private_data: *const c_void,
                qos: DatQos,
            );
            dat_ep_disconnect => ep_disconnect: DatEpDisconnectFunc [ep](
                ep: DatEpHandle,
                flags: DatCloseFlags,
            );
            dat_ep_post_send => ep_post_send: DatEpPostSendFunc [ep](
                ep: DatEpHandle,
                num_segments: DatCount,
                local_iov: *mut DatLmrTriplet,
                cookie: DatDtoCookie,
                flags: DatCompletionFlags,
            );
            dat_ep_post_recv => ep_post_recv: DatEpPostRecvFunc [ep](
                ep: DatEpHandle,
                num_segments: DatCount,
                local_iov: *mut DatLmrTriplet,
                cookie: DatDtoCookie,
                flags: DatCompletionFlags,
            );
            dat_ep_post_rdma_read => ep_post_rdma_read: DatEpPostRdmaReadFunc [ep](
                ep: DatEpHandle,
                num_segments: DatCount,
                local_iov: *mut DatLmrTriplet,
                cookie: DatDtoCookie,
                remote: *const DatRmrTriplet,
                flags: DatCompletionFlags,
            );
            dat_ep_post_rdma_write => ep_post_rdma_write: DatEpPostRdmaWriteFunc [ep](
                ep: DatEpHandle,
                num_segments: DatCount,
                local_iov: *mut DatLmrTriplet,
                cookie: DatDtoCookie,
                remote: *const DatRmrTriplet,
                flags: DatCompletionFlags,
            );
            dat_ep_get_status => ep_get_status: DatEpGetStatusFunc [ep](
                ep: DatEpHandle,
                state: *mut DatEpState,
                recv_idle: *mut DatBoolean,
                request_idle: *mut DatBoolean,
            );
            dat_ep_free => ep_free: DatEpFreeFunc [ep](ep: DatEpHandle);
            dat_lmr_create => lmr_create: DatLmrCreateFunc [ia](
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
            dat_lmr_query => lmr_query: DatLmrQueryFunc [lmr](
                lmr: DatLmrHandle,
                mask: DatLmrParamMask,
                param: *mut DatLmrParam,
            );
            dat_lmr_free => lmr_free: DatLmrFreeFunc [lmr](lmr: DatLmrHandle);
            dat_rmr_create => rmr_create: DatRmrCreateFunc [pz](
                pz: DatPzHandle,
                rmr: *mut DatRmrHandle,
            );
            dat_rmr_query => rmr_query: DatRmrQueryFunc [rmr](
                rmr: DatRmrHandle,
                mask: DatRmrParamMask,
                param: *mut DatRmrParam,
            );
            dat_rmr_bind => rmr_bind: DatRmrBindFunc [rmr](
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
            dat_rmr_free => rmr_free: DatRmrFreeFunc [rmr](rmr: DatRmrHandle);
            dat_psp_create => psp_create: DatPspCreateFunc [ia](
                ia: DatIaHandle,
                conn_qual: DatConnQual,
                evd: DatEvdHandle,
                flags: DatPspFlags,
                psp: *mut DatPspHandle,
            );
            dat_psp_query => psp_query: DatPspQueryFunc [psp](
                psp: DatPspHandle,
                mask: DatPspParamMask,
                param: *mut DatPspParam,
            );
            dat_psp_free => psp_free: DatPspFreeFunc [psp](psp: DatPspHandle);
            dat_rsp_create => rsp_create: DatRspCreateFunc [ia](
                ia: DatIaHandle,
                conn_qual: DatConnQual,
                ep: DatEpHandle,
                evd: DatEvdHandle,
                rsp: *mut DatRspHandle,
            );
            dat_rsp_query => rsp_query: DatRspQueryFunc [rsp](
                rsp: DatRspHandle,
                mask: DatRspParamMask,
                param: *mut DatRspParam,
            );
            dat_rsp_free => rsp_free: DatRspFreeFunc [rsp](rsp: DatRspHandle);
            dat_pz_create => pz_create: DatPzCreateFunc [ia](ia: DatIaHandle, pz: *mut DatPzHandle);
            dat_pz_query => pz_query: DatPzQueryFunc [pz](
                pz: DatPzHandle,
                mask: DatPzParamMask,
                param: *mut DatPzParam,
            );
            dat_pz_free => pz_free: DatPzFreeFunc [pz](pz: DatPzHandle);
            dat_psp_create_any => psp_create_any: DatPspCreateAnyFunc [ia](
                ia: DatIaHandle,
                conn_qual: *mut DatConnQual,
                evd: DatEvdHandle,
                flags: DatPspFlags,
                psp: *mut DatPspHandle,
            );
            dat_ep_reset => ep_reset: DatEpResetFunc [ep](ep: DatEpHandle);
            dat_evd_set_unwaitable => evd_set_unwaitable: DatEvdSetUnwaitableFunc [evd](
                evd: DatEvdHandle,
            );
            dat_evd_clear_unwaitable => evd_clear_unwaitable: DatEvdClearUnwaitableFunc [evd](
                evd: DatEvdHandle,
            );
            dat_lmr_sync_rdma_read => lmr_sync_rdma_read: DatLmrSyncRdmaReadFunc [ia](
                ia: DatIaHandle,
                segments: *const DatLmrTriplet,
                num_segments: DatVlen,
            );
            dat_lmr_sync_rdma_write => lmr_sync_rdma_write: DatLmrSyncRdmaWriteFunc [ia](
                ia: DatIaHandle,
                segments: *const DatLmrTriplet,
                num_segments: DatVlen,
            );
            dat_ep_create_with_srq => ep_create_with_srq: DatEpCreateWithSrqFunc [ia](
                ia: DatIaHandle,
                pz: DatPzHandle,
                recv_evd: DatEvdHandle,
                request_evd: DatEvdHandle,
                connect_evd: DatEvdHandle,
                srq: DatSrqHandle,
                attr: *const DatEpAttr,
                ep: *mut DatEpHandle,
            );
            dat_ep_recv_query => ep_recv_query: DatEpRecvQueryFunc [ep](
                ep: DatEpHandle,
                nbufs_allocated: *mut DatCount,
                bufs_alloc_span: *mut DatCount,
            );
            dat_ep_set_watermark => ep_set_watermark: DatEpSetWatermarkFunc [ep](
                ep: DatEpHandle,
                soft_high_watermark: DatCount,
                hard_high_watermark: DatCount,
            );
            dat_srq_create => srq_create: DatSrqCreateFunc [ia](
                ia: DatIaHandle,
                pz: DatPzHandle,
                attr: *mut DatSrqAttr,
                srq: *mut DatSrqHandle,
            );
            dat_srq_free => srq_free: DatSrqFreeFunc [srq](srq: DatSrqHandle);
            dat_srq_post_recv => srq_post_recv: DatSrqPostRecvFunc [srq](
                srq: DatSrqHandle,
                num_segments: DatCount,
                local_iov: *mut DatLmrTriplet,
                cookie: DatDtoCookie,
            );
            dat_srq_query => srq_query: DatSrqQueryFunc [srq](
                srq: DatSrqHandle,
                mask: DatSrqParamMask,
                param: *mut DatSrqParam,
            );
            dat_srq_resize => srq_resize: DatSrqResizeFunc [srq](
                srq: DatSrqHandle,
                max_recv_dtos: DatCount,
            );
            dat_srq_set_lw => srq_set_lw: DatSrqSetLwFunc [srq](
                srq: DatSrqHandle,
                low_watermark: DatCount,
            );
        }
        optional {
            dat_csp_create => csp_create: DatCspCreateFunc [ia](
                ia: DatIaHandle,
                comm: *mut DatComm,
                address: DatIaAddressPtr,
                evd: DatEvdHandle,
                csp: *mut DatCspHandle,
            );
            dat_csp_query => csp_query: DatCspQueryFunc [csp](
                csp: DatCspHandle,
                mask: DatCspParamMask,
                param: *mut DatCspParam,
            );
            dat_csp_free => csp_free: DatCspFreeFunc [csp](csp: DatCspHandle);
            dat_ep_common_connect => ep_common_connect: DatEpCommonConnectFunc [ep](
                ep: DatEpHandle,
                remote_address: DatIaAddressPtr,
                timeout_us: DatTimeout,
                private_data_size: DatCount,
                private_data: *const c_void,
            );
            dat_rmr_create_for_ep => rmr_create_for_ep: DatRmrCreateForEpFunc [pz](
                pz: DatPzHandle,
                rmr: *mut DatRmrHandle,
            );
            dat_ep_post_send_with_invalidate => ep_post_send_with_invalidate:
            DatEpPostSendWithInvalidateFunc [ep](
                ep: DatEpHandle,
                num_segments: DatCount,
                local_iov: *mut DatLmrTriplet,
                cookie: DatDtoCookie,
                flags: DatCompletionFlags,
                invalidate: DatBoolean,
                rmr_context: DatRmrContext,
            );
            dat_ep_post_rdma_read_to_rmr => ep_post_rdma_read_to_rmr:
            DatEpPostRdmaReadToRmrFunc [ep](
                ep: DatEpHandle,
                local: *const DatRmrTriplet,
                cookie: DatDtoCookie,
                remote: *const DatRmrTriplet,
                flags: DatCompletionFlags,
            );
            dat_cno_fd_create => cno_fd_create: DatCnoFdCreateFunc [ia](
                ia: DatIaHandle,
                fd: *mut DatFd,
                cno: *mut DatCnoHandle,
            );
            dat_cno_trigger => cno_trigger: DatCnoTriggerFunc [cno](
                cno: DatCnoHandle,
                evd: *mut DatEvdHandle,
            );
        }
        provider {
            /// Reports whether another provider can replace this IA. No registry calls it.
            dat_ia_ha_related => ia_ha_related: DatIaHaRelatedFunc [-](
                ia: DatIaHandle,
                provider: DatNamePtr,
                answer: *mut DatBoolean,
            );
            /// An extension operation with its arguments as a `va_list`.
            dat_handle_extendedop => handle_extendedop: DatHandleExtendedopFunc [-](
                handle: DatHandle,
                op: DatExtendedOp,
                args: DatVaList,
            );
        }
    } };
}

/// Declares the types of slots, which all return a [`DatReturn`].
macro_rules! declare_types {
    ($($group:ident {$(
        $(#[$meta:meta])*
        $call:ident => $slot:ident: $name:ident $found:tt ($($arg:ident: $ty:ty),* $(,)?);
    )+})+) => {$($(
        #[doc = concat!("The type of `", stringify!($call), "`.")]
        $(#[$meta])*
        pub type $name = unsafe extern "C" fn($($arg: $ty),*) -> DatReturn;
    )+)+};
}

for_each_slot! { declare_types }

/// The type of `dat_ia_openv`, the public call behind the slot `ia_open`.
pub type DatIaOpenvFunc = unsafe extern "C" fn(
    name: DatNamePtr,
    async_evd_qlen: DatCount,
    async_evd: *mut DatEvdHandle,
    ia: *mut DatIaHandle,
    major: DatUint32,
    minor: DatUint32,
    thread_safety: DatBoolean,
) -> DatReturn;
