//! The remaining functions of the library, which fail as on a device that lacks them.
//!
//! Those of the private node belong to rdma-core's providers. `libmlx5.so.1` and `libefa.so.1`,
//! which some programs are linked with, do not load without them. They call them for devices of
//! their own only, of which this library has none.

use std::ffi::{c_int, c_void};
use std::sync::atomic::AtomicBool;

use rustix::io::Errno;

use crate::fault;

/// Declares functions that return an error number. The arguments are ignored, which the calling
/// conventions of Linux permit.
macro_rules! numbers {
    ($($name:ident)+) => { $(
        #[doc = concat!("`", stringify!($name), "`: fails with `EOPNOTSUPP`.")]
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> c_int {
            fault::code(Err(Errno::OPNOTSUPP))
        }
    )+ };
}

/// Declares functions that return -1 and set `errno`.
macro_rules! minus_ones {
    ($($name:ident)+) => { $(
        #[doc = concat!("`", stringify!($name), "`: fails with `EOPNOTSUPP`.")]
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> c_int {
            fault::minus_one(Err(Errno::OPNOTSUPP))
        }
    )+ };
}

/// Declares functions that return a null pointer and set `errno`.
macro_rules! pointers {
    ($($name:ident)+) => { $(
        #[doc = concat!("`", stringify!($name), "`: fails with `EOPNOTSUPP`.")]
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> *mut c_void {
            fault::pointer(Err(Errno::OPNOTSUPP))
        }
    )+ };
}

/// Declares functions without result.
macro_rules! nothings {
    ($($name:ident)+) => { $(
        #[doc = concat!("`", stringify!($name), "`: has no effect.")]
        #[unsafe(no_mangle)]
        extern "C" fn $name() {}
    )+ };
}

/// Declares functions that have nothing to do and succeed.
macro_rules! successes {
    ($($name:ident)+) => { $(
        #[doc = concat!("`", stringify!($name), "`: returns 0.")]
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> c_int {
            0
        }
    )+ };
}

numbers! {
    ibv_attach_mcast ibv_detach_mcast ibv_query_ece ibv_set_ece
    execute_ioctl
    ibv_cmd_advise_mr ibv_cmd_alloc_dm ibv_cmd_alloc_mw ibv_cmd_alloc_pd ibv_cmd_attach_mcast
    ibv_cmd_close_xrcd ibv_cmd_create_ah ibv_cmd_create_counters ibv_cmd_create_cq
    ibv_cmd_create_cq_ex ibv_cmd_create_flow ibv_cmd_create_flow_action_esp ibv_cmd_create_qp
    ibv_cmd_create_qp_ex ibv_cmd_create_qp_ex2 ibv_cmd_create_rwq_ind_table ibv_cmd_create_srq
    ibv_cmd_create_srq_ex ibv_cmd_create_wq ibv_cmd_dealloc_mw ibv_cmd_dealloc_pd ibv_cmd_dereg_mr
    ibv_cmd_destroy_ah ibv_cmd_destroy_counters ibv_cmd_destroy_cq ibv_cmd_destroy_flow
    ibv_cmd_destroy_flow_action ibv_cmd_destroy_qp ibv_cmd_destroy_rwq_ind_table
    ibv_cmd_destroy_srq ibv_cmd_destroy_wq ibv_cmd_detach_mcast ibv_cmd_free_dm ibv_cmd_get_context
    ibv_cmd_modify_cq ibv_cmd_modify_flow_action_esp ibv_cmd_modify_qp ibv_cmd_modify_qp_ex
    ibv_cmd_modify_srq ibv_cmd_modify_wq ibv_cmd_open_qp ibv_cmd_open_xrcd ibv_cmd_poll_cq
    ibv_cmd_post_recv ibv_cmd_post_send ibv_cmd_post_srq_recv ibv_cmd_query_context
    ibv_cmd_query_device_any ibv_cmd_query_mr ibv_cmd_query_port ibv_cmd_query_qp ibv_cmd_query_srq
    ibv_cmd_read_counters ibv_cmd_reg_dm_mr ibv_cmd_reg_dmabuf_mr ibv_cmd_reg_mr
    ibv_cmd_req_notify_cq ibv_cmd_rereg_mr ibv_cmd_resize_cq
}

minus_ones! {
    ibv_read_ibdev_sysfs_file ibv_resolve_eth_l2_from_gid
}

pointers! {
    ibv_import_device ibv_import_dm ibv_import_mr ibv_import_pd
    ibv_reg_dmabuf_mr
    _verbs_init_and_alloc_context verbs_open_device
}

nothings! {
    ibv_copy_ah_attr_from_kern ibv_copy_path_rec_from_kern ibv_copy_path_rec_to_kern
    ibv_copy_qp_attr_from_kern ibv_unimport_dm ibv_unimport_mr ibv_unimport_pd
    __verbs_log verbs_register_driver_34 verbs_set_ops verbs_uninit_context
}

// Memory is never pinned, so that a fork needs no preparation; the data of a Write may be placed
// out of order.
successes! {
    ibv_dofork_range ibv_dontfork_range ibv_query_qp_data_in_order
    __ioctl_final_num_attrs verbs_init_cq
}

/// `verbs_allow_disassociate_destroy`: a setting of rdma-core's providers.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "the name of a variable in C")]
static verbs_allow_disassociate_destroy: AtomicBool = AtomicBool::new(false);
