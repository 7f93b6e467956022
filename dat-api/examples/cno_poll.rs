//! Waits for RDMA in the poll loop of a program, together with other descriptors.
//!
//! A notification object has a descriptor that is readable while one of its dispatchers has
//! triggered. A trigger is not a count of events: take events until the dispatcher is empty, and
//! only then wait again.
//!
//! ```text
//! cno_poll [adapter]
//! ```

use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use dat_api::{Close, Cno, ConnectionKind, Event, Node, Privileges, Region};

const MESSAGES: u64 = 12;
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
    let node = Node::open(&adapter())?;
    let service = node.listen()?;
    let qualifier = service.conn_qual();
    // Another descriptor of the program; here it receives the client's text outside the RDMA
    // connection.
    let (mut aside, mut ours) = UnixStream::pair()?;
    let client = thread::spawn(move || run_client(qualifier, &mut aside));
    let (messages, words) = watch(&node, &mut ours)?;
    client.join().expect("the client panicked")?;
    drop(service);
    println!("{messages} messages and {words} words in one poll loop");
    Ok(())
}

fn watch(node: &Node, aside: &mut UnixStream) -> Result<(u64, u64)> {
    let cno = Cno::create_with_fd(&node.ia)?;
    let ep = node.endpoint()?;
    let memory = Region::create(&node.pz, LEN, Privileges::LOCAL)?;
    // One receive for each message, because the peer does not wait for a receive before it sends.
    for cookie in 0..MESSAGES {
        ep.post_recv(&[memory.segment(0, LEN)?], cookie)?;
    }
    for evd in [&node.transfers, &node.connections, &node.requests] {
        evd.set_cno(Some(&cno))?;
    }
    let fd = cno
        .fd()
        .context("a notification object without descriptor")?;
    let (mut messages, mut words, mut connected) = (0, 0, true);
    while connected {
        let [rdma, word] = readable([fd, aside.as_fd()])?;
        if word {
            let mut byte = [0];
            words += aside.read(&mut byte)? as u64;
        }
        // The descriptor is no longer readable once every trigger has been taken.
        while rdma && cno.take_trigger()?.is_some() {
            for evd in [&node.requests, &node.connections, &node.transfers] {
                while let Some(event) = evd.dequeue()? {
                    match event {
                        Event::ConnectionRequest(request) => {
                            request.accept(Some(&ep), b"")?;
                        }
                        Event::Connection(event) => {
                            connected = event.kind == ConnectionKind::Established;
                        }
                        Event::Dto(done) if done.status.is_success() => messages += 1,
                        other => anyhow::bail!("unexpected: {other:?}"),
                    }
                }
            }
        }
    }
    for evd in [&node.transfers, &node.connections, &node.requests] {
        evd.set_cno(None)?;
    }
    ensure!(messages == MESSAGES, "{messages} messages");
    Ok((messages, words))
}

/// Waits for a readable descriptor and returns the readable ones.
fn readable<const N: usize>(fds: [BorrowedFd<'_>; N]) -> Result<[bool; N]> {
    let mut set = fds.map(|fd| libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    });
    // SAFETY: the set is in this frame and has the given length; the descriptors are borrowed.
    let ready = unsafe { libc::poll(set.as_mut_ptr(), N as libc::nfds_t, 10_000) };
    ensure!(ready > 0, "no event was received");
    Ok(set.map(|entry| entry.revents & libc::POLLIN != 0))
}

fn run_client(service: u64, aside: &mut UnixStream) -> Result<()> {
    let node = Node::open(&adapter())?;
    let ep = node.endpoint()?;
    let memory = Region::create(&node.pz, LEN, Privileges::LOCAL)?;
    node.connect(&ep, node.address()?, service)?;
    for cookie in 0..MESSAGES {
        node.send(&ep, memory.segment(0, LEN)?, cookie)?;
        aside.write_all(b".")?;
    }
    ep.disconnect(Close::Graceful)?;
    ep.wait_disconnected(SOON)?;
    Ok(())
}
