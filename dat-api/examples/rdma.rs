//! RDMA Write and Read: one side accesses the memory of the other, whose program does nothing.
//!
//! The owner sends a description of the memory, and a last message reports that the peer is done.
//! The peer posts the read without waiting for the completion of the write, because the work of one
//! endpoint takes effect in the order in which it was posted.
//!
//! ```text
//! rdma [adapter]
//! ```

use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use dat_api::{Close, CompletionFlags, Node, Privileges, Region, RemoteRegion};

const LEN: usize = 1 << 20;

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
    let owned = thread::spawn(move || serve(&owner));
    let guest = Node::open(&adapter())?;
    work(&guest, qualifier)?;
    owned.join().expect("the owner panicked")?;
    drop(service);
    println!("wrote and read {LEN} bytes of the peer");
    Ok(())
}

fn serve(node: &Node) -> Result<()> {
    let ep = node.endpoint()?;
    // This program may also write the memory that a peer may write.
    let region = Region::create(&node.pz, LEN, Privileges::ALL)?;
    let note = Region::create(&node.pz, RemoteRegion::ENCODED_LEN, Privileges::LOCAL)?;
    ep.post_recv(&[note.segment(0, note.len())?], 1)?;
    node.accept(&ep)?;
    let description = Region::from_bytes(&node.pz, &region.remote().to_bytes(), Privileges::LOCAL)?;
    node.send(&ep, description.segment(0, description.len())?, 2)?;
    node.done(ep.id(), 1)?;
    ensure!(region.to_vec(0, LEN)? == pattern());
    ep.wait_disconnected(SOON)?;
    Ok(())
}

fn work(node: &Node, service: u64) -> Result<()> {
    let ep = node.endpoint()?;
    let note = Region::create(&node.pz, RemoteRegion::ENCODED_LEN, Privileges::LOCAL)?;
    ep.post_recv(&[note.segment(0, note.len())?], 1)?;
    node.connect(&ep, node.address()?, service)?;
    node.done(ep.id(), 1)?;
    let mut bytes = [0; RemoteRegion::ENCODED_LEN];
    note.read(0, &mut bytes)?;
    let remote = RemoteRegion::from_bytes(&bytes);

    let source = Region::from_bytes(&node.pz, &pattern(), Privileges::LOCAL)?;
    let sink = Region::create(&node.pz, LEN, Privileges::LOCAL)?;
    // Nobody waits for the write itself: the read after it cannot overtake it.
    let quiet = CompletionFlags::SUPPRESS;
    ep.post_rdma_write(&[source.segment(0, LEN)?], remote, 2, quiet)?;
    ep.post_rdma_read(
        &[sink.segment(0, LEN)?],
        remote,
        3,
        CompletionFlags::DEFAULT,
    )?;
    node.done(ep.id(), 3)?;
    ensure!(sink.to_vec(0, LEN)? == pattern());

    node.send(&ep, note.segment(0, note.len())?, 4)?;
    ep.disconnect(Close::Graceful)?;
    ep.wait_disconnected(SOON)?;
    Ok(())
}

fn pattern() -> Vec<u8> {
    (0..LEN).map(|at| (at % 251) as u8).collect()
}
