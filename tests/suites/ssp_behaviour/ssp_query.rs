//! 3.1.3 `dat_iw_ssp_query`.

use std::os::fd::AsRawFd;
use std::ptr;

use anyhow::{Result, ensure};
use dat_api::Ep;
use dat_api::abi::*;

use stack_tests::until;

use super::bench::{Node, unconnected};
use super::raw_calls::{ssp_create, ssp_free, ssp_query, ssp_query_into};

fn service_point(node: &Node, ep: &Ep, socket: i32) -> Result<DatIwSspHandle> {
    ssp_create(
        node.ia.as_raw(),
        socket,
        ep.as_raw(),
        node.requests.as_raw(),
    )
    .map_err(|code| anyhow::anyhow!("{code:?}"))
}

#[test]
fn every_requested_parameter_is_filled() -> Result<()> {
    let (node, ep, _peer, socket) = unconnected()?;
    let ssp = service_point(&node, &ep, socket.as_raw_fd())?;
    let asked = |mask| ssp_query(ssp, mask).map_err(|code| anyhow::anyhow!("{mask:#x}: {code:?}"));
    for mask in 1..=DAT_IW_SSP_FIELD_ALL {
        let param = asked(mask)?;
        let has = |field| mask & field != 0;
        ensure!(!has(DAT_IW_SSP_FIELD_IA_HANDLE) || param.ia_handle == node.ia.as_raw());
        ensure!(!has(DAT_IW_SSP_FIELD_SOCKET_ID) || param.socket_id == socket.as_raw_fd());
        ensure!(!has(DAT_IW_SSP_FIELD_EVD_HANDLE) || param.evd_handle == node.requests.as_raw());
        ensure!(!has(DAT_IW_SSP_FIELD_EP_HANDLE) || param.ep_handle == ep.as_raw());
        let state = DAT_IW_SSP_STATE_OPERATIONAL;
        ensure!(!has(DAT_IW_SSP_FIELD_SSP_STATE) || param.ssp_state == state);
    }
    ensure!(ssp_free(ssp).is_success());
    Ok(())
}

#[test]
fn an_invalid_mask_or_no_structure_is_an_invalid_parameter() -> Result<()> {
    let (node, ep, _peer, socket) = unconnected()?;
    let ssp = service_point(&node, &ep, socket.as_raw_fd())?;
    for mask in [0x20, 0x3F, u32::MAX, 0x8000_0000] {
        ensure!(ssp_query(ssp, mask).is_err_and(|code| code.is(DAT_INVALID_PARAMETER)));
    }
    let code = ssp_query_into(ssp, DAT_IW_SSP_FIELD_ALL, ptr::null_mut());
    ensure!(code.is(DAT_INVALID_PARAMETER), "{code:?}");
    ensure!(ssp_free(ssp).is_success());
    Ok(())
}

#[test]
fn handles_of_other_objects_are_invalid() -> Result<()> {
    let node = Node::new()?;
    let ep = node.ep()?;
    for handle in [
        DAT_HANDLE_NULL,
        ep.as_raw(),
        node.ia.as_raw(),
        node.requests.as_raw(),
    ] {
        let code = ssp_query(handle, DAT_IW_SSP_FIELD_ALL);
        ensure!(code.is_err_and(|code| code.is(DAT_INVALID_HANDLE)));
    }
    Ok(())
}

#[test]
fn many_threads_may_query_while_the_socket_goes_down() -> Result<()> {
    let (node, ep, peer, socket) = unconnected()?;
    let ssp = service_point(&node, &ep, socket.as_raw_fd())?;
    // Handles are plain values that any thread may use, so the test passes this one as a number.
    let number = ssp.expose_provenance();
    std::thread::scope(|scope| {
        let watch = || -> Result<()> {
            let ssp = ptr::with_exposed_provenance_mut(number);
            let is_down = || -> Result<bool> {
                let param = ssp_query(ssp, DAT_IW_SSP_FIELD_ALL)
                    .map_err(|code| anyhow::anyhow!("{code:?}"))?;
                let is_down = param.ssp_state == DAT_IW_SSP_STATE_NON_OPERATIONAL;
                ensure!(is_down == (param.socket_id == -1), "half a change was seen");
                Ok(is_down)
            };
            until!(is_down()?, "it does not go down");
            Ok(())
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(watch)).collect();
        drop(peer);
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().expect("the thread does not panic"))
    })?;
    ensure!(ssp_free(ssp).is_success());
    Ok(())
}
