//! Sends a file to another process by RDMA Writes, and shows the progress at both ends.
//!
//! The receiver offers a ring of slots. The sender writes a piece of the file into a slot, and a
//! message after it says how long the piece is: messages do not overtake writes. The receiver
//! stores the piece and returns the slot with a message of its own.
//!
//! ```text
//! file_transfer receive SERVICE FILE [--adapter NAME]
//! file_transfer send FILE ADDRESS SERVICE [--adapter NAME]
//! ```

use std::fs::File;
use std::io::{Read, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use dat_api::{Close, CompletionFlags, Ep, Node, Privileges, Psp, Region, RemoteRegion};

/// The length of a slot, and the number of slots.
const PIECE: usize = 256 << 10;
const SLOTS: usize = 8;

/// The cookies of transfers; those of Receives are below, from 0 on.
const SENT: u64 = 100;
const WRITTEN: u64 = 101;

/// The length of a message: two numbers, or a description of memory.
const MESSAGE: usize = RemoteRegion::ENCODED_LEN;

#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    role: Role,
    /// The interface adapter.
    #[arg(long, global = true, default_value = "iwarp-lo")]
    adapter: String,
}

#[derive(Debug, clap::Subcommand)]
enum Role {
    /// Wait for a sender at a connection qualifier, and store the file.
    Receive { service: u64, file: PathBuf },
    /// Send a file.
    Send {
        file: PathBuf,
        address: IpAddr,
        service: u64,
    },
}

fn main() -> Result<()> {
    let args = Args::parse();
    let node = Node::open(&args.adapter)?;
    match args.role {
        Role::Receive { service, file } => receive(&node, service, &file),
        Role::Send {
            file,
            address,
            service,
        } => send(&node, &file, address, service),
    }
}

fn receive(node: &Node, service: u64, file: &Path) -> Result<()> {
    let mut output = File::create(file).with_context(|| format!("creating {}", file.display()))?;
    let psp = Psp::create(&node.ia, service, &node.requests)?;
    let ends = Ends::new(node)?;
    let ring = Region::create(&node.pz, SLOTS * PIECE, Privileges::ALL)?;
    node.accept(&ends.ep)?;
    drop(psp);
    ends.send(ring.remote().to_bytes())?;
    let (len, _) = ends.receive(0)?;
    let mut progress = Progress::new("received", len);
    let mut sum = Sum::default();
    for (number, slot) in (1..).zip((0..SLOTS).cycle()) {
        if progress.done == len {
            let (sent, _) = ends.receive(number)?;
            ensure!(sum.0 == sent, "the bytes are not those that were sent");
            break;
        }
        let (piece, _) = ends.receive(number)?;
        let piece = usize::try_from(piece)?;
        ensure!(piece <= PIECE, "a piece of {piece} bytes");
        let bytes = ring.to_vec(slot * PIECE, piece)?;
        sum.add(&bytes);
        output.write_all(&bytes)?;
        progress.add(piece);
        ends.send_numbers(piece as u64, 0)?;
    }
    output.sync_all()?;
    ends.ep.wait_disconnected(node.timeout)?;
    progress.finish();
    Ok(())
}

fn send(node: &Node, file: &Path, address: IpAddr, service: u64) -> Result<()> {
    let mut input = File::open(file).with_context(|| format!("opening {}", file.display()))?;
    let len = input.metadata()?.len();
    let ends = Ends::new(node)?;
    ends.ep
        .connect((address, 0).into(), service, node.timeout, b"")?;
    let ring = RemoteRegion::from_bytes(&ends.receive_bytes(0)?);
    ends.send_numbers(len, 0)?;
    let pieces = Region::create(&node.pz, SLOTS * PIECE, Privileges::LOCAL)?;
    let mut progress = Progress::new("sent", len);
    let mut sum = Sum::default();
    let mut bytes = vec![0; PIECE];
    let mut returned = 0;
    for (number, slot) in (0..).zip((0..SLOTS).cycle()) {
        let piece = usize::try_from(len - progress.done)?.min(PIECE);
        if piece == 0 {
            break;
        }
        // The slot is free when the receiver has returned it as often as it was used.
        while returned + SLOTS <= number {
            returned += 1;
            ends.receive(returned)?;
        }
        input.read_exact(&mut bytes[..piece])?;
        sum.add(&bytes[..piece]);
        pieces.write(slot * PIECE, &bytes[..piece])?;
        let here = [pieces.segment(slot * PIECE, piece)?];
        let there = ring.slice(u32::try_from(slot * PIECE)?, u32::try_from(piece)?)?;
        // The message after it reports the write's completion too.
        ends.ep
            .post_rdma_write(&here, there, WRITTEN, CompletionFlags::SUPPRESS)?;
        ends.send_numbers(piece as u64, 0)?;
        progress.add(piece);
    }
    ends.send_numbers(sum.0, 0)?;
    while (returned as u64) < len.div_ceil(PIECE as u64) {
        returned += 1;
        ends.receive(returned)?;
    }
    ends.ep.disconnect(Close::Graceful)?;
    ends.ep.wait_disconnected(node.timeout)?;
    progress.finish();
    Ok(())
}

/// An endpoint with receives for the peer's messages.
struct Ends<'a> {
    node: &'a Node,
    ep: Ep,
    inbox: Region,
    outbox: Region,
}

/// The number of posted Receives: the peer sends one message more than there are slots.
const RECEIVES: usize = SLOTS + 2;

impl<'a> Ends<'a> {
    fn new(node: &'a Node) -> Result<Self> {
        let ends = Self {
            ep: node.endpoint()?,
            inbox: Region::create(&node.pz, RECEIVES * MESSAGE, Privileges::LOCAL)?,
            outbox: Region::create(&node.pz, MESSAGE, Privileges::LOCAL)?,
            node,
        };
        (0..RECEIVES).try_for_each(|at| ends.post(at))?;
        Ok(ends)
    }

    fn post(&self, at: usize) -> Result<()> {
        let segment = self.inbox.segment(at * MESSAGE, MESSAGE)?;
        Ok(self.ep.post_recv(&[segment], at as u64)?)
    }

    /// Waits for the peer's message with this number, counted from 0.
    fn receive_bytes(&self, number: usize) -> Result<[u8; MESSAGE]> {
        let at = number % RECEIVES;
        self.node.done(self.ep.id(), at as u64)?;
        let mut bytes = [0; MESSAGE];
        self.inbox.read(at * MESSAGE, &mut bytes)?;
        self.post(at)?;
        Ok(bytes)
    }

    fn receive(&self, number: usize) -> Result<(u64, u64)> {
        let bytes = u128::from_be_bytes(self.receive_bytes(number)?);
        Ok(((bytes >> 64) as u64, bytes as u64))
    }

    fn send_numbers(&self, one: u64, two: u64) -> Result<()> {
        self.send((u128::from(one) << 64 | u128::from(two)).to_be_bytes())
    }

    fn send(&self, bytes: [u8; MESSAGE]) -> Result<()> {
        self.outbox.write(0, &bytes)?;
        let message = self.outbox.segment(0, MESSAGE)?;
        Ok(self.node.send(&self.ep, message, SENT)?)
    }
}

/// A checksum of the whole file (FNV-1a).
struct Sum(u64);

impl Default for Sum {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Sum {
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

/// The progress of a transfer, a line on standard error for each tenth.
struct Progress {
    verb: &'static str,
    len: u64,
    done: u64,
    started: Instant,
}

impl Progress {
    fn new(verb: &'static str, len: u64) -> Self {
        Self {
            verb,
            len,
            done: 0,
            started: Instant::now(),
        }
    }

    fn add(&mut self, piece: usize) {
        let tenths = |done: u64| done * 10 / self.len.max(1);
        let before = tenths(self.done);
        self.done += piece as u64;
        if tenths(self.done) > before {
            let rate = self.done as f64 / self.started.elapsed().as_secs_f64() / 1e6;
            let percent = tenths(self.done) * 10;
            eprintln!("{percent:>3} % of {} bytes, {rate:.0} MB/s", self.len);
        }
    }

    fn finish(&self) {
        println!("{} {} bytes", self.verb, self.done);
    }
}
