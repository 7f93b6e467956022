//! Waiting for completions.

use dat_abi::*;

use super::consumer::*;
use crate::rnic::Rnic;

const THRESHOLD: DatCompletionFlags = DAT_COMPLETION_EVD_THRESHOLD_FLAG;

fn pair<R: Rnic>(params: &str) -> Pair {
    Pair::on(Dat::open_on::<R>(params), THRESHOLD)
}

pub(super) fn a_waiter_sleeps_until_its_threshold<R: Rnic>(params: &str) {
    let pair = pair::<R>(params);
    let word = pair.ends[1].recv.expose_provenance();
    for cookie in 0..4 {
        assert_eq!(pair.recv(1, cookie, 0), SUCCESS);
    }
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let evd = std::ptr::with_exposed_provenance_mut(word);
            let (event, nmore) = pair.dat.wait(evd, LONG_US, 3).unwrap();
            (dto(&event).user_cookie.to_u64(), nmore)
        });
        for cookie in 0..2 {
            assert_eq!(pair.send(0, cookie, 0), SUCCESS);
            assert!(pair.dat.wait(pair.ends[0].request, LONG_US, 1).is_ok());
        }
        assert!(!waiter.is_finished());
        assert_eq!(pair.send(0, 2, 0), SUCCESS);
        assert_eq!(waiter.join().unwrap(), (0, 2));
    });
    // If the threshold is not reached, no event is taken and the number of events is returned.
    let result = pair.dat.wait(pair.ends[1].recv, 1000, 3).map(drop);
    assert_eq!(result, Err((TIMEOUT_EXPIRED, 2)));
}

pub(super) fn a_cno_returns_the_evd_that_triggered<R: Rnic>(params: &str) {
    let pair = pair::<R>(params);
    let (dat, cno) = (&pair.dat, pair.dat.cno());
    for end in &pair.ends {
        succeed!(dat, evd_modify_cno, end.recv, cno);
    }
    for round in 0..20 {
        let (from, to) = (round % 2, 1 - round % 2);
        assert_eq!(pair.recv(to, 1, 0), SUCCESS);
        assert_eq!(pair.send(from, 1, DAT_COMPLETION_SUPPRESS_FLAG), SUCCESS);
        assert_eq!(dat.cno_wait(cno, LONG_US), Ok(pair.ends[to].recv));
        assert!(dat.dequeue(pair.ends[to].recv).is_ok());
        assert_eq!(dat.dequeue(pair.ends[to].recv).map(drop), Err(QUEUE_EMPTY));
    }
    assert_eq!(
        dat.cno_wait(cno, 1000).map_err(|(code, _)| code),
        Err(QUEUE_EMPTY)
    );
}

pub(super) fn a_suppressed_send_completes_silently<R: Rnic>(params: &str) {
    let pair = pair::<R>(params);
    for cookie in 0..3 {
        assert_eq!(pair.recv(1, cookie, 0), SUCCESS);
    }
    for cookie in 0..2 {
        assert_eq!(pair.send(0, cookie, DAT_COMPLETION_SUPPRESS_FLAG), SUCCESS);
    }
    assert_eq!(pair.send(0, 2, 0), SUCCESS);
    let (event, nmore) = pair.dat.wait(pair.ends[0].request, LONG_US, 1).unwrap();
    assert_eq!((dto(&event).user_cookie.to_u64(), nmore), (2, 0));
    let (event, nmore) = pair.dat.wait(pair.ends[1].recv, LONG_US, 3).unwrap();
    assert_eq!((dto(&event).user_cookie.to_u64(), nmore), (0, 2));
}
