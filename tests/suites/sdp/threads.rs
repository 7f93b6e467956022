//! Several threads in the calls of one socket.

use std::{
    io::{self, Read, Write},
    net::SocketAddr,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use sdp_over_dat::{Config, SdpListener, SdpStream};

use super::{DEADLINE, connected, on_stack, timed};

#[test]
fn two_threads_accept_at_one_listener() -> Result<()> {
    on_stack(Config::default(), |stack| {
        let local = stack.address().context("the adapter has no address")?;
        let listener = &SdpListener::bind(stack, SocketAddr::new(local.ip(), 0))?;
        thread::scope(|scope| {
            let accept = || scope.spawn(|| listener.accept_timeout(Some(DEADLINE)));
            let accepting = [accept(), accept()];
            thread::sleep(Duration::from_millis(50));
            // A call that does not block is not delayed by calls that wait.
            let none = listener.accept_timeout(Some(Duration::ZERO));
            let none = none.expect_err("nobody connects").kind();
            ensure!(none == io::ErrorKind::WouldBlock, "{none}");
            let some = listener.accept_timeout(Some(Duration::from_millis(50)));
            let some = some.expect_err("nobody connects").kind();
            ensure!(some == io::ErrorKind::WouldBlock, "{some}");
            let address = listener.local_addr();
            let _clients = [
                SdpStream::connect(stack, address)?,
                SdpStream::connect(stack, address)?,
            ];
            for accepted in accepting {
                accepted.join().expect("a server that does not panic")?;
            }
            Ok(())
        })
    })
}

/// Long reads by two threads, while a third thread, which writes, processes their completions.
#[test]
fn two_readers_and_a_writer_share_a_socket() -> Result<()> {
    const WRITE: usize = 256 << 10;
    let writes = if stack_tests::is_full() { 4_000 } else { 1_000 };
    let config = Config {
        zcopy_threshold: 64 << 10,
        send_ring: 64 << 10,
        ..Config::default()
    };
    on_stack(config, |stack| {
        let (client, server) = &connected(stack)?;
        timed(client);
        timed(server);
        let total = writes * WRITE;
        let read = &AtomicUsize::new(0);
        thread::scope(|scope| {
            scope.spawn(move || -> io::Result<()> {
                let bytes = vec![7; WRITE];
                (0..writes).try_for_each(|_| { client }.write_all(&bytes))?;
                client.shutdown(std::net::Shutdown::Write)
            });
            // A writer in the other direction also makes progress for the readers.
            let writer = scope.spawn(move || -> io::Result<()> {
                let bytes = vec![9; 8 << 10];
                while read.load(Ordering::Relaxed) < total {
                    { server }.write_all(&bytes)?;
                }
                server.shutdown(std::net::Shutdown::Write)
            });
            scope.spawn(move || io::copy(&mut { client }, &mut io::sink()));
            let reader = || {
                scope.spawn(move || -> io::Result<()> {
                    let mut bytes = vec![0; WRITE];
                    loop {
                        match { server }.read(&mut bytes)? {
                            0 => return Ok(()),
                            len => read.fetch_add(len, Ordering::Relaxed),
                        };
                    }
                })
            };
            let readers = [reader(), reader()];
            let outcome = readers.map(|reader| reader.join());
            let received = read.load(Ordering::Relaxed);
            // The writer must end even if a reader failed.
            read.store(total, Ordering::Relaxed);
            let wrote = writer.join().expect("a writer that does not panic");
            for reader in outcome {
                reader
                    .map_err(|_| anyhow::anyhow!("a reader panicked"))?
                    .with_context(|| format!("reading, at {received} of {total}"))?;
            }
            wrote?;
            ensure!(received == total, "{received} of {total}");
            ensure!(server.statistics().bytes_direct > 0, "no direct read");
            Ok(())
        })
    })
}
