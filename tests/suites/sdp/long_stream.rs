//! A stream that is much longer than every buffer, in writes and reads of random lengths.

use std::{
    io::{Read, Write},
    thread,
};

use anyhow::{Context, Result, ensure};
use fastrand::Rng;
use sdp_over_dat::{Config, SdpStream};

use super::{on_connection, pattern};

/// The longest write and read.
const LEN_MAX: usize = 1 << 20;

/// The number of bytes of the stream.
fn total() -> u64 {
    if stack_tests::is_full() {
        64 << 30
    } else {
        256 << 20
    }
}

/// A length from 1 to [`LEN_MAX`]; each power of two is as frequent as the others.
fn random_len(random: &mut Rng) -> usize {
    let end = LEN_MAX >> random.u32(..LEN_MAX.ilog2());
    random.usize(1..=end)
}

/// Writes parts of `bytes` from random offsets on. Returns the checksum of all that was written.
fn write_all(mut stream: &SdpStream, bytes: &[u8], mut random: Rng) -> Result<u32> {
    let (mut left, mut sum) = (total(), 0);
    while left > 0 {
        let len = left.min(random_len(&mut random) as u64) as usize;
        let from = random.usize(..=bytes.len() - len);
        let part = &bytes[from..from + len];
        stream.write_all(part).context("writing")?;
        sum = crc32c::crc32c_append(sum, part);
        left -= len as u64;
    }
    Ok(sum)
}

/// Reads the whole stream and returns its checksum.
fn read_all(mut stream: &SdpStream, mut random: Rng) -> Result<u32> {
    let mut into = vec![0; LEN_MAX];
    let (mut left, mut sum) = (total(), 0);
    while left > 0 {
        let len = stream.read(&mut into[..random_len(&mut random)])?;
        ensure!(len > 0, "the stream ends {left} bytes too early");
        sum = crc32c::crc32c_append(sum, &into[..len]);
        left = left.checked_sub(len as u64).context("too many bytes")?;
    }
    Ok(sum)
}

#[test]
fn every_mechanism_moves_a_part_of_a_long_stream() -> Result<()> {
    let config = Config {
        registered_threshold: 16 << 10,
        zcopy_threshold: 256 << 10,
        pipelined_threshold: 64 << 10,
        sink_threshold: 64 << 10,
        ..Config::default()
    };
    let seed = fastrand::u64(..);
    println!("seed {seed:#x}");
    let mut random = Rng::with_seed(seed);
    let mut bytes = vec![0; 2 * LEN_MAX];
    pattern(seed, &mut bytes);
    on_connection(config, |client, server| {
        let (writes, reads) = (random.fork(), random.fork());
        let (written, read) = thread::scope(|scope| {
            let writer = scope.spawn(|| write_all(&client, &bytes, writes));
            let read = read_all(&server, reads).context("reading")?;
            let written = writer.join().expect("a writer that does not panic")?;
            anyhow::Ok((written, read))
        })?;
        ensure!(written == read, "the ends have different bytes");
        let (here, there) = (client.statistics(), server.statistics());
        println!("{here:?}\n{there:?}");
        ensure!(here.bytes_sent == total() && there.bytes_received == total());
        let by_mechanism = [
            here.bytes_ring,
            here.bytes_registered,
            here.bytes_written,
            here.bytes_read_by_peer,
        ];
        ensure!(
            by_mechanism.iter().sum::<u64>() == total(),
            "{by_mechanism:?}"
        );
        // On a busy machine the reader of the quick form may never wait for the writer.
        let are_all_used = by_mechanism.iter().all(|bytes| *bytes > 0);
        ensure!(
            are_all_used || !stack_tests::is_full(),
            "unused: {by_mechanism:?}"
        );
        Ok(())
    })
}
