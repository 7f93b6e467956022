//! An existing TCP server and its client, converted to RDMA: a line is sent, and the answer is the
//! line in capitals. Clients that do not ask for RDMA are served over TCP as before.
//!
//! The conversion is between the two marks. `examples/c/tcpserver.c` is the same program in C.
//!
//! ```text
//! tcp_server [adapter]
//! ```

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use dat_api::{Close, Ep, Node, Privileges, Region, Ssp};

const QUESTIONS: [&str; 2] = ["hello", "how are you"];
const CLIENTS: usize = 2;
/// The length of a message over RDMA in bytes.
const LEN: usize = 64;
/// The cookies of the transfers.
const SENT: u64 = 1;
const RECEIVED: u64 = 2;

/// A timeout that is longer than any step takes.
const SOON: Option<Duration> = Some(Duration::from_secs(60));

/// Returns the adapter that the command line names, or that of the loopback interface.
fn adapter() -> String {
    std::env::args()
        .nth(1)
        .unwrap_or_else(|| "iwarp-lo".to_owned())
}

fn main() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let server = thread::spawn(move || serve(&listener));
    run_client(address)?;
    server.join().expect("the server panicked")
}

// ------------------------------------------------------------------ conversion: begin

/// One end of the converted connection: an endpoint and its memory, in place of the socket.
struct Converted {
    node: Node,
    ep: Ep,
    inbox: Region,
}

impl Converted {
    /// Prepares an endpoint. A Receive is posted before the peer can send.
    fn prepare() -> Result<Self> {
        let node = Node::open(&adapter())?;
        let ep = node.endpoint()?;
        let inbox = Region::create(&node.pz, LEN, Privileges::LOCAL)?;
        ep.post_recv(&[inbox.segment(0, LEN)?], RECEIVED)?;
        Ok(Self { node, ep, inbox })
    }

    /// The server: the client's line was `RDMA`. On an error the socket is closed.
    fn accept(socket: TcpStream) -> Result<Self> {
        let ready = Self::prepare()?;
        let ssp = Ssp::create(socket, &ready.ep, &ready.node.requests, b"RDMA go\n")?;
        let request = ssp.wait_request(SOON)?;
        request.accept(None, b"")?.wait_established(SOON)?;
        Ok(ready)
    }

    /// The client: asks for RDMA on its connection.
    fn request(mut socket: TcpStream) -> Result<Self> {
        writeln!(socket, "RDMA")?;
        let answer = line(&mut BufReader::new(&socket))?;
        ensure!(answer.as_deref() == Some("RDMA go"), "no RDMA: {answer:?}");
        let ready = Self::prepare()?;
        ready.ep.connect_socket(socket, SOON, b"")?;
        Ok(ready)
    }
}

// -------------------------------------------------------------------- conversion: end

impl Converted {
    fn send(&self, text: &str) -> Result<()> {
        let outbox = Region::from_bytes(&self.node.pz, text.as_bytes(), Privileges::LOCAL)?;
        let message = outbox.segment(0, outbox.len())?;
        Ok(self.node.send(&self.ep, message, SENT)?)
    }

    fn receive(&self) -> Result<String> {
        let done = self.node.done(self.ep.id(), RECEIVED)?;
        let bytes = self.inbox.to_vec(0, done.transferred as usize)?;
        self.ep
            .post_recv(&[self.inbox.segment(0, LEN)?], RECEIVED)?;
        Ok(String::from_utf8(bytes)?)
    }
}

fn serve(listener: &TcpListener) -> Result<()> {
    for _ in 0..CLIENTS {
        let (socket, _) = listener.accept()?;
        let mut reader = BufReader::new(socket.try_clone()?);
        let first = line(&mut reader)?.context("the client sends nothing")?;
        if first == "RDMA" {
            // No second handle of the socket may exist when it is converted.
            drop(reader);
            serve_rdma(&Converted::accept(socket)?)?;
        } else {
            serve_tcp(socket, &mut reader, first)?;
        }
    }
    Ok(())
}

fn serve_tcp(mut socket: TcpStream, reader: &mut impl BufRead, first: String) -> Result<()> {
    let mut next = Some(first);
    let mut count = 0;
    while let Some(question) = next {
        writeln!(socket, "{}", question.to_uppercase())?;
        count += 1;
        next = line(reader)?;
    }
    println!("server: answered {count} lines over TCP");
    Ok(())
}

fn serve_rdma(client: &Converted) -> Result<()> {
    for _ in QUESTIONS {
        client.send(&client.receive()?.to_uppercase())?;
    }
    client.ep.wait_disconnected(SOON)?;
    println!("server: answered {} messages over RDMA", QUESTIONS.len());
    Ok(())
}

fn run_client(server: SocketAddr) -> Result<()> {
    let mut socket = TcpStream::connect(server)?;
    let mut reader = BufReader::new(socket.try_clone()?);
    for question in QUESTIONS {
        writeln!(socket, "{question}")?;
        let answer = line(&mut reader)?.context("the server does not answer")?;
        println!("client: over TCP: {answer}");
    }
    drop((socket, reader));

    let server = Converted::request(TcpStream::connect(server)?)?;
    for question in QUESTIONS {
        server.send(question)?;
        println!("client: over RDMA: {}", server.receive()?);
    }
    server.ep.disconnect(Close::Graceful)?;
    server.ep.wait_disconnected(SOON)?;
    Ok(())
}

/// Reads a line without its end; `None` at the end of the stream.
fn line(reader: &mut impl BufRead) -> Result<Option<String>> {
    let mut line = String::new();
    let count = reader.read_line(&mut line)?;
    Ok((count > 0).then(|| line.trim_end().to_owned()))
}
