//! Connection establishment.

use std::ffi::c_void;
use std::ptr;

use dat_abi::*;

use super::consumer::*;
use crate::rnic::Rnic;

const THRESHOLD: DatCompletionFlags = DAT_COMPLETION_EVD_THRESHOLD_FLAG;

/// A service and an endpoint that will connect to it.
struct Attempt {
    dat: Dat,
    active: End,
    passive: End,
    requests: DatEvdHandle,
    psp: DatPspHandle,
    conn_qual: DatConnQual,
}

impl Attempt {
    fn new<R: Rnic>(params: &str) -> Self {
        let dat = Dat::open_on::<R>(params);
        let pz = dat.pz();
        let (active, passive) = (dat.end(pz, THRESHOLD), dat.end(pz, THRESHOLD));
        let requests = dat.evd(DAT_EVD_CR_FLAG);
        let (psp, conn_qual) = dat.psp(requests);
        Self {
            dat,
            active,
            passive,
            requests,
            psp,
            conn_qual,
        }
    }

    fn connect(&self, timeout_us: u32, private_data: &[u8]) {
        let (ep, address) = (self.active.ep, self.dat.attr().ia_address_ptr);
        let len = i32::try_from(private_data.len()).unwrap();
        let bytes = private_data.as_ptr().cast::<c_void>();
        let (qual, qos) = (self.conn_qual, DAT_QOS_BEST_EFFORT);
        succeed!(
            self.dat, ep_connect, ep, address, qual, timeout_us, len, bytes, qos, 0
        );
    }

    /// Returns the request and its private data.
    fn request(&self) -> (DatCrHandle, Vec<u8>) {
        let cr = self.dat.request(self.requests);
        let mut param = DatCrParam::zeroed();
        let all = DAT_CR_FIELD_ALL;
        succeed!(self.dat, cr_query, cr, all, &raw mut param);
        // SAFETY: the provider's bytes are valid until the request is answered.
        let received = unsafe { bytes_of(param.private_data, param.private_data_size) };
        (cr, received)
    }

    /// Checks that private data was received as it was sent. InfiniBand does not transmit the
    /// length but pads the field with zeros, which an attribute reports.
    fn expect_carried(&self, received: &[u8], given: &[u8]) {
        let is_padded = self.dat.named("DAT_IB_PRIVATE_DATA_PADDED").as_deref() == Some("TRUE");
        let (front, rest) = received.split_at(given.len().min(received.len()));
        assert_eq!(front, given);
        assert!(rest.is_empty() || is_padded, "{} bytes more", rest.len());
        assert!(rest.iter().all(|byte| *byte == 0), "{rest:?}");
    }

    fn expect(&self, end: &End, number: DatEventNumber) -> Vec<u8> {
        let (event, _) = self.dat.wait(end.connect, LONG_US, 1).unwrap();
        assert_eq!(event.event_number, number, "{:#x}", event.event_number);
        // SAFETY: connection events use this member.
        let data = unsafe { event.event_data.connect_event_data };
        assert_eq!(data.ep_handle, end.ep);
        // SAFETY: the provider's bytes are valid as long as the endpoint.
        unsafe { bytes_of(data.private_data, data.private_data_size) }
    }

    fn state(&self, end: &End) -> DatEpState {
        let mut state = 99;
        let null = ptr::null_mut();
        succeed!(self.dat, ep_get_status, end.ep, &raw mut state, null, null);
        state
    }
}

/// # Safety
/// `bytes` points at `len` readable bytes when `len` is not 0.
unsafe fn bytes_of(bytes: DatPvoid, len: DatCount) -> Vec<u8> {
    let len = usize::try_from(len).unwrap();
    if len == 0 {
        return Vec::new();
    }
    // SAFETY: guaranteed by the caller.
    unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), len) }.to_vec()
}

pub(super) fn private_data_reaches_both_sides<R: Rnic>(params: &str) {
    for (question, answer) in [
        (&b"who is there?"[..], &b"me"[..]),
        (b"", b""),
        (&[7; 56], b""),
    ] {
        let attempt = Attempt::new::<R>(params);
        attempt.connect(LONG_US, question);
        let (cr, received) = attempt.request();
        attempt.expect_carried(&received, question);
        let len = i32::try_from(answer.len()).unwrap();
        let ep = attempt.passive.ep;
        succeed!(attempt.dat, cr_accept, cr, ep, len, answer.as_ptr().cast());
        let received = attempt.expect(&attempt.active, DAT_CONNECTION_EVENT_ESTABLISHED);
        attempt.expect_carried(&received, answer);
        attempt.expect(&attempt.passive, DAT_CONNECTION_EVENT_ESTABLISHED);
        assert_eq!(attempt.state(&attempt.active), DAT_EP_STATE_CONNECTED);
        assert_eq!(attempt.state(&attempt.passive), DAT_EP_STATE_CONNECTED);
        assert_eq!(
            call!(attempt.dat, cr_reject, cr, 0, ptr::null()),
            invalid_handle(DAT_INVALID_HANDLE_CR)
        );
    }
}

pub(super) fn a_rejection_carries_private_data<R: Rnic>(params: &str) {
    let attempt = Attempt::new::<R>(params);
    attempt.connect(LONG_US, b"please");
    let (cr, _) = attempt.request();
    succeed!(attempt.dat, cr_reject, cr, 2, b"no".as_ptr().cast());
    let received = attempt.expect(&attempt.active, DAT_CONNECTION_EVENT_PEER_REJECTED);
    attempt.expect_carried(&received, b"no");
    assert_eq!(attempt.state(&attempt.active), DAT_EP_STATE_DISCONNECTED);
}

pub(super) fn a_connect_without_listener_is_refused<R: Rnic>(params: &str) {
    let attempt = Attempt::new::<R>(params);
    succeed!(attempt.dat, psp_free, attempt.psp);
    // Providers may retry for a while, in case the service is about to listen.
    attempt.connect(LONG_US, b"");
    attempt.expect(&attempt.active, DAT_CONNECTION_EVENT_NON_PEER_REJECTED);
    assert_eq!(attempt.state(&attempt.active), DAT_EP_STATE_DISCONNECTED);
}

pub(super) fn an_unanswered_request_times_out<R: Rnic>(params: &str) {
    // On a busy machine the time may pass before the request is sent.
    for timeout_us in [100_000, 3_000_000, LONG_US] {
        let attempt = Attempt::new::<R>(params);
        attempt.connect(timeout_us, b"");
        let requested = attempt.dat.wait(attempt.requests, timeout_us, 1);
        attempt.expect(&attempt.active, DAT_CONNECTION_EVENT_TIMED_OUT);
        assert_eq!(attempt.state(&attempt.active), DAT_EP_STATE_DISCONNECTED);
        if let Ok((event, _)) = requested {
            let cr = request_of(&event);
            succeed!(attempt.dat, cr_reject, cr, 0, ptr::null());
            return;
        }
    }
    panic!("no request is sent in time");
}
