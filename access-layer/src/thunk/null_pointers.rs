//! Tests of every call that needs an out-pointer or a structure: null is refused with the number of
//! its argument.

use std::ptr;

use dat_abi::*;

use crate::harness::{LONG_US, Pair, call, succeed};

const THRESHOLD: DatCompletionFlags = DAT_COMPLETION_EVD_THRESHOLD_FLAG;

/// Returns `DAT_INVALID_PARAMETER` with this argument.
fn argument(n: u32) -> u32 {
    0x8006_0024 + n
}

/// Calls slots with valid arguments except for one null pointer, and expects the number of that
/// argument.
macro_rules! expect_arguments {
    ($dat:expr, $($n:literal: $($slot:ident($($arg:expr),* $(,)?)),+ $(,)?;)+) => {$($(
        let code = call!($dat, $slot $(, $arg)*);
        assert_eq!(code, argument($n), "{}", stringify!($slot));
    )+)+};
}

fn null<T>() -> *mut T {
    ptr::null_mut()
}

/// A connected pair, an unconnected endpoint, and one object of each other kind.
struct All {
    pair: Pair,
    idle: DatEpHandle,
    requests: DatEvdHandle,
    psp: DatPspHandle,
    cr: DatCrHandle,
    cno: DatCnoHandle,
    rmr: DatRmrHandle,
    srq: DatSrqHandle,
}

impl All {
    fn new() -> Self {
        let pair = Pair::connected("srq=4 mw=1", THRESHOLD);
        let dat = &pair.dat;
        let (idle, active) = (
            dat.end(pair.pz, THRESHOLD).ep,
            dat.end(pair.pz, THRESHOLD).ep,
        );
        let requests = dat.evd(DAT_EVD_CR_FLAG);
        let (psp, qualifier) = dat.psp(requests);
        let (address, none) = (dat.attr().ia_address_ptr, ptr::null());
        succeed!(
            dat, ep_connect, active, address, qualifier, LONG_US, 0, none, 0, 0
        );
        let cr = dat.request(requests);
        let (rmr, srq, cno) = (dat.rmr(pair.pz), dat.srq(pair.pz), dat.cno());
        Self {
            idle,
            requests,
            psp,
            cr,
            cno,
            rmr,
            srq,
            pair,
        }
    }

    fn events(&self) {
        let (dat, evd) = (&self.pair.dat, self.pair.ends[0].connect);
        let agent = DatOsWaitProxyAgent::zeroed();
        let (mut event, mut count, mut fd) = (DatEvent::zeroed(), 0, 0);
        let (event, count, fd) = (&raw mut event, &raw mut count, &raw mut fd);
        let mut handle = null();
        let (ia, handle) = (dat.ia, &raw mut handle);
        expect_arguments! { dat,
            2: cno_fd_create(ia, null(), handle), cno_trigger(self.cno, null()),
            evd_post_se(evd, ptr::null()), evd_dequeue(evd, null());
            3: cno_create(ia, agent, null()), cno_query(self.cno, DAT_CNO_FIELD_ALL, null()),
            cno_wait(self.cno, 0, null()), cno_fd_create(ia, fd, null()),
            evd_query(evd, DAT_EVD_FIELD_ALL, null());
            4: evd_wait(evd, 0, 1, null(), count), ia_query(ia, handle, 1, null(), 0, null());
            5: evd_wait(evd, 0, 1, event, null()), evd_create(ia, 8, null(), 0, null());
            6: ia_query(ia, handle, 0, null(), 1, null());
        }
    }

    fn endpoints(&self) {
        let (dat, pair) = (&self.pair.dat, &self.pair);
        let (ia, pz, ep) = (dat.ia, pair.pz, pair.ends[0].ep);
        let end = &pair.ends[0];
        let (recv, request, connect) = (end.recv, end.request, end.connect);
        let (mut local, mut remote) = (pair.triplet(0, 8), DatRmrTriplet::zeroed());
        let (local, remote) = (&raw mut local, &raw mut remote);
        let (cookie, mut srq) = (DatContext::from_u64(1), null());
        expect_arguments! { dat,
            2: ep_connect(self.idle, null(), 1, LONG_US, 0, ptr::null(), 0, 0),
            ep_common_connect(self.idle, null(), LONG_US, 0, ptr::null()),
            ep_post_rdma_read_to_rmr(ep, ptr::null(), cookie, remote, 0);
            3: ep_query(ep, DAT_EP_FIELD_ALL, null()), ep_modify(ep, 0, ptr::null()),
            ep_post_send(ep, 1, null(), cookie, 0), ep_post_recv(ep, 1, null(), cookie, 0),
            ep_post_rdma_read(ep, 1, null(), cookie, remote, 0),
            ep_post_rdma_write(ep, 1, null(), cookie, remote, 0),
            ep_post_send_with_invalidate(ep, 1, null(), cookie, 0, 0, 0),
            srq_query(self.srq, DAT_SRQ_FIELD_ALL, null()),
            srq_create(ia, pz, null(), &raw mut srq),
            srq_post_recv(self.srq, 1, null(), cookie);
            4: ep_post_rdma_read_to_rmr(ep, remote, cookie, ptr::null(), 0);
            5: ep_post_rdma_read(ep, 1, local, cookie, ptr::null(), 0),
            ep_post_rdma_write(ep, 1, local, cookie, ptr::null(), 0);
            7: ep_create(ia, pz, recv, request, connect, ptr::null(), null());
            8: ep_create_with_srq(ia, pz, recv, request, connect, self.srq, ptr::null(), null());
        }
    }

    fn memory(&self) {
        let (dat, pair) = (&self.pair.dat, &self.pair);
        let (ia, pz, ep, rmr) = (dat.ia, pair.pz, pair.ends[0].ep, self.rmr);
        let region = DatRegionDescription {
            for_va: pair.memory.as_ptr().cast_mut().cast(),
        };
        let (mut triplet, mut context) = (pair.triplet(0, 8), 0);
        let (triplet, context) = (&raw mut triplet, &raw mut context);
        let cookie = DatContext::from_u64(1);
        let (none32, none64) = (null::<u32>(), null::<u64>());
        expect_arguments! { dat,
            2: pz_create(ia, null()), rmr_create(pz, null()), rmr_create_for_ep(pz, null()),
            lmr_sync_rdma_read(ia, ptr::null(), 1), lmr_sync_rdma_write(ia, ptr::null(), 1);
            3: pz_query(pz, DAT_PZ_FIELD_ALL, null()), rmr_query(rmr, 1, null()),
            lmr_query(pair.lmr_handle, DAT_LMR_FIELD_ALL, null()),
            rmr_bind(rmr, pair.lmr_handle, ptr::null(), 0, 0, ep, cookie, 0, context);
            7: lmr_create(ia, 0, region, 8, pz, 0, 0, null(), none32, none32, none64, none64);
            9: rmr_bind(rmr, pair.lmr_handle, triplet, 0, 0, ep, cookie, 0, null());
        }
    }

    fn services(&self) {
        let (dat, evd) = (&self.pair.dat, self.requests);
        let ia = dat.ia;
        let mut good_srq = GOOD_SRQ;
        let (mut comm, mut qualifier, mut handle) = (DatComm::zeroed(), 0, null());
        let (comm, qualifier, handle) = (&raw mut comm, &raw mut qualifier, &raw mut handle);
        let (mut rsp, mut csp) = (null(), null());
        succeed!(dat, rsp_create, ia, 0x7777, self.idle, evd, &raw mut rsp);
        let own = dat.attr().ia_address_ptr;
        succeed!(dat, csp_create, ia, comm, own, evd, &raw mut csp);
        expect_arguments! { dat,
            2: psp_create_any(ia, null(), evd, 0, handle), csp_create(ia, null(), own, evd, handle);
            3: psp_query(self.psp, DAT_PSP_FIELD_ALL, null()), rsp_query(rsp, 1, null()),
            csp_query(csp, 1, null()), cr_query(self.cr, DAT_CR_FIELD_ALL, null()),
            csp_create(ia, comm, null(), evd, handle);
            4: srq_create(ia, self.pair.pz, &raw mut good_srq, null()),
            cr_accept(self.cr, self.idle, 1, ptr::null());
            5: psp_create(ia, 0x7778, evd, 0, null()),
            psp_create_any(ia, qualifier, evd, 0, null()),
            rsp_create(ia, 0x7778, self.idle, evd, null()), csp_create(ia, comm, own, evd, null());
        }
    }
}

const GOOD_SRQ: DatSrqAttr = DatSrqAttr {
    max_recv_dtos: 8,
    max_recv_iov: 1,
    low_watermark: 0,
};

#[test]
fn a_null_pointer_is_reported_by_the_number_of_its_argument() {
    let all = All::new();
    all.events();
    all.endpoints();
    all.memory();
    all.services();
}
