//! Atomics and immediate data (RFC 7306): many sides count in one word of a peer, and a write
//! notifies the peer's program of its arrival.
//!
//! ```text
//! atomics [adapter]
//! ```

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use dat_api::{Close, CompletionFlags, Ep, Event, Node, Privileges, Region, RemoteRegion};

const COUNTERS: usize = 3;
const STEPS: u64 = 50;
const WORD: usize = 8;

/// A timeout that is longer than any step takes.
const SOON: Option<Duration> = Some(Duration::from_secs(60));

/// Returns the adapter that the command line names, or that of the loopback interface.
fn adapter() -> String {
    std::env::args()
        .nth(1)
        .unwrap_or_else(|| "iwarp-lo".to_owned())
}

fn main() -> Result<()> {
    let owner = Node::open(&adapter())?;
    let service = owner.listen()?;
    let qualifier = service.conn_qual();
    let rights = Privileges::ALL | Privileges::REMOTE_ATOMIC;
    let memory = Region::create(&owner.pz, 2 * WORD, rights)?;
    let remote = memory.remote();
    let counters: Vec<_> = (0..COUNTERS)
        .map(|_| thread::spawn(move || count(qualifier, remote)))
        .collect();
    let eps = (0..COUNTERS)
        .map(|_| expect_one(&owner))
        .collect::<Result<Vec<Ep>>>()?;

    // Each counter's last write completes a receive here and delivers a number with it.
    let mut immediate_sum = 0;
    for _ in 0..COUNTERS {
        let event = owner
            .transfers
            .wait(SOON)?
            .context("a counter sends no message")?;
        let Event::Dto(done) = event else {
            anyhow::bail!("unexpected: {event:?}");
        };
        ensure!(done.status.is_success(), "{}", done.status);
        immediate_sum += done.immediate.context("the write has no immediate data")?;
    }
    let mut total = [0; WORD];
    memory.read(0, &mut total)?;
    let total = u64::from_ne_bytes(total);
    ensure!(total == COUNTERS as u64 * STEPS && u64::from(immediate_sum) == total);
    for counter in counters {
        counter.join().expect("a counter panicked")?;
    }
    for ep in eps {
        ep.wait_disconnected(SOON)?;
    }
    drop(service);
    println!("{COUNTERS} counters made it {total}");
    Ok(())
}

/// Accepts a counter, with a receive for its last write.
fn expect_one(owner: &Node) -> Result<Ep> {
    let ep = owner.endpoint()?;
    let nothing = Region::create(&owner.pz, WORD, Privileges::LOCAL)?;
    ep.post_recv(&[nothing.segment(0, WORD)?], 1)?;
    owner.accept(&ep)?;
    Ok(ep)
}

fn count(service: u64, remote: RemoteRegion) -> Result<()> {
    let node = Node::open(&adapter())?;
    let ep = node.endpoint()?;
    let before = Region::create(&node.pz, WORD, Privileges::LOCAL)?;
    node.connect(&ep, node.address()?, service)?;
    let (word, place) = (remote.slice(0, WORD as u32)?, remote.slice(8, WORD as u32)?);
    let flags = CompletionFlags::DEFAULT;
    for cookie in 0..STEPS {
        ep.post_fetch_add(before.segment(0, WORD)?, word, 1, cookie, flags)?;
        node.done(ep.id(), cookie)?;
    }
    let own = [before.segment(0, WORD)?];
    ep.post_rdma_write_immediate(&own, place, STEPS as u32, STEPS, flags)?;
    node.done(ep.id(), STEPS)?;
    ep.disconnect(Close::Graceful)?;
    ep.wait_disconnected(SOON)?;
    Ok(())
}
