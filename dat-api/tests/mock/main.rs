//! Ownership in the Rust API, tested with a mock registry library: the order in which objects are
//! freed, the receivers of events, and the owner of a socket after every possible end of a
//! conversion.
//!
//! The library is `libdat2.c` and `absent.c` in this directory, compiled when the tests start and
//! named by `DAT_LIBRARY`. It has one event queue and one log, so the tests run one after the
//! other.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod unread;
mod windows;

use std::env;
use std::ffi::CStr;
use std::fs;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use dat_api::abi::*;
use dat_api::*;

const SOON: Option<Duration> = Some(Duration::from_millis(1));

#[repr(C)]
struct State {
    log: [std::ffi::c_char; 4096],
    refuse_socket: DatReturn,
    refuse_lmr_free: DatReturn,
    ep_state: DatEpState,
    passed_socket: i32,
    last_cookie: u64,
    events: [DatEvent; 64],
    first: u32,
    count: u32,
}

/// The mock library, held by one test at a time.
struct Mock {
    state: *mut State,
    put: unsafe extern "C" fn(*const DatEvent),
    _turn: MutexGuard<'static, ()>,
}

impl Mock {
    fn new() -> Self {
        static TURN: Mutex<()> = Mutex::new(());
        static LIBRARY: OnceLock<libloading::Library> = OnceLock::new();
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let library = LIBRARY.get_or_init(compile_and_load);
        // SAFETY: the library defines both under these names, with these types, and stays loaded.
        let (state, put) = unsafe {
            (
                *library.get::<*mut State>(b"mock\0").unwrap(),
                *library
                    .get::<unsafe extern "C" fn(*const DatEvent)>(b"mock_put\0")
                    .unwrap(),
            )
        };
        // SAFETY: the state is plain numbers, and no other test uses it while `turn` is held.
        unsafe { state.write_bytes(0, 1) };
        Self {
            state,
            put,
            _turn: turn,
        }
    }

    /// Returns the log of objects freed and requests answered so far.
    fn log(&self) -> String {
        // SAFETY: the library keeps the log terminated.
        unsafe { CStr::from_ptr((*self.state).log.as_ptr()) }
            .to_str()
            .unwrap()
            .trim()
            .to_owned()
    }

    fn set(&self, change: impl FnOnce(&mut State)) {
        // SAFETY: the library runs only inside calls of this test.
        change(unsafe { &mut *self.state });
    }

    fn passed_socket(&self) -> i32 {
        // SAFETY: as in `set`.
        unsafe { (*self.state).passed_socket }
    }

    fn put(&self, number: DatEventNumber, fill: impl FnOnce(&mut DatEventData)) {
        let mut event = DatEvent::zeroed();
        event.event_number = number;
        fill(&mut event.event_data);
        // SAFETY: the event is readable.
        unsafe { (self.put)(&event) };
    }

    fn put_connection(&self, ep: &Ep, number: DatEventNumber) {
        self.put(number, |data| {
            data.connect_event_data = DatConnectionEventData::zeroed();
            data.connect_event_data.ep_handle = ep.as_raw();
        });
    }

    fn put_dto(&self, ep: &Ep, cookie: u64) {
        self.put(DAT_DTO_COMPLETION_EVENT, |data| {
            let mut dto = DatDtoCompletionEventData::zeroed();
            dto.ep_handle = ep.as_raw();
            dto.user_cookie = DatContext::from_u64(cookie);
            data.dto_completion_event_data = dto;
        });
    }
}

fn compile_and_load() -> libloading::Library {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    fs::create_dir_all(directory).unwrap();
    let path = directory.join(format!("libdat2-mock-{}.so", std::process::id()));
    let status = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-w", "-I"])
        .arg(here.join("libdat2/include"))
        .arg("-o")
        .arg(&path)
        .args(["libdat2.c", "absent.c"].map(|file| here.join("tests/mock").join(file)))
        .status()
        .unwrap();
    assert!(status.success());
    // SAFETY: every test waits for this in `Mock::new`, and none of them reads the environment.
    unsafe { env::set_var(LIBRARY_ENV, &path) };
    // SAFETY: the library has no constructors.
    let library = unsafe { libloading::Library::new(&path) }.unwrap();
    // The crate under test opens the library by name now; afterwards the file may be deleted.
    Library::get().unwrap();
    fs::remove_file(&path).unwrap();
    library
}

struct Objects {
    ia: Ia,
    pz: Pz,
    transfers: Evd,
    connections: Evd,
    requests: Evd,
    ep: Ep,
}

fn ep(pz: &Pz, transfers: &Evd, connect: &Evd) -> Ep {
    let evds = EpEvds {
        recv: transfers,
        request: transfers,
        connect,
    };
    Ep::create(pz, evds, None).unwrap()
}

fn objects() -> Objects {
    let ia = Ia::open("mock").unwrap();
    let pz = Pz::create(&ia).unwrap();
    let transfers = Evd::create(&ia, 8, EvdFlags::DTO).unwrap();
    let connections = Evd::create(&ia, 8, EvdFlags::CONNECTION).unwrap();
    let requests = Evd::create(&ia, 8, EvdFlags::CONNECTION_REQUEST).unwrap();
    let ep = ep(&pz, &transfers, &connections);
    Objects {
        ia,
        pz,
        transfers,
        connections,
        requests,
        ep,
    }
}

fn start() -> (Mock, Objects) {
    (Mock::new(), objects())
}

fn is_connected(socket: OwnedFd, peer: &mut UnixStream) -> bool {
    UnixStream::from(socket).write_all(b"!").unwrap();
    let mut byte = [0];
    peer.read_exact(&mut byte).is_ok() && byte == *b"!"
}

/// Closes a number, as a provider does when its connection over that socket has ended.
fn provider_closes(number: i32) {
    // SAFETY: the API under test has released this number and keeps no owner of it.
    assert_eq!(unsafe { libc::close(number) }, 0);
}

#[test]
fn a_name_that_is_not_registered_is_refused_with_names_and_advice() {
    let _mock = Mock::new();
    let text = Ia::open("nobody").unwrap_err().to_string();
    let is_named = text.contains("DAT_PROVIDER_NOT_FOUND / DAT_NAME_NOT_REGISTERED");
    assert!(is_named, "{text}");
    assert!(text.contains("dat.conf"), "{text}");
}

#[test]
fn children_are_freed_before_parents_whatever_is_dropped_first() {
    let mock = Mock::new();
    let Objects {
        ia,
        pz,
        transfers,
        connections,
        requests,
        ep,
    } = objects();
    let region = Region::create(&pz, 64, Privileges::LOCAL).unwrap();
    drop((ia, pz, transfers, connections));
    assert_eq!(mock.log(), "");
    drop(ep);
    assert_eq!(mock.log(), "ep evd evd");
    drop(region);
    assert_eq!(mock.log(), "ep evd evd lmr pz");
    drop(requests);
    assert_eq!(mock.log(), "ep evd evd lmr pz evd ia");
}

#[test]
fn posted_memory_lives_as_long_as_the_endpoint() {
    let (mock, all) = start();
    let region = Region::create(&all.pz, 64, Privileges::LOCAL).unwrap();
    let segment = [region.segment(0, 64).unwrap()];
    for cookie in [1, 2] {
        let posted = all.ep.post_send(&segment, cookie, CompletionFlags::DEFAULT);
        posted.unwrap();
    }
    drop(region);
    assert!(!mock.log().contains("lmr"));
    drop(all);
    let log = mock.log();
    assert!(log.find("ep") < log.find("lmr"), "{log}");
}

#[test]
fn memory_that_cannot_be_deregistered_is_kept_and_its_parents_with_it() {
    let (mock, all) = start();
    mock.set(|state| {
        state.refuse_lmr_free = DatReturn::error(DAT_INVALID_STATE, DAT_INVALID_STATE_LMR_IN_USE);
    });
    let region = Region::create(&all.pz, 64, Privileges::LOCAL).unwrap();
    let address = region.as_ptr();
    drop(region);
    drop(all);
    assert!(!mock.log().contains("pz"), "{}", mock.log());
    // SAFETY: the memory has been leaked on purpose, so it is still mapped.
    assert_eq!(unsafe { address.read_volatile() }, 0);
}

#[test]
fn waiting_for_one_completion_leaves_the_others_in_order() {
    let (mock, all) = start();
    for cookie in [1, 2, 3, 4] {
        mock.put_dto(&all.ep, cookie);
    }
    let cookie = |event: Option<Event>| match event {
        Some(Event::Dto(dto)) => dto.cookie,
        other => panic!("{other:?}"),
    };
    let id = all.ep.id();
    let waited = |due| all.transfers.wait_completion(id, due, SOON).unwrap().cookie;
    assert_eq!(waited(3), 3);
    assert_eq!(cookie(all.transfers.dequeue().unwrap()), 1);
    assert_eq!(waited(4), 4);
    assert_eq!(cookie(all.transfers.wait(SOON).unwrap()), 2);
    assert!(all.transfers.dequeue().unwrap().is_none());
    assert!(matches!(
        all.transfers.wait_completion(id, 9, SOON),
        Err(Error::TimedOut)
    ));
}

#[test]
fn a_refused_socket_is_returned_at_once() {
    let (mock, all) = start();
    mock.set(|state| {
        state.refuse_socket = DatReturn::without_class(DAT_MODEL_NOT_SUPPORTED, DAT_NO_SUBTYPE);
    });
    let (ours, mut peer) = UnixStream::pair().unwrap();
    let refused = Ssp::create(ours, &all.ep, &all.requests, b"go").unwrap_err();
    assert!(refused.error.is_unsupported());
    let refused = all
        .ep
        .start_connect_socket(refused.socket, SOON, b"")
        .unwrap_err();
    assert!(is_connected(refused.socket, &mut peer));
    assert!(all.ep.take_socket().is_none());
}

#[test]
fn a_failed_connect_returns_the_socket_with_the_reason() {
    let (mock, all) = start();
    for number in [
        DAT_CONNECTION_EVENT_PEER_REJECTED,
        DAT_CONNECTION_EVENT_NON_PEER_REJECTED,
        DAT_CONNECTION_EVENT_TIMED_OUT,
        DAT_CONNECTION_EVENT_UNREACHABLE,
        DAT_CONNECTION_EVENT_DISCONNECTED,
    ] {
        let (ours, mut peer) = UnixStream::pair().unwrap();
        mock.put_connection(&all.ep, number);
        let error = all.ep.connect_socket(ours, SOON, b"").unwrap_err();
        assert!(matches!(error.reason, ConnectFailure::Ended(_)));
        assert!(is_connected(error.socket.unwrap(), &mut peer));
    }
}

#[test]
fn an_established_connection_keeps_the_socket_to_its_end() {
    let (mock, all) = start();
    let (ours, _peer) = UnixStream::pair().unwrap();
    mock.put_connection(&all.ep, DAT_CONNECTION_EVENT_ESTABLISHED);
    all.ep.connect_socket(ours, SOON, b"").unwrap();
    mock.put_connection(&all.ep, DAT_CONNECTION_EVENT_DISCONNECTED);
    let end = all.ep.wait_disconnected(SOON).unwrap();
    assert_eq!(end, ConnectionKind::Disconnected);
    assert!(all.ep.take_socket().is_none());
    provider_closes(mock.passed_socket());
}

#[test]
fn the_end_of_an_earlier_connection_does_not_affect_a_later_socket() {
    let (mock, all) = start();
    let (first, _peer) = UnixStream::pair().unwrap();
    all.ep.start_connect_socket(first, SOON, b"").unwrap();
    mock.put_connection(&all.ep, DAT_CONNECTION_EVENT_ESTABLISHED);
    mock.put_connection(&all.ep, DAT_CONNECTION_EVENT_DISCONNECTED);
    let first = mock.passed_socket();
    all.connections.dequeue().unwrap();

    // The first final event is not read before the second attempt.
    let (second, mut peer) = UnixStream::pair().unwrap();
    all.ep.start_connect_socket(second, SOON, b"").unwrap();
    all.connections.dequeue().unwrap();
    assert!(all.ep.take_socket().is_none(), "the provider still has it");
    mock.put_connection(&all.ep, DAT_CONNECTION_EVENT_PEER_REJECTED);
    all.connections.dequeue().unwrap();
    assert!(is_connected(all.ep.take_socket().unwrap(), &mut peer));
    provider_closes(first);
}

/// Queues the request of `ssp`, or the loss of its socket.
fn put_ssp_event(mock: &Mock, ssp: DatHandle, number: DatEventNumber) {
    mock.put(number, |data| {
        let mut arrival = DatCrArrivalEventData::zeroed();
        arrival.sp_handle = DatSpHandle::new(ssp);
        arrival.cr_handle = std::ptr::without_provenance_mut(0x77);
        data.cr_arrival_event_data = arrival;
    });
}

/// Returns the last handle that the library assigned: the service point just created.
fn handle_after(ep: &Ep) -> DatHandle {
    ep.as_raw().map_addr(|address| address + 0x10)
}

/// A service point over a socket that has received a request, and the peer of the socket.
fn requested(mock: &Mock, all: &Objects) -> (Ssp, UnixStream) {
    let (ours, peer) = UnixStream::pair().unwrap();
    let ssp = Ssp::create(ours, &all.ep, &all.requests, b"").unwrap();
    put_ssp_event(mock, handle_after(&all.ep), DAT_CONNECTION_REQUEST_EVENT);
    (ssp, peer)
}

/// Returns the next event, which must be a request of the reserved endpoint.
fn unread_request(all: &Objects) -> Cr {
    let Some(Event::ConnectionRequest(request)) = all.requests.dequeue().unwrap() else {
        panic!("no request");
    };
    assert_eq!(request.reserved_ep().map(Ep::id), Some(all.ep.id()));
    request
}

#[test]
fn a_service_point_without_request_returns_the_socket() {
    let (mock, all) = start();
    let (ours, mut peer) = UnixStream::pair().unwrap();
    let number = ours.as_raw_fd();
    let ssp = Ssp::create(ours, &all.ep, &all.requests, b"go").unwrap();
    assert_eq!(mock.passed_socket(), number);
    let waited = ssp.wait_request(SOON);
    assert!(matches!(waited, Err(SspWaitError::TimedOut)));
    assert!(is_connected(ssp.free().unwrap().unwrap(), &mut peer));
    assert_eq!(mock.log(), "ssp");
}

#[test]
fn a_service_point_returns_a_socket_that_was_disconnected() {
    let (mock, all) = start();
    let (ours, mut peer) = UnixStream::pair().unwrap();
    let ssp = Ssp::create(ours, &all.ep, &all.requests, b"").unwrap();
    let number = DAT_CONNECTION_EVENT_SOCKET_DOWN;
    put_ssp_event(&mock, handle_after(&all.ep), number);
    let waited = ssp.wait_request(SOON);
    assert!(matches!(waited, Err(SspWaitError::SocketDown)));
    assert!(is_connected(ssp.free().unwrap().unwrap(), &mut peer));
}

#[test]
fn a_rejected_request_returns_the_socket_and_the_service_point_returns_none() {
    let (mock, all) = start();
    let (ssp, mut peer) = requested(&mock, &all);
    let request = ssp.wait_request(SOON).unwrap();
    assert_eq!(request.private_data(), b"hello");
    let socket = request.reject(b"no").unwrap().unwrap();
    assert!(is_connected(socket, &mut peer));
    assert!(ssp.free().unwrap().is_none());
    assert_eq!(mock.log(), "reject ssp");
}

#[test]
fn a_request_dropped_unanswered_is_rejected_and_its_socket_closed() {
    let (mock, all) = start();
    let (ssp, mut peer) = requested(&mock, &all);
    drop(ssp.wait_request(SOON).unwrap());
    assert_eq!(mock.log(), "reject");
    assert_eq!(peer.read(&mut [0]).unwrap(), 0);
}

#[test]
fn an_accepted_request_takes_the_reserved_endpoint_and_the_socket_with_it() {
    let (mock, all) = start();
    let (ssp, _peer) = requested(&mock, &all);
    let ep = ssp.wait_request(SOON).unwrap().accept(None, b"").unwrap();
    assert_eq!(ep.id(), all.ep.id());
    mock.put_connection(&ep, DAT_CONNECTION_EVENT_ESTABLISHED);
    ep.wait_established(SOON).unwrap();
    assert!(ep.take_socket().is_none());
    assert!(ssp.free().unwrap().is_none());
    assert_eq!(mock.log(), "accept-reserved ssp");
    provider_closes(mock.passed_socket());
}

#[test]
fn an_accepted_request_whose_peer_disconnected_returns_the_socket() {
    let (mock, all) = start();
    let (ssp, mut peer) = requested(&mock, &all);
    let ep = ssp.wait_request(SOON).unwrap().accept(None, b"").unwrap();
    mock.put_connection(&ep, DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR);
    let error = ep.wait_established(SOON).unwrap_err();
    assert!(is_connected(error.socket.unwrap(), &mut peer));
}

#[test]
fn a_request_that_outlives_its_service_point_unread_still_has_the_socket() {
    let (mock, all) = start();
    let (ssp, mut peer) = requested(&mock, &all);
    mock.set(|state| state.ep_state = DAT_EP_STATE_PASSIVE_CONNECTION_PENDING);
    assert!(ssp.free().unwrap().is_none(), "the request has it");
    let socket = unread_request(&all).reject(b"").unwrap().unwrap();
    assert!(is_connected(socket, &mut peer));
}
