//! The amount of memory that a socket has.

use std::thread;

use anyhow::{Result, ensure};
use sdp_over_dat::{Config, SdpStream, Start};

use super::{on_connection, transfer};

/// A socket that starts with little memory gets more when it is used, up to its limit.
#[test]
fn memory_grows_with_use() -> Result<()> {
    let config = Config {
        receive_buffers: 32,
        buffer_size: 16 * 1024 + 16,
        send_ring: 512 * 1024,
        start: Start::Small,
        zcopy_threshold: usize::MAX,
        registered_threshold: usize::MAX,
        ..Config::default()
    };
    on_connection(config, |client, server| {
        let memory = |stream: &SdpStream| {
            let now = stream.statistics();
            now.receive_buffers * config.buffer_size as usize + now.send_ring
        };
        // Fewer messages than twice the receive buffers, however the bytes are gathered.
        transfer(&client, &server, 800, 100, 100)?;
        for stream in [&client, &server] {
            ensure!(memory(stream) <= 128 * 1024, "{}", memory(stream));
        }
        thread::scope(|scope| {
            let other = scope.spawn(|| transfer(&server, &client, 16 << 20, 100_000, 70_000));
            transfer(&client, &server, 16 << 20, 3_000_000, 50_000)?;
            other.join().expect("a transfer that does not panic")
        })?;
        for stream in [&client, &server] {
            let now = stream.statistics();
            ensure!(now.receive_buffers == 30, "{now:?}");
            // The memory grows when a write finds that all earlier bytes have been posted.
            ensure!(now.send_ring > 32 * 1024, "{now:?}");
        }
        Ok(())
    })
}
