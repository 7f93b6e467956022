use super::*;
use crate::rnic::{ConnectionEvent, RemoteRange, Resource, RnicError, SendOp, Sge};

const SEGMENT: Sge = Sge {
    addr: 0x1000,
    len: 100,
    lkey: 7,
};

fn remote(len: u32) -> DatRmrTriplet {
    DatRmrTriplet {
        virtual_address: 0x2000,
        segment_length: len,
        rmr_context: 9,
    }
}

#[test]
fn a_send_reaches_the_rnic_as_it_was_given() {
    let (bench, ep) = Bench::with_connected_ep();
    let sgl = [
        SEGMENT,
        Sge {
            addr: 0x3000,
            ..SEGMENT
        },
    ];
    ep.post_send(&sgl, 0xABCD, DAT_COMPLETION_DEFAULT_FLAG)
        .unwrap();
    assert_eq!(
        bench.script.calls(),
        [Call::Send {
            wr_id: 0xABCD,
            op: SendOp::Send {
                solicited: false,
                invalidate: None
            },
            sgl: sgl.to_vec(),
            completion: true,
            signalled: true,
            fence: false,
        }]
    );
}

#[test]
fn each_completion_flag_has_its_effect() {
    let (bench, ep) = Bench::with_connected_ep();
    let effect = |flags| {
        ep.post_send(&[SEGMENT], 0, flags).unwrap();
        let [
            Call::Send {
                op: SendOp::Send { solicited, .. },
                completion,
                signalled,
                fence,
                ..
            },
        ] = bench.script.calls()[..]
        else {
            panic!("no send");
        };
        (completion, signalled, solicited, fence)
    };
    assert_eq!(
        effect(DAT_COMPLETION_SUPPRESS_FLAG),
        (false, true, false, false)
    );
    assert_eq!(
        effect(DAT_COMPLETION_UNSIGNALLED_FLAG),
        (true, false, false, false)
    );
    assert_eq!(
        effect(DAT_COMPLETION_SOLICITED_WAIT_FLAG),
        (true, true, true, false)
    );
    assert_eq!(
        effect(DAT_COMPLETION_BARRIER_FENCE_FLAG),
        (true, true, false, true)
    );
    assert_eq!(
        effect(DAT_COMPLETION_EVD_THRESHOLD_FLAG),
        (true, true, false, false)
    );
}

#[test]
fn unknown_completion_flags_are_refused() {
    let (_bench, ep) = Bench::with_connected_ep();
    assert_bad_argument(ep.post_send(&[SEGMENT], 0, 0x80), DAT_INVALID_ARG5);
    assert_bad_argument(ep.post_recv(&[SEGMENT], 0, 0x80), DAT_INVALID_ARG5);
    let refused = ep.post_rdma_read(&[SEGMENT], 0, &remote(100), 0x80);
    assert_bad_argument(refused, DAT_INVALID_ARG6);
    let refused = ep.post_rdma_write(&[SEGMENT], 0, &remote(100), 0x80);
    assert_bad_argument(refused, DAT_INVALID_ARG6);
    let inline = DAT_RS_COMPLETION_INLINE_FLAG;
    assert!(ep.post_send(&[SEGMENT], 0, inline).is_ok());
    let write = ep.post_rdma_write(&[SEGMENT], 0, &remote(100), inline);
    // Only Sends take it.
    assert_bad_argument(write, DAT_INVALID_ARG6);
}

#[test]
fn rdma_ranges_of_both_ends_have_equal_length() {
    let (bench, ep) = Bench::with_connected_ep();
    let range = RemoteRange {
        addr: 0x2000,
        len: 200,
        rkey: 9,
    };
    ep.post_rdma_write(&[SEGMENT; 2], 1, &remote(1000), 0)
        .unwrap();
    ep.post_rdma_read(&[SEGMENT; 2], 2, &remote(200), 0)
        .unwrap();
    let calls = bench.script.calls();
    assert!(matches!(&calls[0], Call::Send { op: SendOp::Write(r), .. } if *r == range));
    assert!(matches!(&calls[1], Call::Send { op: SendOp::Read(r), .. } if *r == range));
}

#[test]
fn rdma_longer_than_the_peers_segment_is_a_length_error() {
    let (_bench, ep) = Bench::with_connected_ep();
    let too_long = (DAT_LENGTH_ERROR, DAT_NO_SUBTYPE);
    let refused = ep.post_rdma_write(&[SEGMENT; 2], 0, &remote(199), 0);
    assert_refused(refused, too_long);
    let refused = ep.post_rdma_read(&[SEGMENT; 2], 0, &remote(199), 0);
    assert_refused(refused, too_long);
    let huge = [Sge {
        len: u32::MAX,
        ..SEGMENT
    }; 2];
    assert_refused(ep.post_rdma_write(&huge, 0, &remote(u32::MAX), 0), too_long);
}

#[test]
fn a_peers_segment_without_a_length_fits_every_transfer() {
    let (bench, ep) = Bench::with_connected_ep();
    let word = Sge { len: 8, ..SEGMENT };
    let add = |range| SendOp::FetchAdd(range, 1);
    ep.post_rdma_write(&[SEGMENT; 2], 1, &remote(0), 0).unwrap();
    ep.post_rdma_read(&[SEGMENT; 2], 2, &remote(0), 0).unwrap();
    ep.post_rdma_write_immediate(&[SEGMENT; 2], 3, &remote(0), 7, 0)
        .unwrap();
    ep.post_atomic(add, &word, 4, &remote(0), 0).unwrap();
    let ranges = bench.script.calls().into_iter().map(|call| match call {
        Call::Send { op, .. } => match op {
            SendOp::Write(range) | SendOp::Read(range) | SendOp::FetchAdd(range, 1) => range.len,
            SendOp::WriteImmediate { to, .. } => to.len,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    });
    assert_eq!(ranges.collect::<Vec<_>>(), [200, 200, 200, 8]);
}

#[test]
fn more_segments_than_the_endpoint_has_are_argument_two() {
    let (_bench, ep) = Bench::with_connected_ep();
    let bad = (DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
    assert_eq!(code(ep.post_send(&[SEGMENT; 5], 0, 0)), bad);
    assert_eq!(code(ep.post_recv(&[SEGMENT; 5], 0, 0)), bad);
    assert_refused(ep.post_rdma_write(&[SEGMENT; 5], 0, &remote(1000), 0), bad);
    assert_refused(ep.post_rdma_read(&[SEGMENT; 5], 0, &remote(1000), 0), bad);
    ep.post_send(&[SEGMENT; 4], 0, 0).unwrap();
}

#[test]
fn requests_are_legal_while_connected_and_disconnected_only() {
    let bench = Bench::new();
    let refused = (DAT_INVALID_STATE, DAT_INVALID_STATE_EP_UNCONNECTED);
    let ep = bench.ep();
    assert_eq!(code(ep.post_send(&[SEGMENT], 0, 0)), refused);
    ep.connect(&connect_args()).unwrap();
    assert_refused(ep.post_rdma_read(&[SEGMENT], 0, &remote(100), 0), refused);
    bench.establish(&ep, b"");
    ep.post_send(&[SEGMENT], 0, 0).unwrap();
    bench.report(&ep, &ConnectionEvent::Disconnected);
    ep.post_send(&[SEGMENT], 0, 0).unwrap();
    ep.reset().unwrap();
    assert_refused(ep.post_rdma_write(&[SEGMENT], 0, &remote(100), 0), refused);
}

#[test]
fn receives_are_legal_in_every_state() {
    let (bench, ep) = Bench::with_ep();
    let post = || {
        ep.post_recv(&[SEGMENT], 5, DAT_COMPLETION_UNSIGNALLED_FLAG)
            .unwrap()
    };
    post();
    ep.connect(&connect_args()).unwrap();
    post();
    bench.establish(&ep, b"");
    post();
    bench.report(&ep, &ConnectionEvent::Disconnected);
    post();
    let expected = Call::Recv {
        wr_id: 5,
        sgl: vec![SEGMENT],
        signalled: false,
    };
    let posted = bench
        .script
        .calls()
        .into_iter()
        .filter(|call| *call == expected)
        .count();
    assert_eq!(posted, 4);
}

#[test]
fn a_full_queue_is_a_lack_of_memory() {
    let (bench, ep) = Bench::with_connected_ep();
    bench.refuse(RnicError::NoResources(Resource::WorkRequest));
    let refused = ep.post_send(&[SEGMENT], 0, 0);
    assert_refused(refused, (DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY));
}

#[test]
fn a_send_may_invalidate_a_window_of_the_peer() {
    let (bench, ep) = Bench::with_connected_ep();
    ep.post_send_with_invalidate(&[SEGMENT], 0, 0, Some(77))
        .unwrap();
    let op = SendOp::Send {
        solicited: false,
        invalidate: Some(77),
    };
    assert!(matches!(&bench.script.calls()[..], [Call::Send { op: sent, .. }] if *sent == op));
}

#[test]
fn a_read_may_use_a_window_as_its_sink() {
    let (bench, ep) = Bench::with_connected_ep();
    let local = DatRmrTriplet {
        rmr_context: 3,
        ..remote(50)
    };
    ep.post_rdma_read_to_rmr(&local, 0, &remote(80), 0).unwrap();
    let op = SendOp::ReadToWindow {
        local: RemoteRange {
            addr: 0x2000,
            len: 50,
            rkey: 3,
        },
        remote: RemoteRange {
            addr: 0x2000,
            len: 50,
            rkey: 9,
        },
    };
    assert!(matches!(&bench.script.calls()[..], [Call::Send { op: sent, .. }] if *sent == op));
    let too_long = ep.post_rdma_read_to_rmr(&remote(81), 0, &remote(80), 0);
    assert_eq!(code(too_long), (DAT_LENGTH_ERROR, DAT_NO_SUBTYPE));
}
