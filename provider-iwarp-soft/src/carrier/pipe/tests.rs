//! The provider's tests over a pipe.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

use access_layer::rnic::{SendOp, WcStatus};

use super::*;
use crate::qp::Link;
use crate::support::moved::{self, Over};
use crate::support::testbed::wait_until;
use crate::support::{Event, Side, connected, nodes, patterned};

/// Bytes of a Send's DDP and RDMAP header (RFC 5041 section 4.3).
const SEND_HEADER: usize = 18;
const WITHOUT_DELAYS: Delays = Delays {
    seed: 0,
    is_short: false,
    has_late_bells: false,
};

/// Makes a new connection move to a pipe.
fn over_pipe(client: &Side<'_>, delays: Delays) -> [Arc<Lane>; 2] {
    match &*client.qp.qp.lock_link() {
        Link::Up(conn) => prepare((conn.local, conn.remote), delays),
        other => panic!("{other:?}"),
    }
}

/// Runs a test over pipes with and without delays.
fn with_all_delays(test: fn(Over<'_>)) {
    for is_delayed in [false, true] {
        let delays = Delays {
            seed: 7,
            is_short: is_delayed,
            has_late_bells: is_delayed,
        };
        test(&|client, _| drop(over_pipe(client, delays)));
    }
}

moved::moved_tests!(with_all_delays);

/// Without this test, a pipe that carries nothing would pass the tests above.
#[test]
fn all_payload_of_a_moved_connection_passes_the_pipe() {
    let (a, b) = nodes();
    let (client, server) = connected(&a, &b);
    let lanes = over_pipe(&client, WITHOUT_DELAYS);
    moved::move_on(&client, &server);
    let before = lanes.each_ref().map(|lane| lane.written());
    let (from, to) = (a.memory(100_000), b.memory(100_000));
    from.fill(3);
    server.recv(1, &[to.sge(0, 100_000)]);
    client.send(1, &[from.sge(0, 100_000)]);
    assert_eq!(server.received().status, WcStatus::Success);
    assert_eq!(client.sent().status, WcStatus::Success);
    client.post(
        2,
        SendOp::Read(to.remote(0, 100_000)),
        &[from.sge(0, 100_000)],
    );
    assert_eq!(client.sent().status, WcStatus::Success);
    assert!(from.copy(0, 100_000) == patterned(3, 100_000));
    for (lane, before) in lanes.iter().zip(before) {
        assert!(lane.written() - before > 100_000);
    }
}

/// Sends messages of `len` bytes into a pipe that ends after `count` bytes. Messages that were sent
/// completely are received, and all other posted work is flushed.
fn send_until_it_ends(len: usize, count: u64, ended: Ended, is_short: bool) {
    let (a, b) = nodes();
    let (client, server) = connected(&a, &b);
    let delays = Delays {
        seed: count,
        is_short,
        has_late_bells: false,
    };
    let lanes = over_pipe(&client, delays);
    moved::move_on(&client, &server);
    let (from, to) = (a.memory(len), b.memory(len));
    let frame = (PREFIX + SEND_HEADER + len) as u64;
    let (whole, cut) = (count / frame, count % frame);
    for number in 0..=whole + 1 {
        server.recv(number, &[to.sge(0, len)]);
    }
    lanes[0].end_after(count, ended);
    for number in 0..=whole + 1 {
        client.send(number, &[from.sge(0, len)]);
    }
    let name = format!("{count} of frames of {frame}, {ended:?}");
    for number in 0..=whole + 1 {
        let is_whole = number < whole;
        let received = server.received();
        assert_eq!(received.wr_id, number, "{name}");
        assert_eq!(
            received.status == WcStatus::Success,
            is_whole,
            "{name}: {received:?}"
        );
        let sent = client.sent();
        assert_eq!(sent.wr_id, number, "{name}");
        assert_eq!(
            sent.status == WcStatus::Success,
            is_whole,
            "{name}: {sent:?}"
        );
    }
    let expected = match ended {
        Ended::Closed if cut == 0 => Event::Disconnected,
        _ => Event::Broken,
    };
    assert_eq!(server.event(), expected, "{name}");
    // The writer finds the end of the pipe, or first receives the reader's disconnect.
    let event = client.event();
    assert!(
        event == Event::Broken || event == expected,
        "{name}: {event:?}"
    );
}

#[test]
fn a_pipe_may_end_at_every_byte_of_a_message() {
    for count in 1..=2 * (PREFIX + SEND_HEADER + 10) as u64 {
        send_until_it_ends(10, count, Ended::Closed, count % 2 == 0);
    }
}

#[test]
fn a_pipe_may_end_between_and_within_long_messages() {
    let frame = (PREFIX + SEND_HEADER + 9000) as u64;
    for count in [frame - 1, frame, frame + 1, 3 * frame, 5 * frame / 2] {
        for is_short in [false, true] {
            send_until_it_ends(9000, count, Ended::Closed, is_short);
        }
    }
}

#[test]
fn an_error_after_the_last_byte_breaks_the_connection() {
    let frame = (PREFIX + SEND_HEADER + 64) as u64;
    for count in [frame, 2 * frame - 5, 4 * frame] {
        send_until_it_ends(64, count, Ended::Error(Errno::CONNRESET), false);
    }
}

/// The target's program makes no calls, so that its engine sleeps between two writes.
#[test]
fn late_doorbells_wake_a_sleeping_engine() {
    let (a, b) = nodes();
    let (client, server) = connected(&a, &b);
    let delays = Delays {
        seed: 5,
        is_short: true,
        has_late_bells: true,
    };
    drop(over_pipe(&client, delays));
    moved::move_on(&client, &server);
    let (from, to) = (a.memory(8), b.memory(8));
    for round in 1..=50_u8 {
        from.set(7, round);
        client.post(1, SendOp::Write(to.remote(0, 8)), &[from.sge(0, 8)]);
        wait_until("a write is not placed", || to.copy(7, 1) == [round]);
        assert_eq!(client.sent().status, WcStatus::Success);
    }
}
