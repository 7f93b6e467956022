//! Stream sockets over the staged stack: transfer, close, urgent data, readiness, loss of a peer.
//!
//! Every connection of every test writes its messages into a file, which `sdp-checker` checks at
//! the end of the test.

mod counters;
mod early_data;
mod exchanged_hello;
mod in_memory;
mod long_stream;
mod memory;
mod offloaded;
mod submission;
mod suspension;
mod threads;
mod unusual_ends;
mod urgent;
mod watches;
mod write_zcopy;

use std::{
    env, fs,
    io::{self, ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr},
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{
        LazyLock, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sdp_over_dat::{Config, Options, SdpListener, SdpStream, Stack};
use stack_tests::{IA_NAME, SdpTraces, await_end_of_stack_threads, load_staged_sdp, until};

/// The time limit of every event.
const DEADLINE: Duration = Duration::from_secs(60);

/// The time after which a full socket counts as permanently full without a reader.
const QUIET: Duration = Duration::from_secs(1);

/// The variable with the port to which the child connects, in the test that kills the child.
const CHILD_ENV: &str = "SDP_SUITE_CHILD";

/// Makes this process use the staged libraries and a directory for traces, once.
static LIBRARIES: LazyLock<Result<SdpTraces, String>> = LazyLock::new(|| {
    // SAFETY: every test waits for this first. Until then no thread of this process runs code that
    // reads the environment.
    unsafe { load_staged_sdp(env!("CARGO_TARGET_TMPDIR"), "lo 0") }
});

/// Runs one test alone, on a new stack, and then checks the messages of its connections.
fn on_stack(config: Config, test: impl FnOnce(&Stack) -> Result<()>) -> Result<()> {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let traces = LIBRARIES.as_ref().map_err(|e| anyhow::anyhow!("{e}"))?;
    // On a busy machine the threads of both ends may need longer than the stack's own limit.
    let config = Config {
        connect_timeout: config.connect_timeout.max(DEADLINE),
        ..config
    };
    let stack = Stack::open_with(IA_NAME, config)?;
    test(&stack)?;
    drop(stack);
    await_end_of_stack_threads(DEADLINE)?;
    let frames = traces.check()?;
    ensure!(frames > 0, "the connections of this test sent no message");
    println!("{frames} messages, no rule broken");
    Ok(())
}

/// Runs one test alone on a connection of a new stack, whose reads have a time limit.
fn on_connection(
    config: Config,
    test: impl FnOnce(SdpStream, SdpStream) -> Result<()>,
) -> Result<()> {
    on_stack(config, |stack| {
        let (client, server) = timed_pair(stack)?;
        test(client, server)
    })
}

fn connected(stack: &Stack) -> Result<(SdpStream, SdpStream)> {
    let local = stack.address().context("the adapter has no address")?;
    let listener = SdpListener::bind(stack, SocketAddr::new(local.ip(), 0))?;
    let address = listener.local_addr();
    thread::scope(|scope| {
        let server = scope.spawn(|| listener.accept_timeout(Some(DEADLINE)));
        let client = SdpStream::connect(stack, address).context("connecting")?;
        let server = server.join().expect("a server that does not panic");
        Ok((client, server.context("accepting")?.0))
    })
}

/// A connection whose calls have a time limit at both ends.
fn timed_pair(stack: &Stack) -> Result<(SdpStream, SdpStream)> {
    let (client, server) = connected(stack)?;
    timed(&client);
    timed(&server);
    Ok((client, server))
}

/// Fills a buffer with bytes that depend on their position in the stream.
fn pattern(at: u64, into: &mut [u8]) {
    for (offset, byte) in (at..).zip(into) {
        *byte = (offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
    }
}

/// Bytes of the stream from `at` on.
fn patterned(at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    pattern(at, &mut bytes);
    bytes
}

/// Makes calls on `stream` that block for [`DEADLINE`] fail.
fn timed(stream: &SdpStream) {
    stream.set_options(Options {
        read_timeout: Some(DEADLINE),
        write_timeout: Some(DEADLINE),
        ..stream.options()
    });
}

/// Sends `total` bytes in writes of `write` and reads them in reads of `read`; each byte is
/// checked.
fn transfer(from: &SdpStream, to: &SdpStream, total: u64, write: usize, read: usize) -> Result<()> {
    thread::scope(|scope| {
        let writer = scope.spawn(move || -> io::Result<()> {
            let mut stream = from;
            let mut chunk = vec![0; write];
            let mut at = 0;
            while at < total {
                let len = (total - at).min(write as u64) as usize;
                pattern(at, &mut chunk[..len]);
                stream.write_all(&chunk[..len])?;
                at += len as u64;
            }
            Ok(())
        });
        let mut stream = to;
        let (mut chunk, mut expected) = (vec![0; read], vec![0; read]);
        let mut at = 0;
        while at < total {
            let len = stream.read(&mut chunk).context("reading")?;
            ensure!(len > 0, "the stream ends at {at} of {total}");
            pattern(at, &mut expected[..len]);
            ensure!(chunk[..len] == expected[..len], "wrong bytes after {at}");
            at += len as u64;
        }
        writer
            .join()
            .expect("a writer that does not panic")
            .context("writing")
    })
}

#[test]
fn messages_echo() -> Result<()> {
    on_connection(Config::default(), |client, server| {
        thread::scope(|scope| {
            scope.spawn(|| -> io::Result<()> {
                io::copy(&mut &server, &mut &server)?;
                server.shutdown(Shutdown::Write)
            });
            let (mut stream, mut answer) = (&client, vec![0; 70_000]);
            for round in 0..300 {
                let len = [1, 64, 1_000, 40_000, 70_000][round % 5];
                let message = vec![round as u8; len];
                stream.write_all(&message)?;
                stream.read_exact(&mut answer[..len])?;
                ensure!(answer[..len] == message, "round {round}");
            }
            client.shutdown(Shutdown::Write)?;
            ensure!(stream.read(&mut answer)? == 0, "the end");
            Ok(())
        })
    })
}

#[test]
fn every_byte_arrives_copied_and_read() -> Result<()> {
    let total = if stack_tests::is_full() {
        1 << 30
    } else {
        64 << 20
    };
    on_connection(Config::default(), |client, server| {
        // Copied; read by waiting readers; read into staging memory for small reads.
        transfer(&client, &server, total / 4, 60_000, 50_000)?;
        let copied = client.statistics();
        ensure!(copied.bytes_copied == copied.bytes_sent && copied.reads == 0);
        transfer(&client, &server, total / 2, 1 << 20, 1 << 20)?;
        let direct = server.statistics().bytes_direct;
        ensure!(direct > 0, "no reader's memory was written directly");
        transfer(&server, &client, total / 4, 1 << 20, 10_000)?;
        let staged = client.statistics();
        ensure!(
            staged.bytes_read > staged.bytes_direct,
            "nothing was staged"
        );
        println!("{:?}", server.statistics());
        Ok(())
    })
}

/// Long writes are sent from the caller's memory. The socket copies none of their bytes.
#[test]
fn every_byte_of_an_uncopied_write_is_received() -> Result<()> {
    let config = Config {
        registered_threshold: 10_000,
        zcopy_threshold: usize::MAX,
        ..Config::default()
    };
    on_stack(config, |stack| {
        let (client, server) = connected(stack)?;
        let options = Options {
            read_timeout: Some(DEADLINE),
            ..Options::default()
        };
        client.set_options(options);
        server.set_options(options);
        let total = 32 << 20;
        transfer(&client, &server, total, 1 << 20, 50_000)?;
        let registered = client.statistics();
        ensure!(
            registered.bytes_sent == total && registered.bytes_copied == 0 && registered.reads == 0
        );
        // Short and long writes, which must stay in order.
        let lens = [9_999, 10_000, 300_000, 1, 70_000];
        for len in lens {
            transfer(&client, &server, 1 << 20, len, 65_536)?;
        }
        // A write with a timeout is copied, because posted work cannot be cancelled at the timeout.
        timed(&client);
        let before = client.statistics();
        transfer(&client, &server, 1 << 20, 1 << 20, 65_536)?;
        ensure!(client.statistics().bytes_copied - before.bytes_copied == 1 << 20);
        Ok(())
    })
}

/// A reset ends a write that waits until the transport no longer uses the caller's memory.
#[test]
fn a_reset_ends_an_uncopied_write() -> Result<()> {
    let config = Config {
        registered_threshold: 10_000,
        zcopy_threshold: usize::MAX,
        ..Config::default()
    };
    on_stack(config, |stack| {
        let (client, server) = connected(stack)?;
        let bytes = vec![7; 64 << 20];
        thread::scope(|scope| {
            let writer = scope.spawn(|| (&client).write_all(&bytes));
            await_first_bytes(&server)?;
            server.abort();
            let written = writer.join().expect("a writer that does not panic");
            ensure!(written.is_err(), "the write succeeded without a reader");
            Ok(())
        })
    })
}

/// Waits until some of the bytes that the peer writes have been received.
fn await_first_bytes(reader: &SdpStream) -> Result<()> {
    await_poll(reader, PollFlags::IN).map(drop)
}

/// Bytes that were written before the reset count as written. The next call returns the error.
#[test]
fn a_partial_write_before_a_reset_keeps_the_error_for_the_next_call() -> Result<()> {
    let copied = Config {
        zcopy_threshold: usize::MAX,
        ..Config::default()
    };
    on_stack(copied, |stack| {
        let (client, server) = connected(stack)?;
        timed(&client);
        let bytes = vec![7; 64 << 20];
        thread::scope(|scope| {
            let writer = scope.spawn(|| (&client).write(&bytes));
            await_first_bytes(&server)?;
            server.abort();
            let written = writer.join().expect("a writer that does not panic")?;
            ensure!(written < 64 << 20, "all was written without a reader");
            let error = (&client).read(&mut [0; 1]);
            let is_reset = matches!(&error, Err(e) if e.kind() == ErrorKind::ConnectionReset);
            ensure!(is_reset, "{error:?}");
            Ok(())
        })
    })
}

#[test]
fn few_and_small_buffers_are_enough() -> Result<()> {
    let config = Config {
        receive_buffers: 3,
        buffer_size: 200,
        send_ring: 4_096,
        staging: 8_192,
        zcopy_threshold: 10_000,
        ..Config::default()
    };
    on_connection(config, |client, server| {
        thread::scope(|scope| {
            let other = scope.spawn(|| transfer(&server, &client, 100_000, 3_000, 700));
            transfer(&client, &server, 200_000, 20_000, 900)?;
            other.join().expect("a transfer that does not panic")
        })
    })
}

/// A writer that processes completions between its check for room and its wait must check again.
#[test]
fn a_writer_never_waits_for_available_room() -> Result<()> {
    let config = Config {
        receive_buffers: 16,
        buffer_size: 64 * 1024 + 16,
        send_ring: 512 * 1024,
        sends_max: 32,
        ..Config::default()
    };
    on_connection(config, |client, server| {
        transfer(&client, &server, 256 << 20, 16 << 10, 16 << 10)
    })
}

/// If a reader wants more bytes than are advertised, and too few for a registration, the advertised
/// bytes are staged.
#[test]
fn short_advertisements_reach_a_reader_that_waits_for_all() -> Result<()> {
    let writers = Config {
        zcopy_threshold: 16 << 10,
        ..Config::default()
    };
    let readers = Config {
        zcopy_threshold: 256 << 10,
        ..Config::default()
    };
    on_stack(readers, |readers| {
        let writers = Stack::open_with(IA_NAME, writers)?;
        let local = readers.address().context("the adapter has no address")?;
        let listener = SdpListener::bind(readers, SocketAddr::new(local.ip(), 0))?;
        let address = listener.local_addr();
        thread::scope(|scope| {
            let accepted = scope.spawn(|| listener.accept_timeout(Some(DEADLINE)));
            let client = SdpStream::connect(&writers, address)?;
            let (server, _) = accepted.join().expect("a server that does not panic")?;
            timed(&client);
            timed(&server);
            scope.spawn(move || (0..16).try_for_each(|_| (&client).write_all(&[7; 64 << 10])));
            let mut all = vec![0; 1 << 20];
            let len = server.receive_all(&mut all)?;
            ensure!(
                len == all.len() && all.iter().all(|byte| *byte == 7),
                "{len} bytes"
            );
            Ok(())
        })
    })
}

/// Sockets that keep the stack's thread busy must not delay the tick of other sockets.
#[test]
fn unsent_bytes_are_sent_despite_a_busy_socket() -> Result<()> {
    on_stack(Config::default(), |stack| {
        let (quiet, reader) = connected(stack)?;
        let (busy, echo) = connected(stack)?;
        let timed_streams = [&quiet, &reader];
        timed_streams.into_iter().for_each(timed);
        let filled = Config::default().send_ring;
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            for (stream, starts) in [(&busy, true), (&echo, false)] {
                stream.set_nonblocking(true);
                let over = &over;
                scope.spawn(move || ping_pong(stream, starts, over));
            }
            // More bytes than the peer has room for. The rest is sent when the peer has read,
            // without a call by the writer.
            let mut left = 0;
            quiet.set_nonblocking(true);
            while left < filled + (1 << 20)
                && let Ok(len) = (&quiet).write(&[1; 10_000])
            {
                left += len;
            }
            quiet.set_nonblocking(false);
            let mut bytes = vec![0; left];
            let result = (&reader).read_exact(&mut bytes);
            over.store(true, Ordering::Relaxed);
            result.with_context(|| format!("reading {left} bytes"))
        })
    })
}

/// Sends a byte if `starts`, and answers each received byte, until `over` is set.
fn ping_pong(stream: &SdpStream, starts: bool, over: &AtomicBool) {
    let mut must_send = starts;
    while !over.load(Ordering::Relaxed) {
        if must_send && { stream }.write(&[1]).is_ok() {
            must_send = false;
        }
        let _ = poll_for(stream, 5);
        must_send |= matches!({ stream }.read(&mut [0]), Ok(1));
    }
}

#[test]
fn each_half_ends_by_itself() -> Result<()> {
    on_connection(Config::default(), |client, server| {
        (&client).write_all(b"question")?;
        client.shutdown(Shutdown::Write)?;
        let refused = (&client).write(b"more").expect_err("the half is closed");
        ensure!(refused.kind() == ErrorKind::BrokenPipe);
        let mut question = Vec::new();
        (&server).read_to_end(&mut question)?;
        ensure!(question == b"question");
        (&server).write_all(&[7; 100_000])?;
        drop(server);
        let mut answer = Vec::new();
        (&client).read_to_end(&mut answer)?;
        ensure!(answer == [7; 100_000], "{} bytes", answer.len());
        Ok(())
    })
}

#[test]
fn full_buffers_on_both_sides_drain() -> Result<()> {
    on_stack(Config::default(), |stack| {
        let (client, server) = connected(stack)?;
        let mut written = [0_u64; 2];
        for stream in [&client, &server] {
            stream.set_nonblocking(true);
        }
        // Both ends write until no write has succeeded for a while, because neither end reads. The
        // stack's thread makes room later if the machine is busy.
        let chunk = [0x55; 10_000];
        let until = Instant::now() + DEADLINE;
        let mut moved = Instant::now();
        while moved.elapsed() < QUIET || poll_now(&client)?.contains(PollFlags::OUT) {
            ensure!(Instant::now() < until, "still writable");
            for (stream, count) in [&client, &server].into_iter().zip(&mut written) {
                match { stream }.write(&chunk) {
                    Ok(len) => (*count, moved) = (*count + len as u64, Instant::now()),
                    Err(error) => ensure!(error.kind() == ErrorKind::WouldBlock, "{error}"),
                }
            }
            thread::sleep(Duration::from_millis(1));
        }
        ensure!(written.iter().all(|count| *count > 500_000), "{written:?}");
        let mut read = [0_u64; 2];
        let mut bytes = vec![0; 100_000];
        let until = Instant::now() + DEADLINE;
        while read != [written[1], written[0]] {
            for (stream, count) in [&client, &server].into_iter().zip(&mut read) {
                match { stream }.read(&mut bytes) {
                    Ok(len) => *count += len as u64,
                    Err(error) => ensure!(error.kind() == ErrorKind::WouldBlock, "{error}"),
                }
            }
            ensure!(Instant::now() < until, "{read:?} of {written:?}");
        }
        let set = await_poll(&client, PollFlags::OUT)?;
        ensure!(set == PollFlags::OUT, "{set:?}");
        Ok(())
    })
}

#[test]
fn a_descriptor_shows_the_readiness_of_its_stream() -> Result<()> {
    on_stack(Config::default(), |stack| {
        let (client, server) = connected(stack)?;
        ensure!(await_poll(&server, PollFlags::OUT)? == PollFlags::OUT);
        (&client).write_all(b"x")?;
        let set = await_poll(&server, PollFlags::IN)?;
        ensure!(set == PollFlags::IN | PollFlags::OUT, "{set:?}");
        server.set_nonblocking(true);
        ensure!((&server).read(&mut [0; 9])? == 1);
        ensure!(poll_now(&server)? == PollFlags::OUT);
        let none = (&server).read(&mut [0; 9]).expect_err("nothing is there");
        ensure!(none.kind() == ErrorKind::WouldBlock);
        client.shutdown(Shutdown::Write)?;
        let set = await_poll(&server, PollFlags::RDHUP)?;
        ensure!(set.contains(PollFlags::IN | PollFlags::OUT | PollFlags::RDHUP));
        ensure!((&server).read(&mut [0; 9])? == 0);
        server.shutdown(Shutdown::Write)?;
        let set = await_poll(&server, PollFlags::HUP)?;
        ensure!(set.contains(PollFlags::HUP), "{set:?}");
        Ok(())
    })
}

/// If no descriptor is available for `as_fd`, the caller gets an error, without a panic and without
/// an endless wait.
#[test]
fn a_stream_without_a_descriptor_reports_the_error_once() -> Result<()> {
    on_stack(Config::default(), |stack| {
        let (client, server) = connected(stack)?;
        server.set_nonblocking(true);
        let interest = PollFlags::IN | PollFlags::OUT;
        let limit = getrlimit(Resource::Nofile);
        let none = Rlimit {
            current: Some(0),
            ..limit
        };
        setrlimit(Resource::Nofile, none)?;
        let number = server.as_fd().as_raw_fd();
        setrlimit(Resource::Nofile, limit)?;
        // SAFETY: the stack keeps the descriptor open, and outlives this borrow.
        let shown = unsafe { BorrowedFd::borrow_raw(number) };
        let mut set = [PollFd::from_borrowed_fd(shown, interest)];
        ensure!(poll(&mut set, Some(&Timespec::default()))? == 1);
        for errno in [Errno::MFILE, Errno::AGAIN] {
            let error = (&server).read(&mut [0; 9]).expect_err("nothing is there");
            ensure!(
                error.raw_os_error() == Some(errno.raw_os_error()),
                "{error}"
            );
        }
        (&client).write_all(b"x")?;
        let set = await_poll(&server, PollFlags::IN)?;
        ensure!(set == interest, "{set:?}");
        Ok(())
    })
}

#[test]
fn peek_and_timeouts_work_as_on_a_tcp_socket() -> Result<()> {
    on_stack(Config::default(), |stack| {
        let (client, server) = connected(stack)?;
        server.set_options(Options {
            read_timeout: Some(Duration::from_millis(50)),
            ..server.options()
        });
        let late = (&server).read(&mut [0; 9]).expect_err("nothing was sent");
        ensure!(late.kind() == ErrorKind::WouldBlock, "{late}");
        (&client).write_all(b"abc")?;
        let mut bytes = [0; 9];
        ensure!(await_poll(&server, PollFlags::IN)?.contains(PollFlags::IN));
        ensure!(server.peek(&mut bytes)? == 3 && &bytes[..3] == b"abc");
        ensure!(server.readable() == 3);
        ensure!((&server).read(&mut bytes[..2])? == 2);
        ensure!((&server).read(&mut bytes)? == 1 && bytes[0] == b'c');
        // At its timeout a long write without a reader is revoked, except for the bytes that the
        // peer has staged. On a busy machine the peer may stage nothing in the first times.
        let long = vec![9; 8 << 20];
        let mut written = 0;
        for timeout in [100, 3_000, 30_000].map(Duration::from_millis) {
            client.set_options(Options {
                write_timeout: Some(timeout),
                ..client.options()
            });
            match (&client).write(&long) {
                Err(late) if late.kind() == ErrorKind::WouldBlock => {}
                result => {
                    written = result?;
                    break;
                }
            }
        }
        ensure!(
            0 < written && written < long.len(),
            "{written} bytes were written without a reader"
        );
        timed(&server);
        client.shutdown(Shutdown::Write)?;
        let mut rest = Vec::new();
        (&server).read_to_end(&mut rest)?;
        ensure!(rest.len() == written, "{} of {written}", rest.len());
        Ok(())
    })
}

#[test]
fn unread_bytes_and_linger_zero_reset() -> Result<()> {
    on_stack(Config::default(), |stack| {
        for unread in [false, true] {
            let (client, server) = connected(stack)?;
            timed(&client);
            if unread {
                (&client).write_all(b"never read")?;
                await_poll(&server, PollFlags::IN)?;
            } else {
                server.set_options(Options {
                    linger: Some(Duration::ZERO),
                    ..server.options()
                });
            }
            drop(server);
            let error = (&client).read(&mut [0; 9]).expect_err("a reset");
            ensure!(error.kind() == ErrorKind::ConnectionReset, "{error}");
            ensure!(
                (&client).read(&mut [0; 9])? == 0,
                "the error is reported once"
            );
        }
        Ok(())
    })
}

/// Bytes that were written before a close are sent as long as the peer continues to read.
#[test]
fn a_slow_reader_gets_all_of_a_closed_socket() -> Result<()> {
    despite_pauses(&[1, 10].map(Duration::from_secs), |close_timeout| {
        let config = Config {
            close_timeout,
            receive_buffers: 4,
            buffer_size: 1024,
            ..Config::default()
        };
        let mut longest_pause = Duration::ZERO;
        let outcome = on_stack(config, |stack| {
            let (client, server) = connected(stack)?;
            timed(&client);
            let bytes = patterned(0, 64 << 10);
            (&server).write_all(&bytes)?;
            drop(server);
            let mut got = Vec::new();
            let mut some = [0; 1024];
            let mut last = Instant::now();
            while let count @ 1.. = (&client).read(&mut some)? {
                got.extend_from_slice(&some[..count]);
                // In total the reads take far longer than the time after which a peer that reads
                // nothing is aborted.
                thread::sleep(close_timeout / 20);
                longest_pause = longest_pause.max(last.elapsed());
                last = Instant::now();
            }
            ensure!(got == bytes, "{} bytes were received", got.len());
            Ok(())
        });
        (longest_pause, outcome)
    })
}

/// Runs a test of a peer that is slow and not silent, with a time after which silent peers are
/// aborted. The test returns the longest pause that it made. If the machine made the peer silent
/// for half of that time, a failure shows nothing, and the test runs with the next time.
fn despite_pauses(
    times: &[Duration],
    test: impl Fn(Duration) -> (Duration, Result<()>),
) -> Result<()> {
    let mut outcome = Ok(());
    for time in times {
        let longest_pause;
        (longest_pause, outcome) = test(*time);
        if outcome.is_ok() || longest_pause < *time / 2 {
            break;
        }
    }
    outcome
}

#[test]
fn a_connect_without_a_listener_is_refused() -> Result<()> {
    on_stack(Config::default(), |stack| {
        let (client, server) = connected(stack)?;
        drop((client, server));
        let local = stack.address().context("the adapter has no address")?;
        let error = SdpStream::connect(stack, SocketAddr::new(local.ip(), 1))
            .expect_err("port 1 has no listener");
        ensure!(error.kind() == ErrorKind::ConnectionRefused, "{error}");
        Ok(())
    })
}

#[test]
fn a_killed_peer_is_a_reset() -> Result<()> {
    if let Ok(port) = env::var(CHILD_ENV) {
        return run_child(&port);
    }
    on_stack(Config::default(), |stack| {
        let local = stack.address().context("the adapter has no address")?;
        let listener = SdpListener::bind(stack, SocketAddr::new(local.ip(), 0))?;
        let mut child = start_child(listener.local_addr().port())?;
        let accepted = listener.accept_timeout(Some(DEADLINE));
        let (server, _) = accepted.inspect_err(|_| drop(child.kill()))?;
        timed(&server);
        let mut hello = [0; 5];
        (&server).read_exact(&mut hello)?;
        child.kill()?;
        child.wait()?;
        let error = (&server).read(&mut hello).expect_err("a reset");
        ensure!(error.kind() == ErrorKind::ConnectionReset, "{error}");
        let error = (&server).write(&[1; 9]).expect_err("the peer has ended");
        ensure!(error.kind() == ErrorKind::BrokenPipe, "{error}");
        Ok(())
    })
}

fn start_child(port: u16) -> Result<Child> {
    let child = Command::new(env::current_exe()?)
        .args(["--exact", "a_killed_peer_is_a_reset"])
        .env(CHILD_ENV, port.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()?;
    Ok(child)
}

/// The child process: connects, sends hello, and never closes.
fn run_child(port: &str) -> Result<()> {
    LIBRARIES.as_ref().map_err(|e| anyhow::anyhow!("{e}"))?;
    let stack = Stack::open(IA_NAME)?;
    let local = stack.address().context("the adapter has no address")?;
    let stream = SdpStream::connect(&stack, SocketAddr::new(local.ip(), port.parse()?))?;
    (&stream).write_all(b"hello")?;
    thread::sleep(DEADLINE);
    Ok(())
}

/// The link targets of this process's descriptors in `/proc/self/fd`.
fn descriptors() -> Result<Vec<PathBuf>> {
    let mut targets = Vec::new();
    for entry in fs::read_dir("/proc/self/fd")? {
        // A descriptor may be closed meanwhile.
        targets.extend(fs::read_link(entry?.path()).ok());
    }
    Ok(targets)
}

#[test]
fn connections_are_made_and_closed() -> Result<()> {
    let count = if stack_tests::is_full() { 10_000 } else { 100 };
    on_stack(Config::default(), |stack| {
        for round in 0..count {
            let (client, server) = connected(stack)?;
            (&client).write_all(b"hello")?;
            drop(client);
            let mut bytes = Vec::new();
            timed(&server);
            (&server).read_to_end(&mut bytes)?;
            ensure!(bytes == b"hello", "round {round}");
        }
        until!(descriptors()?.len() <= 60, "left: {:#?}", descriptors()?);
        Ok(())
    })
}

/// The adapter of a dropped stack, and all descriptors, are closed after the last socket.
#[test]
fn a_dropped_stack_leaks_no_resources() -> Result<()> {
    on_stack(Config::default(), |_| {
        let before = descriptors()?.len();
        for _ in 0..5 {
            let stack = Stack::open(IA_NAME)?;
            let (client, server) = connected(&stack)?;
            (&client).write_all(b"hello")?;
            drop(stack);
            let mut bytes = [0; 5];
            (&server).read_exact(&mut bytes)?;
        }
        until!(
            descriptors()?.len() <= before,
            "left: {:#?}",
            descriptors()?
        );
        Ok(())
    })
}

fn poll_for(stream: &SdpStream, millis: i64) -> Result<PollFlags> {
    let interest = PollFlags::IN | PollFlags::OUT | PollFlags::PRI | PollFlags::RDHUP;
    stream.stand_in()?;
    let mut set = [PollFd::from_borrowed_fd(stream.as_fd(), interest)];
    let pause = Timespec {
        tv_sec: 0,
        tv_nsec: millis * 1_000_000,
    };
    poll(&mut set, Some(&pause))?;
    Ok(set[0].revents())
}

fn poll_now(stream: &SdpStream) -> Result<PollFlags> {
    poll_for(stream, 0)
}

/// Polls until one of `wanted` is set.
fn await_poll(stream: &SdpStream, wanted: PollFlags) -> Result<PollFlags> {
    let mut set;
    until!(
        {
            set = poll_for(stream, 20)?;
            set.intersects(wanted)
        },
        "{set:?} is set, {wanted:?} is not"
    );
    Ok(set)
}
