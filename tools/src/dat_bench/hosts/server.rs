//! The server: serves one client after the other.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tool_args::bench::Args;
use tool_args::bench::case::Stack;
use tool_args::say;

use super::PROTOCOL;
use super::adapters::Adapters;
use crate::control::Channel;
use crate::raw::STALL;
use crate::second::{Ends, Links};
use crate::syscalls::SyscallCounter;

/// The time for which a client may be silent between two lines: more than its longest sample.
const SILENCE: Duration = Duration::from_secs(300);

/// Serves clients until the process is interrupted. A client that fails does not end the server.
pub(crate) fn serve(args: &Args) -> Result<()> {
    let adapters = Adapters::prepare(args.ia.as_deref())?;
    let listener = listen(args.port)?;
    say!("serving on {}; Ctrl-C ends it", listener.local_addr()?);
    loop {
        let (socket, client) = listener.accept()?;
        let client = SocketAddr::new(client.ip().to_canonical(), client.port());
        match serve_one(args, &adapters, &socket) {
            Ok(stack) => say!("{client}: {}, complete", stack.title()),
            Err(error) => eprintln!("dat-bench: {client}: {error:#}"),
        }
    }
}

/// Listens at all addresses of the host; at those of IPv4 if the host has no IPv6.
fn listen(port: u16) -> Result<TcpListener> {
    let at = |ip: IpAddr| TcpListener::bind((ip, port));
    at(Ipv6Addr::UNSPECIFIED.into())
        .or_else(|_| at(Ipv4Addr::UNSPECIFIED.into()))
        .with_context(|| format!("listening on port {port}"))
}

/// Serves one client, and reports a failure to it.
fn serve_one(args: &Args, adapters: &Adapters, socket: &TcpStream) -> Result<Stack> {
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(STALL))?;
    socket.set_write_timeout(Some(STALL))?;
    let mut channel = Channel::over(socket)?;
    let served = serve_on(args, adapters, socket, &mut channel);
    if let Err(error) = &served {
        // A client that has ended does not read the reason.
        let _ = channel.send(&format!("failed {error:#}").replace('\n', " "));
    }
    served
}

fn serve_on(
    args: &Args,
    adapters: &Adapters,
    socket: &TcpStream,
    channel: &mut Channel,
) -> Result<Stack> {
    let stack = greeted(&channel.next_line()?.context("no greeting")?)?;
    let address = socket.local_addr()?.ip().to_canonical();
    let ends = Ends {
        stack,
        ia: &adapters.at(address)?,
        address,
        sleep_on_bulk: args.sleep_on_bulk,
        congestion: None,
    };
    let (raw, contender) = ends.accept(channel)?;
    socket.set_read_timeout(Some(SILENCE))?;
    let mut links = Links {
        raw,
        contender,
        cpu: None,
        spare: None,
        counter: SyscallCounter::new(None),
    };
    links.serve_orders(channel)?;
    Ok(stack)
}

/// The contender that a client's first line asks for.
fn greeted(line: &str) -> Result<Stack> {
    let words: Vec<&str> = line.split(' ').collect();
    let &["hello", protocol, stack] = words.as_slice() else {
        bail!("no client of dat-bench: {line:?}");
    };
    ensure!(
        protocol.parse() == Ok(PROTOCOL),
        "the client has protocol {protocol:?}, the server {PROTOCOL}"
    );
    stack.parse()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_clients_of_the_same_protocol_are_served() {
        assert_eq!(greeted("hello 1 sdp").unwrap(), Stack::Sdp);
        for line in [
            "hello 2 dat",
            "hello 1",
            "hello 1 dat x",
            "GET / HTTP/1.1",
            "",
        ] {
            assert!(greeted(line).is_err(), "{line}");
        }
    }
}
