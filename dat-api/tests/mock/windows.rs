//! The time for which a window holds the regions to which it was bound, and the order in which a
//! dispatcher and its notification object are freed.

use super::*;

fn region(all: &Objects) -> Region {
    Region::create(&all.pz, 64, Privileges::ALL).unwrap()
}

fn bind(rmr: &Rmr, ep: &Ep, region: Region) {
    rmr.bind(ep, &region, 0, 64, Privileges::ALL, 1).unwrap();
}

/// Completes the next bind of `rmr` and reads its event.
fn complete_bind(mock: &Mock, all: &Objects, rmr: &Rmr, status: DatDtoCompletionStatus) {
    mock.put(DAT_RMR_BIND_COMPLETION_EVENT, |data| {
        data.rmr_completion_event_data = DatRmrBindCompletionEventData {
            rmr_handle: rmr.as_raw(),
            user_cookie: DatContext::from_u64(1),
            status,
        };
    });
    let event = all.transfers.dequeue().unwrap();
    assert!(matches!(event, Some(Event::Bind(bind)) if bind.rmr == rmr.id()));
}

fn freed_regions(mock: &Mock) -> usize {
    mock.log().split(' ').filter(|word| *word == "lmr").count()
}

#[test]
fn a_window_releases_regions_to_which_it_is_no_longer_bound() {
    let (mock, all) = start();
    let rmr = Rmr::create(&all.pz).unwrap();
    for round in 0..5 {
        bind(&rmr, &all.ep, region(&all));
        assert_eq!(freed_regions(&mock), usize::max(round, 1) - 1, "not yet");
        complete_bind(&mock, &all, &rmr, DAT_RMR_BIND_SUCCESS);
        assert_eq!(freed_regions(&mock), round);
    }
    rmr.unbind(&all.ep, 1).unwrap();
    assert_eq!(freed_regions(&mock), 4);
    complete_bind(&mock, &all, &rmr, DAT_RMR_BIND_SUCCESS);
    assert_eq!(freed_regions(&mock), 5);
}

#[test]
fn regions_that_may_be_bound_are_kept_alive() {
    let (mock, all) = start();
    let rmr = Rmr::create(&all.pz).unwrap();
    bind(&rmr, &all.ep, region(&all));
    complete_bind(&mock, &all, &rmr, DAT_RMR_BIND_SUCCESS);
    // Until both of two binds have completed, either may be in force.
    bind(&rmr, &all.ep, region(&all));
    bind(&rmr, &all.ep, region(&all));
    complete_bind(&mock, &all, &rmr, DAT_RMR_BIND_SUCCESS);
    assert_eq!(freed_regions(&mock), 0);
    complete_bind(&mock, &all, &rmr, DAT_RMR_BIND_SUCCESS);
    assert_eq!(freed_regions(&mock), 2);
    // After a bind has failed, the previous bind may still be in force.
    bind(&rmr, &all.ep, region(&all));
    complete_bind(&mock, &all, &rmr, DAT_RMR_OPERATION_FAILED);
    assert_eq!(freed_regions(&mock), 2);
    // The order of binds through two endpoints is unknown.
    let evds = EpEvds {
        recv: &all.transfers,
        request: &all.transfers,
        connect: &all.connections,
    };
    let other = Ep::create(&all.pz, evds, None).unwrap();
    bind(&rmr, &all.ep, region(&all));
    bind(&rmr, &other, region(&all));
    complete_bind(&mock, &all, &rmr, DAT_RMR_BIND_SUCCESS);
    complete_bind(&mock, &all, &rmr, DAT_RMR_BIND_SUCCESS);
    assert_eq!(freed_regions(&mock), 4);
    // An endpoint that was freed delivers no more events.
    bind(&rmr, &other, region(&all));
    drop(other);
    bind(&rmr, &all.ep, region(&all));
    complete_bind(&mock, &all, &rmr, DAT_RMR_BIND_SUCCESS);
    assert_eq!(freed_regions(&mock), 7);
    drop(rmr);
    assert_eq!(freed_regions(&mock), 8);
}

#[test]
fn a_dispatcher_is_freed_before_its_notification_object() {
    let mock = Mock::new();
    let ia = Ia::open("mock").unwrap();
    let cno = Cno::create(&ia).unwrap();
    let evd = Evd::create_with_cno(&ia, 8, EvdFlags::SOFTWARE, &cno).unwrap();
    drop(evd);
    drop((cno, ia));
    assert_eq!(mock.log(), "evd cno ia");
}
