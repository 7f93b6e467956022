//! Connections to peers that have exchanged the Hello over another connection.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Ipv4Addr, SocketAddr},
    os::fd::AsFd,
    thread,
    time::Instant,
};

use anyhow::{Context, Result, ensure};
use rustix::io::Errno;
use sdp_over_dat::{Commitment, Config, Rendezvous, SdpStream, Stack, Token};
use stack_tests::{awaited, until};

use super::{offloaded::becomes_readable, on_stack, timed};

const LOCAL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 40_000);
const SERVICE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 7);

/// Starts to connect with a token.
fn visit(stack: &Stack, place: (SocketAddr, u64), token: Token) -> Result<SdpStream> {
    Ok(SdpStream::start_connect_met(
        stack, place, token, LOCAL, SERVICE,
    )?)
}

fn next_answered(rendezvous: &mut Rendezvous) -> Result<SdpStream> {
    let mut next = || -> Result<_> {
        becomes_readable(rendezvous.as_fd())?;
        Ok(rendezvous.next_answered())
    };
    let (stream, _) = awaited!(next()?, "nobody came");
    Ok(stream)
}

/// The next stream, after its peer has sent its first message.
fn next_committed(rendezvous: &mut Rendezvous) -> Result<SdpStream> {
    let stream = next_answered(rendezvous)?;
    until!(stream.commitment() == Commitment::Made, "no first message");
    Ok(stream)
}

/// Waits until a stream is connected, or has failed.
fn outcome(stream: &SdpStream) -> Result<Option<Errno>> {
    let outcome = || {
        let is_connected = stream.readiness().writable;
        match stream.take_error() {
            Some(error) => Some(error.raw_os_error().map(Errno::from_raw_os_error)),
            None => is_connected.then_some(None),
        }
    };
    Ok(awaited!(outcome(), "no outcome"))
}

#[test]
fn a_peer_with_its_token_is_connected_and_both_have_the_sent_names() -> Result<()> {
    on_stack(Config::default(), |stack| {
        let mut rendezvous = Rendezvous::new(stack)?;
        let hello = SdpStream::hello(stack, LOCAL, SERVICE);
        let from = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        let (place, token) = rendezvous.expect(&hello, SERVICE, from, Instant::now())?;
        ensure!(rendezvous.len() == 1);
        let client = visit(stack, place, token)?;
        let (client, server) = thread::scope(|scope| {
            let server = scope.spawn(|| next_committed(&mut rendezvous));
            let failure = outcome(&client)?;
            ensure!(failure.is_none(), "{failure:?}");
            client.commit();
            let server = server.join().expect("a server that does not panic")?;
            Ok((client, server))
        })?;
        ensure!(rendezvous.is_empty());
        timed(&client);
        timed(&server);
        ensure!(client.local_addr() == Some(LOCAL) && client.peer_addr() == SERVICE);
        // The kernel supplies the address, and the Hello the port.
        ensure!(server.local_addr() == Some(SERVICE) && server.peer_addr() == LOCAL);
        (&client).write_all(b"to the server")?;
        (&server).write_all(b"to the client")?;
        let mut bytes = [0; 13];
        (&server).read_exact(&mut bytes)?;
        ensure!(&bytes == b"to the server");
        (&client).read_exact(&mut bytes)?;
        ensure!(&bytes == b"to the client");
        drop(client);
        ensure!((&server).read(&mut bytes)? == 0);
        // A token is valid once.
        let second = visit(stack, place, token)?;
        refused(&mut rendezvous, &second)
    })
}

/// Checks that a peer is refused.
fn refused(rendezvous: &mut Rendezvous, visitor: &SdpStream) -> Result<()> {
    let mut error = || -> Result<_> {
        becomes_readable(rendezvous.as_fd())?;
        ensure!(rendezvous.next_answered().is_none(), "let in");
        Ok(visitor.take_error())
    };
    let error = awaited!(error()?, "not refused");
    ensure!(error.kind() == ErrorKind::ConnectionRefused, "{error}");
    Ok(())
}

#[test]
fn only_a_peer_with_the_expected_token_is_accepted() -> Result<()> {
    on_stack(Config::default(), |stack| {
        let mut rendezvous = Rendezvous::new(stack)?;
        let hello = SdpStream::hello(stack, LOCAL, SERVICE);
        let (place, token) = rendezvous.expect(&hello, SERVICE, LOCAL, Instant::now())?;
        for guess in [[0; Token::LEN], [0xff; Token::LEN]] {
            let visitor = visit(stack, place, Token::from_bytes(guess))?;
            refused(&mut rendezvous, &visitor)?;
        }
        let client = visit(stack, place, token)?;
        thread::scope(|scope| {
            let server = scope.spawn(|| next_committed(&mut rendezvous));
            let failure = outcome(&client)?;
            ensure!(failure.is_none(), "{failure:?}");
            client.commit();
            server.join().expect("a server that does not panic")
        })?;
        Ok(())
    })
}

#[test]
fn a_malformed_hello_causes_no_panic() -> Result<()> {
    on_stack(Config::default(), |stack| {
        let mut rendezvous = Rendezvous::new(stack)?;
        let hello = SdpStream::hello(stack, LOCAL, SERVICE);
        for at in 0..hello.len() {
            let mut mutated = hello.clone();
            mutated[at] ^= 0xf0;
            // Both results are correct, as long as nothing panics.
            let _ = rendezvous.expect(&mutated, SERVICE, LOCAL, Instant::now());
            ensure!(
                rendezvous
                    .expect(&hello[..at.min(16)], SERVICE, LOCAL, Instant::now())
                    .is_err()
            );
        }
        let mut other = hello.clone();
        other[16] = 0x30;
        let error = rendezvous.expect(&other, SERVICE, LOCAL, Instant::now());
        let errno = error.expect_err("another version").raw_os_error();
        ensure!(errno == Some(Errno::PROTONOSUPPORT.raw_os_error()));
        // A connection whose messages give the checker some input.
        let (place, token) = rendezvous.expect(&hello, SERVICE, LOCAL, Instant::now())?;
        let client = visit(stack, place, token)?;
        let server = next_answered(&mut rendezvous)?;
        ensure!(outcome(&client)?.is_none());
        client.commit();
        drop((client, server));
        Ok(())
    })
    .context("of Hellos")
}
