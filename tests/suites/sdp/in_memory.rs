//! Streams over an RNIC in memory, which can produce event orders that are rare on real RNICs. The
//! registry loads the RNIC as a provider.

use std::{
    ffi::c_char,
    io::{ErrorKind, Read, Write},
    net::{Ipv4Addr, SocketAddr},
    thread,
    time::{Duration, Instant},
};

use access_layer::{
    fake_rnic::{FakeRnic, deliver_held},
    provider,
};
use anyhow::{Context, Result, ensure};
use dat_api::abi::DatProviderInfo;
use sdp_over_dat::{Config, Options, SdpListener, SdpStream, Stack};

use super::{
    DEADLINE, connected, on_stack, patterned, timed, timed_pair,
    unusual_ends::{directly, over_tcp},
};

/// A stack on a new RNIC. RNICs with the same network in `params` reach each other.
fn in_memory(name: &str, params: &str, config: Config) -> Result<Stack> {
    // The provider finds the registry among the libraries of the process.
    dat_api::list_providers()?;
    let mut info = DatProviderInfo::zeroed();
    for (to, byte) in info.ia_name.iter_mut().zip(name.bytes()) {
        *to = c_char::from_ne_bytes([byte]);
    }
    info.dapl_version_major = 2;
    let params = std::ffi::CString::new(params)?;
    // SAFETY: both arguments are as a registry passes them, and live during the call.
    unsafe { provider::init::<FakeRnic>(&raw const info, params.as_ptr()) };
    // When events are no longer delivered, the event of the disconnect is not delivered either.
    let config = Config {
        close_timeout: Duration::from_millis(100),
        ..config
    };
    Ok(Stack::open_with(name, config)?)
}

const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// A connection to a service whose RNIC has not delivered the connection event.
fn overtaking(early: &Stack, listener: &SdpListener) -> Result<(SdpStream, SdpStream)> {
    thread::scope(|scope| {
        let connects = scope.spawn(|| SdpStream::connect(early, listener.local_addr()));
        let server = accept(listener, "overtaken")?;
        let client = connects.join().expect("a client that does not panic")?;
        Ok((client, server))
    })
}

/// The next connection of a service whose RNIC delivers events on request.
fn accept(listener: &SdpListener, net: &str) -> Result<SdpStream> {
    let until = Instant::now() + DEADLINE;
    loop {
        match listener.accept_timeout(Some(Duration::from_millis(1))) {
            Ok((stream, _)) => return Ok(stream),
            Err(error) => ensure!(error.kind() == ErrorKind::WouldBlock, "{error}"),
        }
        ensure!(Instant::now() < until, "no client connects");
        deliver_held(net);
    }
}

/// The first message may be received before the connection event. The message is processed, and the
/// answer is sent after the connection event.
#[test]
fn a_first_message_that_overtakes_the_event_of_its_connection_is_answered() -> Result<()> {
    on_stack(Config::default(), |_| {
        let early = in_memory("memory-early", "net=overtaken", Config::default())?;
        let late = in_memory("memory-late", "net=overtaken held", Config::default())?;
        let listener = SdpListener::bind(&late, ANY)?;
        let (client, server) = overtaking(&early, &listener)?;
        timed(&client);
        (&client).write_all(b"question")?;
        server.set_nonblocking(true);
        let mut bytes = [0; 8];
        ensure!((&server).read(&mut bytes)? == 8);
        ensure!(&bytes == b"question");
        (&server).write_all(b"answer")?;
        deliver_held("overtaken");
        timed(&server);
        let mut answer = [0; 6];
        (&client).read_exact(&mut answer).context("the answer")?;
        ensure!(&answer == b"answer");
        Ok(())
    })
}

/// Memory that is advertised before the connection event is read when the connection is
/// established.
#[test]
fn memory_that_is_advertised_before_the_event_of_its_connection_is_read() -> Result<()> {
    on_stack(Config::default(), |_| {
        let early = in_memory("memory-early", "net=overtaken", Config::default())?;
        let late = in_memory("memory-late", "net=overtaken held", Config::default())?;
        let listener = SdpListener::bind(&late, ANY)?;
        let (client, server) = overtaking(&early, &listener)?;
        timed(&client);
        timed(&server);
        let expected = patterned(0, 1 << 20);
        thread::scope(|scope| {
            let writer = scope.spawn(|| (&client).write_all(&expected));
            let reader = scope.spawn(|| {
                let mut bytes = vec![0; 1 << 20];
                (&server).read_exact(&mut bytes).map(|()| bytes)
            });
            thread::sleep(Duration::from_millis(100));
            deliver_held("overtaken");
            let bytes = reader.join().expect("a reader that does not panic")?;
            ensure!(bytes == expected, "other bytes");
            writer.join().expect("a writer that does not panic")?;
            Ok(())
        })
    })
}

/// If memory cannot be registered, a long write is copied. It waits for room like any copied write,
/// and other threads can use the socket meanwhile.
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
        let (client, server) = timed_pair(&stack)?;
        let expected = patterned(0, 4 << 20);
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

/// A client that was dropped while it was connecting leaves no connection.
#[test]
fn a_stream_that_is_dropped_during_connect_leaks_no_connection() -> Result<()> {
    on_stack(Config::default(), |stack| {
        // This connection sends messages, so that the check against the rules has input.
        drop(connected(stack)?);
        let early = in_memory("memory-gone", "net=gone", Config::default())?;
        let late = in_memory("memory-stays", "net=gone held", Config::default())?;
        let listener = SdpListener::bind(&late, ANY)?;
        drop(SdpStream::start_connect(&early, listener.local_addr())?);
        thread::sleep(Duration::from_millis(50));
        deliver_held("gone");
        // The request was received, but its client is gone.
        let Ok((stream, _)) = listener.accept_timeout(Some(Duration::from_millis(200))) else {
            return Ok(());
        };
        deliver_held("gone");
        timed(&stream);
        let read = (&stream).read(&mut [0; 9]);
        ensure!(read.is_err(), "{read:?} from a client that was dropped");
        Ok(())
    })
}

/// A reader that waits for the first message of an established connection receives it.
#[test]
fn a_read_waits_for_the_message_that_makes_the_connection() -> Result<()> {
    on_stack(Config::default(), |stack| {
        drop(connected(stack)?);
        let stack = in_memory("memory-first", "net=first", Config::default())?;
        let (client, server) = over_tcp(&stack, directly)?;
        timed(&client);
        server.set_options(Options {
            read_timeout: Some(DEADLINE),
            ..server.options()
        });
        thread::scope(|scope| {
            let reads = scope.spawn(|| {
                let mut bytes = [0; 5];
                (&server).read_exact(&mut bytes).map(|()| bytes)
            });
            thread::sleep(Duration::from_millis(50));
            client.commit();
            (&client).write_all(b"hello")?;
            let sent_at = Instant::now();
            let bytes = reads.join().expect("a reader that does not panic")?;
            ensure!(&bytes == b"hello");
            // Without a wake-up the reader would check again only at its timeout.
            let took = sent_at.elapsed();
            ensure!(took < DEADLINE / 2, "received after {took:?}");
            Ok(())
        })
    })
}
