//! Tests of the endpoint with a scripted RNIC.

mod life_cycle;
mod modify;
mod post;
mod socket_connect;

use super::*;
use crate::scripted_rnic::{
    Bench, Call, PARTS, ScriptedRnic, TestEp, assert_bad_argument, assert_bad_handle,
    assert_bad_state, assert_refused, bytes_at, code, connect_args, free_evd, free_pz, pinned,
};

fn state(ep: &TestEp) -> DatEpState {
    let state = ep.query().ep_state;
    let copy = ep.status().state;
    assert_eq!(copy, state, "the copy for the data path differs");
    state
}

/// The private data to which a connection event points.
fn private_data(data: &DatConnectionEventData) -> Vec<u8> {
    bytes_at(data.private_data, data.private_data_size)
}
