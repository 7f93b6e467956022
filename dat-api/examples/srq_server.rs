//! A server whose clients share one queue of receives.
//!
//! With a queue for each client a server needs memory for as many messages as all clients might
//! send. With a shared queue it needs memory for as many messages as are in flight, and an event
//! reports when the queue runs low. A message that finds the queue empty ends its connection. So a
//! client waits for its answer before it sends again, and the low watermark is above the number of
//! clients.
//!
//! ```text
//! srq_server [adapter]
//! ```

use std::collections::HashMap;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use dat_api::{AsyncKind, Close, CompletionFlags, Ep, EpId, Event, Node, Privileges, Region, Srq};

const CLIENTS: usize = 4;
const MESSAGES: usize = 8;
const DEPTH: usize = 16;
const LOW: u32 = 8;
const LEN: usize = 64;

/// A timeout that is longer than any step takes.
const SOON: Option<Duration> = Some(Duration::from_secs(60));

/// Returns the adapter that the command line names, or that of the loopback interface.
fn adapter() -> String {
    std::env::args()
        .nth(1)
        .unwrap_or_else(|| "iwarp-lo".to_owned())
}

fn main() -> Result<()> {
    let server = Node::open(&adapter())?;
    let service = server.listen()?;
    let qualifier = service.conn_qual();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| thread::spawn(move || send_all(qualifier)))
        .collect();
    let refills = serve(&server)?;
    for client in clients {
        client.join().expect("a client panicked")?;
    }
    drop(service);
    println!("{CLIENTS} clients shared {DEPTH} receives, refilled {refills} times");
    Ok(())
}

/// Receives every message of every client. Returns how often the queue was refilled.
fn serve(node: &Node) -> Result<usize> {
    let srq = Srq::create(&node.pz, DEPTH as u32, 1)?;
    let memory = Region::create(&node.pz, DEPTH * LEN, Privileges::LOCAL)?;
    // The cookie of a receive is its index in the memory.
    let post = |place: usize| srq.post_recv(&[memory.segment(place * LEN, LEN)?], place as u64);
    (0..DEPTH).try_for_each(post)?;
    srq.set_low_watermark(LOW)?;
    let clients = (0..CLIENTS)
        .map(|_| {
            let ep = node.endpoint_with_srq(&srq)?;
            node.accept(&ep)?;
            Ok((ep.id(), ep))
        })
        .collect::<Result<HashMap<EpId, Ep>>>()?;

    let answer = Region::from_bytes(&node.pz, b"taken", Privileges::LOCAL)?;
    let (mut used, mut refills) = (Vec::new(), 0);
    let mut received: HashMap<EpId, usize> = HashMap::new();
    while received.values().sum::<usize>() < CLIENTS * MESSAGES {
        let event = node.transfers.wait(SOON)?.context("no message")?;
        let Event::Dto(done) = event else {
            anyhow::bail!("unexpected: {event:?}");
        };
        ensure!(done.status.is_success(), "{}", done.status);
        // The event names the endpoint that received the message, although the receives are shared.
        let client = clients
            .get(&done.ep)
            .context("a message on an unknown endpoint")?;
        *received.entry(done.ep).or_default() += 1;
        used.push(done.cookie as usize);
        if is_low(node, &srq)? {
            used.drain(..).try_for_each(post)?;
            srq.set_low_watermark(LOW)?;
            refills += 1;
        }
        // The server does not wait for this completion. An event is delivered only if the Send
        // fails.
        client.post_send(
            &[answer.segment(0, answer.len())?],
            0,
            CompletionFlags::SUPPRESS,
        )?;
    }
    ensure!(received.values().all(|count| *count == MESSAGES));
    for ep in clients.values() {
        ep.wait_disconnected(SOON)?;
    }
    Ok(refills)
}

/// Returns true if the queue has reported that it runs low. DAT has no event of its own for this:
/// it is `EpBroken` with the queue as its object. The dispatcher has other asynchronous events as
/// well.
fn is_low(node: &Node, srq: &Srq) -> Result<bool> {
    while let Some(event) = node.ia.async_evd().dequeue()? {
        if let Event::Async(error) = event
            && error.kind == AsyncKind::EpBroken
            && error.object == srq.id()
        {
            return Ok(true);
        }
    }
    Ok(false)
}

fn send_all(service: u64) -> Result<()> {
    let node = Node::open(&adapter())?;
    let ep = node.endpoint()?;
    let question = Region::create(&node.pz, LEN, Privileges::LOCAL)?;
    let answer = Region::create(&node.pz, LEN, Privileges::LOCAL)?;
    node.connect(&ep, node.address()?, service)?;
    for _ in 0..MESSAGES {
        ep.post_recv(&[answer.segment(0, LEN)?], 1)?;
        node.send(&ep, question.segment(0, LEN)?, 2)?;
        node.done(ep.id(), 1)?;
    }
    ep.disconnect(Close::Graceful)?;
    ep.wait_disconnected(SOON)?;
    Ok(())
}
