//! Common code of the tests of this crate: a consumer of the RNIC in memory, which calls through
//! the provider table, as a C program does.

use std::ffi::{CString, c_int};
use std::ptr;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use dat_abi::*;

use crate::fake_rnic::FakeRnic;
use crate::handle::{self, Object, Pinned};
use crate::ia::Ia;
use crate::provider;
use crate::rnic::{Rnic, RnicConfig};

/// Calls a slot of the table and returns the code.
macro_rules! call {
    ($dat:expr, $slot:ident $(, $arg:expr)* $(,)?) => {{
        let entry = $dat.provider.$slot.unwrap();
        // SAFETY: tests pass pointers that are null or point to live values of the right type;
        // handles may be any words.
        unsafe { entry($($arg),*) }.0
    }};
}
pub(crate) use call;

/// Calls a slot of the table, which must succeed.
macro_rules! succeed {
    ($dat:expr, $slot:ident $(, $arg:expr)* $(,)?) => {
        assert_eq!(
            $crate::harness::call!($dat, $slot $(, $arg)*),
            $crate::harness::SUCCESS,
            stringify!($slot)
        )
    };
}
pub(crate) use succeed;

/// Calls a slot of the table, which must return a code.
macro_rules! refused {
    ($dat:expr, $slot:ident $(, $arg:expr)* => $code:literal) => {
        assert_eq!($crate::harness::call!($dat, $slot $(, $arg)*), $code, stringify!($slot))
    };
}
pub(crate) use refused;

pub(crate) const SUCCESS: u32 = 0;
/// A timeout that is longer than any step takes, so that only a lost wake-up reaches it.
pub(crate) const LONG_US: u32 = 60_000_000;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// Returns a number that no other test of this process uses.
pub(crate) fn unique() -> u32 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

unsafe extern "C" {
    /// Calls an entry of extension operations with its variadic arguments as a `va_list`.
    pub(crate) fn access_call_extension(
        entry: DatHandleExtendedopFunc,
        handle: DatHandle,
        op: c_int,
        ...
    ) -> DatReturn;
}

/// Returns the table's entry of extension operations.
pub(crate) fn extension_entry<R: Rnic>() -> DatHandleExtendedopFunc {
    let table = provider::table::<R>(ptr::null());
    table.handle_extendedop.unwrap()
}

/// An open IA, which is closed abruptly when it is dropped.
pub(crate) struct Dat {
    pub(crate) provider: &'static DatProvider,
    pub(crate) name: String,
    pub(crate) ia: DatIaHandle,
    pub(crate) async_evd: DatEvdHandle,
}

pub(crate) fn request_of(event: &DatEvent) -> DatCrHandle {
    assert_eq!(event.event_number, DAT_CONNECTION_REQUEST_EVENT);
    // SAFETY: the event number selects this member.
    unsafe { event.event_data.cr_arrival_event_data }.cr_handle
}

impl Dat {
    /// Opens an IA in a network of its own.
    pub(crate) fn open() -> Self {
        Self::open_with("")
    }

    /// Opens an IA with these `ia_params`, in a network of its own and under a name of its own.
    pub(crate) fn open_with(params: &str) -> Self {
        let name = format!("ia{}", unique());
        let ia_params = format!("net=test{} {params}", unique());
        let config = RnicConfig {
            ia_name: name.clone(),
            ia_params,
        };
        let provider = provider::announce::<FakeRnic>(config).get();
        let (ia, async_evd) = (ptr::null_mut(), ptr::null_mut());
        let mut dat = Self {
            provider,
            name,
            ia,
            async_evd,
        };
        let (code, ia, async_evd) = dat.try_open(8, ptr::null_mut());
        assert_eq!(code, SUCCESS, "{:x?}", code);
        (dat.ia, dat.async_evd) = (ia, async_evd);
        dat
    }

    /// Calls `dat_ia_open` again with the same name.
    pub(crate) fn try_open(
        &self,
        qlen: i32,
        given: DatEvdHandle,
    ) -> (u32, DatIaHandle, DatEvdHandle) {
        let name = CString::new(self.name.clone()).unwrap();
        let (mut ia, mut evd) = (ptr::null_mut(), given);
        let (name, out) = (name.as_ptr().cast_mut(), &raw mut ia);
        let code = call!(self, ia_open, name, qlen, &raw mut evd, out);
        (code, ia, evd)
    }

    pub(crate) fn attr(&self) -> DatIaAttr {
        let (mut attr, evd, no_provider) = (DatIaAttr::zeroed(), ptr::null_mut(), ptr::null_mut());
        let (ia, all, out) = (self.ia, DAT_IA_FIELD_ALL, &raw mut attr);
        succeed!(self, ia_query, ia, evd, all, out, 0, no_provider);
        attr
    }

    pub(crate) fn pz(&self) -> DatPzHandle {
        let mut pz = ptr::null_mut();
        assert_eq!(call!(self, pz_create, self.ia, &raw mut pz), SUCCESS);
        pz
    }

    /// A queue of eight receives of one segment.
    pub(crate) fn srq(&self, pz: DatPzHandle) -> DatSrqHandle {
        let (mut attr, mut srq) = (DatSrqAttr::zeroed(), ptr::null_mut());
        (attr.max_recv_dtos, attr.max_recv_iov) = (8, 1);
        let (attr, out) = (&raw mut attr, &raw mut srq);
        assert_eq!(call!(self, srq_create, self.ia, pz, attr, out), SUCCESS);
        srq
    }

    pub(crate) fn rmr(&self, pz: DatPzHandle) -> DatRmrHandle {
        let mut rmr = ptr::null_mut();
        assert_eq!(call!(self, rmr_create, pz, &raw mut rmr), SUCCESS);
        rmr
    }

    pub(crate) fn try_evd(
        &self,
        qlen: i32,
        cno: DatCnoHandle,
        flags: DatEvdFlags,
    ) -> Result<DatEvdHandle, u32> {
        let mut evd = ptr::null_mut();
        match call!(self, evd_create, self.ia, qlen, cno, flags, &raw mut evd) {
            SUCCESS => Ok(evd),
            code => Err(code),
        }
    }

    pub(crate) fn evd(&self, flags: DatEvdFlags) -> DatEvdHandle {
        self.evd_of_len(64, flags)
    }

    pub(crate) fn evd_of_len(&self, qlen: i32, flags: DatEvdFlags) -> DatEvdHandle {
        self.try_evd(qlen, ptr::null_mut(), flags).unwrap()
    }

    pub(crate) fn cno(&self) -> DatCnoHandle {
        let mut cno = ptr::null_mut();
        let agent = DatOsWaitProxyAgent::zeroed();
        succeed!(self, cno_create, self.ia, agent, &raw mut cno);
        cno
    }

    pub(crate) fn lmr(&self, pz: DatPzHandle, memory: &[AtomicU8]) -> DatLmrParam {
        self.lmr_and_handle(pz, memory).1
    }

    pub(crate) fn lmr_and_handle(
        &self,
        pz: DatPzHandle,
        memory: &[AtomicU8],
    ) -> (DatLmrHandle, DatLmrParam) {
        let (mut lmr, mut param) = (ptr::null_mut(), DatLmrParam::zeroed());
        let region = DatRegionDescription {
            for_va: memory.as_ptr().cast_mut().cast(),
        };
        // The in-memory RNIC accesses the bytes by their address, as a device does.
        memory.as_ptr().expose_provenance();
        let (mem_type, len) = (DAT_MEM_TYPE_VIRTUAL, memory.len() as u64);
        let (all, va) = (DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA);
        let (ia, out) = (self.ia, &raw mut lmr);
        let (key, place) = (ptr::null_mut(), ptr::null_mut());
        let code = call!(
            self, lmr_create, ia, mem_type, region, len, pz, all, va, out, key, key, place, place
        );
        assert_eq!(code, SUCCESS);
        succeed!(self, lmr_query, lmr, DAT_LMR_FIELD_ALL, &raw mut param);
        (lmr, param)
    }

    pub(crate) fn dequeue(&self, evd: DatEvdHandle) -> Result<DatEvent, u32> {
        let mut event = DatEvent::zeroed();
        match call!(self, evd_dequeue, evd, &raw mut event) {
            SUCCESS => Ok(event),
            code => Err(code),
        }
    }

    /// Returns the code of a dequeue, which must find no event.
    pub(crate) fn dequeue_code(&self, evd: DatEvdHandle) -> u32 {
        self.dequeue(evd).map(drop).unwrap_err()
    }

    /// Returns the event and the number of remaining events, or the code and the number of queued
    /// events.
    pub(crate) fn wait(
        &self,
        evd: DatEvdHandle,
        timeout_us: u32,
        threshold: i32,
    ) -> Result<(DatEvent, i32), (u32, i32)> {
        let (mut event, mut nmore) = (DatEvent::zeroed(), -1);
        let (out, more) = (&raw mut event, &raw mut nmore);
        let code = call!(self, evd_wait, evd, timeout_us, threshold, out, more);
        if code == SUCCESS {
            Ok((event, nmore))
        } else {
            Err((code, nmore))
        }
    }

    /// Returns the code of a wait, which must return no event, and the number of queued events.
    pub(crate) fn wait_code(&self, evd: DatEvdHandle, us: u32, threshold: i32) -> (u32, i32) {
        self.wait(evd, us, threshold).map(drop).unwrap_err()
    }

    pub(crate) fn cno_wait(
        &self,
        cno: DatCnoHandle,
        timeout_us: u32,
    ) -> Result<DatEvdHandle, (u32, DatEvdHandle)> {
        let mut evd = ptr::without_provenance_mut(0xBAD);
        match call!(self, cno_wait, cno, timeout_us, &raw mut evd) {
            SUCCESS => Ok(evd),
            code => Err((code, evd)),
        }
    }

    pub(crate) fn ia(&self) -> Pinned<Ia<FakeRnic>> {
        self.pin(self.ia)
    }

    pub(crate) fn pin<T: Object>(&self, handle: DatHandle) -> Pinned<T> {
        handle::pin(handle).expect("alive")
    }

    pub(crate) fn post_software(&self, evd: DatEvdHandle, word: usize) -> u32 {
        let mut event = DatEvent::zeroed();
        event.event_number = DAT_SOFTWARE_EVENT;
        event.event_data.software_event_data = DatSoftwareEventData {
            pointer: ptr::without_provenance_mut(word),
        };
        call!(self, evd_post_se, evd, &raw const event)
    }
}

impl Drop for Dat {
    fn drop(&mut self) {
        let _ = call!(self, ia_close, self.ia, DAT_CLOSE_ABRUPT_FLAG);
    }
}

// SAFETY: handles are words that any thread may use.
unsafe impl Send for Dat {}
// SAFETY: as for Send.
unsafe impl Sync for Dat {}

pub(crate) fn dto(event: &DatEvent) -> DatDtoCompletionEventData {
    assert_eq!(event.event_number, DAT_DTO_COMPLETION_EVENT);
    // SAFETY: the event number selects this member.
    unsafe { event.event_data.dto_completion_event_data }
}

/// Returns the data of an asynchronous event.
pub(crate) fn async_error(event: &DatEvent) -> DatAsynchErrorEventData {
    // SAFETY: all asynchronous events use this member.
    unsafe { event.event_data.asynch_error_event_data }
}

/// Returns the consumer's value in a software event.
pub(crate) fn software_word(event: &DatEvent) -> usize {
    assert_eq!(event.event_number, DAT_SOFTWARE_EVENT);
    // SAFETY: the event number selects this member.
    unsafe { event.event_data.software_event_data }
        .pointer
        .addr()
}

/// One end of a connection within one IA.
pub(crate) struct End {
    pub(crate) ep: DatEpHandle,
    pub(crate) recv: DatEvdHandle,
    pub(crate) request: DatEvdHandle,
    pub(crate) connect: DatEvdHandle,
}

/// Two connected endpoints of one IA, and memory that both may use.
pub(crate) struct Pair {
    pub(crate) dat: Dat,
    pub(crate) ends: [End; 2],
    pub(crate) pz: DatPzHandle,
    pub(crate) lmr: DatLmrParam,
    pub(crate) lmr_handle: DatLmrHandle,
    /// Atomics, because the in-memory RNIC accesses the memory without the compiler's knowledge.
    pub(crate) memory: Box<[AtomicU8]>,
}

impl Pair {
    /// Creates two connected endpoints in a network of their own.
    pub(crate) fn connected(params: &str, recv_flags: DatCompletionFlags) -> Self {
        Self::on(Dat::open_with(params), recv_flags)
    }

    /// Connects two endpoints of `dat` over its own address.
    pub(crate) fn on(dat: Dat, recv_flags: DatCompletionFlags) -> Self {
        let pz = dat.pz();
        let memory: Box<[AtomicU8]> = (0..4096).map(|_| AtomicU8::new(0)).collect();
        let (lmr_handle, lmr) = dat.lmr_and_handle(pz, &memory);
        let ends = [(); 2].map(|()| dat.end(pz, recv_flags));
        let pair = Self {
            dat,
            ends,
            pz,
            lmr,
            lmr_handle,
            memory,
        };
        pair.connect();
        pair
    }

    /// Connects the two ends, which are unconnected.
    pub(crate) fn connect(&self) {
        let (dat, ends) = (&self.dat, &self.ends);
        let requests = dat.evd(DAT_EVD_CR_FLAG);
        let (psp, conn_qual) = dat.psp(requests);
        let (address, qos) = (dat.attr().ia_address_ptr, DAT_QOS_BEST_EFFORT);
        let (ep, none) = (ends[0].ep, ptr::null());
        let code = call!(
            dat, ep_connect, ep, address, conn_qual, LONG_US, 0, none, qos, 0
        );
        assert_eq!(code, SUCCESS);
        let cr = dat.request(requests);
        assert_eq!(call!(dat, cr_accept, cr, ends[1].ep, 0, none), SUCCESS);
        for end in ends {
            let (event, _) = dat.wait(end.connect, LONG_US, 1).unwrap();
            assert_eq!(event.event_number, DAT_CONNECTION_EVENT_ESTABLISHED);
        }
        assert_eq!(call!(dat, psp_free, psp), SUCCESS);
        assert_eq!(call!(dat, evd_free, requests), SUCCESS);
    }

    /// Returns `len` bytes of the memory from `offset`.
    pub(crate) fn triplet(&self, offset: u64, len: u32) -> DatLmrTriplet {
        DatLmrTriplet {
            virtual_address: self.lmr.registered_address + offset,
            segment_length: len,
            lmr_context: self.lmr.lmr_context,
        }
    }

    pub(crate) fn recv(&self, end: usize, cookie: u64, flags: DatCompletionFlags) -> u32 {
        let mut triplet = self.triplet(2048, 64);
        let (dat, ep, iov) = (&self.dat, self.ends[end].ep, &raw mut triplet);
        let cookie = DatContext::from_u64(cookie);
        call!(dat, ep_post_recv, ep, 1, iov, cookie, flags)
    }

    pub(crate) fn send(&self, end: usize, cookie: u64, flags: DatCompletionFlags) -> u32 {
        let mut triplet = self.triplet(0, 64);
        let (dat, ep, iov) = (&self.dat, self.ends[end].ep, &raw mut triplet);
        let cookie = DatContext::from_u64(cookie);
        call!(dat, ep_post_send, ep, 1, iov, cookie, flags)
    }
}

impl Dat {
    /// Creates a service under a qualifier that the provider chooses.
    pub(crate) fn psp(&self, requests: DatEvdHandle) -> (DatPspHandle, DatConnQual) {
        let (mut psp, mut conn_qual) = (ptr::null_mut(), 0);
        let (ia, qual, flag) = (self.ia, &raw mut conn_qual, DAT_PSP_CONSUMER_FLAG);
        let out = &raw mut psp;
        succeed!(self, psp_create_any, ia, qual, requests, flag, out);
        (psp, conn_qual)
    }

    /// Waits for the next connection request.
    pub(crate) fn request(&self, requests: DatEvdHandle) -> DatCrHandle {
        request_of(&self.wait(requests, LONG_US, 1).unwrap().0)
    }

    /// Creates an endpoint with EVDs of its own.
    pub(crate) fn end(&self, pz: DatPzHandle, recv_flags: DatCompletionFlags) -> End {
        let recv = self.evd(DAT_EVD_DTO_FLAG);
        let request = self.evd(DAT_EVD_DTO_FLAG | DAT_EVD_RMR_BIND_FLAG);
        let connect = self.evd(DAT_EVD_CONNECTION_FLAG);
        let mut attr = DatEpAttr::zeroed();
        (attr.max_recv_dtos, attr.max_request_dtos) = (64, 64);
        (attr.max_recv_iov, attr.max_request_iov) = (4, 4);
        (attr.max_rdma_read_in, attr.max_rdma_read_out) = (4, 4);
        attr.recv_completion_flags = recv_flags;
        attr.request_completion_flags = DAT_COMPLETION_EVD_THRESHOLD_FLAG;
        let mut ep = ptr::null_mut();
        let (ia, attr, out) = (self.ia, &raw const attr, &raw mut ep);
        succeed!(self, ep_create, ia, pz, recv, request, connect, attr, out);
        End {
            ep,
            recv,
            request,
            connect,
        }
    }
}
