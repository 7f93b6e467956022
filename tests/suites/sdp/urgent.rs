//! Urgent bytes: the number that may be in flight, and the mark.

use std::{
    io::{ErrorKind, Read, Write},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use rustix::event::PollFlags;
use sdp_over_dat::{Config, Options};
use stack_tests::{awaited, until};

use super::{DEADLINE, QUIET, await_poll, connected, on_connection, on_stack, poll_now, timed};

#[test]
fn an_urgent_byte_is_not_part_of_the_stream() -> Result<()> {
    on_connection(Config::default(), |client, server| {
        (&client).write_all(b"before")?;
        client.send_urgent(b'!')?;
        (&client).write_all(b"behind")?;
        let set = await_poll(&server, PollFlags::PRI)?;
        ensure!(set.contains(PollFlags::PRI), "{set:?}");
        let mut bytes = [0; 20];
        let len = (&server).read(&mut bytes)?;
        ensure!(&bytes[..len] == b"before", "{:?}", &bytes[..len]);
        let receive = || match server.receive_urgent() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            urgent => urgent.map(Some),
        };
        let urgent = awaited!(receive()?, "the urgent byte is not received");
        ensure!(urgent == b'!');
        ensure!(server.is_at_mark());
        let len = server.receive_all(&mut bytes[..6])?;
        ensure!(&bytes[..len] == b"behind");
        let none = server.receive_urgent().expect_err("it was taken");
        ensure!(none.kind() == ErrorKind::InvalidInput);
        Ok(())
    })
}

/// As over TCP, a reader that reads past the urgent byte's position loses the byte, and the next
/// urgent byte is reported.
#[test]
fn an_urgent_byte_is_discarded_when_the_reader_passes_it() -> Result<()> {
    on_connection(Config::default(), |client, server| {
        (&client).write_all(b"a")?;
        client.send_urgent(b'!')?;
        (&client).write_all(b"b")?;
        await_poll(&server, PollFlags::PRI)?;
        let mut bytes = [0; 2];
        server.receive_all(&mut bytes[..1])?;
        server.receive_all(&mut bytes[1..])?;
        ensure!(&bytes == b"ab", "{bytes:?}");
        let none = server
            .receive_urgent()
            .expect_err("the reader has passed the byte");
        ensure!(none.kind() == ErrorKind::InvalidInput, "{none}");
        ensure!(!poll_now(&server)?.contains(PollFlags::PRI));
        client.send_urgent(b'?')?;
        await_poll(&server, PollFlags::PRI)?;
        ensure!(server.receive_urgent()? == b'?');
        Ok(())
    })
}

/// As over TCP, the reader's option at the time of the read decides.
#[test]
fn an_urgent_byte_is_read_inline_with_the_option() -> Result<()> {
    for set_before in [true, false] {
        on_connection(Config::default(), |client, server| {
            let inline = Options {
                oob_inline: true,
                ..server.options()
            };
            if set_before {
                server.set_options(inline);
            }
            (&client).write_all(b"before")?;
            client.send_urgent(b'!')?;
            (&client).write_all(b"behind")?;
            await_poll(&server, PollFlags::PRI)?;
            let mut bytes = [0; 7];
            server.receive_all(&mut bytes[..6])?;
            ensure!(&bytes[..6] == b"before" && server.is_at_mark());
            if !set_before {
                server.set_options(inline);
            }
            let peeked = server.peek(&mut bytes[..1])?;
            ensure!(&bytes[..peeked] == b"!", "{:?}", &bytes[..peeked]);
            server.receive_all(&mut bytes)?;
            ensure!(&bytes == b"!behind", "{bytes:?}");
            let refused = server.receive_urgent().expect_err("it is in the stream");
            ensure!(refused.kind() == ErrorKind::InvalidInput);
            let set = poll_now(&server)?;
            ensure!(!set.contains(PollFlags::PRI), "{set:?}");
            Ok(())
        })?;
    }
    Ok(())
}

/// If the peer does not read, urgent bytes that belong to the stream wait at the sender, like other
/// bytes.
#[test]
fn urgent_bytes_in_the_stream_wait_for_their_reader() -> Result<()> {
    let config = Config {
        send_ring: 4096,
        ..Config::default()
    };
    on_stack(config, |stack| {
        let (client, server) = connected(stack)?;
        server.set_options(Options {
            oob_inline: true,
            ..server.options()
        });
        // The stack's thread receives for the server.
        server.stand_in()?;
        client.set_nonblocking(true);
        let (mut sent, mut moved) = (0_usize, Instant::now());
        while moved.elapsed() < QUIET {
            match client.send_urgent(b'!') {
                Ok(()) => (sent, moved) = (sent + 1, Instant::now()),
                Err(error) => {
                    ensure!(error.kind() == ErrorKind::WouldBlock, "{error}");
                    thread::sleep(Duration::from_millis(1));
                }
            }
            ensure!(
                sent < 20_000,
                "{sent} bytes were sent to a peer that does not read"
            );
        }
        timed(&server);
        let mut received = 0;
        while received < sent {
            let mut bytes = [0; 64];
            let len = (&server).read(&mut bytes)?;
            ensure!(len > 0, "the stream ends at {received} of {sent}");
            ensure!(bytes[..len].iter().all(|byte| *byte == b'!'));
            received += len;
        }
        (&client).write_all(b"more")?;
        let mut more = [0; 4];
        (&server).read_exact(&mut more)?;
        ensure!(&more == b"more");
        Ok(())
    })
}

/// If the option is cleared, the urgent bytes before the last mark are removed from the stream and
/// occupy no room any more.
#[test]
fn urgent_bytes_taken_out_of_the_stream_free_their_space() -> Result<()> {
    on_stack(Config::default(), |stack| {
        let (client, server) = connected(stack)?;
        timed(&client);
        server.stand_in()?;
        for round in 0..10 {
            server.set_options(Options {
                oob_inline: true,
                read_timeout: Some(DEADLINE),
                ..Options::default()
            });
            for _ in 0..8 {
                client.send_urgent(b'!')?;
            }
            (&client).write_all(b"behind")?;
            until!(server.readable() >= 14, "{} bytes", server.readable());
            server.set_options(Options {
                read_timeout: Some(DEADLINE),
                ..Options::default()
            });
            let mut bytes = [0; 6];
            (&server).read_exact(&mut bytes)?;
            ensure!(&bytes == b"behind", "round {round}: {bytes:?}");
        }
        Ok(())
    })
}

#[test]
fn a_read_of_no_bytes_does_not_pass_the_mark() -> Result<()> {
    on_stack(Config::default(), |stack| {
        let (client, server) = connected(stack)?;
        timed(&server);
        (&client).write_all(b"a")?;
        client.send_urgent(b'!')?;
        (&client).write_all(b"b")?;
        await_poll(&server, PollFlags::PRI)?;
        let mut bytes = [0; 2];
        server.receive_all(&mut bytes[..1])?;
        until!(server.is_at_mark(), "no mark");
        ensure!((&server).read(&mut [])? == 0);
        ensure!(
            server.is_at_mark(),
            "a read of nothing has moved the stream"
        );
        ensure!(server.receive_urgent()? == b'!');
        server.receive_all(&mut bytes[1..])?;
        ensure!(&bytes == b"ab");
        Ok(())
    })
}
