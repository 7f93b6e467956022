//! Measurements between two hosts: this process, and a server on another host.
//!
//! `mod.rs` the client; `server.rs` the server; `adapters.rs` the adapters of either; `table.rs`
//! the tables, with the names and units of perftest.

mod adapters;
mod server;
mod table;

use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tool_args::bench::Args;
use tool_args::bench::case::{Case, Stack, Work};
use tool_args::say;

use self::adapters::Adapters;
pub(crate) use self::server::serve;
use self::table::Table;
use crate::contender::Contender;
use crate::control::{Channel, Peer};
use crate::files::Files;
use crate::measure::{Bench, Plan};
use crate::progress::Progress;
use crate::raw::{RawLink, STALL};
use crate::results::{Entry, Measured};
use crate::syscalls::SyscallCounter;

/// The version of the lines of `control.rs`, and of the bytes on the connections.
const PROTOCOL: u32 = 1;
/// The time in which a host answers a connection request.
const CONNECT: Duration = Duration::from_secs(10);

/// Measures the rows against a server on `host`.
pub(crate) fn lead(args: &Args, host: &str, rows: &[Case], plan: Plan) -> Result<()> {
    let mut files = Files::create(args.json.as_deref(), args.csv.as_deref(), plan)?;
    for case in rows {
        let is_timed = case.work == Work::UnattendedPing;
        let is_possible = !case.is_scale() && !case.is_cost() && !is_timed;
        ensure!(
            is_possible,
            "{case}: only latency and bandwidth are measured between hosts"
        );
    }
    let adapters = Adapters::prepare(args.ia.as_deref())?;
    let progress = Progress::of(rows.len(), plan.rounds);
    for stack in [Stack::Dat, Stack::Sdp] {
        let of_stack = rows.iter().filter(|case| case.contender() == stack);
        let cases: Vec<Case> = of_stack.copied().collect();
        if cases.is_empty() {
            continue;
        }
        let mut bench = progress.around(|| connect(args, host, &adapters, stack))?;
        let mut table = Table::new(stack);
        for case in cases {
            progress.begin_row(&case.title());
            let outcome = bench.case(case, plan, &progress);
            let outcome = outcome.with_context(|| format!("measuring {}", case.title()))?;
            progress.end_row();
            let row = Measured {
                case,
                outcome,
                foreign_share: None,
            };
            progress.around(|| table.row(&row));
            files.row(&Entry::Measured(&row))?;
        }
    }
    files.end()?;
    progress.end();
    Ok(())
}

/// Connects to the server: the control connection, raw TCP and the contender.
fn connect(args: &Args, host: &str, adapters: &Adapters, stack: Stack) -> Result<Bench> {
    let socket = dial(host, args.port)?;
    let ia = adapters.at(socket.local_addr()?.ip())?;
    let mut channel = Channel::over(&socket)?;
    channel.send(&format!("hello {PROTOCOL} {stack}"))?;
    let mut peer = Peer::remote(channel);
    let ready = peer.ready();
    let (raw_port, address, conn_qual) =
        ready.with_context(|| format!("{host}, which may be serving another client"))?;
    let raw_address = SocketAddr::new(socket.peer_addr()?.ip(), raw_port);
    let raw = RawLink::new(TcpStream::connect_timeout(&raw_address, CONNECT)?)?;
    let contender = Contender::connect(stack, &ia, args.sleep_on_bulk, address, conn_qual)?;
    say!(
        "{}: {ia} to {}, compared with TCP to {}, congestion control {}",
        stack.title(),
        address.ip(),
        raw_address.ip(),
        raw.congestion()?
    );
    Ok(Bench {
        peer,
        raw,
        contender,
        stack,
        counter: SyscallCounter::new(None),
    })
}

/// Connects to the first address of the host that accepts.
fn dial(host: &str, port: u16) -> Result<TcpStream> {
    let addresses = (host, port).to_socket_addrs();
    let addresses = addresses.with_context(|| format!("looking up {host}"))?;
    let mut refused = None;
    for address in addresses {
        match TcpStream::connect_timeout(&address, CONNECT) {
            Ok(socket) => {
                socket.set_nodelay(true)?;
                // The server reports a stall of its own before.
                socket.set_read_timeout(Some(2 * STALL))?;
                return Ok(socket);
            }
            Err(error) => refused = Some((address, error)),
        }
    }
    let (address, error) = refused.with_context(|| format!("{host} has no address"))?;
    Err(error).with_context(|| format!("connecting to {address}, where `dat-bench --server` runs"))
}
