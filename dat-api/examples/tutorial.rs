//! A short program that converts a TCP connection to RDMA. `docs/tutorial.md` explains each step.
//!
//! ```text
//! tutorial [adapter]
//! ```

mod common;

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::thread;

use anyhow::{Context, Result};
use common::{Node, SOON};
use dat_api::{Close, Privileges, Region, Ssp};

const GO: &[u8] = b"RDMA go\n";
const LEN: usize = 64;
/// The cookies of the two transfers.
const SENT: u64 = 1;
const RECEIVED: u64 = 2;

fn main() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let server = thread::spawn(move || serve(listener.accept()?.0));
    run_client(TcpStream::connect(address)?)?;
    server.join().expect("the server panicked")
}

fn serve(socket: TcpStream) -> Result<()> {
    let node = Node::open()?;
    let ep = node.endpoint()?;
    let memory = Region::create(&node.pz, LEN, Privileges::LOCAL)?;
    ep.post_recv(&[memory.segment(0, LEN)?], RECEIVED)?;

    let ssp = Ssp::create(socket, &ep, &node.requests, GO)?;
    let request = ssp.wait_request(SOON)?;
    request.accept(None, b"")?.wait_established(SOON)?;

    let received = node.done(ep.id(), RECEIVED)?;
    let message = memory.to_vec(0, received.transferred as usize)?;
    println!(
        "server: received by RDMA: {}",
        String::from_utf8_lossy(&message)
    );
    ep.wait_disconnected(SOON)?;
    Ok(())
}

fn run_client(mut socket: TcpStream) -> Result<()> {
    let mut go = [0; GO.len()];
    socket.read_exact(&mut go)?;

    let node = Node::open()?;
    let ep = node.endpoint()?;
    ep.connect_socket(socket, SOON, b"")
        .context("the connection stays on TCP")?;

    let memory = Region::from_bytes(&node.pz, b"hello over RDMA", Privileges::LOCAL)?;
    node.send(&ep, memory.segment(0, memory.len())?, SENT)?;
    println!("client: sent");
    ep.disconnect(Close::Graceful)?;
    ep.wait_disconnected(SOON)?;
    Ok(())
}
