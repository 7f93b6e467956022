//! Connections that one end suspends and another process of that end continues.

use std::{
    env,
    io::{BufRead, BufReader, ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr},
    process::{Command, Stdio},
    sync::{Arc, Condvar, Mutex},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use rustix::event::PollFlags;
use sdp_over_dat::{Config, Readiness, SdpListener, SdpStream, Stack, SuspendError, Watch};
use stack_tests::IA_NAME;

use super::{DEADLINE, LIBRARIES, await_poll, connected, on_stack, patterned, timed, timed_pair};

/// Set in the process that continues a connection.
const CHILD_ENV: &str = "SDP_SUITE_CONTINUES";

/// The beginning of the line on which that process prints its port.
const PORT: &str = "PORT ";

fn stream(from: u64, to: u64) -> Vec<u8> {
    patterned(from, (to - from) as usize)
}

fn listen(stack: &Stack) -> Result<SdpListener> {
    let local = stack.address().context("the adapter has no address")?;
    Ok(SdpListener::bind(stack, SocketAddr::new(local.ip(), 0))?)
}

/// The process that continues: it accepts the connection, and returns all bytes that its end has
/// not read before.
fn continue_connection() -> Result<()> {
    LIBRARIES.as_ref().map_err(|e| anyhow::anyhow!("{e}"))?;
    let stack = Stack::open(IA_NAME)?;
    let listener = listen(&stack)?;
    println!("\n{PORT}{}", listener.local_addr().port());
    let mut bytes = Vec::new();
    std::io::stdin().read_to_end(&mut bytes)?;
    let (stream, _) = listener.accept_timeout(Some(DEADLINE))?;
    timed(&stream);
    (&stream).read_to_end(&mut bytes)?;
    (&stream).write_all(&bytes)?;
    Ok(stream.shutdown(Shutdown::Write)?)
}

#[test]
fn another_process_continues_a_connection() -> Result<()> {
    const TOTAL: u64 = 4 << 20;
    const READ: u64 = 100_000;
    if env::var_os(CHILD_ENV).is_some() {
        return continue_connection();
    }
    on_stack(Config::default(), |stack| {
        let (client, server) = timed_pair(stack)?;
        let mut child = Command::new(env::current_exe()?)
            .args([
                "--exact",
                "suspension::another_process_continues_a_connection",
                "--nocapture",
            ])
            .env(CHILD_ENV, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut lines = BufReader::new(child.stdout.take().context("a pipe")?).lines();
        let port = loop {
            let line = lines.next().context("the child has ended")??;
            if let Some(port) = line.strip_prefix(PORT) {
                break port.parse()?;
            }
        };
        let answer = thread::scope(|scope| -> Result<Vec<u8>> {
            let client = scope.spawn(|| -> Result<Vec<u8>> {
                let local = client.local_addr();
                (&client).write_all(&stream(0, TOTAL))?;
                client.shutdown(Shutdown::Write)?;
                let mut answer = Vec::new();
                (&client).read_to_end(&mut answer)?;
                ensure!(client.local_addr() == local, "another local address");
                Ok(answer)
            });
            let mut first = vec![0; READ as usize];
            (&server).read_exact(&mut first)?;
            ensure!(
                first == stream(0, READ),
                "wrong bytes before the suspension"
            );
            (&server).write_all(b"first")?;
            let peer = server.peer_addr();
            let suspended = server.suspend(port, DEADLINE)?;
            ensure!(suspended.peer == peer, "{}", suspended.peer);
            let mut stdin = child.stdin.take().context("a pipe")?;
            stdin.write_all(&suspended.unread)?;
            drop(stdin);
            client.join().expect("a client that does not panic")
        })?;
        ensure!(child.wait()?.success(), "the other process failed");
        ensure!(answer.starts_with(b"first"), "the first answer is missing");
        ensure!(answer[5..] == stream(READ, TOTAL), "bytes are lost");
        Ok(())
    })
}

/// Both directions are busy, by all mechanisms, while the end that listens changes again and again.
#[test]
fn a_connection_is_suspended_again_and_again() -> Result<()> {
    const TURNS: u64 = 12;
    const EACH: u64 = 3 << 20;
    on_stack(Config::default(), |stack| {
        let (client, mut server) = connected(stack)?;
        timed(&client);
        let listener = listen(stack)?;
        let port = listener.local_addr().port();
        let total = (TURNS + 1) * EACH;
        let mut received = Vec::new();
        thread::scope(|scope| -> Result<()> {
            let writer = scope.spawn(|| -> Result<()> {
                for (at, len) in (0..=TURNS).map(|i| (i * EACH, EACH)) {
                    let bytes = stream(at, at + len);
                    let write = [1 << 20, 60_000, 1_000][at as usize / EACH as usize % 3];
                    for chunk in bytes.chunks(write) {
                        (&client).write_all(chunk)?;
                    }
                }
                Ok(client.shutdown(Shutdown::Write)?)
            });
            let reader = scope.spawn(|| -> Result<()> {
                let mut bytes = Vec::new();
                (&client).read_to_end(&mut bytes)?;
                ensure!(bytes == stream(0, total), "{} bytes", bytes.len());
                Ok(())
            });
            for turn in 0..TURNS {
                timed(&server);
                let at = turn * EACH;
                thread::scope(|scope| -> Result<()> {
                    let server = &server;
                    let writer = scope.spawn(move || (&*server).write_all(&stream(at, at + EACH)));
                    let mut bytes = vec![0; 2 << 20];
                    (&mut &*server).read_exact(&mut bytes)?;
                    received.extend(bytes);
                    Ok(writer.join().expect("a writer that does not panic")?)
                })?;
                let suspended = server.suspend(port, DEADLINE)?;
                received.extend(suspended.unread);
                server = listener.accept_timeout(Some(DEADLINE))?.0;
                ensure!(server.peer_addr() == suspended.peer);
            }
            timed(&server);
            (&server).write_all(&stream(TURNS * EACH, total))?;
            server.shutdown(Shutdown::Write)?;
            (&server).read_to_end(&mut received)?;
            writer.join().expect("a writer that does not panic")?;
            reader.join().expect("a reader that does not panic")
        })?;
        ensure!(received == stream(0, total), "bytes are lost");
        Ok(())
    })
}

/// Stops the stack's thread while it is closed.
#[derive(Default)]
struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Default)]
struct GateState {
    is_closed: bool,
    has_stopped: bool,
}

impl Watch for Gate {
    fn show(&self, _now: Readiness, _arrived: bool) {
        let mut state = self.state.lock().expect("no panic");
        while state.is_closed {
            state.has_stopped = true;
            self.changed.notify_all();
            state = self.changed.wait(state).expect("no panic");
        }
    }
}

impl Gate {
    /// Closes the gate and waits until the stack's thread has stopped at it. `peer` is the other
    /// end of the connection that the gate watches.
    fn close(&self, mut peer: &SdpStream) -> Result<()> {
        self.state.lock().expect("no panic").is_closed = true;
        peer.write_all(b"x")?;
        let state = self.state.lock().expect("no panic");
        let waited = self
            .changed
            .wait_timeout_while(state, DEADLINE, |state| !state.has_stopped);
        ensure!(waited.expect("no panic").0.has_stopped, "no event");
        Ok(())
    }

    fn open(&self) {
        self.state.lock().expect("no panic").is_closed = false;
        self.changed.notify_all();
    }
}

/// A peer whose unread bytes fill its buffers connects again when its program has read them, and
/// the program then makes no call. The stack's thread, which would connect too, is stopped.
#[test]
fn a_peer_with_few_buffers_continues_after_it_has_read() -> Result<()> {
    let config = Config {
        receive_buffers: 3,
        buffer_size: 200,
        ..Config::default()
    };
    on_stack(config, |stack| {
        let (client, server) = connected(stack)?;
        let (gated, other) = connected(stack)?;
        let gate = Arc::new(Gate::default());
        gated.watch(gate.clone());
        client.set_nonblocking(true);
        ensure!(client.statistics().receive_buffers == 3);
        (&server).write_all(&[1; 100])?;
        await_poll(&client, PollFlags::IN)?;
        let listener = listen(stack)?;
        let suspended = server.suspend(listener.local_addr().port(), DEADLINE)?;
        ensure!(suspended.unread.is_empty(), "{suspended:?}");
        // The stack's thread sees the end of the transport meanwhile, and cannot connect again.
        thread::sleep(Duration::from_millis(200));
        let mut bytes = [0; 100];
        gate.close(&other)?;
        let read = (&client).read(&mut bytes);
        let accepted = listener.accept_timeout(Some(DEADLINE));
        gate.open();
        ensure!(read? == 100, "a short read");
        let (server, _) = accepted?;
        (&server).write_all(&[2; 100])?;
        await_poll(&client, PollFlags::IN)?;
        ensure!((&client).read(&mut bytes)? == 100 && bytes == [2; 100]);
        Ok(())
    })
}

#[test]
fn a_peer_that_finds_nobody_sees_a_reset() -> Result<()> {
    on_stack(Config::default(), |stack| {
        let (client, server) = connected(stack)?;
        timed(&client);
        let unused = listen(stack)?.local_addr().port();
        thread::scope(|scope| {
            let read = scope.spawn(|| (&client).read(&mut [0; 9]));
            server.suspend(unused, DEADLINE)?;
            let error = read.join().expect("no panic").expect_err("a reset");
            ensure!(error.kind() == ErrorKind::ConnectionReset, "{error}");
            Ok(())
        })
    })
}

#[test]
fn a_suspension_fails_without_an_answer_and_after_a_shutdown() -> Result<()> {
    on_stack(Config::default(), |stack| {
        let suspend = |stream: SdpStream, timeout| match stream
            .suspend(9, timeout)
            .expect_err("no suspension")
        {
            SuspendError::Ended(error) => error.kind(),
            SuspendError::Unsupported(stream) => panic!("{stream:?}"),
        };
        let (_client, server) = connected(stack)?;
        ensure!(suspend(server, Duration::ZERO) == ErrorKind::TimedOut);
        let (_client, server) = connected(stack)?;
        server.shutdown(Shutdown::Write)?;
        ensure!(suspend(server, DEADLINE) == ErrorKind::NotConnected);
        let (client, server) = connected(stack)?;
        client.abort();
        let kind = suspend(server, DEADLINE);
        ensure!(kind == ErrorKind::ConnectionReset, "{kind}");
        Ok(())
    })
}
