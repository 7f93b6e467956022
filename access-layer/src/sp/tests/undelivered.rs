//! Requests whose event can no longer be read: they end, and release their endpoints.

use super::*;
use crate::harness::async_error;

/// Creates a service point of one kind on the bench's EVD. Returns the service point, its reserved
/// endpoint if it has one, and the function that frees it.
type Make = fn(&Bench) -> (Handle, Option<TestEp>, fn(Handle));

fn free_psp(psp: Handle) {
    Psp::free(&pinned::<Psp<ScriptedRnic>>(psp)).unwrap();
}

const KINDS: [(&str, Make); 4] = [
    ("public", |bench| {
        let psp = Psp::create(&bench.ia, 5, bench.cr.clone(), DAT_PSP_CONSUMER_FLAG);
        (psp.unwrap(), None, free_psp)
    }),
    ("public, endpoints by the provider", |bench| {
        let psp = Psp::create(&bench.ia, 5, bench.cr.clone(), DAT_PSP_PROVIDER_FLAG);
        (psp.unwrap(), None, free_psp)
    }),
    ("reserved", |bench| {
        let ep = bench.ep();
        let rsp = Rsp::create(&bench.ia, 5, &ep, bench.cr.clone()).unwrap();
        (rsp, Some(ep), |rsp| {
            Rsp::free(&pinned::<Rsp<ScriptedRnic>>(rsp)).unwrap();
        })
    }),
    ("socket", |bench| {
        let ep = bench.ep();
        let args = SspArgs {
            socket: 17,
            ep: handle::pin_handle(ep.handle()),
            evd: bench.cr.clone(),
            final_message: b"",
        };
        let ssp = Ssp::create(&bench.ia, args).unwrap();
        (ssp, Some(ep), |ssp| {
            Ssp::free(&pinned::<Ssp<ScriptedRnic>>(ssp)).unwrap();
        })
    }),
];

/// Checks that request 1 has ended: its peer is refused, and its endpoint belongs to the consumer
/// or is freed.
fn expect_ended(kind: &str, bench: &Bench, ep: Option<&TestEp>) {
    let refused = Call::DropRequest { request: 1 };
    assert!(bench.script.calls().contains(&refused), "{kind}");
    assert_eq!(bench.ia.child_count(Kind::Cr), 0, "{kind}");
    match ep {
        Some(ep) => {
            assert_eq!(state(ep), DAT_EP_STATE_UNCONNECTED, "{kind}");
            Ep::free(ep).unwrap();
        }
        None => assert_eq!(bench.ia.child_count(Kind::Ep), 0, "{kind}"),
    }
}

fn fill(evd: &Evd<ScriptedRnic>) {
    let mut filler = DatEvent::zeroed();
    filler.event_number = DAT_CONNECTION_EVENT_SOCKET_DOWN;
    (0..evd.query().evd_qlen).for_each(|_| evd.post(filler));
}

#[test]
fn an_unread_request_ends_with_its_evd() {
    for (kind, make) in KINDS {
        let bench = Bench::new();
        let (sp, ep, free) = make(&bench);
        bench.request(sp, 1, b"");
        free(sp);
        let refused = Call::DropRequest { request: 1 };
        assert!(!bench.script.calls().contains(&refused));
        if let Some(ep) = &ep {
            assert_bad_state(Ep::free(ep), DAT_INVALID_STATE_EP_PASSCONNPENDING);
        }
        free_evd(bench.cr.handle()).unwrap();
        expect_ended(kind, &bench, ep.as_ref());
    }
}

#[test]
fn a_request_ends_at_once_when_the_evd_is_full() {
    for (kind, make) in KINDS {
        let bench = Bench::new();
        let (sp, ep, _) = make(&bench);
        fill(&bench.cr);
        bench.script.calls();
        bench.request(sp, 1, b"");
        expect_ended(kind, &bench, ep.as_ref());
    }
}

#[test]
fn a_request_that_was_read_outlives_its_evd() {
    for (kind, make) in KINDS {
        let bench = Bench::new();
        let (sp, _ep, free) = make(&bench);
        bench.request(sp, 1, b"");
        let cr = cr_of(&bench.arrival());
        free(sp);
        free_evd(bench.cr.handle()).unwrap();
        Cr::reject(&cr, b"").unwrap_or_else(|error| panic!("{kind}: {error}"));
    }
}

#[test]
fn the_loss_of_an_only_request_is_reported() {
    for (kind, make) in KINDS {
        let bench = Bench::new();
        let (sp, ep, _) = make(&bench);
        fill(&bench.cr);
        for number in 1..=2 {
            bench.request(sp, number, b"");
        }
        let evd = handle::pin::<Evd<ScriptedRnic>>(bench.ia.async_evd()).unwrap();
        let reports: Vec<_> = std::iter::from_fn(|| evd.dequeue().ok()).collect();
        // For a public service no event is posted, because a later request may find room.
        assert_eq!(reports.len(), usize::from(ep.is_some()), "{kind}");
        for event in reports {
            assert_eq!(event.event_number, DAT_ASYNC_ERROR_EVD_OVERFLOW);
            let error = async_error(&event);
            assert_eq!(error.dat_handle, bench.cr.handle().as_dat(), "{kind}");
        }
        assert!(bench.cr.dequeue().is_ok(), "{kind}: the EVD still works");
    }
}
