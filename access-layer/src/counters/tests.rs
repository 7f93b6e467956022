use std::ffi::c_int;
use std::ptr;

use dat_abi::*;

use super::{Counters, EvdCounters};
use crate::delivery::count_receive;
use crate::fake_rnic::FakeRnic;
use crate::harness::{LONG_US, Pair, SUCCESS, access_call_extension, extension_entry, succeed};

fn try_query(handle: DatHandle, counter: c_int, out: *mut u64, reset: c_int) -> u32 {
    let entry = extension_entry::<FakeRnic>();
    let op = DAT_IB_QUERY_COUNTERS_OP;
    // SAFETY: the arguments are those of the operation, in C's types.
    unsafe { access_call_extension(entry, handle, op, counter, out, reset) }.0
}

fn one(handle: DatHandle, counter: u32) -> u64 {
    let mut value = u64::MAX;
    let code = try_query(handle, counter as c_int, &raw mut value, 0);
    assert_eq!(code, SUCCESS);
    value
}

#[test]
fn adding_reading_and_resetting() {
    let counters: EvdCounters = Counters::new();
    counters.bump(1);
    counters.transfer(2, 100);
    counters.bump(3);
    let read = |reset| [1, 2, 3].map(|index| counters.read(index, reset));
    assert_eq!(read(true), [1, 1, 101]);
    assert_eq!(read(false), [0, 0, 0]);
}

#[test]
fn transfers_are_counted_when_posted_and_when_taken() {
    let pair = Pair::connected("", DAT_COMPLETION_EVD_THRESHOLD_FLAG);
    let [sender, receiver] = &pair.ends;
    for _ in 0..2 {
        assert_eq!(pair.recv(1, 1, 0), SUCCESS);
        assert_eq!(pair.send(0, 2, 0), SUCCESS);
    }
    assert_eq!(one(receiver.ep, DCNT_EP_RECV), 0);
    pair.dat.wait(receiver.recv, LONG_US, 1).unwrap();
    pair.dat.dequeue(receiver.recv).unwrap();
    for (ep, counter, count) in [
        (sender.ep, DCNT_EP_POST_SEND, 2),
        (sender.ep, DCNT_EP_CONNECT, 1),
        (receiver.ep, DCNT_EP_POST_RECV, 2),
        (receiver.ep, DCNT_EP_RECV, 2),
        (receiver.ep, DCNT_EP_CONNECT, 0),
    ] {
        assert_eq!(one(ep, counter), count, "counter {counter}");
    }
    assert_eq!(one(sender.ep, DCNT_EP_POST_SEND_DATA), 128);
    assert_eq!(one(receiver.ep, DCNT_EP_RECV_DATA), 128);
    assert_eq!(one(receiver.recv, DCNT_EVD_WAIT), 1);
    assert_eq!(one(receiver.recv, DCNT_EVD_DEQUEUE_FOUND), 1);
    assert!(pair.dat.dequeue(receiver.recv).is_err());
    assert_eq!(one(receiver.recv, DCNT_EVD_DEQUEUE_NOT_FOUND), 1);
    assert_eq!(one(receiver.recv, DCNT_EVD_DEQUEUE), 2);
    assert_eq!(one(receiver.connect, DCNT_EVD_CONN_CALLBACK), 1);
}

#[test]
fn receives_are_counted_by_operation() {
    let pair = Pair::connected("", 0);
    let receiver = &pair.ends[1];
    for operation in [
        DAT_DTO_RECEIVE,
        DAT_DTO_RECEIVE_WITH_INVALIDATE,
        DAT_IB_DTO_RECV_IMMED,
        DAT_IB_DTO_RECV_MSG_IMMED,
        DAT_DTO_SEND,
    ] {
        let mut event = DatEvent::zeroed();
        event.event_number = DAT_IB_DTO_EVENT;
        event.event_data.dto_completion_event_data = DatDtoCompletionEventData {
            ep_handle: receiver.ep,
            transfered_length: 10,
            operation,
            // SAFETY: the members are numbers and pointers, for which zero is a value.
            ..unsafe { std::mem::zeroed() }
        };
        count_receive::<FakeRnic>(&event);
    }
    for (counter, count) in [
        (DCNT_EP_RECV, 2),
        (DCNT_EP_RECV_RDMA_IMM, 1),
        (DCNT_EP_RECV_IMM, 1),
        (DCNT_EP_RECV_IMM_DATA, 10),
    ] {
        assert_eq!(one(receiver.ep, counter), count, "counter {counter}");
    }
}

#[test]
fn all_counters_of_an_ia_are_copied_and_reset() {
    let pair = Pair::connected("", 0);
    let ia = pair.dat.ia;
    let all = DCNT_IA_ALL_COUNTERS as c_int;
    let mut values = [u64::MAX; DCNT_IA_ALL_COUNTERS as usize + 1];
    assert_eq!(try_query(ia, all, values.as_mut_ptr(), 1), SUCCESS);
    for (counter, count) in [
        (DCNT_IA_PZ_CREATE, 1),
        (DCNT_IA_EP_CREATE, 2),
        (DCNT_IA_LMR_CREATE, 1),
        (DCNT_IA_PSP_CREATE, 0),
        (DCNT_IA_PSP_CREATE_ANY, 1),
        (DCNT_IA_PSP_FREE, 1),
        (DCNT_IA_EVD_FREE, 1),
        (DCNT_IA_SP_CR, 1),
        (DCNT_IA_SP_CR_ACCEPTED, 1),
        (DCNT_IA_CM_LISTEN, 1),
        (DCNT_IA_CM_REQ_TX, 1),
        (DCNT_IA_CM_REQ_RX, 1),
        (DCNT_IA_CM_ACTIVE_EST, 1),
        (DCNT_IA_CM_PASSIVE_EST, 1),
        (DCNT_IA_CM_ERR, 0),
        (DCNT_IA_LNK_ERR_RCV, 0),
    ] {
        assert_eq!(values[counter as usize], count, "counter {counter}");
    }
    let beyond = values[DCNT_IA_ALL_COUNTERS as usize];
    assert_eq!(beyond, u64::MAX, "written past the array");
    assert_eq!(one(ia, DCNT_IA_EP_CREATE), 0);
    let ep = pair.ends[0].ep;
    succeed!(pair.dat, ep_disconnect, ep, 0);
    assert_eq!(one(ia, DCNT_IA_CM_DREQ_TX), 1);
    succeed!(pair.dat, ep_free, ep);
    assert_eq!(one(ia, DCNT_IA_EP_FREE), 1);
}

#[test]
fn counters_of_dat_rs_have_numbers_after_those_of_the_extension() {
    let pair = Pair::connected("", 0);
    let count = (DCNT_RS_ALL_COUNTERS - DCNT_RS_TCP_SENT) as usize;
    for handle in [pair.dat.ia, pair.ends[0].ep] {
        // The in-memory RNIC has one transport only.
        assert_eq!(one(handle, DCNT_RS_TCP_SENT), 0);
        let mut values = vec![u64::MAX; count + 1];
        let all = DCNT_RS_ALL_COUNTERS as c_int;
        assert_eq!(try_query(handle, all, values.as_mut_ptr(), 1), SUCCESS);
        assert_eq!(values[..count], vec![0; count]);
        assert_eq!(values[count], u64::MAX, "written past the array");
        for bad in [DCNT_RS_TCP_SENT - 1, DCNT_RS_ALL_COUNTERS + 1] {
            let code = try_query(handle, bad as c_int, values.as_mut_ptr(), 0);
            assert_eq!(code, 0x8006_0026, "counter {bad:#x}");
        }
    }
    let (evd, mut value) = (pair.ends[0].recv, 0);
    let code = try_query(evd, DCNT_RS_TCP_SENT as c_int, &raw mut value, 0);
    assert_eq!(code, 0x8006_0026);
}

#[test]
fn bad_arguments_are_refused() {
    let pair = Pair::connected("", 0);
    let mut value = 0;
    let out = &raw mut value;
    let ep = pair.ends[0].ep;
    let beyond = DCNT_EP_ALL_COUNTERS as c_int + 1;
    assert_eq!(try_query(ep, beyond, out, 0), 0x8006_0026);
    assert_eq!(try_query(ep, -1, out, 0), 0x8006_0026);
    let connects = one(ep, DCNT_EP_CONNECT);
    assert_ne!(connects, 0);
    for reset in [0, 1] {
        let code = try_query(ep, DCNT_EP_CONNECT as c_int, ptr::null_mut(), reset);
        assert_eq!(code, 0x8006_0027);
    }
    let after = one(ep, DCNT_EP_CONNECT);
    assert_eq!(after, connects, "a call that fails resets nothing");
    assert_eq!(try_query(pair.pz, 0, out, 0), 0x8006_0025);
    assert_eq!(try_query(ptr::null_mut(), 0, out, 0), 0x8005_001B);
}

#[test]
fn families_of_an_ia_are_stopped_and_started() {
    let pair = Pair::connected("", 0);
    let (dat, entry) = (&pair.dat, extension_entry::<FakeRnic>());
    let (start, stop) = (DAT_IB_START_COUNTERS_OP, DAT_IB_STOP_COUNTERS_OP);
    // SAFETY: the arguments are those of both operations, in C's types.
    let change =
        |handle, op, family: u32| unsafe { access_call_extension(entry, handle, op, family).0 };
    assert_eq!(change(dat.ia, stop, DCNT_IA_CM), SUCCESS);
    pair.dat.psp(dat.evd(DAT_EVD_CR_FLAG));
    let listens = one(dat.ia, DCNT_IA_CM_LISTEN);
    assert_eq!(listens, 1, "one from before the stop");
    assert_eq!(one(dat.ia, DCNT_IA_PSP_CREATE_ANY), 2);
    assert_eq!(change(dat.ia, start, DCNT_IA_CM), SUCCESS);
    pair.dat.psp(dat.evd(DAT_EVD_CR_FLAG));
    assert_eq!(one(dat.ia, DCNT_IA_CM_LISTEN), 1);
    assert_eq!(change(dat.ia, start, 3), 0x8006_0026);
    assert_eq!(change(pair.ends[0].ep, stop, DCNT_IA_CM), 0x8005_000B);
}
