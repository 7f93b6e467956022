//! Over an RNIC in memory, which does on demand what a real one does seldom. It comes through the
//! door that the registry has for providers.

use std::{
    ffi::c_char,
    io::{Read, Write},
    thread,
    time::Duration,
};

use access_layer::{fake_rnic::FakeRnic, provider};
use anyhow::{Context, Result, ensure};
use dat_api::abi::DatProviderInfo;
use sdp_over_dat::{Config, Stack};

use super::{connected, on_stack, pattern, timed};

/// A stack on an RNIC of its own, in a network with others.
fn in_memory(name: &str, params: &str, config: Config) -> Result<Stack> {
    // The provider finds the registry among the libraries of the process.
    dat_api::list_providers()?;
    let mut info = DatProviderInfo::zeroed();
    for (place, byte) in info.ia_name.iter_mut().zip(name.bytes()) {
        *place = c_char::from_ne_bytes([byte]);
    }
    info.dapl_version_major = 2;
    let params = std::ffi::CString::new(params)?;
    // SAFETY: both are what a registry passes, and live during the call.
    unsafe { provider::init::<FakeRnic>(&raw const info, params.as_ptr()) };
    Ok(Stack::open_with(name, config)?)
}

/// Where memory cannot be registered a long write is copied, and waits for room as any copied one:
/// it lets others have the socket meanwhile.
#[test]
fn a_long_write_whose_memory_is_not_registered_waits_for_room() -> Result<()> {
    let config = Config {
        receive_buffers: 4,
        buffer_size: 16 << 10,
        send_ring: 64 << 10,
        staging: 64 << 10,
        ..Config::default()
    };
    on_stack(Config::default(), |_| {
        let params = "net=short mr_len=200000";
        let stack = in_memory("memory-short", params, config)?;
        let (client, server) = connected(&stack)?;
        timed(&client);
        timed(&server);
        let mut expected = vec![0; 4 << 20];
        pattern(0, &mut expected);
        thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut end = [0; 3];
                (&client).read_exact(&mut end).map(|()| end)
            });
            thread::sleep(Duration::from_millis(50));
            let writer = scope.spawn(|| (&client).write_all(&expected));
            // The writer finds the ring full.
            thread::sleep(Duration::from_millis(100));
            let mut bytes = vec![0; expected.len()];
            (&server).read_exact(&mut bytes).context("the long write")?;
            ensure!(bytes == expected, "other bytes");
            (&server).write_all(b"end")?;
            let end = reader.join().expect("a reader that does not panic")?;
            ensure!(&end == b"end");
            writer.join().expect("a writer that does not panic")?;
            ensure!(client.statistics().bytes_copied == 4 << 20);
            Ok(())
        })
    })
}
