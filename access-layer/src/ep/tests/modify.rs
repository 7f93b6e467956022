use super::*;
use crate::rnic::{ConnectionEvent, Resource, RnicError};

fn without_parts(bench: &Bench) -> TestEp {
    let ep = Ep::create(&bench.ia, EpParts::none(), None).unwrap();
    crate::handle::pin_handle(ep).unwrap()
}

#[test]
fn the_queue_pair_is_created_with_its_last_part() {
    let bench = Bench::new();
    let ep = without_parts(&bench);
    assert_eq!(bench.script.calls(), []);
    assert_bad_state(ep.post_recv(&[], 0, 0), DAT_INVALID_STATE_EP_NOTREADY);
    ep.modify(DAT_EP_FIELD_PZ_HANDLE, &bench.param()).unwrap();
    assert_eq!(bench.script.calls(), []);
    ep.modify(PARTS, &bench.param()).unwrap();
    assert!(
        matches!(&bench.script.calls()[..], [Call::CreateQp { attr, .. }]
        if attr.recv_wr_max == 16 && attr.send_wr_max == 16 && attr.recv_sge_max == 4)
    );
    ep.post_recv(&[], 0, 0).unwrap();
    ep.connect(&connect_args()).unwrap();
}

#[test]
fn members_of_the_provider_cannot_be_set() {
    let (bench, ep) = Bench::with_ep();
    for bit in [0x1, 0x2, 0x8, 0x10, 0x20, 0x40, 0x800, 0x8000_0000] {
        let refused = code(ep.modify(bit, &bench.param()));
        let bad = (DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
        assert_eq!(refused, bad, "bit {bit:#x}");
    }
}

#[test]
fn bad_handles_and_values_over_a_limit_are_argument_three() {
    let (bench, ep) = Bench::with_ep();
    let bad = (DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
    let foreign = DatEpParam {
        pz_handle: bench.dto.handle().as_dat(),
        ..bench.param()
    };
    assert_eq!(code(ep.modify(DAT_EP_FIELD_PZ_HANDLE, &foreign)), bad);
    let mut over = bench.param();
    over.ep_attr.max_recv_dtos = 100_000;
    assert_refused(ep.modify(DAT_EP_FIELD_EP_ATTR_MAX_RECV_DTOS, &over), bad);
    assert_eq!(ep.query().ep_attr.max_recv_dtos, 16);
}

#[test]
fn a_changed_limit_creates_another_queue_pair() {
    let (bench, ep) = Bench::with_ep();
    bench.script.calls();
    let mut requested = bench.param();
    requested.ep_attr.max_recv_dtos = 100;
    ep.modify(DAT_EP_FIELD_EP_ATTR_MAX_RECV_DTOS, &requested)
        .unwrap();
    assert!(
        matches!(&bench.script.calls()[..], [Call::CreateQp { attr, .. }]
        if attr.recv_wr_max == 100)
    );
    assert_eq!(ep.query().ep_attr.max_recv_dtos, 100);
}

#[test]
fn attributes_outside_the_queue_pair_do_not_replace_it() {
    let (bench, ep) = Bench::with_ep();
    bench.script.calls();
    let mut requested = bench.param();
    requested.ep_attr.max_rdma_size = 0x10000;
    ep.modify(DAT_EP_FIELD_EP_ATTR_MAX_RDMA_SIZE, &requested)
        .unwrap();
    assert_eq!(bench.script.calls(), []);
    assert_eq!(ep.query().ep_attr.max_rdma_size, 0x10000);
}

#[test]
fn posted_receives_keep_their_queue_pair() {
    let (bench, ep) = Bench::with_ep();
    bench.script.set_pending(1, 0);
    let mut requested = bench.param();
    requested.ep_attr.max_recv_dtos = 100;
    let refused = ep.modify(DAT_EP_FIELD_EP_ATTR_MAX_RECV_DTOS, &requested);
    assert_bad_state(refused, DAT_INVALID_STATE_EP_UNCONNECTED);
    assert_eq!(ep.query().ep_attr.max_recv_dtos, 16);
}

#[test]
fn a_failed_modify_changes_nothing() {
    let bench = Bench::new();
    let ep = without_parts(&bench);
    bench.refuse(RnicError::NoResources(Resource::QueuePair));
    let refused = ep.modify(PARTS, &bench.param());
    assert_refused(refused, (DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_TEP));
    assert!(ep.query().pz_handle.is_null() && ep.query().recv_evd_handle.is_null());
    free_pz(bench.pz.handle()).unwrap();
}

#[test]
fn a_connected_endpoint_cannot_be_modified() {
    let (bench, ep) = Bench::with_connected_ep();
    for mask in [DAT_EP_FIELD_PZ_HANDLE, DAT_EP_FIELD_EP_ATTR_QOS] {
        let refused = ep.modify(mask, &bench.param());
        assert_bad_state(refused, DAT_INVALID_STATE_EP_CONNECTED);
    }
}

fn replace_connect_evd(bench: &Bench, ep: &TestEp) {
    let other = Evd::create(&bench.ia, 8, None, DAT_EVD_CONNECTION_FLAG).unwrap();
    let requested = DatEpParam {
        connect_evd_handle: other.as_dat(),
        ..bench.param()
    };
    ep.modify(DAT_EP_FIELD_CONNECT_EVD_HANDLE, &requested)
        .unwrap();
}

#[test]
fn a_replaced_evd_can_be_freed() {
    let (bench, ep) = Bench::with_ep();
    replace_connect_evd(&bench, &ep);
    free_evd(bench.conn.handle()).unwrap();
}

#[test]
fn an_unread_event_on_a_replaced_evd_loses_its_private_data() {
    let (bench, ep) = Bench::with_ep();
    ep.connect(&connect_args()).unwrap();
    bench.establish(&ep, b"welcome");
    bench.report(&ep, &ConnectionEvent::Disconnected);
    ep.reset().unwrap();
    // Setting the same EVD again replaces nothing.
    ep.modify(DAT_EP_FIELD_CONNECT_EVD_HANDLE, &bench.param())
        .unwrap();
    assert_eq!(private_data(&bench.next_connection().1), b"welcome");
    bench.conn.dequeue().unwrap();

    ep.connect(&connect_args()).unwrap();
    bench.establish(&ep, b"again");
    bench.report(&ep, &ConnectionEvent::Disconnected);
    ep.reset().unwrap();
    replace_connect_evd(&bench, &ep);
    Ep::free(&ep).unwrap();
    let (_, data) = bench.next_connection();
    assert_eq!(data.private_data_size, 0);
    assert!(data.private_data.is_null());
}

#[test]
fn a_limit_set_before_its_evd_is_kept() {
    let bench = Bench::new();
    let ep = without_parts(&bench);
    let mut requested = bench.param();
    (
        requested.ep_attr.max_recv_iov,
        requested.ep_attr.max_rdma_write_iov,
    ) = (2, 3);
    let iovs = DAT_EP_FIELD_EP_ATTR_MAX_RECV_IOV | DAT_EP_FIELD_EP_ATTR_MAX_RDMA_WRITE_IOV;
    ep.modify(PARTS | iovs, &requested).unwrap();
    let attr = ep.query().ep_attr;
    assert_eq!((attr.max_recv_dtos, attr.max_recv_iov), (16, 2));
    assert_eq!((attr.max_request_iov, attr.max_rdma_write_iov), (4, 3));
}
