//! Tests of the endpoint with a scripted RNIC.

mod life_cycle;
mod modify;
mod post;
mod socket_connect;

use super::*;
use crate::scripted_rnic::{
    Bench, Call, PARTS, ScriptedRnic, TestEp, bytes_at, connect_args, free_evd, free_pz,
};

/// Returns the type and subtype of an error.
fn code<T: std::fmt::Debug>(result: DatResult<T>) -> (DatReturnType, DatReturnSubtype) {
    let code = result.unwrap_err().code();
    (code.ty(), code.subtype())
}

fn state(ep: &TestEp) -> DatEpState {
    let state = ep.query().ep_state;
    assert_eq!(
        ep.status().state,
        state,
        "the copy for the data path differs"
    );
    state
}
