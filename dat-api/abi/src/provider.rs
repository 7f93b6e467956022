//! `struct dat_provider`: the table that a provider passes to the registry, and its registration
//! key.

use crate::*;
use core::ffi::{c_char, c_int, c_void};

c_structs! {
    /// `DAT_PROVIDER_INFO`: the key under which a provider is registered.
    pub struct DatProviderInfo, size 268 {
        ia_name @ 0: DatName,
        dapl_version_major @ 256: DatUint32,
        dapl_version_minor @ 260: DatUint32,
        /// True if calls on one object may overlap.
        is_thread_safe @ 264: DatBoolean,
    }
}

/// Function a provider library exports as [`DAT_PROVIDER_INIT_NAME`]: called after loading, once
/// for each name in the registry, with the `ia_params` field of that entry.
pub type DatProviderInitFunc =
    unsafe extern "C" fn(info: *const DatProviderInfo, instance_data: *const c_char);
/// Function a provider library exports as [`DAT_PROVIDER_FINI_NAME`]: called before unloading.
pub type DatProviderFiniFunc = unsafe extern "C" fn(info: *const DatProviderInfo);
/// Function a provider library may export as [`DAPL_EXTENSIONS_NAME`]: extension operations that
/// need no open IA.
pub type DaplExtensionsFunc = DatHandleExtendedopFunc;
/// Function that a provider library of dat-rs exports as [`DAT_RS_OPEN_ERROR_NAME`]: returns the
/// reason why the last `dat_ia_open` of the calling thread failed. Null when there is no reason, or
/// when the provider has logged it. The string is valid until the thread calls open again.
pub type DatRsOpenErrorFunc = unsafe extern "C" fn() -> *const c_char;

/// Function that a provider library of dat-rs exports as [`DAT_RS_FORK_NAME`]: takes a step of a
/// thread that forks. Returns 1 if the thread holds the locks of the library after it, else 0.
pub type DatRsForkFunc = extern "C" fn(step: c_int) -> c_int;

/// The steps of a [`DatRsForkFunc`].
#[derive(Debug)]
pub enum DatRsForkStep {}

impl DatRsForkStep {
    /// No change.
    pub const QUERY: c_int = 0;
    /// Before the fork: the thread locks what it has not locked.
    pub const HOLD: c_int = 1;
    /// After the fork, in both processes.
    pub const RELEASE: c_int = 2;
}

/// Symbol of the [`DatProviderInitFunc`] of a library.
pub const DAT_PROVIDER_INIT_NAME: &core::ffi::CStr = c"dat_provider_init";
/// Symbol of the [`DatProviderFiniFunc`] of a library.
pub const DAT_PROVIDER_FINI_NAME: &core::ffi::CStr = c"dat_provider_fini";
/// Symbol of the [`DaplExtensionsFunc`] of a library.
pub const DAPL_EXTENSIONS_NAME: &core::ffi::CStr = c"dapl_extensions";
/// Symbol of the [`DatRsOpenErrorFunc`] of a library.
pub const DAT_RS_OPEN_ERROR_NAME: &core::ffi::CStr = c"dat_rs_open_error";
/// Symbol of the [`DatRsForkFunc`] of a library.
pub const DAT_RS_FORK_NAME: &core::ffi::CStr = c"dat_rs_fork";

/// Declares the table of a provider.
macro_rules! declare_table {
    ($($group:ident {$(
        $(#[$meta:meta])*
        $call:ident => $slot:ident: $name:ident $found:tt $arguments:tt;
    )+})+) => {
        /// `DAT_PROVIDER` (`struct dat_provider`): one function for every call.
        ///
        /// A complete provider fills every slot. The slots are optional here because a registry
        /// must not jump to null when a slot is empty.
        #[repr(C)]
        #[derive(Clone, Copy, Debug)]
        pub struct DatProvider {
            /// Name of the IA; equal to the name in the registry.
            pub device_name: *const c_char,
            /// Data of the provider.
            pub extension: *mut c_void,
            $($(
                #[doc = concat!("See [`", stringify!($name), "`].")]
                pub $slot: Option<$name>,
            )+)+
        }
    };
}

for_each_slot! { declare_table }

// SAFETY: the table is immutable plain data once a provider has published it. Its two raw pointers
// belong to the provider, which guarantees that their targets are valid and shareable while it is
// registered.
unsafe impl Sync for DatProvider {}

assert_layout!(DatProvider, size 648, device_name @ 0, extension @ 8,
    ia_open @ 16, ia_query @ 24, ia_close @ 32, set_consumer_context @ 40,
    get_consumer_context @ 48, get_handle_type @ 56, cno_create @ 64, cno_modify_agent @ 72,
    cno_query @ 80, cno_free @ 88, cno_wait @ 96, cr_query @ 104, cr_accept @ 112, cr_reject @ 120,
    cr_handoff @ 128, evd_create @ 136, evd_query @ 144, evd_modify_cno @ 152, evd_enable @ 160,
    evd_disable @ 168, evd_wait @ 176, evd_resize @ 184, evd_post_se @ 192, evd_dequeue @ 200,
    evd_free @ 208, ep_create @ 216, ep_query @ 224, ep_modify @ 232, ep_connect @ 240,
    ep_dup_connect @ 248, ep_disconnect @ 256, ep_post_send @ 264, ep_post_recv @ 272,
    ep_post_rdma_read @ 280, ep_post_rdma_write @ 288, ep_get_status @ 296, ep_free @ 304,
    lmr_create @ 312, lmr_query @ 320, lmr_free @ 328, rmr_create @ 336, rmr_query @ 344,
    rmr_bind @ 352, rmr_free @ 360, psp_create @ 368, psp_query @ 376, psp_free @ 384,
    rsp_create @ 392, rsp_query @ 400, rsp_free @ 408, pz_create @ 416, pz_query @ 424,
    pz_free @ 432, psp_create_any @ 440, ep_reset @ 448, evd_set_unwaitable @ 456,
    evd_clear_unwaitable @ 464, lmr_sync_rdma_read @ 472, lmr_sync_rdma_write @ 480,
    ep_create_with_srq @ 488, ep_recv_query @ 496, ep_set_watermark @ 504, srq_create @ 512,
    srq_free @ 520, srq_post_recv @ 528, srq_query @ 536, srq_resize @ 544, srq_set_lw @ 552,
    csp_create @ 560, csp_query @ 568, csp_free @ 576, ep_common_connect @ 584,
    rmr_create_for_ep @ 592, ep_post_send_with_invalidate @ 600, ep_post_rdma_read_to_rmr @ 608,
    cno_fd_create @ 616, cno_trigger @ 624, ia_ha_related @ 632, handle_extendedop @ 640);

impl_zeroed!(DatProvider);
