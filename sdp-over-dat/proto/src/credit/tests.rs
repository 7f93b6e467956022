//! Tests of each ledger alone, and of one against the other.

use super::*;

#[test]
fn the_formula_of_every_receipt() {
    let mut credits = SendCredits::new(64);
    credits.on_sent(true);
    credits.on_sent(true);
    credits.on_announced(63, Seq(2)).expect("both were sent");
    assert_eq!(credits.credits(), 63);
    credits.on_sent(false);
    assert_eq!(credits.credits(), 62);
}

#[test]
fn the_last_credit_is_for_messages_that_give_credits() {
    let mut credits = SendCredits::new(3);
    for (left, data, plain, giving) in [
        (3, true, true, true),
        (2, false, true, true),
        (1, false, false, true),
        (0, false, false, false),
    ] {
        assert_eq!(credits.credits(), left);
        assert_eq!(credits.allow_data(), data, "data with {left}");
        assert_eq!(credits.allow_control(false), plain, "control with {left}");
        assert_eq!(credits.allow_control(true), giving, "update with {left}");
        credits.on_sent(left == 3);
    }
}

#[test]
fn updates_of_our_own_do_not_stop_data() {
    let mut credits = SendCredits::new(4);
    credits.on_sent(false);
    credits.on_sent(false);
    assert_eq!(credits.credits(), 2);
    assert!(credits.allow_data());
    credits.on_sent(false);
    assert!(!credits.allow_data(), "the last credit");
}

#[test]
fn acknowledgements_stay_between_the_last_one_and_the_last_message() {
    let mut credits = SendCredits::new(8);
    credits.on_sent(true);
    credits.on_sent(true);
    credits.on_announced(8, Seq(1)).expect("1 was sent");
    for wrong in [Seq(0), Seq(3), Seq(u32::MAX)] {
        let error = credits.on_announced(8, wrong).expect_err("outside");
        assert!(matches!(error, ProtocolError::Acknowledgement { .. }));
    }
    credits.on_announced(8, Seq(1)).expect("the same again");
}

#[test]
fn numbers_without_a_gap_and_never_more_than_buffers() {
    let mut credits = ReceiveCredits::new(3);
    for seq in 1..=3 {
        credits
            .on_received(Seq(seq), true, false)
            .expect("in order");
    }
    let overrun = credits.on_received(Seq(4), true, false);
    assert_eq!(overrun, Err(ProtocolError::CreditOverrun));
    credits.on_posted();
    let gap = credits.on_received(Seq(6), true, false);
    let expected = ProtocolError::Sequence {
        expected: Seq(4),
        found: Seq(6),
    };
    assert_eq!(gap, Err(expected));
}

#[test]
fn an_update_is_due_when_the_window_opens_and_never_for_an_update() {
    let mut credits = ReceiveCredits::new(4);
    credits.on_received(Seq(1), true, false).expect("in order");
    let update = credits.credit_update();
    assert_eq!(update, CreditUpdate::NotDue, "nothing was read");
    credits.on_posted();
    let update = credits.credit_update();
    assert_eq!(update, CreditUpdate::Due, "the window opens");
    assert_eq!(credits.announce(), (4, Seq(1)));
    credits.on_received(Seq(2), false, true).expect("in order");
    credits.on_posted();
    assert!(credits.has_new_credits());
    let update = credits.credit_update();
    assert_eq!(update, CreditUpdate::NotDue, "an update needs no answer");
}

#[test]
fn with_three_buffers_a_starving_peer_gets_credits_at_once_or_at_the_tick() {
    let mut credits = ReceiveCredits::new(3);
    credits.on_received(Seq(1), true, false).expect("in order");
    credits.announce();
    credits.on_received(Seq(2), false, true).expect("in order");
    credits.on_posted();
    assert_eq!(
        credits.credit_update(),
        CreditUpdate::AtTick,
        "an update used the last but one"
    );
    credits.announce();
    credits.on_received(Seq(3), false, false).expect("in order");
    credits.on_posted();
    assert_eq!(
        credits.credit_update(),
        CreditUpdate::Due,
        "the peer's last message was no update"
    );
}

#[test]
fn buffers_that_are_added_are_credits_of_the_peer() {
    let mut credits = ReceiveCredits::new(4);
    credits.on_received(Seq(1), true, false).expect("in order");
    credits.on_posted();
    credits.on_added(4);
    assert_eq!(credits.credit_update(), CreditUpdate::Due);
    assert_eq!(credits.announce(), (8, Seq(1)));
    credits.on_posted();
    let announced = credits.announce();
    assert_eq!(announced, (8, Seq(1)), "not one more than there are");
    let mut peer = SendCredits::new(4);
    peer.on_sent(true);
    assert!(!peer.allow_data());
    peer.on_announced(8, Seq(1)).expect("one message was sent");
    assert!(peer.allow_data() && peer.credits() == 8);
}

#[test]
fn a_cancel_is_not_acknowledged_before_it_is_released() {
    let mut credits = ReceiveCredits::new(8);
    credits.on_received(Seq(1), true, false).expect("in order");
    credits.on_received(Seq(2), false, false).expect("in order");
    credits.hold_back(Seq(2));
    credits.on_posted();
    assert_eq!(credits.announce(), (7, Seq(1)));
    credits.release();
    assert_eq!(credits.announce(), (7, Seq(2)));
}
