//! Writes that are submitted, and complete later.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;

use anyhow::{Result, ensure};
use sdp_over_dat::{Config, Submission};
use stack_tests::until;

use super::{on_connection, patterned};

/// More than the staging memory of the peer, so that no write completes without a reader.
const LEN: usize = 1 << 20;

/// Memory is advertised, and sent in messages.
fn configs() -> [Config; 2] {
    [100_000, usize::MAX].map(|zcopy_threshold| Config {
        zcopy_threshold,
        ..Config::default()
    })
}

/// The bytes of all calls are in the stream in the order of the calls, and none is copied here.
#[test]
fn submissions_complete_in_order_without_a_wait() -> Result<()> {
    for config in configs() {
        on_connection(config, |client, server| {
            let at = |number: usize| patterned((number * LEN) as u64, LEN);
            let mut writes: Vec<Submission> = Vec::new();
            for number in 0..4 {
                writes.push(client.submit(at(number))?);
            }
            ensure!(writes[3].poll().is_none(), "more than the buffers hold");
            (&client).write_all(b"and then these")?;
            let mut into = vec![0; LEN];
            for (number, mut write) in writes.into_iter().enumerate() {
                std::thread::scope(|scope| {
                    let reads = scope.spawn(|| (&server).read_exact(&mut into));
                    until!(write.poll().is_some() || reads.is_finished(), "no progress");
                    Ok(reads.join().expect("a reader that does not panic")?)
                })?;
                ensure!(into == at(number), "other bytes");
                let (written, bytes) = write.wait();
                ensure!(written == LEN && bytes == at(number), "{written} bytes");
            }
            let mut last = [0; 14];
            (&server).read_exact(&mut last)?;
            ensure!(&last == b"and then these");
            let counts = client.statistics();
            ensure!(counts.bytes_copied == 14, "{counts:?}");
            ensure!(counts.bytes_sent == 4 * LEN as u64 + 14, "{counts:?}");
            Ok(())
        })?;
    }
    Ok(())
}

/// A submission that is cancelled reports the bytes that the peer receives, and no others are sent.
#[test]
fn the_bytes_of_cancelled_submissions_are_counted() -> Result<()> {
    for config in configs() {
        on_connection(config, |client, server| {
            let bytes = [patterned(0, LEN), patterned(7, 8 * LEN)];
            let [first, second] = bytes.clone().map(|bytes| client.submit(bytes));
            let (first, second) = (first?, second?);
            second.cancel();
            first.cancel();
            let (of_second, _) = second.wait();
            let (of_first, _) = first.wait();
            ensure!(of_second < 8 * LEN, "{of_first} and {of_second} bytes");
            client.shutdown(Shutdown::Write)?;
            let mut all = Vec::new();
            (&server).read_to_end(&mut all)?;
            let [first, second] = &bytes;
            let expected = [&first[..of_first], &second[..of_second]].concat();
            ensure!(all == expected, "{} bytes", all.len());
            Ok(())
        })?;
    }
    Ok(())
}

/// A submission that is dropped is sent nevertheless, also after the socket was closed.
#[test]
fn a_submission_that_is_dropped_continues() -> Result<()> {
    for config in configs() {
        on_connection(config, |client, server| {
            for number in 0..4 {
                drop(client.submit(patterned((number * LEN) as u64, LEN))?);
            }
            drop(client);
            let mut all = Vec::new();
            (&server).read_to_end(&mut all)?;
            ensure!(all == patterned(0, 4 * LEN), "{} bytes", all.len());
            Ok(())
        })?;
    }
    Ok(())
}

#[test]
fn a_submission_fails_where_a_write_fails() -> Result<()> {
    on_connection(Config::default(), |client, server| {
        let refused = |bytes: Vec<u8>| client.submit(bytes).err().map(|error| error.kind());
        ensure!(refused(Vec::new()) == Some(ErrorKind::InvalidInput));
        client.shutdown(Shutdown::Write)?;
        ensure!(refused(vec![1]) == Some(ErrorKind::BrokenPipe));
        (&server).write_all(b"x")?;
        Ok(())
    })
}
