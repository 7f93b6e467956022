//! An RNIC that a test controls: it records every call and delivers only the events that the test
//! requests, so that a test can place any event between any two calls.

use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::dispatch::Dispatch;
use crate::ep::{Ep, EpParts};
use crate::error::DatResult;
use crate::evd::Evd;
use crate::handle::{self, Handle, Object, Pinned, ProviderRef};
use crate::ia::Ia;
use crate::lifecycle::AsyncEvd;
use crate::pz::Pz;
use crate::rnic::*;
use crate::srq::Srq;
use dat_abi::*;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Call {
    CreateQp {
        attr: QpAttr,
        cqs: (bool, bool),
    },
    DropQp,
    ResetQp,
    Send {
        wr_id: u64,
        op: SendOp,
        sgl: Vec<Sge>,
        completion: bool,
        signalled: bool,
        fence: bool,
    },
    Recv {
        wr_id: u64,
        sgl: Vec<Sge>,
        signalled: bool,
    },
    Listen {
        port: u16,
    },
    Unlisten,
    Connect {
        remote: SocketAddr,
        timeout: Option<Duration>,
        private_data: Vec<u8>,
    },
    ConnectSocket {
        socket: RawFd,
        timeout: Option<Duration>,
        private_data: Vec<u8>,
    },
    /// The socket and the final message.
    Arm(RawFd, Vec<u8>),
    Disarm,
    /// The number of the request and the private data.
    Accept(u32, Vec<u8>),
    /// The number of the request and the private data.
    Reject(u32, Vec<u8>),
    /// The number of the request, the port and the private data.
    HandOff(u32, u16, Vec<u8>),
    DropRequest {
        request: u32,
    },
    Disconnect {
        abrupt: bool,
    },
    Bind {
        rkey: u32,
    },
    Watermarks {
        soft: Option<u32>,
        hard: Option<u32>,
    },
}

/// A function that receives the token of the object of the call.
type Meanwhile = Box<dyn FnOnce(u64) + Send>;

/// The state that a test sets and reads.
#[derive(Default)]
pub(crate) struct Script {
    calls: Mutex<Vec<Call>>,
    refusal: Mutex<Option<RnicError>>,
    fault: Mutex<Option<SocketFault>>,
    /// Runs inside the next call, before it returns.
    meanwhile: Mutex<Option<Meanwhile>>,
    pending: Mutex<(u32, u32)>,
    /// True if a disconnect delivers the disconnect event before it returns.
    reports_endings: AtomicBool,
    drives: AtomicU32,
}

impl Script {
    fn record(&self, call: Call) {
        self.calls.lock().unwrap().push(call);
    }

    /// Records a call that threads of the consumer or the network may overtake.
    fn record_start(&self, call: Call, token: u64) {
        self.record(call);
        let meanwhile = self.meanwhile.lock().unwrap().take();
        if let Some(meanwhile) = meanwhile {
            meanwhile(token);
        }
    }

    fn refused(&self) -> Result<(), RnicError> {
        self.refusal.lock().unwrap().take().map_or(Ok(()), Err)
    }

    fn faulted(&self) -> Result<(), SocketFault> {
        self.fault.lock().unwrap().take().map_or(Ok(()), Err)
    }

    /// The calls since the last query.
    pub(crate) fn calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }

    pub(crate) fn refuse(&self, error: RnicError) {
        *self.refusal.lock().unwrap() = Some(error);
    }

    pub(crate) fn fault(&self, fault: SocketFault) {
        *self.fault.lock().unwrap() = Some(fault);
    }

    pub(crate) fn meanwhile(&self, act: impl FnOnce(u64) + Send + 'static) {
        *self.meanwhile.lock().unwrap() = Some(Box::new(act));
    }

    pub(crate) fn set_pending(&self, recvs: u32, requests: u32) {
        *self.pending.lock().unwrap() = (recvs, requests);
    }

    /// The number of calls that have made progress.
    pub(crate) fn drives(&self) -> u32 {
        self.drives.load(Ordering::Relaxed)
    }

    pub(crate) fn report_endings(&self) {
        self.reports_endings.store(true, Ordering::Relaxed);
    }
}

pub(crate) struct ScriptedRnic {
    attr: RnicAttr,
    upcall: Arc<dyn Upcall<Self>>,
    script: Arc<Script>,
}

/// An object of the RNIC. Its drop records a call.
pub(crate) struct Recorded(Arc<Script>, Call);

impl Drop for Recorded {
    fn drop(&mut self) {
        self.0.record(self.1.clone());
    }
}

pub(crate) struct ScriptedQp {
    token: QpToken,
    _drop: Recorded,
}

/// A request that records whether it was answered.
pub(crate) struct Request {
    number: u32,
    script: Option<Arc<Script>>,
}

impl Request {
    fn answer(mut self) -> u32 {
        self.script = None;
        self.number
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if let Some(script) = self.script.take() {
            script.record(Call::DropRequest {
                request: self.number,
            });
        }
    }
}

impl Rnic for ScriptedRnic {
    type Pd = ();
    type Cq = ();
    type Srq = SrqToken;
    type Qp = ScriptedQp;
    type Mr = ();
    type Mw = ();
    type Listener = Recorded;
    type ArmedSocket = ();
    type ConnReq = Request;

    fn open(_config: &RnicConfig, upcall: Arc<dyn Upcall<Self>>) -> Result<Self, RnicError> {
        Ok(Self {
            attr: attr(),
            upcall,
            script: Arc::default(),
        })
    }

    fn attr(&self) -> &RnicAttr {
        &self.attr
    }

    fn shutdown(&self) {}

    fn create_pd(&self) -> Result<(), RnicError> {
        Ok(())
    }

    fn create_cq(&self, _depth: u32, _token: CqToken) -> Result<(), RnicError> {
        Ok(())
    }

    fn resize_cq(&self, _cq: &(), _depth: u32) -> Result<(), RnicError> {
        Ok(())
    }

    fn poll_cq(&self, _cq: &(), _out: &mut [Completion]) -> usize {
        0
    }

    fn may_have_completions(&self, _cq: &()) -> bool {
        false
    }

    fn drive(&self) {
        self.script.drives.fetch_add(1, Ordering::Relaxed);
    }

    fn arm_cq(&self, _cq: &(), _solicited_only: bool) -> bool {
        false
    }

    fn wait(&self, _cqs: &[&()], waker: &Arc<Waker>, timeout: Option<Duration>) -> bool {
        waker.sleep(timeout) == Slept::Interrupted
    }

    fn create_qp(
        &self,
        _pd: &(),
        send_cq: Option<&()>,
        recv_cq: Option<&()>,
        _srq: Option<&Self::Srq>,
        attr: &QpAttr,
        token: QpToken,
    ) -> Result<ScriptedQp, RnicError> {
        self.script.refused()?;
        let cqs = (send_cq.is_some(), recv_cq.is_some());
        self.script.record(Call::CreateQp { attr: *attr, cqs });
        Ok(ScriptedQp {
            token,
            _drop: Recorded(self.script.clone(), Call::DropQp),
        })
    }

    fn reset_qp(&self, _qp: &ScriptedQp) -> Result<(), RnicError> {
        self.script.record(Call::ResetQp);
        self.script.refused()
    }

    fn post_send(&self, _qp: &ScriptedQp, wr: &SendWr<'_>) -> Result<(), RnicError> {
        self.script.refused()?;
        self.script.record(Call::Send {
            wr_id: wr.wr_id,
            op: wr.op,
            sgl: wr.sgl.to_vec(),
            completion: wr.completion,
            signalled: wr.signalled,
            fence: wr.fence,
        });
        Ok(())
    }

    fn create_srq(
        &self,
        _pd: &(),
        _depth: u32,
        _max_sge: u32,
        token: SrqToken,
    ) -> Result<SrqToken, RnicError> {
        Ok(token)
    }

    /// Reports the event before the call returns, as a device may whose queue is below the limit.
    fn arm_srq(&self, srq: &SrqToken, limit: u32) -> Result<(), RnicError> {
        self.script.refused()?;
        if limit > 0 {
            self.upcall.async_event(AsyncEvent::SrqLimit(*srq));
        }
        Ok(())
    }

    fn post_recv(&self, _qp: &ScriptedQp, wr: &RecvWr<'_>) -> Result<(), RnicError> {
        self.script.refused()?;
        let sgl = wr.sgl.to_vec();
        self.script.record(Call::Recv {
            wr_id: wr.wr_id,
            sgl,
            signalled: wr.signalled,
        });
        Ok(())
    }

    fn pending(&self, _qp: &ScriptedQp) -> (u32, u32) {
        *self.script.pending.lock().unwrap()
    }

    fn register_mr(&self, _pd: &(), _request: &RegisterMr) -> Result<(), RnicError> {
        Ok(())
    }

    fn create_mw(&self, _pd: &()) -> Result<(), RnicError> {
        Ok(())
    }

    /// The length of the range is the key.
    fn bind_mw(
        &self,
        qp: &ScriptedQp,
        _mw: &(),
        bind: &BindMw<'_, Self>,
    ) -> Result<u32, RnicError> {
        let rkey = bind.range.len;
        self.script.record_start(Call::Bind { rkey }, qp.token.0);
        Ok(rkey)
    }

    fn mr_keys(&self, _mr: &()) -> MrKeys {
        MrKeys { lkey: 1, rkey: 2 }
    }

    fn listen(
        &self,
        address: &ListenAddress,
        token: ListenToken,
    ) -> Result<(Recorded, u16), RnicError> {
        self.script.refused()?;
        self.script
            .record_start(Call::Listen { port: address.port }, token.0);
        let port = if address.port == 0 {
            49999
        } else {
            address.port
        };
        Ok((Recorded(self.script.clone(), Call::Unlisten), port))
    }

    fn connect(&self, qp: &ScriptedQp, params: &ConnectParams<'_>) -> Result<(), RnicError> {
        let call = Call::Connect {
            remote: params.remote,
            timeout: params.timeout,
            private_data: params.private_data.to_vec(),
        };
        self.script.record_start(call, qp.token.0);
        self.script.refused()
    }

    fn connect_socket(
        &self,
        _qp: &ScriptedQp,
        socket: RawFd,
        params: &ConnectParams<'_>,
    ) -> Result<(), SocketFault> {
        self.script.record(Call::ConnectSocket {
            socket,
            timeout: params.timeout,
            private_data: params.private_data.to_vec(),
        });
        self.script.faulted()
    }

    fn arm_socket(
        &self,
        socket: RawFd,
        final_message: &[u8],
        token: ListenToken,
    ) -> Result<(), SocketFault> {
        let call = Call::Arm(socket, final_message.to_vec());
        self.script.record_start(call, token.0);
        self.script.faulted()
    }

    fn disarm_socket(&self, (): ()) -> bool {
        self.script.record(Call::Disarm);
        true
    }

    fn accept(
        &self,
        request: Request,
        _qp: &ScriptedQp,
        params: &AcceptParams<'_>,
    ) -> Result<(), RnicError> {
        let private_data = params.private_data.to_vec();
        let call = Call::Accept(request.answer(), private_data);
        self.script.record(call);
        self.script.refused()
    }

    fn reject(&self, request: Request, private_data: &[u8]) -> Result<(), RnicError> {
        let call = Call::Reject(request.answer(), private_data.to_vec());
        self.script.record(call);
        self.script.refused()
    }

    fn hand_off(
        &self,
        request: &mut Request,
        port: u16,
        private_data: &[u8],
    ) -> Result<(), RnicError> {
        let call = Call::HandOff(request.number, port, private_data.to_vec());
        self.script.record(call);
        self.script.refused()?;
        request.script = None;
        Ok(())
    }

    fn set_recv_watermarks(
        &self,
        _qp: &ScriptedQp,
        soft: Option<u32>,
        hard: Option<u32>,
    ) -> Result<(), RnicError> {
        self.script.record(Call::Watermarks { soft, hard });
        Ok(())
    }

    fn disconnect(&self, qp: &ScriptedQp, abrupt: bool) {
        self.script
            .record_start(Call::Disconnect { abrupt }, qp.token.0);
        if self.script.reports_endings.load(Ordering::Relaxed) {
            self.upcall
                .connection(qp.token, &ConnectionEvent::Disconnected);
        }
    }
}

pub(crate) fn attr() -> RnicAttr {
    RnicAttr {
        adapter_name: "scripted".into(),
        vendor_name: "test".into(),
        address: ([127, 0, 0, 1], 0).into(),
        private_data_len_max: 64,
        qp_max: 64,
        wr_max: 128,
        sge_max: 8,
        read_sge_max: 4,
        cq_max: 64,
        cqe_max: 1024,
        mr_max: 64,
        mr_len_max: 1 << 32,
        mw_max: 4,
        pd_max: 64,
        srq_max: 4,
        srq_wr_max: 64,
        ird_max: 16,
        ord_max: 16,
        message_len_max: u32::MAX,
        immediate_and_atomics: true,
        zero_based_regions: true,
        recv_watermarks: true,
        named: Vec::new(),
    }
}

pub(crate) type TestEp = Pinned<Ep<ScriptedRnic>>;

/// Pins an object that is alive.
pub(crate) fn pinned<T: Object>(handle: Handle) -> Pinned<T> {
    handle::pin_handle(handle).expect("alive")
}

/// `dat_evd_free`.
pub(crate) fn free_evd(evd: Handle) -> DatResult {
    Evd::free(&pinned::<Evd<ScriptedRnic>>(evd))
}

/// `dat_pz_free`.
pub(crate) fn free_pz(pz: Handle) -> DatResult {
    Pz::free(&pinned::<Pz<ScriptedRnic>>(pz))
}

/// An open IA with a protection zone and one EVD for each stream, and the receiver of upcalls.
pub(crate) struct Bench {
    pub(crate) ia: Arc<Ia<ScriptedRnic>>,
    pub(crate) script: Arc<Script>,
    pub(crate) upcalls: Arc<dyn Upcall<ScriptedRnic>>,
    pub(crate) pz: Arc<Pz<ScriptedRnic>>,
    pub(crate) dto: Arc<Evd<ScriptedRnic>>,
    pub(crate) conn: Arc<Evd<ScriptedRnic>>,
    pub(crate) cr: Arc<Evd<ScriptedRnic>>,
}

/// The address and port of the peer in all tests.
pub(crate) const PEER: ([u8; 4], u16) = ([127, 0, 0, 1], 4711);
/// The local address and port.
pub(crate) const HERE: ([u8; 4], u16) = ([127, 0, 0, 1], 815);

/// The members that [`Bench::param`] sets.
pub(crate) const PARTS: DatEpParamMask = DAT_EP_FIELD_PZ_HANDLE
    | DAT_EP_FIELD_RECV_EVD_HANDLE
    | DAT_EP_FIELD_REQUEST_EVD_HANDLE
    | DAT_EP_FIELD_CONNECT_EVD_HANDLE;

impl Bench {
    /// Returns the objects that an endpoint needs, as parameters.
    pub(crate) fn param(&self) -> DatEpParam {
        DatEpParam {
            pz_handle: self.pz.handle().as_dat(),
            recv_evd_handle: self.dto.handle().as_dat(),
            request_evd_handle: self.dto.handle().as_dat(),
            connect_evd_handle: self.conn.handle().as_dat(),
            ..DatEpParam::zeroed()
        }
    }

    pub(crate) fn new() -> Self {
        let provider = ProviderRef::new(Box::leak(Box::new(DatProvider::zeroed())));
        let config = RnicConfig {
            ia_name: "scripted".into(),
            ia_params: String::new(),
        };
        let (ia, _) = Ia::<ScriptedRnic>::open(provider, &config, AsyncEvd::New(8)).unwrap();
        let ia = handle::pin_handle::<Ia<ScriptedRnic>>(ia).unwrap().to_arc();
        let evd = |flags| {
            let evd = Evd::create(&ia, 64, None, flags).unwrap();
            pinned::<Evd<ScriptedRnic>>(evd).to_arc()
        };
        let pz = handle::pin_handle::<Pz<ScriptedRnic>>(Pz::create(&ia).unwrap()).unwrap();
        Self {
            script: ia.rnic().script.clone(),
            upcalls: Dispatch::new(ia.handle()),
            pz: pz.to_arc(),
            dto: evd(DAT_EVD_DTO_FLAG),
            conn: evd(DAT_EVD_CONNECTION_FLAG),
            cr: evd(DAT_EVD_CR_FLAG),
            ia,
        }
    }

    /// A bench with an unconnected endpoint.
    pub(crate) fn with_ep() -> (Self, TestEp) {
        let bench = Self::new();
        let ep = bench.ep();
        (bench, ep)
    }

    /// A bench with a connected endpoint.
    pub(crate) fn with_connected_ep() -> (Self, TestEp) {
        let bench = Self::new();
        let ep = bench.connected();
        (bench, ep)
    }

    /// A shared receive queue.
    pub(crate) fn srq(&self) -> Arc<Srq<ScriptedRnic>> {
        let attr = DatSrqAttr {
            max_recv_dtos: 8,
            max_recv_iov: 2,
            low_watermark: 0,
        };
        let pz = handle::pin_handle(self.pz.handle()).unwrap();
        let srq = Srq::create(&self.ia, &pz, &attr).unwrap();
        pinned::<Srq<ScriptedRnic>>(srq).to_arc()
    }

    pub(crate) fn parts(&self) -> EpParts<ScriptedRnic> {
        EpParts {
            pz: Some(self.pz.clone()),
            recv_evd: Some(self.dto.clone()),
            request_evd: Some(self.dto.clone()),
            connect_evd: Some(self.conn.clone()),
            srq: None,
        }
    }

    /// An unconnected endpoint with all parts.
    pub(crate) fn ep(&self) -> TestEp {
        let ep = Ep::create(&self.ia, self.parts(), None).unwrap();
        handle::pin_handle(ep).unwrap()
    }

    /// A connected endpoint whose events were read.
    pub(crate) fn connected(&self) -> TestEp {
        let ep = self.ep();
        ep.connect(&connect_args()).unwrap();
        self.establish(&ep, b"");
        assert_eq!(self.conn_event(), DAT_CONNECTION_EVENT_ESTABLISHED);
        self.script.calls();
        ep
    }

    pub(crate) fn report(&self, ep: &TestEp, event: &ConnectionEvent) {
        self.upcalls
            .connection(QpToken(ep.handle().as_token()), event);
    }

    pub(crate) fn establish(&self, ep: &TestEp, private_data: &[u8]) {
        let (local, remote) = (HERE.into(), PEER.into());
        let private_data = private_data.to_vec();
        let event = ConnectionEvent::Established {
            local,
            remote,
            private_data,
        };
        self.report(ep, &event);
    }

    /// Delivers a peer's request to service point `sp`.
    pub(crate) fn request(&self, sp: Handle, number: u32, private_data: &[u8]) {
        self.request_source()
            .request_with(sp.as_token(), number, private_data);
    }

    /// Returns a source of connection requests, for use while the bench is borrowed elsewhere.
    pub(crate) fn request_source(&self) -> RequestSource {
        RequestSource {
            script: self.script.clone(),
            upcalls: self.upcalls.clone(),
        }
    }

    /// Makes the next call of the RNIC fail.
    pub(crate) fn refuse(&self, error: RnicError) {
        self.script.refuse(error);
    }

    pub(crate) fn next_connection(&self) -> (DatEventNumber, DatConnectionEventData) {
        let event = self.conn.dequeue().unwrap();
        // SAFETY: all connection events use this member.
        let data = unsafe { event.event_data.connect_event_data };
        (event.event_number, data)
    }

    /// The number of the next connection event.
    pub(crate) fn conn_event(&self) -> DatEventNumber {
        self.next_connection().0
    }

    pub(crate) fn no_conn_event(&self) {
        assert!(self.conn.dequeue().is_err());
    }

    /// The next connection request event.
    pub(crate) fn arrival(&self) -> DatCrArrivalEventData {
        let event = self.cr.dequeue().unwrap();
        assert_eq!(event.event_number, DAT_CONNECTION_REQUEST_EVENT);
        // SAFETY: the event number selects this member.
        unsafe { event.event_data.cr_arrival_event_data }
    }
}

pub(crate) struct RequestSource {
    script: Arc<Script>,
    upcalls: Arc<dyn Upcall<ScriptedRnic>>,
}

impl RequestSource {
    pub(crate) fn request(&self, token: u64, number: u32) {
        self.request_with(token, number, b"");
    }

    fn request_with(&self, token: u64, number: u32, private_data: &[u8]) {
        let request = Request {
            number,
            script: Some(self.script.clone()),
        };
        let info = RequestInfo {
            local: HERE.into(),
            remote: PEER.into(),
            private_data,
            truncated: false,
        };
        self.upcalls
            .connection_request(ListenToken(token), request, &info);
    }
}

pub(crate) fn connect_args() -> crate::ep::ConnectArgs<'static> {
    crate::ep::ConnectArgs {
        remote: PEER.into(),
        conn_qual: 4711,
        timeout_us: DAT_TIMEOUT_INFINITE,
        private_data: b"",
        qos: DAT_QOS_BEST_EFFORT,
        flags: DAT_CONNECT_DEFAULT_FLAG,
    }
}

#[track_caller]
pub(crate) fn code<T>(result: DatResult<T>) -> (DatReturnType, DatReturnSubtype) {
    let Err(error) = result else {
        panic!("not refused")
    };
    (error.code().ty(), error.code().subtype())
}

#[track_caller]
pub(crate) fn assert_refused<T>(result: DatResult<T>, expected: (DatReturnType, DatReturnSubtype)) {
    assert_eq!(code(result), expected);
}

#[track_caller]
pub(crate) fn assert_bad_handle<T>(result: DatResult<T>, subtype: DatReturnSubtype) {
    assert_refused(result, (DAT_INVALID_HANDLE, subtype));
}

#[track_caller]
pub(crate) fn assert_bad_argument<T>(result: DatResult<T>, subtype: DatReturnSubtype) {
    assert_refused(result, (DAT_INVALID_PARAMETER, subtype));
}

#[track_caller]
pub(crate) fn assert_bad_state<T>(result: DatResult<T>, subtype: DatReturnSubtype) {
    assert_refused(result, (DAT_INVALID_STATE, subtype));
}

/// The bytes to which an event or a query points.
pub(crate) fn bytes_at(place: *mut std::ffi::c_void, len: i32) -> Vec<u8> {
    if place.is_null() {
        assert_eq!(len, 0);
        return Vec::new();
    }
    // SAFETY: the caller passes place and length from the access layer; their owner is alive.
    unsafe { std::slice::from_raw_parts(place.cast::<u8>(), usize::try_from(len).unwrap()) }
        .to_vec()
}
