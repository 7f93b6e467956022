//! Ping-pong by Send and Receive.
//!
//! A receive must be posted before the peer sends, so each side posts the next receive before it
//! answers. Two sides that take turns need no other flow control.
//!
//! ```text
//! send_recv [adapter]
//! ```

use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use dat_api::{Close, Node, Privileges, Region};

const ROUNDS: u64 = 100;
const LEN: usize = 64;

/// Cookies, which identify the completions.
const RECEIVED: u64 = 1;
const SENT: u64 = 2;

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
    let served = thread::spawn(move || serve(&server));
    let client = Node::open(&adapter())?;
    ask(&client, qualifier)?;
    served.join().expect("the server panicked")?;
    drop(service);
    println!("{ROUNDS} round trips of {LEN} bytes");
    Ok(())
}

fn serve(node: &Node) -> Result<()> {
    let ep = node.endpoint()?;
    let memory = Region::create(&node.pz, LEN, Privileges::LOCAL)?;
    ep.post_recv(&[memory.segment(0, LEN)?], RECEIVED)?;
    node.accept(&ep)?;
    for round in 1..=ROUNDS {
        node.done(ep.id(), RECEIVED)?;
        let message = memory.to_vec(0, LEN)?;
        if round < ROUNDS {
            ep.post_recv(&[memory.segment(0, LEN)?], RECEIVED)?;
        }
        let echo = Region::from_bytes(&node.pz, &message, Privileges::LOCAL)?;
        node.send(&ep, echo.segment(0, LEN)?, SENT)?;
    }
    ep.wait_disconnected(SOON)?;
    Ok(())
}

fn ask(node: &Node, service: u64) -> Result<()> {
    let ep = node.endpoint()?;
    let question = Region::create(&node.pz, LEN, Privileges::LOCAL)?;
    let answer = Region::create(&node.pz, LEN, Privileges::LOCAL)?;
    node.connect(&ep, node.address()?, service)?;
    for round in 0..ROUNDS {
        ep.post_recv(&[answer.segment(0, LEN)?], RECEIVED)?;
        question.write(0, &round.to_be_bytes())?;
        node.send(&ep, question.segment(0, LEN)?, SENT)?;
        let received = node.done(ep.id(), RECEIVED)?;
        ensure!(received.transferred as usize == LEN);
        ensure!(answer.to_vec(0, 8)? == round.to_be_bytes());
    }
    ep.disconnect(Close::Graceful)?;
    ep.wait_disconnected(SOON)?;
    Ok(())
}
