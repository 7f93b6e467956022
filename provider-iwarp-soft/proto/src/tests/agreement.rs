//! FPDUs longer than a TCP segment: between two ends of this implementation only.

use super::engine::{Engine, Pair, config};
use crate::{Config, OwnOffer, Role, wire::mpa::RtrKind};

/// The MULPDU of a TCP segment, and the offered length.
const MULPDU: usize = 1_442;
const OFFER: usize = 16_402;

fn side(role: Role, rtr: RtrKind) -> Config {
    Config {
        rtr: Some(rtr),
        ..config(role)
    }
}

fn own(ulpdu_max: usize) -> OwnOffer {
    OwnOffer {
        ulpdu_max,
        carriers: false,
    }
}

/// A pair after its start-up, in which each end makes an offer or none.
fn started(rtr: RtrKind, offers: [Option<usize>; 2]) -> Pair {
    let mut pair = Pair::new(side(Role::Initiator, rtr), side(Role::Responder, rtr), 9);
    for (engine, offer) in [&mut pair.initiator, &mut pair.responder]
        .into_iter()
        .zip(offers)
    {
        if let Some(offer) = offer {
            engine.conn.offer(own(offer));
        }
    }
    pair.run();
    pair
}

/// The longest ULPDU of a Send of 40,000 bytes.
fn longest_ulpdu(engine: &mut Engine) -> usize {
    engine.post_send(77, vec![1; 40_000]);
    std::iter::from_fn(|| engine.conn.poll_transmit())
        .map(|fpdu| fpdu.ulpdu_len())
        .max()
        .expect("a message has segments")
}

#[test]
fn only_two_ends_that_both_offer_exchange_long_fpdus() {
    let rows = [
        (RtrKind::Read, [Some(OFFER), Some(OFFER)], OFFER),
        (RtrKind::Read, [Some(OFFER), Some(20_000)], OFFER),
        (RtrKind::Read, [Some(3_000), Some(OFFER)], 3_000),
        (RtrKind::Read, [Some(OFFER), Some(500)], 500),
        (RtrKind::Read, [Some(0), Some(OFFER)], 128),
        (RtrKind::Read, [Some(OFFER), None], MULPDU),
        (RtrKind::Read, [None, Some(OFFER)], MULPDU),
        (RtrKind::Read, [None, None], MULPDU),
        // Other first FPDUs have no room for the offer.
        (RtrKind::Write, [Some(OFFER), Some(OFFER)], MULPDU),
        (RtrKind::Send, [Some(OFFER), Some(OFFER)], MULPDU),
    ];
    for (rtr, offers, expected) in rows {
        let mut pair = started(rtr, offers);
        for engine in [&mut pair.initiator, &mut pair.responder] {
            let agreed = engine.conn.agreed_ulpdu();
            assert_eq!(agreed.unwrap_or(MULPDU), expected, "{rtr:?} {offers:?}");
            assert_eq!(longest_ulpdu(engine), expected, "{rtr:?} {offers:?}");
        }
    }
}

#[test]
fn segment_size_matters_until_there_is_an_agreement() {
    let mut ours = started(RtrKind::Read, [Some(OFFER), Some(OFFER)]);
    let mut other = started(RtrKind::Read, [Some(OFFER), None]);
    for (engine, expected) in [(&mut ours.initiator, OFFER), (&mut other.initiator, 536)] {
        engine.conn.set_mulpdu(536);
        assert_eq!(engine.conn.config().mulpdu, expected);
    }
}

#[test]
fn start_up_differs_in_bytes_that_other_implementations_ignore() {
    let first = |offer: Option<usize>| {
        let mut engine = Engine::new(side(Role::Initiator, RtrKind::Read));
        if let Some(offer) = offer {
            engine.conn.offer(own(offer));
        }
        engine.transmit_all();
        engine.take_sent()
    };
    let (plain, offering) = (first(None), first(Some(OFFER)));
    let differing: Vec<_> = (0..plain.len())
        .filter(|at| plain[*at] != offering[*at])
        .collect();
    // Only the Sink TO (RFC 5040 section 4.4) and the CRC may differ.
    let sink_to = 24..32;
    let crc = plain.len() - 4..plain.len();
    assert!(!differing.is_empty());
    assert!(
        differing
            .iter()
            .all(|at| sink_to.contains(at) || crc.contains(at)),
        "{differing:?}"
    );
}

#[test]
fn an_initiator_that_sends_before_the_answer_keeps_to_segments() {
    let mut initiator = Engine::new(side(Role::Initiator, RtrKind::Read));
    initiator.conn.offer(own(OFFER));
    assert_eq!(longest_ulpdu(&mut initiator), MULPDU);
    assert_eq!(initiator.conn.agreed_ulpdu(), None);
}

#[test]
fn later_zero_length_reads_have_no_effect() {
    let mut pair = started(RtrKind::Read, [None, Some(OFFER)]);
    pair.initiator.register(0x20, 0, Vec::new());
    // A consumer of another implementation happens to read into the address that an initiator of
    // this implementation would use as its offer.
    let ask = 0x8C53_E1B7_2D9A_4012;
    pair.initiator.post_read(1, (0, 0), (0x20, ask), 0, false);
    pair.run();
    assert_eq!(pair.initiator.completed(), [1]);
    assert_eq!(pair.responder.conn.agreed_ulpdu(), None);
}
