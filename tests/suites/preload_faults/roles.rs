//! The programs of the processes. Each process prints a line for each event.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use rustix::event::{PollFd, PollFlags, poll};
use socket2::{Domain, SockRef, Socket, TcpKeepalive, Type};

use crate::process::HOST;
use crate::stream::{read_bytes, shows, write_bytes};
use crate::{long_reads, long_sends};

/// The number of bytes after which an endless sender prints `far`.
const FAR: u64 = 4 << 20;
/// The time after which a socket without room counts as full.
const FULL: Duration = Duration::from_millis(500);
/// The time for which bytes may stay unacknowledged at an end that is to lose its peer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);
/// The number of bytes that are written between two checks for the final amount.
const ROUND: u64 = 64 << 10;
/// The number of connections before the resources of a process are counted. They allocate the
/// resources that a process keeps.
const WARM: usize = 200;
/// The descriptor limit of a process that is to run out of descriptors.
const FEW: u64 = 96;

/// Runs a program, given by its name and its arguments.
pub(crate) fn run(role: &str) -> Result<()> {
    let words: Vec<&str> = role.split_whitespace().collect();
    match words[..] {
        ["visit", port] => visit(port.parse()?, connect),
        ["visit-without-blocking", port] => visit(port.parse()?, connect_without_blocking),
        ["visit-and-then-block", us, port] => visit(port.parse()?, |port| {
            connect_and_then_block(port, Duration::from_micros(us.parse().unwrap_or(0)))
        }),
        ["receive"] => receive(),
        ["send", port, "endless"] => send(port.parse()?, u64::MAX),
        ["send", port, bytes] => send(port.parse()?, bytes.parse()?),
        ["receive-late"] => receive_late(),
        ["long-sends", port, count, len, how] => {
            long_sends::run(connect(port.parse()?)?, count.parse()?, len.parse()?, how)
        }
        ["long-reads", len, how] => long_reads::run(connect_or_accept(None)?, len.parse()?, how),
        ["send-in-two", port, first, end] => {
            long_reads::send_in_two(connect(port.parse()?)?, first.parse()?, end.parse()?)
        }
        ["fill", port, bytes] => fill(port.parse()?, bytes.parse()?),
        ["exchange", port, bytes] => exchange(port.parse().ok(), bytes.parse()?),
        ["swap", port] => swap(port.parse().ok()),
        ["lose", port, how] => lose(port.parse().ok(), how == "writing"),
        ["echo"] => echo(),
        ["crowd", port, count] => crowd(port.parse()?, count.parse()?),
        ["cycle", port, count] => cycle(port.parse()?, count.parse()?),
        ["exhaust", port] => exhaust(port.parse()?),
        _ => bail!("there is no role `{role}`"),
    }
}

fn print_line(line: &str) {
    println!("{line}");
}

fn host() -> Result<IpAddr> {
    match std::env::var(HOST) {
        Ok(address) => Ok(address.parse()?),
        Err(_) => Ok(Ipv4Addr::LOCALHOST.into()),
    }
}

fn listen() -> Result<TcpListener> {
    let listener = TcpListener::bind((host()?, 0))?;
    print_line(&format!("port {}", listener.local_addr()?.port()));
    Ok(listener)
}

fn connect(port: u16) -> io::Result<TcpStream> {
    let host = host().map_err(io::Error::other)?;
    TcpStream::connect((host, port))
}

/// Connects with a non-blocking call, and polls.
fn connect_without_blocking(port: u16) -> io::Result<TcpStream> {
    let host = host().map_err(io::Error::other)?;
    TcpStream::connect_timeout(&(host, port).into(), Duration::from_secs(60))
}

/// Connects with a non-blocking call, and makes the socket blocking this much later.
fn connect_and_then_block(port: u16, late: Duration) -> io::Result<TcpStream> {
    let host = host().map_err(io::Error::other)?;
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    match socket.connect(&SocketAddr::from((host, port)).into()) {
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
        other => other?,
    }
    let begun = Instant::now();
    while begun.elapsed() < late {
        std::hint::spin_loop();
    }
    socket.set_nonblocking(false)?;
    let mut set = [PollFd::new(&socket, PollFlags::OUT)];
    poll(&mut set, None)?;
    Ok(socket.into())
}

/// Connects to `port`, or accepts a connection if there is none.
fn connect_or_accept(port: Option<u16>) -> Result<TcpStream> {
    match port {
        Some(port) => Ok(connect(port)?),
        None => Ok(listen()?.accept()?.0),
    }
}

fn result_word(ended: &io::Result<()>) -> String {
    match ended {
        Ok(()) => "end".to_owned(),
        Err(error) => format!("{:?}", error.kind()),
    }
}

/// Reads all bytes of one connection.
fn receive() -> Result<()> {
    let (peer, _) = listen()?.accept()?;
    receive_all(peer)
}

/// Reads all bytes of one connection, after a line of input.
fn receive_late() -> Result<()> {
    let (peer, _) = listen()?.accept()?;
    io::stdin().read_line(&mut String::new())?;
    receive_all(peer)
}

fn receive_all(mut peer: TcpStream) -> Result<()> {
    let mut at = 0;
    let ended = read_bytes(&mut peer, &mut at, u64::MAX)?;
    print_line(&format!("received {at} {}", result_word(&ended)));
    Ok(())
}

/// Writes this many bytes, and prints `far` after [`FAR`] bytes.
fn send(port: u16, bytes: u64) -> Result<()> {
    let mut peer = connect(port)?;
    let mut at = 0;
    let mut ended = write_bytes(&mut peer, &mut at, FAR.min(bytes));
    print_line("far");
    if ended.is_ok() {
        ended = write_bytes(&mut peer, &mut at, bytes);
    }
    print_line(&format!("sent {at} {}", result_word(&ended)));
    Ok(())
}

/// Connects, waits for a line of input, writes without blocking until the socket is full, prints a
/// line, and writes the rest.
fn fill(port: u16, bytes: u64) -> Result<()> {
    let mut peer = connect(port)?;
    print_line("connected");
    io::stdin().read_line(&mut String::new())?;
    let mut at = 0;
    write_until_full(&mut peer, &mut at, bytes)?;
    print_line(&format!("full {at}"));
    peer.set_nonblocking(false)?;
    let ended = write_bytes(&mut peer, &mut at, bytes);
    print_line(&format!("sent {at} {}", result_word(&ended)));
    Ok(())
}

/// Writes until the socket is full; the socket stays non-blocking.
fn write_until_full(peer: &mut TcpStream, at: &mut u64, bytes: u64) -> Result<()> {
    peer.set_nonblocking(true)?;
    loop {
        match write_bytes(peer, at, bytes) {
            Ok(()) => bail!("all {bytes} bytes fit"),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if !shows(peer, libc::POLLOUT, FULL) {
                    return Ok(());
                }
            }
            Err(error) => return Err(error).context("filling"),
        }
    }
}

/// Fills the socket, waits for a line of input, then writes the rest and reads as much,
/// concurrently.
fn exchange(port: Option<u16>, bytes: u64) -> Result<()> {
    let mut peer = connect_or_accept(port)?;
    let mut written = 0;
    write_until_full(&mut peer, &mut written, bytes)?;
    print_line(&format!("full {written}"));
    io::stdin().read_line(&mut String::new())?;
    peer.set_nonblocking(false)?;
    write_and_read(peer, written, bytes)
}

/// Connects, waits for a line of input, and then writes until a second line names the minimum
/// number of bytes. Reads the peer's bytes concurrently.
fn swap(port: Option<u16>) -> Result<()> {
    let mut peer = connect_or_accept(port)?;
    print_line("connected");
    io::stdin().read_line(&mut String::new())?;
    let mut writer = peer.try_clone()?;
    let writing = thread::spawn(move || -> Result<u64> {
        let written = write_until_notified(&mut writer)?;
        writer.shutdown(Shutdown::Write)?;
        Ok(written)
    });
    let mut read = 0;
    read_bytes(&mut peer, &mut read, u64::MAX)??;
    let written = writing
        .join()
        .map_err(|_| anyhow::anyhow!("writing panicked"))??;
    print_line(&format!("swapped {written} {read}"));
    Ok(())
}

fn write_until_notified(peer: &mut TcpStream) -> Result<u64> {
    let waiting = thread::spawn(|| -> Result<u64> {
        let mut enough = String::new();
        io::stdin().read_line(&mut enough)?;
        Ok(enough.trim().parse()?)
    });
    let mut at = 0;
    while !waiting.is_finished() {
        let end = at + ROUND;
        write_bytes(peer, &mut at, end)?;
    }
    let enough = waiting
        .join()
        .map_err(|_| anyhow::anyhow!("waiting panicked"))??;
    write_bytes(peer, &mut at, enough)?;
    Ok(at)
}

/// Writes the rest of `bytes` bytes, and reads `bytes` bytes concurrently.
fn write_and_read(mut peer: TcpStream, mut written: u64, bytes: u64) -> Result<()> {
    let mut writer = peer.try_clone()?;
    let writing =
        thread::spawn(move || write_bytes(&mut writer, &mut written, bytes).map(|()| written));
    let mut read = 0;
    read_bytes(&mut peer, &mut read, bytes)??;
    let written = writing
        .join()
        .map_err(|_| anyhow::anyhow!("writing panicked"))??;
    print_line(&format!("exchanged {written} {read}"));
    Ok(())
}

/// Connects, waits for a line of input, and then writes or reads until a call fails, with a short
/// timeout for a silent peer. Prints the error, and the results of the next calls.
fn lose(port: Option<u16>, writing: bool) -> Result<()> {
    let mut peer = connect_or_accept(port)?;
    let socket = SockRef::from(&peer);
    socket.set_tcp_user_timeout(Some(PATIENCE))?;
    let second = Duration::from_secs(1);
    let probes = TcpKeepalive::new().with_time(second).with_interval(second);
    socket.set_tcp_keepalive(&probes)?;
    print_line("connected");
    io::stdin().read_line(&mut String::new())?;
    let mut at = 0;
    let lost = if writing {
        write_bytes(&mut peer, &mut at, u64::MAX)
    } else {
        read_bytes(&mut peer, &mut at, u64::MAX)?
    };
    let read = peer.read(&mut [0]).map_err(|error| error.kind());
    let written = peer.write(&[0]).map_err(|error| error.kind());
    print_line(&format!(
        "lost by {}, then {read:?}, {written:?}",
        result_word(&lost)
    ));
    Ok(())
}

/// Echoes the bytes of every connection until a connection begins with `done`. After that the
/// process must hold no resource of any connection.
fn echo() -> Result<()> {
    raise_limit(20_000)?;
    let listener = listen()?;
    let mut before = None;
    let mut staying = 0;
    for served in 0.. {
        let (mut peer, _) = listener.accept()?;
        if served == WARM && staying == 0 {
            before = Some(Held::now()?);
        }
        let mut first = [0; 4];
        peer.read_exact(&mut first)?;
        if first == *b"done" {
            if let Some(before) = before {
                before.check_unchanged()?;
            }
            print_line(&format!("served {served}"));
            return Ok(());
        }
        peer.write_all(&first)?;
        if first == *b"stay" {
            staying += 1;
            thread::Builder::new().stack_size(64 << 10).spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(count @ 1..) = peer.read(&mut buffer) {
                    if peer.write_all(&buffer[..count]).is_err() {
                        return;
                    }
                }
            })?;
        }
    }
    Ok(())
}

fn ask(peer: &mut TcpStream, question: &[u8]) -> Result<()> {
    peer.write_all(question)?;
    let mut answer = vec![0; question.len()];
    peer.read_exact(&mut answer)?;
    ensure!(answer == question, "another's bytes");
    Ok(())
}

/// Opens many connections at once.
fn crowd(port: u16, count: usize) -> Result<()> {
    raise_limit(20_000)?;
    let mut peers = Vec::new();
    for number in 0..count {
        let mut peer = connect(port).with_context(|| format!("connection {number}"))?;
        ask(&mut peer, b"stay")?;
        peers.push(peer);
    }
    for round in 0..3_u64 {
        for (number, peer) in peers.iter_mut().enumerate() {
            let question = format!("{number}/{round}").repeat(100);
            ask(peer, question.as_bytes())?;
        }
    }
    print_line(&format!("answered {}", peers.len()));
    drop(peers);
    connect(port)?.write_all(b"done")?;
    Ok(())
}

/// Opens many connections one after the other.
fn cycle(port: u16, count: usize) -> Result<()> {
    let mut before = None;
    for number in 0..count {
        if number == WARM {
            before = Some(Held::now()?);
        }
        let mut peer = connect(port).with_context(|| format!("connection {number}"))?;
        ask(&mut peer, b"once")?;
    }
    before.context("it was warm")?.check_unchanged()?;
    print_line(&format!("cycled {count}"));
    connect(port)?.write_all(b"done")?;
    Ok(())
}

/// Connects, waits for an answer, prints the time until the answer, and waits for a line of input.
fn visit(port: u16, connect: impl Fn(u16) -> io::Result<TcpStream>) -> Result<()> {
    let begun = Instant::now();
    let mut peer = connect(port)?;
    ask(&mut peer, b"is anybody there?")?;
    print_line(&format!("visited {}", begun.elapsed().as_millis()));
    io::stdin().read_line(&mut String::new())?;
    Ok(())
}

/// Connects until a connect fails, uses the connections, closes some and connects again.
fn exhaust(port: u16) -> Result<()> {
    let limit = libc::rlimit {
        rlim_cur: FEW,
        rlim_max: FEW,
    };
    // SAFETY: the limit lives through the call.
    ensure!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } == 0);
    let mut peers = Vec::new();
    let why = loop {
        match connect(port) {
            Ok(mut peer) => {
                ask(&mut peer, b"stay")?;
                peers.push(peer);
            }
            Err(error) => break error,
        }
    };
    ensure!(why.raw_os_error() == Some(libc::EMFILE), "{why}");
    for peer in &mut peers {
        ask(peer, b"all is well")?;
    }
    print_line(&format!("exhausted at {}", peers.len()));
    let keep = peers.len() / 2;
    peers.truncate(keep);
    for _ in 0..2 {
        let mut peer = connect(port).context("after closing")?;
        ask(&mut peer, b"stay")?;
        peers.push(peer);
    }
    for peer in &mut peers {
        ask(peer, b"all is well")?;
    }
    print_line("recovered");
    drop(peers);
    connect(port)?.write_all(b"done")?;
    Ok(())
}

fn raise_limit(to: u64) -> Result<()> {
    let limit = libc::rlimit {
        rlim_cur: to,
        rlim_max: to,
    };
    // SAFETY: the limit lives through the call.
    let set = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    ensure!(set == 0, "{}", io::Error::last_os_error());
    Ok(())
}

/// The resources that a process holds.
#[derive(Debug)]
struct Held {
    descriptors: usize,
    threads: usize,
    mappings: usize,
}

impl Held {
    fn now() -> Result<Self> {
        let count = |directory| -> Result<usize> { Ok(std::fs::read_dir(directory)?.count()) };
        Ok(Self {
            descriptors: count("/proc/self/fd")?,
            threads: count("/proc/self/task")?,
            mappings: std::fs::read_to_string("/proc/self/maps")?.lines().count(),
        })
    }

    /// Checks that about as many resources are held now. Resources that are released in the
    /// background get some time. The allocator may map some more memory.
    fn check_unchanged(&self) -> Result<()> {
        let mut now = Self::now()?;
        for _ in 0..1500 {
            if now.descriptors <= self.descriptors + 1 && now.threads <= self.threads {
                break;
            }
            thread::sleep(Duration::from_millis(20));
            now = Self::now()?;
        }
        ensure!(
            now.descriptors <= self.descriptors + 1
                && now.threads <= self.threads
                && now.mappings <= self.mappings + 16,
            "{now:?} where it was {self:?}"
        );
        Ok(())
    }
}
