//! Start-up frames of MPA: every field with other values, and every length.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, TcpListener};

use anyhow::{Context, Result, bail, ensure};
use dat_api::{ConnectFailure, ConnectionKind, Event};
use stack_tests::frame_writer::{self, Frame};
use stack_tests::raw::RawPeer;

use super::victim::{DEADLINE, ONCE_IA, RECEIVES, Victim};

/// The victim's answer to a Request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    /// The victim's consumer gets the request and accepts. The Reply has this revision.
    Accepts(u8),
    /// The victim closes the connection, and its consumer gets no event.
    Closes,
}
use Answer::{Accepts, Closes};

/// A field of a start-up frame and its value.
type Change = (&'static str, u128);

const PLAIN_REQUESTS: &[(Change, Answer)] = &[
    (("key", 0), Closes),
    (("key", u128::from_be_bytes(*b"MPA ID Rep Frame")), Closes),
    (("m", 1), Accepts(1)),
    (("c", 0), Accepts(1)),
    // A Request cannot reject; RFC 5044 section 7.1.1 requires that the bit is ignored.
    (("r", 1), Accepts(1)),
    // Reserved in revision 1.
    (("s", 1), Accepts(1)),
    (("mpa_reserved", 15), Accepts(1)),
    (("rev", 0), Closes),
    (("rev", 3), Closes),
    (("rev", 255), Closes),
    (("pd_length", 513), Closes),
    (("pd_length", 0x8000), Closes),
    (("pd_length", 0xffff), Closes),
];

const ENHANCED_REQUESTS: &[(Change, Answer)] = &[
    (("key", 1), Closes),
    (("m", 1), Accepts(2)),
    (("c", 0), Accepts(2)),
    (("r", 1), Accepts(2)),
    (("s", 0), Accepts(2)),
    (("mpa_reserved", 15), Accepts(2)),
    (("rev", 0), Closes),
    (("rev", 1), Accepts(1)),
    (("rev", 3), Closes),
    (("pd_length", 0), Closes),
    (("pd_length", 1), Closes),
    (("pd_length", 3), Closes),
    (("pd_length", 513), Closes),
    (("peer_to_peer", 1), Accepts(2)),
    // These bits have no meaning outside of peer-to-peer mode.
    (("rtr_send", 1), Accepts(2)),
    (("rtr_write", 1), Accepts(2)),
    (("rtr_read", 1), Accepts(2)),
    (("ird", 0), Accepts(2)),
    (("ird", 0x3ffe), Accepts(2)),
    (("ird", 0x3fff), Accepts(2)),
    (("ord", 0), Accepts(2)),
    (("ord", 0x3ffe), Accepts(2)),
    (("ord", 0x3fff), Accepts(2)),
];

/// Sends `request` and checks the victim's answer.
fn ask(victim: &Victim, request: &[u8], answer: Answer) -> Result<()> {
    victim.bystander_is_fine()?;
    let mut peer = RawPeer::connect(victim.port())?;
    peer.send(request)?;
    match answer {
        Closes => {
            let received = peer.read_to_end()?;
            ensure!(received.is_empty(), "an answer {received:02x?}");
            if let Some(event) = victim.requests.dequeue()? {
                bail!("the consumer received {event:?}");
            }
        }
        Accepts(rev) => {
            let ep = victim.ep()?;
            match victim.requests.wait(Some(DEADLINE))? {
                Some(Event::ConnectionRequest(request)) => request.accept(Some(&ep), b"")?,
                other => bail!("no connection request but {other:?}"),
            };
            let reply = peer.read(20)?;
            ensure!(reply[..16] == *b"MPA ID Rep Frame", "{reply:02x?}");
            ensure!(reply[16] & 0x20 == 0 && reply[17] == rev, "{reply:02x?}");
            drop(peer);
            ep.wait_disconnected(Some(DEADLINE))?;
            for _ in 0..RECEIVES {
                victim.completion()?;
            }
        }
    }
    victim.arena.compare(&[])?;
    victim.bystander_is_fine()
}

/// Runs all cases, each with its name, a frame and the expected reaction.
fn run<T>(
    victim: &Victim,
    cases: impl IntoIterator<Item = (String, Vec<u8>, T)>,
    run_one: fn(&Victim, &[u8], T) -> Result<()>,
) -> Result<()> {
    let mut faults = Vec::new();
    for (name, frame, expected) in cases {
        if let Err(fault) = run_one(victim, &frame, expected) {
            faults.push(format!("{name}: {fault:#}"));
            victim.settle()?;
        }
    }
    ensure!(faults.is_empty(), "{}", faults.join("\n"));
    victim.no_descriptor_is_left()
}

fn ask_all(cases: impl IntoIterator<Item = (String, Vec<u8>, Answer)>) -> Result<()> {
    run(&Victim::new()?, cases, ask)
}

fn plain_request() -> Frame {
    frame_writer::request(b"")
}

fn enhanced_request() -> Frame {
    frame_writer::enhanced_request(4, 4, b"")
}

#[test]
fn every_field_of_a_request_with_another_value() -> Result<()> {
    let of = |frame: fn() -> Frame, rows: &'static [(Change, Answer)]| {
        rows.iter().map(move |&((field, value), answer)| {
            let bytes = frame().with(field, value).bytes();
            (format!("{field} = {value:#x}"), bytes, answer)
        })
    };
    let plain = of(plain_request, PLAIN_REQUESTS);
    ask_all(plain.chain(of(enhanced_request, ENHANCED_REQUESTS)))
}

#[test]
fn every_bit_of_a_requests_key() -> Result<()> {
    let key = plain_request().get("key");
    ask_all((0..128).map(|bit| {
        let bytes = plain_request().with("key", key ^ (1 << bit)).bytes();
        (format!("key bit {bit}"), bytes, Closes)
    }))
}

#[test]
fn private_data_of_every_size() -> Result<()> {
    ask_all([0, 1, 511, 512].map(|len| {
        let bytes = frame_writer::request(&vec![7; len]).bytes();
        (format!("{len} bytes"), bytes, Accepts(1))
    }))
}

#[test]
fn requests_that_end_early() -> Result<()> {
    let victim = Victim::new()?;
    let request = frame_writer::enhanced_request(4, 4, b"some private data").bytes();
    for len in 0..request.len() {
        victim.bystander_is_fine()?;
        let mut peer = RawPeer::connect(victim.port())?;
        peer.send(&request[..len])?;
        peer.finish_sending()?;
        let received = peer.read_to_end()?;
        ensure!(
            received.is_empty(),
            "an answer to {len} bytes: {received:02x?}"
        );
        ensure!(
            victim.requests.dequeue()?.is_none(),
            "{len} bytes were reported"
        );
    }
    victim.bystander_is_fine()?;
    victim.no_descriptor_is_left()
}

#[test]
fn a_request_in_single_bytes_is_parsed() -> Result<()> {
    let victim = Victim::new()?;
    let ep = victim.ep()?;
    let mut peer = RawPeer::connect(victim.port())?;
    for byte in enhanced_request().bytes() {
        peer.send(&[byte])?;
    }
    victim.accept(&ep)?;
    ensure!(peer.read(20)?[17] == 2);
    Ok(())
}

#[test]
fn a_second_request_is_no_frame() -> Result<()> {
    let victim = Victim::new()?;
    let mut stream = victim.stream()?;
    // The victim reads the first two bytes of the Request as the length of a frame, which is never
    // complete.
    stream.peer.send(&plain_request().bytes())?;
    stream.peer.finish_sending()?;
    let received = stream.peer.read_to_end()?;
    ensure!(received.is_empty(), "{received:02x?}");
    let ending = stream.ep.wait_disconnected(Some(DEADLINE))?;
    ensure!(ending == ConnectionKind::Broken, "{ending:?}");
    victim.bystander_is_fine()
}

/// The victim's reaction to a Reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Established,
    /// The attempt fails with this event, and the peer receives no message.
    Fails(ConnectionKind),
    /// The attempt fails, and the peer receives a Terminate of MPA with this code.
    Refused(u8),
}
use Outcome::{Established, Fails, Refused};

const NO_MPA: Outcome = Fails(ConnectionKind::NonPeerRejected);

/// Answers to an enhanced Request in peer-to-peer mode with a depth of 4 in both directions.
const REPLIES: &[(Change, Outcome)] = &[
    (("key", 0), NO_MPA),
    (("key", u128::from_be_bytes(*b"MPA ID Req Frame")), NO_MPA),
    (("m", 1), Established),
    (("c", 0), Established),
    (("r", 1), Fails(ConnectionKind::PeerRejected)),
    // RFC 6581 section 9.1: an enhanced Request has an enhanced Reply.
    (("s", 0), NO_MPA),
    (("peer_to_peer", 0), Established),
    (("mpa_reserved", 15), Established),
    (("rev", 0), NO_MPA),
    (("rev", 1), NO_MPA),
    (("rev", 3), NO_MPA),
    (("rev", 255), NO_MPA),
    (("pd_length", 0), NO_MPA),
    (("pd_length", 3), NO_MPA),
    (("pd_length", 513), NO_MPA),
    (("pd_length", 0xffff), NO_MPA),
    (("rtr_write", 0), Refused(7)),
    (("ird", 0), Established),
    (("ird", 0x3ffe), Established),
    (("ird", 0x3fff), Established),
    (("ord", 0), Established),
    (("ord", 0x3ffe), Refused(6)),
    (("rtr_send", 1), Established),
    (("rtr_read", 1), Established),
];

fn good_reply() -> Frame {
    frame_writer::enhanced_reply(4, 4, b"")
        .with("peer_to_peer", 1)
        .with("rtr_write", 1)
}

/// Answers the victim's Request with `reply` and checks the victim's reaction.
fn answer(victim: &Victim, reply: &[u8], outcome: Outcome) -> Result<()> {
    victim.bystander_is_fine()?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    let ep = victim.ep()?;
    ep.start_connect(address, address.port().into(), Some(DEADLINE), b"")?;
    let mut peer = RawPeer::accept(&listener)?;
    drop(listener);
    let request = peer.read(24)?;
    ensure!(request[..16] == *b"MPA ID Req Frame", "{request:02x?}");
    peer.send(reply)?;
    // The call fails if the victim has closed and reset the connection.
    let _ = peer.finish_sending();
    let ended = match ep.wait_established(Some(DEADLINE)) {
        Ok(_) => None,
        Err(error) => match error.reason {
            ConnectFailure::Ended(kind) => Some(kind),
            reason => bail!("no outcome: {reason}"),
        },
    };
    match outcome {
        Established => {
            ensure!(ended.is_none(), "{ended:?}");
            ep.wait_disconnected(Some(DEADLINE))?;
        }
        Fails(kind) => {
            ensure!(ended == Some(kind), "{ended:?}");
            let received = peer.read_to_end()?;
            ensure!(received.is_empty(), "{received:02x?}");
        }
        Refused(code) => {
            ensure!(ended == Some(ConnectionKind::NonPeerRejected), "{ended:?}");
            let terminate = peer.read_terminate()?;
            ensure!(terminate == [0x20, code, 0, 0], "{terminate:02x?}");
        }
    }
    for _ in 0..RECEIVES {
        victim.completion().context("a receive was not flushed")?;
    }
    victim.arena.compare(&[])?;
    victim.bystander_is_fine()
}

fn answer_all(cases: impl IntoIterator<Item = (String, Vec<u8>, Outcome)>) -> Result<()> {
    run(&Victim::on(ONCE_IA)?, cases, answer)
}

#[test]
fn every_field_of_a_reply_with_another_value() -> Result<()> {
    answer_all(REPLIES.iter().map(|&((field, value), outcome)| {
        let bytes = good_reply().with(field, value).bytes();
        (format!("{field} = {value:#x}"), bytes, outcome)
    }))
}

#[test]
fn every_bit_of_a_replys_key() -> Result<()> {
    let key = good_reply().get("key");
    answer_all((0..128).map(|bit| {
        let bytes = good_reply().with("key", key ^ (1 << bit)).bytes();
        (format!("key bit {bit}"), bytes, NO_MPA)
    }))
}

#[test]
fn replies_that_end_early() -> Result<()> {
    let reply = frame_writer::enhanced_reply(4, 4, b"some private data").bytes();
    answer_all((0..reply.len()).map(|len| (format!("{len} bytes"), reply[..len].to_vec(), NO_MPA)))
}

#[test]
fn no_field_of_a_start_up_frame_is_left_out() -> Result<()> {
    let of = |rows: &[(Change, Answer)]| rows.iter().map(|row| row.0.0).collect::<Vec<_>>();
    let replies: Vec<&str> = REPLIES.iter().map(|row| row.0.0).collect();
    let checks = [
        (plain_request(), of(PLAIN_REQUESTS)),
        (enhanced_request(), of(ENHANCED_REQUESTS)),
        (good_reply(), replies),
    ];
    for (frame, attacked) in checks {
        let attacked: BTreeSet<&str> = attacked.into_iter().collect();
        for field in frame.names() {
            ensure!(attacked.contains(field), "no row for {field}");
        }
    }
    Ok(())
}
