//! Ends of connections for `bench/programs`, for measurements that no Debian program makes.
//!
//! `cargo xtask ends` is started once without and once with `opsrun`. Each client prints one line
//! of figures.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::{Args, Subcommand, ValueEnum};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};
use nix::unistd::Pid;

/// The call in which an end waits for input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Waiting {
    /// Waits in `recv`.
    Blocking,
    /// Waits in `epoll_wait`.
    Epoll,
}

impl Waiting {
    /// The value's word on the command line.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Blocking => "blocking",
            Self::Epoll => "epoll",
        }
    }
}

/// An end and its processor.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The processor to which the end is bound.
    #[arg(long)]
    processor: Option<usize>,
    #[command(subcommand)]
    end: End,
}

/// An end of connections.
#[derive(Debug, Subcommand)]
enum End {
    /// A server that returns what it receives.
    Echo { port: u16, waiting: Waiting },
    /// A client of `echo`; prints microseconds of a round trip of 64 bytes.
    Ping {
        port: u16,
        waiting: Waiting,
        count: u32,
    },
    /// A server that answers one byte and closes.
    Once { port: u16 },
    /// A client of `once`; prints connections per second.
    Connect { port: u16, count: u32 },
    /// A client of `once` that connects once; prints milliseconds.
    First { port: u16 },
    /// A client of memcached; prints requests per second.
    Get {
        port: u16,
        connections: u32,
        count: u32,
    },
    /// A server that receives to the end, `size` bytes at a time, and answers with its processor
    /// time.
    Sink { port: u16, size: usize },
    /// A client of `sink` that sends `mib` MiB, `size` bytes at a time; prints GB/s, and seconds of
    /// a processor per GiB of both ends.
    Bulk { port: u16, size: usize, mib: u32 },
    /// Both ends of many connections; prints KiB of memory and descriptors per end.
    Hold { count: u32 },
    /// Both ends of a connection without bytes; prints microseconds of a round of calls.
    Calls { count: u32 },
}

/// Length in bytes of a message of a ping-pong.
const MESSAGE: usize = 64;

pub(crate) fn run(options: &Options) -> Result<()> {
    if let Some(processor) = options.processor {
        let mut set = CpuSet::new();
        set.set(processor)?;
        sched_setaffinity(Pid::from_raw(0), &set).context("binding to a processor")?;
    }
    match options.end {
        End::Echo { port, waiting } => serve(port, move |peer| echo(peer, waiting)),
        End::Ping {
            port,
            waiting,
            count,
        } => ping(port, waiting, count),
        End::Once { port } => serve_in_turn(port),
        End::Connect { port, count } => connect(port, count),
        End::First { port } => connect_once(port),
        End::Get {
            port,
            connections,
            count,
        } => get(port, connections, count),
        End::Sink { port, size } => serve(port, move |peer| sink(peer, size)),
        End::Bulk { port, size, mib } => bulk(port, size, mib),
        End::Hold { count } => hold(count),
        End::Calls { count } => call(count),
    }
}

fn listen(port: u16) -> Result<TcpListener> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, port))?)
}

fn dial(port: u16) -> Result<TcpStream> {
    let peer = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    peer.set_nodelay(true)?;
    Ok(peer)
}

/// Serves each connection on a thread of its own.
fn serve(
    port: u16,
    answer: impl Fn(TcpStream) -> Result<()> + Copy + Send + 'static,
) -> Result<()> {
    for peer in listen(port)?.incoming() {
        let peer = peer?;
        thread::spawn(move || answer(peer));
    }
    Ok(())
}

/// An end of a connection, and the way in which it waits.
struct Exchange {
    peer: TcpStream,
    set: Option<Epoll>,
}

impl Exchange {
    fn new(peer: TcpStream, waiting: Waiting) -> Result<Self> {
        let set = match waiting {
            Waiting::Blocking => None,
            Waiting::Epoll => {
                let set = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
                set.add(&peer, EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
                Some(set)
            }
        };
        Ok(Self { peer, set })
    }

    /// Receives one message. Returns false if the peer has closed.
    fn receive(&mut self, message: &mut [u8; MESSAGE]) -> Result<bool> {
        let mut filled = 0;
        while filled < MESSAGE {
            if let Some(set) = &self.set {
                set.wait(&mut [EpollEvent::empty()], EpollTimeout::NONE)?;
            }
            match self.peer.read(&mut message[filled..])? {
                0 => return Ok(false),
                count => filled += count,
            }
        }
        Ok(true)
    }
}

fn echo(peer: TcpStream, waiting: Waiting) -> Result<()> {
    peer.set_nodelay(true)?;
    let mut exchange = Exchange::new(peer, waiting)?;
    let mut message = [0; MESSAGE];
    while exchange.receive(&mut message)? {
        exchange.peer.write_all(&message)?;
    }
    Ok(())
}

fn ping(port: u16, waiting: Waiting, count: u32) -> Result<()> {
    let mut exchange = Exchange::new(dial(port)?, waiting)?;
    let mut message = [7; MESSAGE];
    let begun = Instant::now();
    for _ in 0..count {
        exchange.peer.write_all(&message)?;
        ensure!(exchange.receive(&mut message)?, "the server has closed");
    }
    println!("{}", begun.elapsed().as_secs_f64() * 1e6 / f64::from(count));
    Ok(())
}

fn serve_in_turn(port: u16) -> Result<()> {
    for peer in listen(port)?.incoming() {
        let mut peer = peer?;
        let mut byte = [0];
        // The server ignores a client that has disconnected.
        let _ = peer
            .read_exact(&mut byte)
            .and_then(|()| peer.write_all(&byte));
    }
    Ok(())
}

fn connect(port: u16, count: u32) -> Result<()> {
    // The first connections also prepare the library, so they are not counted.
    connect_in_turn(port, 10)?;
    let begun = Instant::now();
    connect_in_turn(port, count)?;
    println!("{}", f64::from(count) / begun.elapsed().as_secs_f64());
    Ok(())
}

fn connect_in_turn(port: u16, count: u32) -> Result<()> {
    for _ in 0..count {
        let mut peer = dial(port)?;
        peer.write_all(b"x")?;
        let mut answer = Vec::new();
        peer.read_to_end(&mut answer)?;
        ensure!(answer == b"x", "the answer is {answer:?}");
    }
    Ok(())
}

/// Connects once and prints the milliseconds that this took.
fn connect_once(port: u16) -> Result<()> {
    let begun = Instant::now();
    connect_in_turn(port, 1)?;
    println!("{}", begun.elapsed().as_secs_f64() * 1e3);
    Ok(())
}

/// Requests a value of 64 bytes, `count` times on each connection.
fn get(port: u16, connections: u32, count: u32) -> Result<()> {
    let mut peer = dial(port)?;
    peer.write_all(format!("set k 0 0 64\r\n{}\r\n", "v".repeat(64)).as_bytes())?;
    await_end(&mut peer, b"STORED\r\n")?;
    let begun = Instant::now();
    thread::scope(|scope| {
        let ask = || {
            let mut peer = dial(port)?;
            for _ in 0..count {
                peer.write_all(b"get k\r\n")?;
                await_end(&mut peer, b"END\r\n")?;
            }
            Ok::<_, anyhow::Error>(())
        };
        let clients: Vec<_> = (0..connections).map(|_| scope.spawn(ask)).collect();
        for client in clients {
            let result = client.join().ok().context("a client has panicked")?;
            result?;
        }
        Ok::<_, anyhow::Error>(())
    })?;
    let requests = f64::from(connections) * f64::from(count);
    println!("{}", requests / begun.elapsed().as_secs_f64());
    Ok(())
}

/// Receives an answer that ends with these bytes.
fn await_end(peer: &mut TcpStream, end: &[u8]) -> Result<()> {
    let mut answer = [0; 512];
    let mut filled = 0;
    while !answer[..filled].ends_with(end) {
        let count = peer.read(&mut answer[filled..])?;
        ensure!(
            count > 0,
            "the server has closed, or its answer is too long"
        );
        filled += count;
    }
    Ok(())
}

/// Receives to the end, and answers with the seconds of a processor that this took.
fn sink(mut peer: TcpStream, size: usize) -> Result<()> {
    let mut bytes = vec![0; size];
    let before = processor_time()?;
    while peer.read(&mut bytes)? > 0 {}
    let used = processor_time()? - before;
    peer.write_all(&used.to_le_bytes())?;
    Ok(())
}

fn bulk(port: u16, size: usize, mib: u32) -> Result<()> {
    let mut peer = dial(port)?;
    let bytes = vec![1; size];
    let all = u64::from(mib) << 20;
    let (begun, before) = (Instant::now(), processor_time()?);
    let mut sent = 0;
    while sent < all {
        peer.write_all(&bytes)?;
        sent += size as u64;
    }
    peer.shutdown(Shutdown::Write)?;
    let mut answer = [0; 8];
    peer.read_exact(&mut answer)?;
    let used = processor_time()? - before + f64::from_le_bytes(answer);
    let rate = sent as f64 / begun.elapsed().as_secs_f64() / 1e9;
    println!("{rate} {}", used / (sent as f64 / f64::from(1 << 30)));
    Ok(())
}

/// Seconds of a processor that this process has used.
fn processor_time() -> Result<f64> {
    let used = getrusage(UsageWho::RUSAGE_SELF)?;
    let seconds = |time: TimeVal| time.num_microseconds() as f64 / 1e6;
    Ok(seconds(used.system_time()) + seconds(used.user_time()))
}

fn hold(count: u32) -> Result<()> {
    let listener = listen(0)?;
    let port = listener.local_addr()?.port();
    let mut held = Vec::with_capacity(2 * count as usize);
    let mut make = |count: u32| -> Result<()> {
        for _ in 0..count {
            held.push(dial(port)?);
            held.push(listener.accept()?.0);
        }
        Ok(())
    };
    // The first connections also allocate the library's global memory, so they are not counted.
    make(10)?;
    let (memory, numbers) = (resident()?, descriptors()?);
    make(count)?;
    let ends = 2.0 * f64::from(count);
    println!(
        "{} {}",
        (resident()? - memory) / ends,
        (descriptors()? - numbers) / ends
    );
    Ok(())
}

/// Makes rounds of the calls of an event loop, none of which has anything to do: the socket is
/// added to the set and removed again, the wait between finds nothing, and the socket sends and
/// receives nothing.
fn call(count: u32) -> Result<()> {
    let listener = listen(0)?;
    let mut end = dial(listener.local_addr()?.port())?;
    let _peer = listener.accept()?;
    end.set_nonblocking(true)?;
    let set = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    let begun = Instant::now();
    for _ in 0..count {
        set.add(&end, EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
        let ready = set.wait(&mut [EpollEvent::empty()], EpollTimeout::ZERO)?;
        let sent = end.write(&[])?;
        let received = end.read(&mut [0]);
        set.delete(&end)?;
        let is_idle = received.is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
        ensure!(ready == 0 && sent == 0 && is_idle, "a call had work");
    }
    println!("{}", begun.elapsed().as_secs_f64() * 1e6 / f64::from(count));
    Ok(())
}

/// The resident memory of this process that is not shared, in KiB.
fn resident() -> Result<f64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let figure = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    figure.context("no RssAnon")
}

fn descriptors() -> Result<f64> {
    Ok(fs::read_dir("/proc/self/fd")?.count() as f64)
}
