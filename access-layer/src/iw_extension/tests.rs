//! Tests of the operations as a C program calls them: through a variadic function and a `va_list`.

use std::ffi::c_int;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;

use super::*;
use crate::harness::{access_call_extension, extension_entry};
use crate::rnic::{RemoteRange, SendOp, Sge};
use crate::scripted_rnic::{Bench, Call, ScriptedRnic, TestEp};

macro_rules! call {
    ($handle:expr, $op:expr $(, $arg:expr)* $(,)?) => {{
        // SAFETY: each test passes the arguments of the operation, in C's types.
        unsafe { access_call_extension(extension_entry::<ScriptedRnic>(), $handle, $op $(, $arg)*) }
    }};
}

const NULL: DatPvoid = std::ptr::null_mut();

fn null_out<T>() -> *mut T {
    std::ptr::null_mut()
}

fn create(bench: &Bench, ep: DatEpHandle, message: &[u8], op: c_int) -> (DatReturn, DatHandle) {
    let mut ssp: DatIwSspHandle = NULL;
    let (ia, evd) = (bench.ia.handle().as_dat(), bench.cr.handle().as_dat());
    let len = c_int::try_from(message.len()).unwrap();
    let (text, out) = (message.as_ptr(), &raw mut ssp);
    let code = call!(ia, op, 17 as c_int, ep, evd, text, len, out);
    (code, ssp)
}

fn fields(code: DatReturn) -> (DatReturnType, DatReturnSubtype) {
    (code.ty(), code.subtype())
}

/// The fields of the code that names a bad argument.
fn argument(n: DatReturnSubtype) -> (DatReturnType, DatReturnSubtype) {
    (DAT_INVALID_PARAMETER, n)
}

#[test]
fn a_service_point_is_created_queried_and_freed() {
    for ops in [
        [
            DAT_IW_SSP_CREATE_OP,
            DAT_IW_SSP_QUERY_OP,
            DAT_IW_SSP_FREE_OP,
        ],
        [FIRST_SSP_CREATE, FIRST_SSP_QUERY, FIRST_SSP_FREE],
    ] {
        let (bench, ep) = Bench::with_ep();
        bench.script.calls();
        let (code, ssp) = create(&bench, ep.handle().as_dat(), b"last words", ops[0]);
        assert!(code.is_success(), "{code:?}");
        let armed = Call::Arm(17, b"last words".to_vec());
        assert_eq!(bench.script.calls(), [armed]);
        let kind = handle::kind_of(ssp).unwrap();
        assert_eq!(kind.as_dat(), DAT_IW_HANDLE_TYPE_SSP);

        let mut param = DatIwSspParam::zeroed();
        assert!(call!(ssp, ops[1], DAT_IW_SSP_FIELD_ALL, &raw mut param).is_success());
        assert_eq!(param.socket_id, 17);
        assert_eq!(param.ep_handle, ep.handle().as_dat());

        assert!(call!(ssp, ops[2]).is_success());
        assert_eq!(call!(ssp, DAT_IW_SSP_FREE_OP).ty(), DAT_INVALID_HANDLE);
    }
}

#[test]
fn bad_arguments_of_a_creation_are_named() {
    let (bench, ep) = Bench::with_ep();
    let (ia, ep) = (bench.ia.handle().as_dat(), ep.handle().as_dat());
    let evd = bench.cr.handle().as_dat();
    let mut ssp: DatIwSspHandle = NULL;
    let out = &raw mut ssp;
    let (handle, argument) = (DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER);
    for (ia, ep, evd, len, out, ty, subtype) in [
        (evd, ep, evd, 0, out, handle, DAT_INVALID_HANDLE_IA),
        (ia, evd, evd, 0, out, handle, DAT_INVALID_HANDLE_EP),
        (ia, ep, ep, 0, out, handle, DAT_INVALID_HANDLE_EVD_CR),
        (ia, ep, NULL, 0, out, handle, DAT_INVALID_HANDLE_EVD_CR),
        (ia, ep, evd, 1, out, argument, DAT_INVALID_ARG5),
        (ia, ep, evd, -1, out, argument, DAT_INVALID_ARG6),
        (ia, ep, evd, 0, null_out(), argument, DAT_INVALID_ARG7),
    ] {
        let (op, len) = (DAT_IW_SSP_CREATE_OP, len as c_int);
        let code = call!(ia, op, 17 as c_int, ep, evd, NULL, len, out);
        assert_eq!(fields(code), (ty, subtype));
    }
    assert!(ssp.is_null(), "the handle is written only on success");
}

#[test]
fn bad_arguments_of_a_query_are_named() {
    let bench = Bench::new();
    let (_, ssp) = create(&bench, NULL, b"", DAT_IW_SSP_CREATE_OP);
    let mut param = DatIwSspParam::zeroed();
    let query = |ssp, mask: u32, out: *mut DatIwSspParam| {
        fields(call!(ssp, DAT_IW_SSP_QUERY_OP, mask, out))
    };
    assert_eq!(query(ssp, 0x1F, null_out()), argument(DAT_INVALID_ARG3));
    let bad_mask = query(ssp, 0x20, &raw mut param);
    assert_eq!(bad_mask, argument(DAT_INVALID_ARG2));
    let evd = bench.cr.handle().as_dat();
    assert_eq!(query(evd, 0x1F, &raw mut param).0, DAT_INVALID_HANDLE);
    assert_eq!(query(NULL, 0x1F, &raw mut param).0, DAT_INVALID_HANDLE);
}

#[test]
fn an_endpoint_connects_over_a_socket() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    for (op, private_data) in [
        (DAT_IW_SOCKET_CONNECT_OP, &b"abc"[..]),
        (FIRST_SOCKET_CONNECT, b"abc"),
        (DAT_IW_SOCKET_CONNECT_OP, b""),
    ] {
        let (bench, ep) = Bench::with_ep();
        bench.script.calls();
        let (ep, socket) = (ep.handle().as_dat(), stream.as_raw_fd());
        let (len, data) = match private_data {
            [] => (0, std::ptr::null()),
            data => (data.len() as c_int, data.as_ptr()),
        };
        let code = call!(ep, op, socket, 9u32, len, data);
        assert!(code.is_success(), "{code:?}");
        assert_eq!(
            bench.script.calls(),
            [Call::ConnectSocket {
                socket,
                timeout: Some(std::time::Duration::from_micros(9)),
                private_data: private_data.to_vec(),
            }]
        );
    }
}

#[test]
fn bad_arguments_of_a_socket_connect_are_named() {
    let bench = Bench::new();
    let ep = bench.ep().handle().as_dat();
    let connect = |ep, timeout_us: u32, len: c_int| {
        let op = DAT_IW_SOCKET_CONNECT_OP;
        fields(call!(ep, op, 0 as c_int, timeout_us, len, NULL))
    };
    let no_ep = (DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EP);
    assert_eq!(connect(NULL, 1, 0), no_ep);
    assert_eq!(connect(ep, 0, 0), argument(DAT_INVALID_ARG3));
    assert_eq!(connect(ep, 1, -1), argument(DAT_INVALID_ARG4));
    assert_eq!(connect(ep, 1, 1), argument(DAT_INVALID_ARG5));
}

static LOCAL: DatLmrTriplet = DatLmrTriplet {
    virtual_address: 0x1000,
    segment_length: 8,
    lmr_context: 3,
};
static REMOTE: DatRmrTriplet = DatRmrTriplet {
    virtual_address: 0x2000,
    segment_length: 64,
    rmr_context: 4,
};
const LOCAL_AT: *const DatLmrTriplet = &raw const LOCAL;
const REMOTE_AT: *const DatRmrTriplet = &raw const REMOTE;
const PLACE: RemoteRange = RemoteRange {
    addr: 0x2000,
    len: 8,
    rkey: 4,
};
const COOKIE: u64 = 0xC00C_1E5E_ED5E_ED00;

fn sent(bench: &Bench) -> (u64, SendOp, Vec<Sge>, bool) {
    match &bench.script.calls()[..] {
        [
            Call::Send {
                wr_id,
                op,
                sgl,
                completion,
                ..
            },
        ] => (*wr_id, *op, sgl.clone(), *completion),
        other => panic!("{other:?}"),
    }
}

fn local_sge() -> Vec<Sge> {
    vec![Sge {
        addr: 0x1000,
        len: 8,
        lkey: 3,
    }]
}

fn add(
    ep: DatEpHandle,
    local: *const DatLmrTriplet,
    remote: *const DatRmrTriplet,
    flags: DatCompletionFlags,
) -> DatReturn {
    let op = DAT_IB_FETCH_AND_ADD_OP;
    call!(ep, op, 5u64, local, COOKIE, remote, flags)
}

fn fetch_and_add(ep: &TestEp) -> DatReturn {
    let (ep, flags) = (ep.handle().as_dat(), DAT_COMPLETION_SUPPRESS_FLAG);
    add(ep, LOCAL_AT, REMOTE_AT, flags)
}

#[test]
fn fetch_and_add_reaches_the_rnic() {
    let (bench, ep) = Bench::with_connected_ep();
    assert!(fetch_and_add(&ep).is_success());
    let op = SendOp::FetchAdd(PLACE, 5);
    assert_eq!(sent(&bench), (COOKIE, op, local_sge(), false));
}

#[test]
fn compare_and_swap_reaches_the_rnic() {
    let (bench, ep) = Bench::with_connected_ep();
    let (ep, op) = (ep.handle().as_dat(), DAT_IB_CMP_AND_SWAP_OP);
    let (local, remote) = (LOCAL_AT, REMOTE_AT);
    let code = call!(ep, op, 6u64, 7u64, local, COOKIE, remote, 0u32);
    assert!(code.is_success(), "{code:?}");
    let op = SendOp::CompareSwap {
        remote: PLACE,
        compare: 6,
        swap: 7,
    };
    assert_eq!(sent(&bench), (COOKIE, op, local_sge(), true));
}

#[test]
fn write_with_immediate_reaches_the_rnic_and_may_be_solicited() {
    for (flags, solicited) in [(0, false), (DAT_COMPLETION_SOLICITED_WAIT_FLAG, true)] {
        let (bench, ep) = Bench::with_connected_ep();
        let (ep, op) = (ep.handle().as_dat(), DAT_IB_RDMA_WRITE_IMMED_OP);
        let (one, local, remote) = (1 as c_int, LOCAL_AT, REMOTE_AT);
        let code = call!(ep, op, one, local, COOKIE, remote, 0x7777u32, flags);
        assert!(code.is_success(), "{code:?}");
        let op = SendOp::WriteImmediate {
            to: PLACE,
            value: 0x7777,
            solicited,
        };
        assert_eq!(sent(&bench), (COOKIE, op, local_sge(), true));
    }
}

#[test]
fn an_atomic_needs_the_endpoint_connected_and_eight_bytes_on_both_sides() {
    let bench = Bench::new();
    let unconnected = (DAT_INVALID_STATE, DAT_INVALID_STATE_EP_UNCONNECTED);
    assert_eq!(fields(fetch_and_add(&bench.ep())), unconnected);
    let ep = bench.connected();
    for (local, remote) in [(7, 8), (8, 7)] {
        let local = DatLmrTriplet {
            segment_length: local,
            ..LOCAL
        };
        let remote = DatRmrTriplet {
            segment_length: remote,
            ..REMOTE
        };
        let code = add(ep.handle().as_dat(), &raw const local, &raw const remote, 0);
        assert_eq!(code.ty(), DAT_LENGTH_ERROR);
    }
}

#[test]
fn missing_triplets_are_named() {
    let bench = Bench::new();
    let ep = bench.connected().handle().as_dat();
    let no_local = add(ep, std::ptr::null(), REMOTE_AT, 0);
    assert_eq!(fields(no_local), argument(DAT_INVALID_ARG3));
    let no_remote = add(ep, LOCAL_AT, std::ptr::null(), 0);
    assert_eq!(fields(no_remote), argument(DAT_INVALID_ARG5));
}

#[test]
fn unknown_completion_flags_are_named() {
    let bench = Bench::new();
    let ep = bench.connected().handle().as_dat();
    let (local, remote) = (LOCAL_AT, REMOTE_AT);
    let (add, swap) = (DAT_IB_FETCH_AND_ADD_OP, DAT_IB_CMP_AND_SWAP_OP);
    let (write, one, bad) = (DAT_IB_RDMA_WRITE_IMMED_OP, 1 as c_int, 0x40u32);
    let codes = [
        call!(ep, add, 5u64, local, COOKIE, remote, bad),
        call!(ep, swap, 6u64, 7u64, local, COOKIE, remote, bad),
        call!(ep, write, one, local, COOKIE, remote, 7u32, bad),
    ];
    let named = [DAT_INVALID_ARG6, DAT_INVALID_ARG7, DAT_INVALID_ARG7];
    assert_eq!(codes.map(fields), named.map(argument));
}

#[test]
fn unknown_operations_are_refused_without_class_bit() {
    let bench = Bench::new();
    let ep = bench.ep().handle().as_dat();
    for op in [
        DAT_IB_COLLECTIVE_CREATE_MEMBER_OP,
        DAT_IB_COLLECTIVE_BARRIER_OP,
        DAT_IB_UD_CM_FREE_OP,
        DAT_IB_UD_AH_FREE_OP,
        DAT_IW_SOCKET_CONNECT_OP + 1,
        -1,
    ] {
        assert_eq!(call!(ep, op).0, 0x3FFF_0000, "operation {op:#x}");
    }
}
