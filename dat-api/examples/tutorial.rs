//! A short program that converts a TCP connection to RDMA, and writes and reads the memory of the
//! peer. `docs/tutorial.md` explains each step.
//!
//! ```text
//! tutorial listen  ADDRESS:PORT [adapter]
//! tutorial connect ADDRESS:PORT [adapter]
//! ```

use std::env;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use dat_api::{Close, CompletionFlags, Node, Privileges, Region, RemoteRegion, Ssp};

const GO: &[u8] = b"RDMA go\n";
const LEN: usize = 64;
const SOON: Option<Duration> = Some(Duration::from_secs(30));
/// The cookies of the transfers.
const RECEIVED: u64 = 1;
const WRITTEN: u64 = 2;
const READ: u64 = 3;
const SENT: u64 = 4;

fn main() -> Result<()> {
    let words: Vec<String> = env::args().skip(1).collect();
    let (role, address, adapter) = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [role, address] => (role, address, "iwarp-lo"),
        [role, address, adapter] => (role, address, adapter),
        _ => bail!("usage: tutorial listen|connect ADDRESS:PORT [adapter]"),
    };
    match role {
        "listen" => {
            let listener = TcpListener::bind(address)?;
            println!("server: listening on {}", listener.local_addr()?);
            serve(listener.accept()?.0, adapter)
        }
        "connect" => {
            let socket = TcpStream::connect(address)
                .with_context(|| format!("nothing listens on {address}"))?;
            run_client(socket, adapter)
        }
        other => bail!("{other} is neither listen nor connect"),
    }
}

fn serve(socket: TcpStream, adapter: &str) -> Result<()> {
    let node = Node::open(adapter)?;
    let ep = node.endpoint()?;
    let memory = Region::create(&node.pz, LEN, Privileges::ALL)?;
    let note = Region::create(&node.pz, LEN, Privileges::LOCAL)?;
    ep.post_recv(&[note.segment(0, LEN)?], RECEIVED)?;

    let ssp = Ssp::create(socket, &ep, &node.requests, GO)?;
    let request = ssp.wait_request(SOON)?;
    let description = memory.remote().to_bytes();
    request.accept(None, &description)?.wait_established(SOON)?;
    println!("server: the connection is an RDMA connection");

    let received = node.done(ep.id(), RECEIVED)?;
    let note = note.to_vec(0, received.transferred as usize)?;
    let written = memory.to_vec(0, note.len())?;
    println!(
        "server: the peer wrote: {}",
        String::from_utf8_lossy(&written)
    );
    ep.wait_disconnected(SOON)?;
    Ok(())
}

fn run_client(mut socket: TcpStream, adapter: &str) -> Result<()> {
    let mut go = [0; GO.len()];
    socket
        .read_exact(&mut go)
        .context("the server has not offered RDMA; its output has the reason")?;

    let node = Node::open(adapter)?;
    let ep = node.endpoint()?;
    let description = ep
        .connect_socket(socket, SOON, b"")
        .context("the connection stays on TCP")?;
    let remote = description.first_chunk().context("a short description")?;
    let remote = RemoteRegion::from_bytes(remote);
    println!("client: the connection is an RDMA connection");

    let text = Region::from_bytes(&node.pz, b"hello over RDMA", Privileges::LOCAL)?;
    let copy = Region::create(&node.pz, text.len(), Privileges::LOCAL)?;
    let write = [text.segment(0, text.len())?];
    let read = [copy.segment(0, copy.len())?];
    ep.post_rdma_write(&write, remote, WRITTEN, CompletionFlags::SUPPRESS)?;
    ep.post_rdma_read(&read, remote, READ, CompletionFlags::DEFAULT)?;
    node.done(ep.id(), READ)?;
    let copy = copy.to_vec(0, copy.len())?;
    println!("client: wrote and read: {}", String::from_utf8_lossy(&copy));

    node.send(&ep, write[0], SENT)?;
    ep.disconnect(Close::Graceful)?;
    ep.wait_disconnected(SOON)?;
    Ok(())
}
