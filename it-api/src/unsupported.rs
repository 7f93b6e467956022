//! Calls that no adapter supports: unreliable datagrams, and calls for privileged programs.
//!
//! Their arguments are not read, so they are declared without any.

use crate::status::{OP_NOT_SUPPORTED, PRIV_OPS_UNAVAILABLE, Status};

macro_rules! refuse {
    ($status:ident: $($name:ident)+) => {
        $(
            #[unsafe(no_mangle)]
            extern "C" fn $name() -> Status {
                $status
            }
        )+
    };
}

refuse! { OP_NOT_SUPPORTED:
    it_address_handle_create
    it_address_handle_free
    it_address_handle_modify
    it_address_handle_query
    it_ep_ud_create
    it_post_recvfrom
    it_post_sendto
    it_ud_service_reply
    it_ud_service_request
    it_ud_service_request_handle_create
    it_ud_service_request_handle_free
    it_ud_service_request_handle_query
}

refuse! { PRIV_OPS_UNAVAILABLE:
    it_lmr_create_unlinked
    it_lmr_link
    it_lmr_unlink
    it_mem_map
    it_mem_unmap
}
