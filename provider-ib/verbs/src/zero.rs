//! Default values of the structures that callers fill in: zero, as in C.

use crate::types::{
    ibv_async_event, ibv_comp_channel, ibv_context, ibv_cq, ibv_device_attr, ibv_pd, ibv_port_attr,
    ibv_qp, ibv_qp_attr, ibv_qp_init_attr, ibv_qp_state, ibv_send_wr, ibv_srq, ibv_wc,
};

macro_rules! zero {
    ($($name:ident)+) => { $(
        impl Default for $name {
            #[inline]
            fn default() -> Self {
                // SAFETY: each structure below has only numbers, pointers and optional functions,
                // for which zero is a value.
                unsafe { std::mem::zeroed() }
            }
        }
    )+ };
}

zero! {
    ibv_async_event ibv_comp_channel ibv_context ibv_cq ibv_device_attr ibv_pd ibv_port_attr ibv_qp
    ibv_qp_attr ibv_qp_init_attr ibv_send_wr ibv_srq ibv_wc
}

impl ibv_qp_attr {
    /// Returns the attributes with which a queue pair enters a state.
    pub fn in_state(qp_state: ibv_qp_state) -> Self {
        Self {
            qp_state,
            ..Self::default()
        }
    }
}
