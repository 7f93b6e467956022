//! A server passes its connection to another process, and its client notices nothing: the update of
//! a server while clients are connected. SDP calls this a suspension.
//!
//! ```text
//! hand_over [adapter]
//! ```
//!
//! The client sends numbers. The server answers half of them and suspends the connection. Another
//! process, which this program starts, continues and answers the rest.

use std::env;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use sdp_over_dat::{SdpListener, SdpStream, Stack};

/// The number of requests. Each server answers half of them.
const REQUESTS: u32 = 2_000;
/// The number of requests that the client sends before it reads an answer, so that some requests
/// are on their way when the server changes.
const AHEAD: u32 = 100;
/// The length of a request.
const LEN: usize = 4;
const TIMEOUT: Duration = Duration::from_secs(60);

fn main() -> io::Result<()> {
    let mut args = env::args().skip(1);
    let adapter = args.next().unwrap_or_else(|| "iwarp-lo".to_owned());
    let stack = Stack::open(&adapter)?;
    match args.next() {
        Some(_) => continue_service(&stack),
        None => serve(&stack, &adapter),
    }
}

fn listen(stack: &Stack) -> io::Result<SdpListener> {
    let address = stack.address().map_or([127, 0, 0, 1].into(), |it| it.ip());
    SdpListener::bind(stack, SocketAddr::new(address, 0))
}

/// The first server.
fn serve(stack: &Stack, adapter: &str) -> io::Result<()> {
    let listener = listen(stack)?;
    let address = listener.local_addr();
    let stack = stack.clone();
    let client = thread::spawn(move || request(&stack, address));
    let (stream, _) = listener.accept_timeout(Some(TIMEOUT))?;
    for _ in 0..REQUESTS / 2 {
        let mut request = [0; LEN];
        (&stream).read_exact(&mut request)?;
        answer(&stream, request)?;
    }

    let (mut successor, port) = start_successor(adapter)?;
    let suspended = stream.suspend(port, TIMEOUT)?;
    let stdin = successor.stdin.take();
    stdin.map_or(Ok(()), |mut pipe| pipe.write_all(&suspended.unread))?;

    let servers = client.join().expect("the client panicked")?;
    successor.wait()?;
    println!("{} answers by process {}", servers[0].1, servers[0].0);
    println!("{} answers by process {}", servers[1].1, servers[1].0);
    println!("one connection, no answer lost");
    Ok(())
}

/// Starts the process that continues the connection. Returns its port too.
fn start_successor(adapter: &str) -> io::Result<(Child, u16)> {
    let mut child = Command::new(env::current_exe()?)
        .args([adapter, "continue"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    let stdout = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    BufReader::new(stdout).read_line(&mut line)?;
    let port = line.trim().parse().map_err(io::Error::other)?;
    Ok((child, port))
}

/// The other process: it gets the bytes that the first server has not read, and then the peer's
/// connection.
fn continue_service(stack: &Stack) -> io::Result<()> {
    let listener = listen(stack)?;
    println!("{}", listener.local_addr().port());
    let mut unread = Vec::new();
    io::stdin().read_to_end(&mut unread)?;
    let (stream, _) = listener.accept_timeout(Some(TIMEOUT))?;
    let mut requests = unread.as_slice().chain(&stream);
    loop {
        let mut request = [0; LEN];
        if requests.read(&mut request[..1])? == 0 {
            return Ok(());
        }
        requests.read_exact(&mut request[1..])?;
        answer(&stream, request)?;
    }
}

/// The answer is the request and the process that answers.
fn answer(mut stream: &SdpStream, request: [u8; LEN]) -> io::Result<()> {
    let mut bytes = request.to_vec();
    bytes.extend(std::process::id().to_be_bytes());
    stream.write_all(&bytes)
}

/// The client. Returns the processes that have answered and their numbers of answers.
fn request(stack: &Stack, server: SocketAddr) -> io::Result<Vec<(u32, u32)>> {
    let stream = SdpStream::connect(stack, server)?;
    let mut servers: Vec<(u32, u32)> = Vec::new();
    for number in 0..REQUESTS + AHEAD {
        if number < REQUESTS {
            (&stream).write_all(&number.to_be_bytes())?;
        }
        let Some(expected) = number.checked_sub(AHEAD) else {
            continue;
        };
        let (mut request, mut process) = ([0; LEN], [0; LEN]);
        (&stream).read_exact(&mut request)?;
        (&stream).read_exact(&mut process)?;
        if u32::from_be_bytes(request) != expected {
            return Err(io::Error::other("an answer is lost"));
        }
        let process = u32::from_be_bytes(process);
        match servers.last_mut().filter(|last| last.0 == process) {
            Some(last) => last.1 += 1,
            None => servers.push((process, 1)),
        }
    }
    if servers.len() != 2 {
        return Err(io::Error::other(format!("{} servers", servers.len())));
    }
    Ok(servers)
}
