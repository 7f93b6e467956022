//! Readers whose memory the peer writes (Write Zcopy), in pipelined mode.

use std::{
    io::{ErrorKind, Read, Write},
    net::Shutdown,
    thread,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use sdp_over_dat::{Config, Options, SdpStream};
use stack_tests::until;

use super::{connected, on_stack, pattern, patterned, timed, transfer};

/// Sockets whose readers advertise their memory from 20,000 bytes on.
fn config() -> Config {
    Config {
        buffer_size: 8 << 10,
        pipelined_threshold: 1,
        sink_threshold: 20_000,
        write_min: 1_000,
        registered_threshold: 30_000,
        zcopy_threshold: 200_000,
        ..Config::default()
    }
}

const LONG: usize = 250_000;

/// Waits until the reader of `stream` has advertised its memory `times` times.
fn await_adverts(stream: &SdpStream, times: u64) -> Result<()> {
    until!(
        stream.statistics().sinks >= times,
        "no memory is advertised"
    );
    Ok(())
}

/// A connection that has changed to pipelined mode in both directions, without timeouts.
fn pipelined(stack: &sdp_over_dat::Stack) -> Result<(SdpStream, SdpStream)> {
    let (client, server) = connected(stack)?;
    for (from, to) in [(&client, &server), (&server, &client)] {
        { from }.write_all(b"first")?;
        { to }.read_exact(&mut [0; 5])?;
    }
    Ok((client, server))
}

#[test]
fn a_reader_that_waits_is_written_to() -> Result<()> {
    on_stack(config(), |stack| {
        let (client, server) = pipelined(stack)?;
        let expected = patterned(0, LONG);
        for round in 1..=20_u64 {
            // Bytes of the ring, of the writer's memory, and of memory that would be advertised.
            let len = [25_000, 60_000, LONG][round as usize % 3];
            let mut into = vec![0; LONG];
            let read = thread::scope(|scope| {
                let reads = scope.spawn(|| server.receive_all(&mut into[..len]));
                await_adverts(&server, round)?;
                (&client).write_all(&expected[..len])?;
                reads
                    .join()
                    .expect("a reader that does not panic")
                    .context("reading")
            })?;
            ensure!(read == len && into[..len] == expected[..len], "other bytes");
        }
        let (here, there) = (server.statistics(), client.statistics());
        ensure!(here.sinks_used == here.sinks, "{here:?}");
        ensure!(
            there.bytes_written == here.bytes_direct,
            "{there:?}, {here:?}"
        );
        ensure!(here.bytes_direct == there.bytes_sent - 5, "{here:?}");
        ensure!(here.bytes_written_by_peer == here.bytes_direct, "{here:?}");
        Ok(())
    })
}

/// A writer waits for the next advertisement of a reader that has advertised its memory. If there
/// is none, later writes do not wait.
#[test]
fn a_writer_waits_once_for_a_reader_that_does_not_read_again() -> Result<()> {
    const LEN: usize = 25_000;
    on_stack(config(), |stack| {
        let (client, server) = pipelined(stack)?;
        let waits = || client.statistics().stalls.sink;
        thread::scope(|scope| {
            let reads = scope.spawn(|| server.receive_all(&mut [0; LEN]));
            await_adverts(&server, 1)?;
            (&client).write_all(&[0; LEN])?;
            ensure!(reads.join().expect("a reader that does not panic")? == LEN);
            Ok(())
        })?;
        ensure!(waits() == 0, "a wait for memory that was advertised");
        (&client).write_all(&[1; LEN])?;
        ensure!(waits() == 1, "{} waits", waits());
        (&client).write_all(&[2; LEN])?;
        ensure!(waits() == 1, "{} waits", waits());
        let mut both = [0; 2 * LEN];
        (&server).read_exact(&mut both)?;
        ensure!(both[..LEN] == [1; LEN] && both[LEN..] == [2; LEN]);
        Ok(())
    })
}

/// Bytes of the ring are written in two parts around its end.
#[test]
fn bytes_around_the_end_of_the_ring_are_written_in_their_order() -> Result<()> {
    let config = Config {
        registered_threshold: usize::MAX,
        zcopy_threshold: usize::MAX,
        send_ring: 70_001,
        ..config()
    };
    on_stack(config, |stack| {
        let (client, server) = pipelined(stack)?;
        let mut expected = vec![0; 60_000];
        let mut into = vec![0; 60_000];
        for round in 1..=20_u64 {
            pattern(round * 60_000, &mut expected);
            thread::scope(|scope| {
                let reads = scope.spawn(|| server.receive_all(&mut into));
                await_adverts(&server, round)?;
                (&client).write_all(&expected)?;
                reads
                    .join()
                    .expect("a reader that does not panic")
                    .context("reading")
            })?;
            ensure!(into == expected, "other bytes");
        }
        let statistics = client.statistics();
        ensure!(statistics.bytes_written == 20 * 60_000, "{statistics:?}");
        Ok(())
    })
}

/// Both directions, with writes and reads of all lengths, so that messages and advertisements of
/// both kinds cross.
#[test]
fn streams_of_any_lengths_are_the_same_at_both_ends() -> Result<()> {
    let total = if stack_tests::is_full() {
        1 << 30
    } else {
        32 << 20
    };
    on_stack(config(), |stack| {
        let (client, server) = pipelined(stack)?;
        thread::scope(|scope| {
            let other = scope.spawn(|| transfer(&server, &client, total, 50_000, 300_000));
            transfer(&client, &server, total, 400_000, 60_000)?;
            other.join().expect("a transfer that does not panic")
        })?;
        let all = [client.statistics(), server.statistics()];
        let sinks: u64 = all.iter().map(|one| one.sinks).sum();
        ensure!(sinks > 0, "{all:?}");
        Ok(())
    })
}

fn set_read_timeout(stream: &SdpStream, timeout: Duration) {
    stream.set_options(Options {
        read_timeout: Some(timeout),
        ..stream.options()
    });
}

/// The number of bytes of a read that may have timed out.
fn taken(read: std::io::Result<usize>) -> Result<usize> {
    match read {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
        read => read.context("reading"),
    }
}

/// The peer may need half a second to answer a cancel, and a cancel within the first half second
/// would gain little.
#[test]
fn a_read_with_a_short_timeout_advertises_nothing() -> Result<()> {
    on_stack(config(), |stack| {
        let (client, server) = pipelined(stack)?;
        set_read_timeout(&server, Duration::from_millis(900));
        let read = server.receive_all(&mut vec![0; LONG]);
        ensure!(taken(read)? == 0, "bytes that were not sent");
        let statistics = server.statistics();
        ensure!(statistics.sinks == 0, "{statistics:?}");
        (&client).write_all(b"last")?;
        Ok((&server).read_exact(&mut [0; 4])?)
    })
}

/// Repeats an attempt with longer and longer timeouts of a reader. An attempt returns true if the
/// reader advertised its memory, and the peer acted, long enough before the timeout. On a busy
/// machine the first timeouts may pass before that.
fn with_patience(attempt: impl Fn(Duration) -> Result<bool>) -> Result<()> {
    for timeout_ms in [1_500, 6_000, 40_000] {
        if attempt(Duration::from_millis(timeout_ms))? {
            return Ok(());
        }
    }
    anyhow::bail!("the timeouts passed too early")
}

/// The thread of the peer's stack answers the cancel, because the peer's user makes no call. No
/// byte is placed in the reader's memory after its call has returned.
#[test]
fn a_read_whose_timeout_passes_takes_its_memory_back() -> Result<()> {
    on_stack(config(), |stack| {
        with_patience(|timeout| {
            let (client, server) = pipelined(stack)?;
            set_read_timeout(&server, timeout);
            let mut memory = vec![0xa5; LONG];
            ensure!(taken(server.receive_all(&mut memory))? == 0, "bytes");
            let after = server.statistics();
            let counts = (after.sinks, after.sinks_used, after.sinks_cancelled);
            if counts == (0, 0, 0) {
                return Ok(false);
            }
            ensure!(counts == (1, 0, 1), "{after:?}");
            timed(&server);
            let expected = patterned(0, 25_000);
            (&client).write_all(&expected)?;
            let mut into = vec![0; 25_000];
            (&server).read_exact(&mut into)?;
            ensure!(into == expected, "other bytes");
            ensure!(
                memory.iter().all(|byte| *byte == 0xa5),
                "written afterwards"
            );
            Ok(true)
        })
    })
}

/// The bytes that were written into the reader's memory before the timeout are returned. Bytes that
/// were written too late for that are returned by the next read.
#[test]
fn a_read_whose_timeout_passes_returns_the_bytes_that_were_written() -> Result<()> {
    on_stack(config(), |stack| {
        with_patience(|timeout| {
            let (client, server) = pipelined(stack)?;
            set_read_timeout(&server, timeout);
            let expected = patterned(0, 60_000);
            let mut memory = vec![0xa5; LONG];
            let read = thread::scope(|scope| {
                let reads = scope.spawn(|| server.receive_all(&mut memory));
                while server.statistics().sinks == 0 && !reads.is_finished() {
                    thread::sleep(Duration::from_millis(1));
                }
                (&client).write_all(&expected)?;
                taken(reads.join().expect("a reader that does not panic"))
            })?;
            let (written, rest) = memory.split_at(read);
            ensure!(written == &expected[..read], "other bytes");
            ensure!(rest.iter().all(|byte| *byte == 0xa5), "more was written");
            timed(&server);
            let mut late = vec![0; expected.len() - read];
            (&server).read_exact(&mut late)?;
            ensure!(late == expected[read..], "other bytes");
            let after = server.statistics();
            if after.bytes_written_by_peer < expected.len() as u64 {
                return Ok(false);
            }
            ensure!(read == expected.len(), "{read} bytes");
            ensure!(after.sinks_used == 1, "{after:?}");
            ensure!(after.sinks_cancelled == after.sinks - 1, "{after:?}");
            Ok(true)
        })
    })
}

/// A timeout passes while the peer writes: each byte is returned by this read or by a later one.
#[test]
fn a_timeout_and_the_peers_write_may_cross() -> Result<()> {
    const TIMEOUT: Duration = Duration::from_millis(1100);
    // The cancel precedes the timeout by half a second.
    const CANCEL: Duration = Duration::from_millis(600);
    on_stack(config(), |stack| {
        let (client, server) = pipelined(stack)?;
        let (mut sent, mut received, mut rounds) = (0_u64, 0_u64, 0_u64);
        for early_ms in [0, 1, 2, 3, 5, 600] {
            set_read_timeout(&server, TIMEOUT);
            let len = [25_000, 60_000, LONG][rounds as usize % 3];
            rounds += 1;
            let chunk = patterned(sent, len);
            let mut memory = vec![0xa5; LONG];
            let got = thread::scope(|scope| {
                let reads = scope.spawn(|| server.receive_all(&mut memory));
                thread::sleep(CANCEL - Duration::from_millis(early_ms));
                (&client).write_all(&chunk)?;
                taken(reads.join().expect("a reader that does not panic"))
            })?;
            sent += len as u64;
            let expected = patterned(received, got);
            ensure!(memory[..got] == expected, "other bytes in round {rounds}");
            let rest = &memory[got..];
            ensure!(rest.iter().all(|byte| *byte == 0xa5), "round {rounds}");
            received += got as u64;
            timed(&server);
            let mut late = vec![0; (sent - received) as usize];
            (&server).read_exact(&mut late)?;
            let expected = patterned(received, late.len());
            ensure!(late == expected, "other bytes after round {rounds}");
            received = sent;
            ensure!(
                memory[got..].iter().all(|byte| *byte == 0xa5),
                "late bytes in round {rounds}"
            );
        }
        let after = server.statistics();
        ensure!(after.sinks > 0, "{after:?}");
        println!("{after:?}");
        Ok(())
    })
}

/// No byte is placed in a reader's memory after its call has returned.
#[test]
fn a_reader_that_is_shut_takes_its_memory_back() -> Result<()> {
    on_stack(config(), |stack| {
        let (client, server) = pipelined(stack)?;
        let mut memory = vec![0xa5; LONG];
        thread::scope(|scope| {
            // The call that answers the cancel.
            let answers = scope.spawn(|| (&client).read_exact(&mut [0; 4]));
            let reads = scope.spawn(|| server.receive_all(&mut memory));
            await_adverts(&server, 1)?;
            server.shutdown(Shutdown::Read)?;
            let read = reads.join().expect("a reader that does not panic")?;
            ensure!(read == 0, "{read} bytes");
            (&server).write_all(b"last")?;
            Ok(answers.join().expect("a reader that does not panic")?)
        })?;
        // As much as is sent without a call of the other end.
        (&client).write_all(&[1; 20_000])?;
        ensure!(
            memory.iter().all(|byte| *byte == 0xa5),
            "written afterwards"
        );
        let statistics = server.statistics();
        ensure!(
            (statistics.sinks, statistics.sinks_used) == (1, 0),
            "{statistics:?}"
        );
        ensure!(statistics.sinks_cancelled == 1, "{statistics:?}");
        Ok(())
    })
}

/// Nothing but the end of the connection ends an advertisement that the peer does not release.
#[test]
fn a_reader_whose_peer_does_not_answer_ends_with_its_connection() -> Result<()> {
    let config = Config {
        close_timeout: Duration::from_millis(300),
        ..config()
    };
    on_stack(config, |stack| {
        let (_client, server) = pipelined(stack)?;
        thread::scope(|scope| {
            let reads = scope.spawn(|| server.receive_all(&mut vec![0; LONG]));
            await_adverts(&server, 1)?;
            server.shutdown(Shutdown::Read)?;
            let read = reads.join().expect("a reader that does not panic");
            ensure!(!matches!(read, Ok(len) if len > 0), "{read:?}");
            Ok(())
        })
    })
}

#[test]
fn a_reader_whose_peer_ends_its_stream_returns() -> Result<()> {
    on_stack(config(), |stack| {
        let (client, server) = pipelined(stack)?;
        thread::scope(|scope| {
            let reads = scope.spawn(|| server.receive_all(&mut vec![0; LONG]));
            await_adverts(&server, 1)?;
            client.shutdown(Shutdown::Write)?;
            let read = reads.join().expect("a reader that does not panic")?;
            ensure!(read == 0, "{read} bytes");
            Ok(())
        })?;
        // The other direction still works.
        (&server).write_all(b"last")?;
        (&client).read_exact(&mut [0; 4])?;
        Ok(())
    })
}

/// A reader whose peer resets the connection gets an error.
#[test]
fn a_reader_whose_peer_aborts_gets_a_reset() -> Result<()> {
    on_stack(config(), |stack| {
        let (client, server) = pipelined(stack)?;
        thread::scope(|scope| {
            let reads = scope.spawn(|| server.receive_all(&mut vec![0; LONG]));
            await_adverts(&server, 1)?;
            client.abort();
            let read = reads.join().expect("a reader that does not panic");
            let is_reset = matches!(&read, Err(e) if e.kind() == ErrorKind::ConnectionReset);
            ensure!(is_reset, "{read:?}");
            Ok(())
        })
    })
}

#[test]
fn a_peek_and_a_short_read_advertise_nothing() -> Result<()> {
    on_stack(config(), |stack| {
        let (client, server) = pipelined(stack)?;
        thread::scope(|scope| {
            let peeks = scope.spawn(|| server.peek(&mut vec![0; LONG]));
            thread::sleep(Duration::from_millis(20));
            (&client).write_all(b"bytes")?;
            peeks.join().expect("a reader that does not panic")?;
            (&server).read_exact(&mut [0; 5])?;
            let reads = scope.spawn(|| (&server).read_exact(&mut [0; 19_999]));
            thread::sleep(Duration::from_millis(20));
            (&client).write_all(&[1; 19_999])?;
            reads.join().expect("a reader that does not panic")?;
            let statistics = server.statistics();
            ensure!(statistics.sinks == 0, "{statistics:?}");
            Ok(())
        })
    })
}

/// The option of one socket replaces the threshold of the stack.
#[test]
fn a_socket_may_have_a_threshold_of_its_own() -> Result<()> {
    on_stack(config(), |stack| {
        let (client, server) = pipelined(stack)?;
        server.set_options(Options {
            sink_threshold: Some(usize::MAX),
            ..Options::default()
        });
        thread::scope(|scope| {
            let reads = scope.spawn(|| (&server).read_exact(&mut vec![0; LONG]));
            thread::sleep(Duration::from_millis(20));
            (&client).write_all(&[1; LONG])?;
            reads.join().expect("a reader that does not panic")?;
            let statistics = server.statistics();
            ensure!(statistics.sinks == 0, "{statistics:?}");
            Ok(())
        })
    })
}

/// A peer that accepts one advertisement is never asked for more.
#[test]
fn a_peer_with_one_advertisement_sees_messages_only() -> Result<()> {
    let old = Config {
        adverts_max: 1,
        ..config()
    };
    on_stack(old, |stack| {
        let (client, server) = pipelined(stack)?;
        transfer(&client, &server, 4 << 20, 400_000, 60_000)?;
        let all = [client.statistics(), server.statistics()];
        let is_unused = all
            .iter()
            .all(|one| one.sinks == 0 && one.bytes_written == 0);
        ensure!(is_unused, "{all:?}");
        Ok(())
    })
}
