//! Disconnecting, flushing and closing.

use std::sync::atomic::Ordering;

use dat_abi::*;

use super::consumer::*;
use crate::rnic::Rnic;

/// The code of a graceful `dat_ia_close` while objects exist.
const IA_IN_USE: u32 = DatReturn::error(DAT_INVALID_STATE, DAT_INVALID_STATE_IA_IN_USE).0;

fn pair<R: Rnic>(params: &str) -> Pair {
    Pair::on(Dat::open_on::<R>(params), DAT_COMPLETION_EVD_THRESHOLD_FLAG)
}

fn expect_one_end(pair: &Pair) {
    for end in &pair.ends {
        let (event, nmore) = pair.dat.wait(end.connect, LONG_US, 1).unwrap();
        assert_eq!(
            (event.event_number, nmore),
            (DAT_CONNECTION_EVENT_DISCONNECTED, 0)
        );
    }
    for end in &pair.ends {
        assert!(
            pair.dat.wait(end.connect, 20_000, 1).is_err(),
            "reported twice"
        );
    }
}

pub(super) fn each_side_is_notified_of_the_end_once<R: Rnic>(params: &str) {
    for flags in [DAT_CLOSE_ABRUPT_FLAG, DAT_CLOSE_GRACEFUL_FLAG] {
        let pair = pair::<R>(params);
        succeed!(pair.dat, ep_disconnect, pair.ends[0].ep, flags);
        expect_one_end(&pair);
        succeed!(pair.dat, ep_disconnect, pair.ends[1].ep, flags);
        assert!(pair.dat.dequeue(pair.ends[1].connect).is_err());
    }
    // Both ends disconnect at the same time.
    for _ in 0..10 {
        let pair = pair::<R>(params);
        let words = [0, 1].map(|end: usize| pair.ends[end].ep.expose_provenance());
        std::thread::scope(|scope| {
            for word in words {
                let dat = &pair.dat;
                scope.spawn(move || {
                    let ep = std::ptr::with_exposed_provenance_mut(word);
                    succeed!(dat, ep_disconnect, ep, DAT_CLOSE_ABRUPT_FLAG);
                });
            }
        });
        expect_one_end(&pair);
    }
}

pub(super) fn posted_receives_are_flushed<R: Rnic>(params: &str) {
    let pair = pair::<R>(params);
    for cookie in 0..4 {
        assert_eq!(pair.recv(0, cookie, 0), SUCCESS);
    }
    let ep = pair.ends[0].ep;
    succeed!(pair.dat, ep_disconnect, ep, DAT_CLOSE_ABRUPT_FLAG);
    // The receives were flushed before the call returned.
    for cookie in 0..4 {
        let flushed = dto(&pair.dat.dequeue(pair.ends[0].recv).unwrap());
        assert_eq!(flushed.user_cookie.to_u64(), cookie);
        assert_eq!(
            (flushed.status, flushed.ep_handle),
            (DAT_DTO_ERR_FLUSHED, ep)
        );
    }
    expect_one_end(&pair);
    assert_eq!(pair.recv(0, 9, 0), SUCCESS);
    assert_eq!(pair.send(0, 9, 0), SUCCESS);
    for evd in [pair.ends[0].recv, pair.ends[0].request] {
        let (event, _) = pair.dat.wait(evd, LONG_US, 1).unwrap();
        assert_eq!(dto(&event).status, DAT_DTO_ERR_FLUSHED);
    }
}

pub(super) fn a_disconnected_endpoint_can_be_used_again<R: Rnic>(params: &str) {
    let pair = pair::<R>(params);
    for round in 0..5 {
        let ep = pair.ends[round % 2].ep;
        succeed!(pair.dat, ep_disconnect, ep, DAT_CLOSE_ABRUPT_FLAG);
        expect_one_end(&pair);
        for end in &pair.ends {
            succeed!(pair.dat, ep_reset, end.ep);
        }
        pair.connect();
        pair.memory[0].store(u8::try_from(round).unwrap() + 1, Ordering::Relaxed);
        assert_eq!(pair.recv(1, 1, 0), SUCCESS);
        assert_eq!(pair.send(0, 1, DAT_COMPLETION_SUPPRESS_FLAG), SUCCESS);
        let (event, _) = pair.dat.wait(pair.ends[1].recv, LONG_US, 1).unwrap();
        assert_eq!(dto(&event).status, DAT_DTO_SUCCESS);
        assert_eq!(
            usize::from(pair.memory[2048].load(Ordering::Relaxed)),
            round + 1
        );
    }
}

pub(super) fn closing_the_ia_ends_everything<R: Rnic>(params: &str) {
    let pair = pair::<R>(params);
    assert_eq!(pair.recv(1, 1, 0), SUCCESS);
    let dat = &pair.dat;
    assert_eq!(
        call!(dat, ia_close, dat.ia, DAT_CLOSE_GRACEFUL_FLAG),
        IA_IN_USE
    );
    succeed!(dat, ia_close, dat.ia, DAT_CLOSE_ABRUPT_FLAG);
    assert_eq!(
        call!(dat, ia_close, dat.ia, DAT_CLOSE_ABRUPT_FLAG),
        invalid_handle(DAT_INVALID_HANDLE_IA)
    );
    assert_eq!(
        call!(dat, ep_free, pair.ends[0].ep),
        invalid_handle(DAT_INVALID_HANDLE_EP)
    );
    assert_eq!(
        call!(dat, evd_free, pair.ends[0].recv),
        invalid_handle(DAT_INVALID_HANDLE_EVD_REQUEST)
    );
    assert_eq!(
        call!(dat, lmr_free, pair.lmr_handle),
        invalid_handle(DAT_INVALID_HANDLE_LMR)
    );
}
