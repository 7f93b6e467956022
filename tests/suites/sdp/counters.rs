//! The counters of a socket: bytes by mechanism, advertisements, credits, and waits by reason.

use std::{
    io::{ErrorKind, Read, Write},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use sdp_over_dat::{Config, Options, Statistics};

use super::{DEADLINE, connected, on_stack, transfer};

/// Sockets that use each mechanism, by the length of a write.
fn config() -> Config {
    Config {
        buffer_size: 8 << 10,
        pipelined_threshold: usize::MAX,
        sink_threshold: 20_000,
        write_min: 1_000,
        registered_threshold: 30_000,
        zcopy_threshold: 200_000,
        ..Config::default()
    }
}

/// The bytes that `to` has received in Sends.
fn received_in_sends(to: &Statistics) -> u64 {
    to.bytes_received - to.bytes_read - to.bytes_written_by_peer
}

/// Each byte is counted once at each end, by the mechanism that has transferred it.
#[test]
fn both_ends_count_each_byte_by_its_mechanism() -> Result<()> {
    let config = Config {
        pipelined_threshold: 300_000,
        ..config()
    };
    on_stack(config, |stack| {
        let (client, server) = connected(stack)?;
        let mut before = client.statistics();
        // In this order: copied, sent from registered memory, advertised, and written into the
        // memory of readers.
        for write in [10_000, 100_000, 250_000, 400_000] {
            transfer(&client, &server, 8 << 20, write, 300_000)?;
            let (here, there) = (client.statistics(), server.statistics());
            println!("{here:?}");
            let sends = here.bytes_ring + here.bytes_registered;
            let all = sends + here.bytes_written + here.bytes_read_by_peer;
            ensure!(all == here.bytes_sent, "{here:?}");
            ensure!(received_in_sends(&there) == sends, "{here:?}, {there:?}");
            ensure!(there.bytes_read == here.bytes_read_by_peer, "{there:?}");
            ensure!(there.bytes_written_by_peer == here.bytes_written);
            let is_used = match write {
                10_000 => here.bytes_ring == here.bytes_sent,
                100_000 => here.bytes_registered > before.bytes_registered,
                250_000 => here.sources_used > 0 && here.bytes_read_by_peer > 0,
                _ => here.bytes_sent > before.bytes_sent,
            };
            ensure!(is_used, "writes of {write} bytes: {here:?}, {there:?}");
            before = here;
        }
        Ok(())
    })
}

/// A writer whose peer reads nothing waits for credits and for room in the ring.
#[test]
fn a_writer_without_a_reader_counts_credits_and_room() -> Result<()> {
    on_stack(config(), |stack| {
        let (client, server) = connected(stack)?;
        let fresh = client.statistics();
        ensure!(fresh.credits > 3 && fresh.stalls == Default::default());
        client.set_nonblocking(true);
        let mut written = 0;
        let refused = loop {
            match (&client).write(&[1; 50_000]) {
                Ok(len) => written += len,
                Err(error) => break error,
            }
        };
        ensure!(refused.kind() == ErrorKind::WouldBlock, "{refused}");
        let full = client.statistics();
        ensure!(full.stalls.credits == 1 && full.stalls.room > 0, "{full:?}");
        ensure!(full.credits < fresh.credits, "{full:?}");
        client.set_nonblocking(false);
        // The last bytes need a call of the writer, because it has no watch.
        thread::scope(|scope| {
            let reads = scope.spawn(|| (&server).read_exact(&mut vec![0; written + 1]));
            (&client).write_all(&[1])?;
            reads.join().expect("a reader that does not panic")?;
            Ok(())
        })
    })
}

/// A write that is advertised waits for the reader. If its timeout passes, this end cancels the
/// advertisement. The peer makes no call, so it reads no more than fits into its staging memory.
#[test]
fn a_writer_of_advertised_memory_counts_its_wait_and_its_cancel() -> Result<()> {
    on_stack(config(), |stack| {
        let (client, server) = connected(stack)?;
        client.set_options(Options {
            write_timeout: Some(Duration::from_millis(50)),
            ..Options::default()
        });
        let (mut written, until) = (0, Instant::now() + DEADLINE);
        let after = loop {
            match (&client).write(&vec![1; 250_000]) {
                Ok(len) => written += len,
                Err(error) => ensure!(error.kind() == ErrorKind::WouldBlock, "{error}"),
            }
            let now = client.statistics();
            if now.sources_cancelled > 0 {
                break now;
            }
            ensure!(Instant::now() < until, "{now:?}");
        };
        ensure!(after.sources >= after.sources_cancelled, "{after:?}");
        ensure!(after.sources >= after.sources_used, "{after:?}");
        ensure!(after.stalls.reader >= 1, "{after:?}");
        ensure!(after.bytes_sent == written as u64, "{after:?}");
        let sends = after.bytes_ring + after.bytes_registered;
        ensure!(
            sends + after.bytes_read_by_peer == after.bytes_sent,
            "{after:?}"
        );
        Ok((&server).read_exact(&mut vec![0; written])?)
    })
}
