//! An SDP stream against a raw TCP connection, over the same loopback interface.
//!
//! ```text
//! stream_bench [adapter] [registered|zcopy|pipelined|sink|write=BYTES]...
//! ```
//!
//! Prints round trips of small messages and bandwidth of long writes for both, their ratios, and
//! the counters of the SDP end. A threshold replaces that of the
//! configuration that suits a provider whose data the processor moves. `DAT_LIBRARY` and
//! `DAT_OVERRIDE` select the stack.

use std::{
    env,
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use rustix::time::{ClockId, clock_gettime};
use sdp_over_dat::{Config, SdpListener, SdpStream, Stack};

/// The time for which each figure is measured.
const MEASURE: Duration = Duration::from_millis(800);
const SMALL: usize = 64;
const LONG: [usize; 4] = [16 << 10, 64 << 10, 256 << 10, 1 << 20];

fn main() -> io::Result<()> {
    let mut arguments = env::args().skip(1).peekable();
    let is_name = |argument: &String| !argument.contains('=');
    let adapter = arguments.next_if(is_name);
    let adapter = adapter.unwrap_or_else(|| "iwarp-lo".to_owned());
    let stack = if arguments.peek().is_some() {
        Stack::open_with(&adapter, config(arguments)?)?
    } else {
        Stack::open(&adapter)?
    };
    println!("{:<28}{:>12}{:>12}{:>8}", "case", "tcp", "sdp", "ratio");
    round_trips(&stack)?;
    for len in LONG {
        bandwidth(&stack, len)?;
    }
    Ok(())
}

/// The configuration with the thresholds of the command line.
fn config(arguments: impl Iterator<Item = String>) -> io::Result<Config> {
    let mut config = Config {
        registered_threshold: 128 << 10,
        zcopy_threshold: 8 << 20,
        ..Config::default()
    };
    for argument in arguments {
        let (name, value) = argument.split_once('=').unwrap_or((&argument, ""));
        let bytes: usize = value.parse().map_err(io::Error::other)?;
        match name {
            "registered" => config.registered_threshold = bytes,
            "zcopy" => config.zcopy_threshold = bytes,
            "pipelined" => config.pipelined_threshold = bytes,
            "sink" => config.sink_threshold = bytes,
            "write" => config.write_min = u32::try_from(bytes).map_err(io::Error::other)?,
            _ => return Err(io::Error::other(format!("no threshold named {name}"))),
        }
    }
    Ok(config)
}

fn round_trips(stack: &Stack) -> io::Result<()> {
    let (client, server) = tcp_pair()?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let tcp = ping(&client, server)?;
    let (client, server) = sdp_pair(stack)?;
    let sdp = ping(&client, server)?;
    row(&format!("round trip, {SMALL} B, us"), tcp, sdp);
    let statistics = client.statistics();
    println!("    {statistics:?}");
    Ok(())
}

/// The time of a round trip in microseconds.
fn ping<S>(client: &S, server: S) -> io::Result<f64>
where
    S: Send + 'static,
    for<'a> &'a S: Read + Write,
{
    let echo = thread::spawn(move || -> io::Result<()> {
        let mut message = [0; SMALL];
        loop {
            (&server).read_exact(&mut message)?;
            if message[0] == 1 {
                return Ok(());
            }
            (&server).write_all(&message)?;
        }
    });
    let mut client = client;
    let mut message = [0; SMALL];
    let started = Instant::now();
    let mut rounds = 0_u32;
    while started.elapsed() < MEASURE {
        client.write_all(&message)?;
        client.read_exact(&mut message)?;
        rounds += 1;
    }
    let us = started.elapsed().as_secs_f64() * 1e6 / f64::from(rounds);
    client.write_all(&[1; SMALL])?;
    echo.join()
        .map_err(|_| io::Error::other("the echo panicked"))??;
    Ok(us)
}

fn bandwidth(stack: &Stack, len: usize) -> io::Result<()> {
    let (client, server) = tcp_pair()?;
    let (tcp, tcp_cost) = pour(&client, server, len)?;
    let (client, server) = sdp_pair(stack)?;
    let (sdp, sdp_cost) = pour(&client, server, len)?;
    row(&format!("writes of {} KiB, MB/s", len >> 10), tcp, sdp);
    row("    processor s/GiB, both ends", tcp_cost, sdp_cost);
    println!("    {:?}", client.statistics());
    Ok(())
}

/// The bandwidth in megabytes per second, and the processor time of this process in seconds per
/// GiB.
fn pour<S>(client: &S, server: S, len: usize) -> io::Result<(f64, f64)>
where
    S: Send + 'static,
    for<'a> &'a S: Read + Write,
{
    let sink = thread::spawn(move || -> io::Result<u64> {
        let (mut bytes, mut total) = (vec![0; len], 0);
        loop {
            let read = (&server).read(&mut bytes)?;
            total += read as u64;
            // The last write ends with a byte 1.
            if read == 0 || bytes[read - 1] == 1 {
                (&server).write_all(b"!")?;
                return Ok(total);
            }
        }
    });
    let mut client = client;
    let mut bytes = vec![0; len];
    let started = Instant::now();
    let used = processor_seconds();
    while started.elapsed() < MEASURE {
        client.write_all(&bytes)?;
    }
    bytes[len - 1] = 1;
    client.write_all(&bytes)?;
    client.read_exact(&mut bytes[..1])?;
    let seconds = started.elapsed().as_secs_f64();
    let used = processor_seconds() - used;
    let total = sink
        .join()
        .map_err(|_| io::Error::other("the sink panicked"))??;
    let gibibytes = total as f64 / f64::from(1 << 30);
    Ok((total as f64 / seconds / 1e6, used / gibibytes))
}

/// The processor time of this process so far, in seconds.
fn processor_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn row(case: &str, tcp: f64, sdp: f64) {
    println!("{case:<28}{tcp:>12.2}{sdp:>12.2}{:>8.2}", sdp / tcp);
}

fn tcp_pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let client = TcpStream::connect(listener.local_addr()?)?;
    Ok((client, listener.accept()?.0))
}

fn sdp_pair(stack: &Stack) -> io::Result<(SdpStream, SdpStream)> {
    let local = stack
        .address()
        .ok_or_else(|| io::Error::other("no address"))?;
    let listener = SdpListener::bind(stack, SocketAddr::new(local.ip(), 0))?;
    let address = listener.local_addr();
    thread::scope(|scope| {
        let server = scope.spawn(|| listener.accept_timeout(Some(Duration::from_secs(10))));
        let client = SdpStream::connect(stack, address)?;
        let server = server
            .join()
            .map_err(|_| io::Error::other("the server panicked"))?;
        Ok((client, server?.0))
    })
}
