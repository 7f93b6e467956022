//! Two programs meet over TCP, agree to use RDMA, and convert the connection they already have.
//!
//! ```text
//! convert --listen  127.0.0.1:4711 --ia iwarp-lo      (the server, serves one client)
//! convert --connect 127.0.0.1:4711 --ia iwarp-lo      (the client)
//! ```
//!
//! The server's `--no-rdma` and `--reject`, and the client's `--no-rdma`, show the other possible
//! outcomes: the connection stays a TCP connection and the data is sent in streaming mode.
//!
//! # The conversation
//!
//! `examples/c/convert.c` in the root of this repository uses the same protocol and can be either
//! side.
//!
//! **Streaming mode.** Lines of ASCII, each ended by one line feed; C is the client, S the server.
//!
//! ```text
//! 1  C  HELLO <who>
//! 2  S  HELLO <who>
//! 3  C  RDMA yes | RDMA no         what the client can and wants
//! 4  S  RDMA go | RDMA no          "go" only after "yes": an SSP's final streaming message
//! ```
//!
//! **After `RDMA no`**, and also when the conversion fails later, on the same connection:
//!
//! ```text
//! 5  C  DATA <bytes>               decimal, followed by that many bytes of data
//! 6  S  SUM <checksum>             16 hexadecimal digits
//! 7  C  BYE                        then both close
//! ```
//!
//! **After `RDMA go`** the client connects its endpoint over the socket, with the private data
//! `convert/1`, and the server accepts with the same private data (or rejects, and both continue at
//! line 5). Then messages of 64 bytes are sent by Send and Receive; numbers are big-endian, unused
//! fields zero:
//!
//! ```text
//! bytes  0.. 4  kind: GREE, REGN, WROT, SUMS or DONE
//! bytes  4.. 8  zero
//! bytes  8..16  address     \
//! bytes 16..20  length       } memory for the peer
//! bytes 20..24  RMR context /
//! bytes 24..32  checksum
//! bytes 32..64  text, padded with zeros
//! ```
//!
//! ```text
//! 5  C  Send GREE (text)
//! 6  S  Send REGN (text, memory of 64 MiB that the client may write and read)
//! 7  C  RDMA Write of the whole memory, then Send WROT (checksum of what it wrote)
//! 8  S  Send SUMS (checksum of what the memory holds)
//! 9  C  RDMA Read of the whole memory, then Send DONE (checksum of what it read)
//! 10 C  disconnects gracefully
//! ```
//!
//! Before it converts, the server has posted a Receive for every message that the client will send,
//! and the client has posted one for every message of the server.
//!
//! **The data** is 64-bit little-endian words; word `i` is `(i + 1) * 0x9E3779B97F4A7C15` modulo
//! 2^64. **The checksum** starts at `0xCBF29CE484222325`; each word `w` in order turns it into
//! `(checksum ^ w) * 0x100000001B3` modulo 2^64.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::Parser;
use dat_api::{
    Close, CompletionFlags, ConnectError, ConnectionKind, Ep, EpAttr, EpEvds, Evd, EvdFlags, Ia,
    Privileges, Pz, Region, RemoteRegion, Ssp,
};

const WHO: &str = "convert.rs";
const DATA_LEN: usize = 64 << 20;
const PRIVATE_DATA: &[u8] = b"convert/1";
const MESSAGE_LEN: usize = 64;
/// Number of messages that the client sends, and so the number of Receives that the server posts.
const CLIENT_MESSAGES: u64 = 3;
/// Number of messages that the server sends.
const SERVER_MESSAGES: u64 = 2;
const PATIENCE: Option<Duration> = Some(Duration::from_secs(30));

/// Two programs meet over TCP, agree to use RDMA, and convert the connection they already have.
#[derive(Parser)]
struct Args {
    /// Serve one client at this address.
    #[arg(long, value_name = "ADDR:PORT", required_unless_present = "connect")]
    listen: Option<SocketAddr>,
    /// Be the client of the server at this address.
    #[arg(long, value_name = "ADDR:PORT", conflicts_with = "listen")]
    connect: Option<SocketAddr>,
    /// The interface adapter to use; `datinfo` lists them.
    #[arg(long, value_name = "NAME", default_value = "iwarp-lo")]
    ia: String,
    /// Behave like a program without RDMA.
    #[arg(long)]
    no_rdma: bool,
    /// As the server: reject the request for RDMA when it is received.
    #[arg(long)]
    reject: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let outcome = match (args.listen, args.connect) {
        (Some(address), _) => serve(address, &args),
        (None, Some(address)) => run_client(address, &args),
        (None, None) => Err(anyhow!("name --listen or --connect")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("convert: {error:#}");
            ExitCode::FAILURE
        }
    }
}

// ------------------------------------------------------------------------------------------ server

fn serve(address: SocketAddr, args: &Args) -> Result<()> {
    let listener = TcpListener::bind(address)?;
    // The port is printed, so that a caller may listen on port 0 and read it here.
    println!("server: listening on {}", listener.local_addr()?);
    let (mut socket, peer) = listener.accept()?;
    println!("server: TCP connection from {peer}");

    println!(
        "server: streaming mode: the client says {:?}",
        read_line(&mut socket)?
    );
    write_line(&mut socket, &format!("HELLO {WHO}"))?;
    let requested = read_line(&mut socket)?;
    println!("server: streaming mode: the client says {requested:?}");

    let rdma = if requested == "RDMA yes" && !args.no_rdma {
        open_rdma(&args.ia, "server")
    } else {
        None
    };
    let Some(rdma) = rdma else {
        write_line(&mut socket, "RDMA no")?;
        println!("server: no RDMA; continuing in streaming mode");
        return serve_stream(socket);
    };
    match serve_conversion(&rdma, socket, args.reject)? {
        None => serve_rdma(&rdma),
        Some(socket) => serve_stream(socket),
    }
}

/// The passive side of the conversion. Returns the socket if no RDMA connection was established.
fn serve_conversion(rdma: &Rdma, socket: TcpStream, reject: bool) -> Result<Option<TcpStream>> {
    rdma.post_receives(CLIENT_MESSAGES)?;
    let ssp = match Ssp::create(socket, &rdma.ep, &rdma.requests, b"RDMA go\n") {
        Ok(ssp) => ssp,
        Err(refused) => {
            println!(
                "server: the socket cannot be converted ({}); streaming mode",
                refused.error
            );
            let mut socket = TcpStream::from(refused.socket);
            write_line(&mut socket, "RDMA no")?;
            return Ok(Some(socket));
        }
    };
    println!("server: the service point has the socket, and has sent \"RDMA go\"");
    let request = match ssp.wait_request(PATIENCE) {
        Ok(request) => request,
        Err(error) => {
            println!("server: {error}; taking the socket back");
            return Ok(ssp.free()?.map(TcpStream::from));
        }
    };
    let said = String::from_utf8_lossy(request.private_data()).into_owned();
    println!("server: request for RDMA with private data {said:?}");
    if reject {
        println!("server: rejecting it, as requested; the socket is returned");
        return Ok(request.reject(b"not today")?.map(TcpStream::from));
    }
    match request
        .accept(None, PRIVATE_DATA)?
        .wait_established(PATIENCE)
    {
        Ok(_) => {
            println!("server: the TCP connection is an RDMA connection now");
            Ok(None)
        }
        Err(ConnectError { reason, socket, .. }) => {
            println!("server: {reason}");
            Ok(socket.map(TcpStream::from))
        }
    }
}

fn serve_rdma(rdma: &Rdma) -> Result<()> {
    let greeting = rdma.receive(0, "GREE")?;
    println!("server: received greeting {:?}", greeting.text);

    let memory = Region::create(&rdma.pz, DATA_LEN, Privileges::ALL)?;
    rdma.send(&Message {
        memory: Some(memory.remote()),
        text: "welcome from convert.rs".into(),
        ..Message::new("REGN")
    })?;
    println!("server: offered {} MiB of memory", DATA_LEN >> 20);

    let written = rdma.receive(1, "WROT")?;
    let sum = checksum_of(&memory)?;
    ensure!(
        sum == written.checksum,
        "the client wrote data with checksum {:016x}, and the memory has {sum:016x}",
        written.checksum
    );
    println!("server: RDMA Write arrived, checksum {sum:016x} agrees");
    rdma.send(&Message {
        checksum: sum,
        ..Message::new("SUMS")
    })?;

    let done = rdma.receive(2, "DONE")?;
    ensure!(
        done.checksum == sum,
        "the client read {:016x} instead of {sum:016x}",
        done.checksum
    );
    println!("server: the client has read it back, checksum agrees");
    match rdma.ep.wait_disconnected(PATIENCE)? {
        ConnectionKind::Disconnected => println!("server: disconnected"),
        other => bail!("the connection did not end normally: {other}"),
    }
    Ok(())
}

fn serve_stream(mut socket: TcpStream) -> Result<()> {
    let line = read_line(&mut socket)?;
    let len = line
        .strip_prefix("DATA ")
        .context("expected DATA")?
        .parse::<usize>()?;
    ensure!(
        len <= 4 * DATA_LEN && len.is_multiple_of(8),
        "refusing {len} bytes"
    );
    let mut data = vec![0; len];
    socket.read_exact(&mut data)?;
    let sum = checksum(CHECKSUM_START, &data);
    println!(
        "server: received {} MiB by streaming, checksum {sum:016x}",
        len >> 20
    );
    write_line(&mut socket, &format!("SUM {sum:016x}"))?;
    ensure!(read_line(&mut socket)? == "BYE", "expected BYE");
    println!("server: done in streaming mode");
    Ok(())
}

// ------------------------------------------------------------------------------------------ client

fn run_client(address: SocketAddr, args: &Args) -> Result<()> {
    let mut socket = TcpStream::connect(address)?;
    println!("client: TCP connection to {address}");
    write_line(&mut socket, &format!("HELLO {WHO}"))?;
    println!(
        "client: streaming mode: the server says {:?}",
        read_line(&mut socket)?
    );

    let rdma = if args.no_rdma {
        None
    } else {
        open_rdma(&args.ia, "client")
    };
    write_line(
        &mut socket,
        if rdma.is_some() {
            "RDMA yes"
        } else {
            "RDMA no"
        },
    )?;
    let answer = read_line(&mut socket)?;
    println!("client: streaming mode: the server says {answer:?}");
    let Some(rdma) = rdma.filter(|_| answer == "RDMA go") else {
        println!("client: no RDMA; continuing in streaming mode on the same connection");
        return visit_stream(socket);
    };
    rdma.post_receives(SERVER_MESSAGES)?;
    match rdma.ep.connect_socket(socket, PATIENCE, PRIVATE_DATA) {
        Ok(private_data) => {
            let said = String::from_utf8_lossy(&private_data).into_owned();
            println!("client: the TCP connection is an RDMA connection now; private data {said:?}");
            visit_rdma(&rdma)
        }
        Err(ConnectError {
            reason,
            socket: Some(socket),
            ..
        }) => {
            println!("client: {reason}; continuing in streaming mode on the same connection");
            visit_stream(socket.into())
        }
        Err(error) => Err(error.into()),
    }
}

fn visit_rdma(rdma: &Rdma) -> Result<()> {
    rdma.send(&Message {
        text: "greetings from convert.rs".into(),
        ..Message::new("GREE")
    })?;
    let offer = rdma.receive(0, "REGN")?;
    let remote = offer.memory.context("the server offers no memory")?;
    println!(
        "client: the server says {:?} and offers {} MiB",
        offer.text,
        remote.len >> 20
    );
    let len = remote.len as usize;

    let source = Region::create(&rdma.pz, len, Privileges::LOCAL)?;
    fill(&source)?;
    let sum = checksum_of(&source)?;
    let begin = Instant::now();
    rdma.transfer(Direction::Write, &source, remote)?;
    println!(
        "client: RDMA Write of {} MiB {}",
        len >> 20,
        speed(len, begin)
    );
    rdma.send(&Message {
        checksum: sum,
        ..Message::new("WROT")
    })?;
    let sums = rdma.receive(1, "SUMS")?;
    ensure!(
        sums.checksum == sum,
        "the server has {:016x} instead of {sum:016x}",
        sums.checksum
    );
    println!("client: the server's checksum {sum:016x} agrees");

    let sink = Region::create(&rdma.pz, len, Privileges::LOCAL)?;
    let begin = Instant::now();
    rdma.transfer(Direction::Read, &sink, remote)?;
    println!(
        "client: RDMA Read of {} MiB {}",
        len >> 20,
        speed(len, begin)
    );
    let back = checksum_of(&sink)?;
    ensure!(back == sum, "read back {back:016x} instead of {sum:016x}");
    println!("client: the data that was read back has the checksum {back:016x} too");
    rdma.send(&Message {
        checksum: back,
        ..Message::new("DONE")
    })?;

    rdma.ep.disconnect(Close::Graceful)?;
    match rdma.ep.wait_disconnected(PATIENCE)? {
        ConnectionKind::Disconnected => println!("client: disconnected"),
        other => bail!("the connection did not end normally: {other}"),
    }
    Ok(())
}

fn visit_stream(mut socket: TcpStream) -> Result<()> {
    let data: Vec<u8> = (0..DATA_LEN as u64 / 8).flat_map(word).collect();
    let sum = checksum(CHECKSUM_START, &data);
    let begin = Instant::now();
    write_line(&mut socket, &format!("DATA {}", data.len()))?;
    socket.write_all(&data)?;
    let answer = read_line(&mut socket)?;
    println!(
        "client: streamed {} MiB {}",
        data.len() >> 20,
        speed(data.len(), begin)
    );
    ensure!(
        answer == format!("SUM {sum:016x}"),
        "the server says {answer:?}, not {sum:016x}"
    );
    println!("client: the server's checksum {sum:016x} agrees");
    write_line(&mut socket, "BYE")?;
    println!("client: done in streaming mode");
    Ok(())
}

// -------------------------------------------------------------------------------------------- RDMA

/// The objects of one side of an RDMA connection.
struct Rdma {
    ia: Ia,
    pz: Pz,
    transfers: Evd,
    requests: Evd,
    ep: Ep,
    /// Memory for the messages to receive, one after the other.
    inbox: Region,
    outbox: Region,
}

#[derive(Clone, Copy)]
enum Direction {
    Write,
    Read,
}

/// Cookies of the receives are 0, 1, 2 ...; those of the requests start here.
const REQUEST_COOKIE: u64 = 1 << 32;

/// Opens the adapter, or prints why RDMA is not available.
fn open_rdma(ia: &str, who: &str) -> Option<Rdma> {
    match Rdma::open(ia) {
        Ok(rdma) => Some(rdma),
        Err(error) => {
            println!("{who}: no RDMA here: {error}");
            None
        }
    }
}

impl Rdma {
    fn open(ia: &str) -> dat_api::Result<Self> {
        let ia = Ia::open(ia)?;
        let pz = Pz::create(&ia)?;
        let transfers = Evd::create(&ia, 64, EvdFlags::DTO)?;
        let connections = Evd::create(&ia, 8, EvdFlags::CONNECTION)?;
        let requests = Evd::create(&ia, 8, EvdFlags::CONNECTION_REQUEST)?;
        let evds = EpEvds {
            recv: &transfers,
            request: &transfers,
            connect: &connections,
        };
        let ep = Ep::create(&pz, evds, Some(&EpAttr::default()))?;
        let messages = CLIENT_MESSAGES.max(SERVER_MESSAGES) as usize;
        let inbox = Region::create(&pz, messages * MESSAGE_LEN, Privileges::LOCAL)?;
        let outbox = Region::create(&pz, MESSAGE_LEN, Privileges::LOCAL)?;
        Ok(Self {
            ia,
            pz,
            transfers,
            requests,
            ep,
            inbox,
            outbox,
        })
    }

    fn post_receives(&self, count: u64) -> Result<()> {
        for cookie in 0..count {
            let segment = self
                .inbox
                .segment(cookie as usize * MESSAGE_LEN, MESSAGE_LEN)?;
            self.ep.post_recv(&[segment], cookie)?;
        }
        Ok(())
    }

    /// Waits for the message of receive `cookie`, which must be of the expected kind.
    fn receive(&self, cookie: u64, kind: &str) -> Result<Message> {
        let done = self
            .transfers
            .wait_completion(self.ep.id(), cookie, PATIENCE)?;
        ensure!(
            done.status.is_success(),
            "receiving {kind}: {}",
            done.status
        );
        ensure!(
            done.transferred as usize == MESSAGE_LEN,
            "a message of {} bytes",
            done.transferred
        );
        let mut bytes = [0; MESSAGE_LEN];
        self.inbox.read(cookie as usize * MESSAGE_LEN, &mut bytes)?;
        let message = Message::parse(&bytes);
        ensure!(
            message.kind == kind,
            "expected {kind}, got {:?}",
            message.kind
        );
        Ok(message)
    }

    fn send(&self, message: &Message) -> Result<()> {
        self.outbox.write(0, &message.to_bytes())?;
        let segment = self.outbox.segment(0, MESSAGE_LEN)?;
        self.ep
            .post_send(&[segment], REQUEST_COOKIE, CompletionFlags::DEFAULT)?;
        let done = self
            .transfers
            .wait_completion(self.ep.id(), REQUEST_COOKIE, PATIENCE)?;
        ensure!(
            done.status.is_success(),
            "sending {}: {}",
            message.kind,
            done.status
        );
        Ok(())
    }

    /// Transfers the whole of `local` to or from the peer, in pieces that the adapter can take at
    /// once.
    fn transfer(&self, direction: Direction, local: &Region, remote: RemoteRegion) -> Result<()> {
        let piece_max = self.ia.attr()?.max_rdma_size.clamp(1 << 20, 1 << 30) as usize;
        let mut at = 0;
        while at < local.len() {
            let len = piece_max.min(local.len() - at);
            let segment = [local.segment(at, len)?];
            let there = remote.slice(u32::try_from(at)?, u32::try_from(len)?)?;
            let (cookie, flags) = (REQUEST_COOKIE + 1, CompletionFlags::DEFAULT);
            match direction {
                Direction::Write => self.ep.post_rdma_write(&segment, there, cookie, flags)?,
                Direction::Read => self.ep.post_rdma_read(&segment, there, cookie, flags)?,
            }
            let done = self
                .transfers
                .wait_completion(self.ep.id(), cookie, PATIENCE)?;
            ensure!(
                done.status.is_success(),
                "transfer at {at}: {}",
                done.status
            );
            at += len;
        }
        Ok(())
    }
}

/// One message of the RDMA part.
#[derive(Debug, Default)]
struct Message {
    kind: String,
    memory: Option<RemoteRegion>,
    checksum: u64,
    text: String,
}

impl Message {
    fn new(kind: &str) -> Self {
        Self {
            kind: kind.to_owned(),
            ..Self::default()
        }
    }

    fn to_bytes(&self) -> [u8; MESSAGE_LEN] {
        let mut bytes = [0; MESSAGE_LEN];
        bytes[..4].copy_from_slice(&self.kind.as_bytes()[..4]);
        if let Some(memory) = self.memory {
            bytes[8..24].copy_from_slice(&memory.to_bytes());
        }
        bytes[24..32].copy_from_slice(&self.checksum.to_be_bytes());
        let text = &self.text.as_bytes()[..self.text.len().min(32)];
        bytes[32..32 + text.len()].copy_from_slice(text);
        bytes
    }

    fn parse(bytes: &[u8; MESSAGE_LEN]) -> Self {
        let mut memory = [0; RemoteRegion::ENCODED_LEN];
        memory.copy_from_slice(&bytes[8..24]);
        let memory = RemoteRegion::from_bytes(&memory);
        let mut checksum = [0; 8];
        checksum.copy_from_slice(&bytes[24..32]);
        let text = bytes[32..]
            .split(|byte| *byte == 0)
            .next()
            .unwrap_or_default();
        Self {
            kind: String::from_utf8_lossy(&bytes[..4]).into_owned(),
            memory: (memory.len > 0).then_some(memory),
            checksum: u64::from_be_bytes(checksum),
            text: String::from_utf8_lossy(text).into_owned(),
        }
    }
}

// -------------------------------------------------------------------------------------------- data

const CHECKSUM_START: u64 = 0xCBF2_9CE4_8422_2325;
const CHUNK: usize = 1 << 20;

fn word(index: u64) -> [u8; 8] {
    (index + 1)
        .wrapping_mul(0x9E37_79B9_7F4A_7C15)
        .to_le_bytes()
}

fn checksum(start: u64, data: &[u8]) -> u64 {
    data.as_chunks::<8>().0.iter().fold(start, |sum, word| {
        (sum ^ u64::from_le_bytes(*word)).wrapping_mul(0x100_0000_01B3)
    })
}

fn fill(region: &Region) -> Result<()> {
    for at in (0..region.len()).step_by(CHUNK) {
        let len = CHUNK.min(region.len() - at);
        let words = at as u64 / 8..(at + len) as u64 / 8;
        region.write(at, &words.flat_map(word).collect::<Vec<u8>>())?;
    }
    Ok(())
}

fn checksum_of(region: &Region) -> Result<u64> {
    let mut sum = CHECKSUM_START;
    for at in (0..region.len()).step_by(CHUNK) {
        sum = checksum(sum, &region.to_vec(at, CHUNK.min(region.len() - at))?);
    }
    Ok(sum)
}

fn speed(len: usize, begin: Instant) -> String {
    let seconds = begin.elapsed().as_secs_f64();
    format!(
        "in {:.1} ms ({:.2} GB/s)",
        seconds * 1e3,
        len as f64 / seconds / 1e9
    )
}

/// Reads one line byte by byte, because the bytes after it may be for another reader.
fn read_line(socket: &mut TcpStream) -> Result<String> {
    let mut line = Vec::new();
    loop {
        let mut byte = [0];
        socket
            .read_exact(&mut byte)
            .context("the peer closed the connection in streaming mode")?;
        match byte[0] {
            b'\n' => return Ok(String::from_utf8_lossy(&line).into_owned()),
            byte if line.len() < 256 => line.push(byte),
            _ => bail!("a line of more than 256 bytes"),
        }
    }
}

fn write_line(socket: &mut TcpStream, line: &str) -> Result<()> {
    Ok(socket.write_all(format!("{line}\n").as_bytes())?)
}
