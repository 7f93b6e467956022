//! Unusual ends of connections, late or slow, and stacks with impossible settings.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use rustix::net::sockopt;
use sdp_over_dat::{Config, Options, Rendezvous, SdpStream, Stack};
use stack_tests::{IA_NAME, awaited, until};

use super::{DEADLINE, connected, despite_pauses, on_stack, patterned, timed, timed_pair};

/// Both ends of a connection over TCP sockets, before the active side has sent its first message.
/// `between` makes the TCP connection, and returns both sockets.
pub(super) fn over_tcp(
    stack: &Stack,
    between: impl FnOnce(TcpListener) -> Result<(TcpStream, TcpStream)>,
) -> Result<(SdpStream, SdpStream)> {
    let (active, passive) = between(TcpListener::bind("127.0.0.1:0")?)?;
    let (local, peer) = (active.local_addr()?, active.peer_addr()?);
    let mut reception = Rendezvous::new(stack)?;
    reception.admit(OwnedFd::from(passive), peer, local, Instant::now())?;
    let client = SdpStream::start_connect_over(stack, OwnedFd::from(active), local, peer)?;
    let (server, _) = awaited!(reception.next_answered(), "no Hello was received");
    until!(client.readiness().writable, "no HelloAck was received");
    Ok((client, server))
}

pub(super) fn directly(listener: TcpListener) -> Result<(TcpStream, TcpStream)> {
    let active = TcpStream::connect(listener.local_addr()?)?;
    Ok((active, listener.accept()?.0))
}

/// Moves bytes from one socket to the other, at most `len_max` bytes with each `pause`. Adds the
/// longest time that this took.
fn trickle(
    mut from: TcpStream,
    mut to: TcpStream,
    len_max: usize,
    pause: Duration,
    longest_ms: &AtomicU64,
) -> io::Result<()> {
    let mut bytes = vec![0; len_max];
    loop {
        let len = from.read(&mut bytes)?;
        if len == 0 {
            return to.shutdown(Shutdown::Write);
        }
        let start = Instant::now();
        to.write_all(&bytes[..len])?;
        thread::sleep(pause);
        longest_ms.fetch_max(start.elapsed().as_millis() as u64, Ordering::Relaxed);
    }
}

/// Both ends of a connection through a relay, which stops forwarding the bytes of the answering
/// side when `gate` is shut.
fn behind(gate: &Arc<AtomicBool>, listener: TcpListener) -> Result<(TcpStream, TcpStream)> {
    let middle = TcpListener::bind("127.0.0.1:0")?;
    let active = TcpStream::connect(middle.local_addr()?)?;
    let near = middle.accept()?.0;
    let far = TcpStream::connect(listener.local_addr()?)?;
    let passive = listener.accept()?.0;
    let (mut back, mut from) = (near.try_clone()?, far.try_clone()?);
    let gate = Arc::clone(gate);
    let pause = Duration::from_millis(10);
    thread::spawn(move || trickle(near, far, 64 << 10, pause, &AtomicU64::default()));
    thread::spawn(move || -> io::Result<()> {
        let mut bytes = [0; 4096];
        loop {
            let len = from.read(&mut bytes)?;
            if len == 0 || gate.load(Ordering::Relaxed) {
                return Ok(());
            }
            back.write_all(&bytes[..len])?;
        }
    });
    Ok((active, passive))
}

/// A posted read of the peer's memory cannot be cancelled. If the peer does not answer the read,
/// the connection is aborted some time after the reader's timeout.
#[test]
fn a_direct_read_without_an_answer_ends_with_its_connection() -> Result<()> {
    let config = Config {
        zcopy_threshold: 256 << 10,
        close_timeout: Duration::from_millis(500),
        ..Config::default()
    };
    on_stack(config, |stack| {
        for shuts in [false, true] {
            // On a busy machine the first time may pass before memory is advertised.
            let patiences = [1, 8].map(Duration::from_secs);
            let mut attempts = patiences.iter();
            let mut has_read = false;
            while !has_read {
                let patience = attempts.next().context("nothing was read from memory")?;
                has_read = read_without_an_answer(stack, *patience, shuts)?;
            }
        }
        Ok(())
    })
}

/// Returns true if the server read from the client's memory before its time passed.
fn read_without_an_answer(stack: &Stack, patience: Duration, shuts: bool) -> Result<bool> {
    let gate = Arc::default();
    let (client, server) = over_tcp(stack, |listener| behind(&gate, listener))?;
    client.commit();
    timed(&client);
    timed(&server);
    (&client).write_all(b"first")?;
    (&server).read_exact(&mut [0; 5])?;
    let options = Options {
        write_timeout: Some(patience),
        read_timeout: Some(patience).filter(|_| !shuts),
        ..Options::default()
    };
    for stream in [&client, &server] {
        stream.set_options(options);
    }
    gate.store(true, Ordering::Relaxed);
    thread::scope(|scope| {
        scope.spawn(|| (&client).write(&vec![7; 1 << 20]));
        let start = Instant::now();
        let reads = scope.spawn(|| server.receive_all(&mut vec![0; 1 << 20]));
        while server.statistics().reads == 0 && !reads.is_finished() {
            // Without a time limit of its own, the reader waits for a writer whose time has passed.
            if start.elapsed() > 3 * patience {
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
        if shuts {
            server.shutdown(Shutdown::Read)?;
        }
        while !reads.is_finished() && start.elapsed() < DEADLINE {
            thread::sleep(Duration::from_millis(10));
        }
        let took = start.elapsed();
        // The abort ends the connection if it has not ended.
        client.abort();
        server.abort();
        let read = reads.join().expect("a reader that does not panic");
        ensure!(
            took < DEADLINE / 2 + 3 * patience,
            "{read:?} after {took:?}"
        );
        Ok(server.statistics().reads > 0)
    })
}

/// The peer receives all bytes that were written before a close, however slow the link is, because
/// a peer behind a slow link is not silent.
#[test]
fn a_peer_behind_a_slow_link_receives_all_of_a_closed_socket() -> Result<()> {
    despite_pauses(&[2, 20].map(Duration::from_secs), |close_timeout| {
        let longest_pause_ms = Arc::default();
        let outcome = close_behind_a_slow_link(close_timeout, &longest_pause_ms);
        let longest_pause = longest_pause_ms.load(Ordering::Relaxed);
        (Duration::from_millis(longest_pause), outcome)
    })
}

fn close_behind_a_slow_link(
    close_timeout: Duration,
    longest_pause_ms: &Arc<AtomicU64>,
) -> Result<()> {
    let config = Config {
        zcopy_threshold: usize::MAX,
        // The peer sends a credit update for every four messages that it has read, and there are
        // fewer messages here.
        buffer_size: 256 << 10,
        send_ring: 1 << 20,
        close_timeout,
        ..Config::default()
    };
    on_stack(config, |stack| {
        let slowly = |listener: TcpListener| -> Result<_> {
            let middle = TcpListener::bind("127.0.0.1:0")?;
            // The buffer is set before the connection; afterwards the kernel would have offered a
            // larger window.
            sockopt::set_socket_recv_buffer_size(&middle, 64 << 10)?;
            let active = TcpStream::connect(middle.local_addr()?)?;
            let (near, _) = middle.accept()?;
            let far = TcpStream::connect(listener.local_addr()?)?;
            let passive = listener.accept()?.0;
            let back = (far.try_clone()?, near.try_clone()?);
            let (ms, also_ms) = (Arc::clone(longest_pause_ms), Arc::clone(longest_pause_ms));
            let pause = close_timeout / 200;
            thread::spawn(move || trickle(near, far, 2 << 10, pause, &ms));
            thread::spawn(move || trickle(back.0, back.1, 64 << 10, pause, &also_ms));
            Ok((active, passive))
        };
        let (client, server) = over_tcp(stack, slowly)?;
        client.commit();
        timed(&server);
        timed(&client);

        let sent = patterned(0, 700 << 10);
        (&client).write_all(&sent)?;
        drop(client);
        let mut received = Vec::new();
        (&server).read_to_end(&mut received).context("reading")?;
        let len = received.len();
        ensure!(received == sent, "{len} of {} bytes", sent.len());
        Ok(())
    })
}

/// A peer whose stream has ended is notified of an abort at once, because it makes no further call
/// that could report the abort.
#[test]
fn an_abort_after_the_last_message_is_reported_at_once() -> Result<()> {
    on_stack(Config::default(), |stack| {
        // A report that needs another event is late each time. A busy machine delays some reports,
        // so one that is made at once is enough.
        let mut delays = Vec::new();
        while delays.len() < 30 && !delays.iter().any(|it| *it < Duration::from_millis(100)) {
            let (client, server) = connected(stack)?;
            timed(&server);
            client.shutdown(Shutdown::Write)?;
            ensure!((&server).read(&mut [0; 1])? == 0);
            let start = Instant::now();
            client.abort();
            while !server.readiness().failed {
                ensure!(start.elapsed() < DEADLINE, "the abort is not reported");
                thread::sleep(Duration::from_millis(1));
            }
            delays.push(start.elapsed());
        }
        ensure!(delays.len() < 30, "{delays:?}");
        Ok(())
    })
}

/// With the longest times, waits have no deadline, and the connection still ends.
#[test]
fn the_longest_times_are_no_deadline() -> Result<()> {
    let longest = Config {
        connect_timeout: Duration::MAX,
        close_timeout: Duration::MAX,
        ..Config::default()
    };
    on_stack(longest, |stack| {
        let (client, server) = timed_pair(stack)?;
        super::transfer(&client, &server, 1_000, 100, 100)?;
        stack.settle(Duration::MAX);
        Ok(())
    })
}

/// Sizes with which no data can be carried are refused when a stack is opened.
#[test]
fn a_stack_of_impossible_sizes_is_refused() -> Result<()> {
    on_stack(Config::default(), |stack| {
        drop(connected(stack)?);
        let good = Config::default();
        let bad = [
            Config {
                receive_buffers: 2,
                ..good
            },
            Config {
                buffer_size: 36,
                ..good
            },
            Config {
                send_ring: 0,
                ..good
            },
            Config {
                sends_max: 0,
                ..good
            },
            Config { staging: 1, ..good },
            Config { backlog: 0, ..good },
        ];
        for config in bad {
            let Err(error) = Stack::open_with(IA_NAME, config) else {
                anyhow::bail!("{config:?} is accepted");
            };
            ensure!(error.kind() == ErrorKind::InvalidInput, "{error:?}");
        }
        let small = Config {
            receive_buffers: 3,
            buffer_size: 37,
            send_ring: 1,
            sends_max: 1,
            staging: 2,
            backlog: 1,
            ..good
        };
        let stack = Stack::open_with(IA_NAME, small)?;
        let (client, server) = timed_pair(&stack)?;
        super::transfer(&client, &server, 1_000, 100, 100)
    })
}
