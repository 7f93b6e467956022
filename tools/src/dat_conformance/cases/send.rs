//! Send and Receive: every length class, lists of segments, order.

use anyhow::{Context, Result, ensure};
use dat_api::CompletionFlags;
use dat_api::abi::*;

use crate::case::{Case, cases};
use crate::expect;
use crate::link::Link;
use crate::pattern;
use crate::side::Side;
use crate::verdict::Lacks;

const KIB: usize = 1024;

/// Lengths and their names: values next to the sizes of TCP segments over Ethernet and of pages,
/// and next to powers of two at which frames are full or length fields overflow.
pub(super) const LENGTHS: [(usize, &str); 16] = [
    (0, "0"),
    (1, "1"),
    (3, "3"),
    (64, "64"),
    (1447, "1447"),
    (1448, "1448"),
    (1449, "1449"),
    (4095, "4095"),
    (4096, "4096"),
    (4097, "4097"),
    (64 * KIB - 1, "64K-1"),
    (64 * KIB, "64K"),
    (64 * KIB + 1, "64K+1"),
    (1024 * KIB, "1M"),
    (1024 * KIB + 5, "1M+5"),
    (16 * 1024 * KIB, "16M"),
];

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (len, name) in LENGTHS {
        let about = "a message is complete in the receive that was posted for it";
        let case = Case::both(&format!("send/{name}"), about, sends, receives);
        cases.extend(case.sized(len).each_way());
    }
    cases.extend(rows());
    cases
}

cases! { fn rows:
    "send/gather": "the segments of a Send are received as one message" =>
        sends_pieces(&PIECES), receives_one, each way;
    "send/scatter": "a message fills the segments of a receive in order" =>
        sends_pieces(&[(0, WHOLE)]), scatters, each way;
    "send/empty-segments": "segments of length 0 add no bytes" =>
        sends_pieces(&[(0, 0), (0, 1000), (77, 0), (1000, WHOLE - 1000)]), receives_one, each way;
    "send/stream": "200 messages keep their order and their lengths" =>
        streams, takes_stream, each way;
    "send/both-ways": "both ends send at the same time" => crosses, crosses;
    "send/ping-pong": "50 messages are sent and returned" => pings, pongs;
    "send/cookies": "a completion returns all bits of its cookie" =>
        sends_cookies, receives_cookies;
    "send/queue-full": "a full queue refuses work, and accepts it after completions" =>
        fills_queue, takes_all;
    "send/iov-limit": "a Send with more segments than the limit is refused" =>
        list_too_long, only_connects;
    "send/no-segments": "a message may have no segments" => sends_nothing, receives_nothing;
    "send/operation": "a completion names its operation" => sends_named, receives_named;
    "send/waiter": "a message wakes a sleeping receiver" => sends_late, sleeps;
}

/// Fails with [`Lacks`] if the adapter's limit is below this length.
pub(super) fn fits(link: &Link, len: usize) -> Result<()> {
    let limit = link.kit.ia.attr()?.max_message_size as usize;
    ensure!(
        len <= limit,
        Lacks("the adapter carries no message of this length")
    );
    Ok(())
}

fn sends(link: Link, side: &mut Side<'_>) -> Result<()> {
    let len = side.size;
    fits(&link, len)?;
    let region = link.kit.region(len.max(1))?;
    pattern::fill(&region, 0, len, 5)?;
    side.receive("posted")?;
    link.send(&region, 0, len, 1)?;
    let sent = expect::done(&link.kit.request, 1, side)?;
    expect::of_ep(&sent, &link.ep)?;
    side.barrier("over")
}

fn receives(link: Link, side: &mut Side<'_>) -> Result<()> {
    const ROOM: usize = 7;
    let len = side.size;
    fits(&link, len)?;
    let region = link.kit.region(len + ROOM)?;
    link.recv(&region, 0, len + ROOM, u64::MAX - 1)?;
    side.send("posted", &[])?;
    expect_message(&link, u64::MAX - 1, len, side)?;
    pattern::check(&region, 0, len, 5)?;
    pattern::untouched(&region, len, ROOM)?;
    side.barrier("over")
}

/// The data that the cases below send: three pieces of one pattern.
const PIECES: [(usize, usize); 3] = [(0, 100), (100, 1), (101, 1999)];
const WHOLE: usize = 2100;

fn sends_pieces(pieces: &'static [(usize, usize)]) -> impl Fn(Link, &mut Side<'_>) -> Result<()> {
    move |link, side| {
        let region = link.kit.region(WHOLE)?;
        pattern::fill(&region, 0, WHOLE, 2)?;
        side.receive("posted")?;
        let list = pieces.iter().map(|&(at, len)| region.segment(at, len));
        let list: Vec<_> = list.collect::<dat_api::Result<_>>()?;
        link.ep.post_send(&list, 1, CompletionFlags::DEFAULT)?;
        expect::done(&link.kit.request, 1, side)?;
        side.barrier("over")
    }
}

/// Waits for a receive that must be completed by a message of this length.
fn expect_message(link: &Link, cookie: u64, len: usize, side: &Side<'_>) -> Result<()> {
    let received = expect::done(&link.kit.recv, cookie, side)?;
    let transferred = received.transferred;
    let is_whole = transferred as usize == len;
    ensure!(is_whole, "{transferred} bytes instead of {len}");
    Ok(())
}

fn receives_one(link: Link, side: &mut Side<'_>) -> Result<()> {
    let region = link.kit.region(WHOLE)?;
    link.recv(&region, 0, WHOLE, 1)?;
    side.send("posted", &[])?;
    expect_message(&link, 1, WHOLE, side)?;
    pattern::check(&region, 0, WHOLE, 2)?;
    side.barrier("over")
}

fn scatters(link: Link, side: &mut Side<'_>) -> Result<()> {
    /// The offsets of the pieces: apart, in another order, and with room to spare in the last.
    const PLACES: [usize; 3] = [5000, 4000, 0];
    const ROOM: usize = 3000;
    let region = link.kit.region(8192)?;
    let lens = [PIECES[0].1, PIECES[1].1, ROOM];
    let list = PLACES.iter().zip(lens);
    let list: Vec<_> = list
        .map(|(at, len)| region.segment(*at, len))
        .collect::<dat_api::Result<_>>()?;
    link.ep.post_recv(&list, 1)?;
    side.send("posted", &[])?;
    expect_message(&link, 1, WHOLE, side)?;
    let mut whole = Vec::new();
    for (place, (_, len)) in PLACES.iter().zip(PIECES) {
        whole.extend(region.to_vec(*place, len)?);
    }
    ensure!(whole == pattern::bytes(2, WHOLE), "the pieces differ");
    pattern::untouched(&region, PIECES[2].1, ROOM - PIECES[2].1)?;
    side.barrier("over")
}

/// The lengths of the messages of a stream, which differ.
fn stream_len(index: usize) -> usize {
    index * 37 % 1500
}

const STREAM: usize = 200;
/// The number of receives that are posted ahead of the messages.
const AHEAD: usize = 16;

fn streams(link: Link, side: &mut Side<'_>) -> Result<()> {
    let region = link.kit.region(STREAM * 1500)?;
    for index in 0..STREAM {
        pattern::fill(&region, index * 1500, stream_len(index), index as u8)?;
    }
    for index in 0..STREAM {
        if index % AHEAD == 0 {
            side.receive("posted")?;
        }
        link.send(&region, index * 1500, stream_len(index), index as u64)?;
        expect::done(&link.kit.request, index as u64, side)?;
    }
    side.barrier("over")
}

fn takes_stream(link: Link, side: &mut Side<'_>) -> Result<()> {
    let region = link.kit.region(AHEAD * 1500)?;
    for first in (0..STREAM).step_by(AHEAD) {
        let indices = first..STREAM.min(first + AHEAD);
        for index in indices.clone() {
            link.recv(&region, index % AHEAD * 1500, 1500, index as u64)?;
        }
        side.send("posted", &[])?;
        for index in indices {
            let len = stream_len(index);
            expect_message(&link, index as u64, len, side)
                .with_context(|| format!("message {index}"))?;
            pattern::check(&region, index % AHEAD * 1500, len, index as u8)
                .with_context(|| format!("message {index}"))?;
        }
    }
    side.barrier("over")
}

fn crosses(link: Link, side: &mut Side<'_>) -> Result<()> {
    const LEN: usize = 100_000;
    let (ours, theirs) = (link.kit.region(LEN)?, link.kit.region(4 * LEN)?);
    pattern::fill(&ours, 0, LEN, u8::from(side.is_client))?;
    for index in 0..4 {
        link.recv(&theirs, index * LEN, LEN, index as u64)?;
    }
    side.barrier("posted")?;
    (0..4).try_for_each(|cookie| link.send(&ours, 0, LEN, cookie))?;
    for index in 0..4 {
        expect::done(&link.kit.request, index, side)?;
        expect::done(&link.kit.recv, index, side)?;
        let (at, seed) = (index as usize * LEN, u8::from(!side.is_client));
        pattern::check(&theirs, at, LEN, seed)?;
    }
    side.barrier("over")
}

const ROUNDS: u64 = 50;

fn pings(link: Link, side: &mut Side<'_>) -> Result<()> {
    let (out, back) = (link.kit.region(8)?, link.kit.region(8)?);
    side.receive("posted")?;
    for round in 0..ROUNDS {
        out.write(0, &round.to_be_bytes())?;
        link.recv(&back, 0, 8, round)?;
        link.send(&out, 0, 8, round)?;
        expect::done(&link.kit.request, round, side)?;
        expect::done(&link.kit.recv, round, side)?;
        let is_returned = back.to_vec(0, 8)? == round.to_be_bytes();
        ensure!(is_returned, "a wrong answer in round {round}");
    }
    side.barrier("over")
}

fn pongs(link: Link, side: &mut Side<'_>) -> Result<()> {
    let region = link.kit.region(8)?;
    link.recv(&region, 0, 8, 0)?;
    side.send("posted", &[])?;
    for round in 0..ROUNDS {
        expect::done(&link.kit.recv, round, side)?;
        let answer = link.kit.region(8)?;
        answer.write(0, &region.to_vec(0, 8)?)?;
        if round + 1 < ROUNDS {
            link.recv(&region, 0, 8, round + 1)?;
        }
        link.send(&answer, 0, 8, round)?;
        expect::done(&link.kit.request, round, side)?;
    }
    side.barrier("over")
}

const COOKIES: [u64; 5] = [0, 1, u64::MAX, 1 << 63, 0x0123_4567_89ab_cdef];

fn sends_cookies(link: Link, side: &mut Side<'_>) -> Result<()> {
    let region = link.kit.region(8)?;
    side.receive("posted")?;
    for cookie in COOKIES {
        link.send(&region, 0, 8, cookie)?;
        expect::done(&link.kit.request, cookie, side)?;
    }
    side.barrier("over")
}

fn receives_cookies(link: Link, side: &mut Side<'_>) -> Result<()> {
    let region = link.kit.region(8)?;
    for cookie in COOKIES {
        link.recv(&region, 0, 8, cookie)?;
    }
    side.send("posted", &[])?;
    for cookie in COOKIES {
        let received = expect::done(&link.kit.recv, cookie, side)?;
        expect::of_ep(&received, &link.ep)?;
    }
    side.barrier("over")
}

fn fills_queue(link: Link, side: &mut Side<'_>) -> Result<()> {
    const MANY: u64 = 100_000;
    let region = link.kit.region(64)?;
    let segment = [region.segment(0, 64)?];
    let refused = (0..MANY).find_map(|cookie| {
        let posted = link.ep.post_recv(&segment, cookie);
        posted.err().map(|error| (cookie, error))
    });
    let (room, error) = refused.context("the queue accepts every receive")?;
    ensure!(room >= 30, "only {room} receives were accepted");
    expect::refused::<()>(Err(error), DAT_INSUFFICIENT_RESOURCES)?;
    side.send("full", &room.to_be_bytes())?;
    for cookie in 0..room.min(8) {
        expect::done(&link.kit.recv, cookie, side)?;
    }
    // The queue has room again.
    link.ep.post_recv(&segment, 0)?;
    side.barrier("over")
}

fn takes_all(link: Link, side: &mut Side<'_>) -> Result<()> {
    let region = link.kit.region(64)?;
    side.receive("full")?;
    for cookie in 0..8 {
        link.send(&region, 0, 64, cookie)?;
        expect::done(&link.kit.request, cookie, side)?;
    }
    side.barrier("over")
}

fn list_too_long(link: Link, side: &mut Side<'_>) -> Result<()> {
    let region = link.kit.region(64)?;
    let limit = usize::try_from(link.kit.ia.attr()?.max_iov_segments_per_dto)?;
    let granted = usize::try_from(link.ep.query()?.attr.max_request_iov)?;
    let list = vec![region.segment(0, 1)?; limit.max(granted) + 1];
    let sent = link.ep.post_send(&list, 1, CompletionFlags::DEFAULT);
    expect::refused(sent, DAT_INVALID_PARAMETER)?;
    side.barrier("over")
}

fn only_connects(_link: Link, side: &mut Side<'_>) -> Result<()> {
    side.barrier("over")
}

fn sends_nothing(link: Link, side: &mut Side<'_>) -> Result<()> {
    side.receive("posted")?;
    link.ep.post_send(&[], 1, CompletionFlags::DEFAULT)?;
    expect::done(&link.kit.request, 1, side)?;
    side.barrier("over")
}

fn receives_nothing(link: Link, side: &mut Side<'_>) -> Result<()> {
    link.ep.post_recv(&[], 1)?;
    side.send("posted", &[])?;
    expect_message(&link, 1, 0, side)?;
    side.barrier("over")
}

fn sends_named(link: Link, side: &mut Side<'_>) -> Result<()> {
    let region = link.kit.region(8)?;
    side.receive("posted")?;
    link.send(&region, 0, 8, 1)?;
    let sent = expect::done(&link.kit.request, 1, side)?;
    let operation = sent.operation;
    ensure!(operation == DAT_DTO_SEND, "a Send is operation {operation}");
    ensure!(sent.transferred == 8, "{} bytes", sent.transferred);
    side.barrier("over")
}

fn receives_named(link: Link, side: &mut Side<'_>) -> Result<()> {
    let region = link.kit.region(8)?;
    link.recv(&region, 0, 8, 1)?;
    side.send("posted", &[])?;
    let got = expect::done(&link.kit.recv, 1, side)?;
    let operation = got.operation;
    let is_receive = operation == DAT_DTO_RECEIVE;
    ensure!(is_receive, "a Receive is operation {operation}");
    side.barrier("over")
}

fn sends_late(link: Link, side: &mut Side<'_>) -> Result<()> {
    let region = link.kit.region(8)?;
    side.receive("posted")?;
    std::thread::sleep(side.quiet() * 4);
    link.send(&region, 0, 8, 1)?;
    expect::done(&link.kit.request, 1, side)?;
    side.barrier("over")
}

fn sleeps(link: Link, side: &mut Side<'_>) -> Result<()> {
    let region = link.kit.region(8)?;
    link.recv(&region, 0, 8, 1)?;
    side.send("posted", &[])?;
    expect::done(&link.kit.recv, 1, side)?;
    side.barrier("over")
}
