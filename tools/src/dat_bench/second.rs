//! The second process: does as it is told over its standard input.

use std::net::{IpAddr, SocketAddr, TcpListener};

use anyhow::{Context, Result, bail};

use crate::args::Args;
use crate::case::Stack;
use crate::control::{self, Counted};
use crate::dat::DatLink;
use crate::raw::RawLink;
use crate::setup;
use crate::syscalls::{Counting, SyscallCounter};

/// A congestion control or trace point that is not given.
pub(crate) const NONE: &str = "-";

/// Serves until the input ends; `found` is what the first process found out.
pub(crate) fn serve(args: &Args, found: &[String]) -> Result<()> {
    let [ia, address, cpu, congestion, trace_point] = found else {
        bail!("--serve takes five values")
    };
    setup::pin(cpu.parse()?)?;
    let counter = SyscallCounter::new(trace_point.parse().ok());
    let address: IpAddr = address.parse()?;
    let listener = TcpListener::bind((address, 0)).context("listening for the raw connection")?;
    let raw_port = listener.local_addr()?.port();
    let announce = |address: SocketAddr, conn_qual| {
        control::say(&format!("ready {raw_port} {address} {conn_qual}"))
    };
    let mut dat = DatLink::listen(ia, args.sleep_on_bulk, announce)
        .with_context(|| format!("listening on {ia}"))?;
    let mut raw = RawLink::new(listener.accept()?.0)?;
    if congestion != NONE {
        raw.set_congestion(congestion)?;
    }
    while let Some(order) = control::next_order()? {
        let (counted, stack, case, count) = control::parse_run(&order)?;
        let counting = match counted {
            Counted::Yes => counter.begin(),
            Counted::No => None,
        };
        control::say("go")?;
        match stack {
            Stack::Raw | Stack::RawBatch | Stack::Framed => raw.serve(stack, case, count)?,
            Stack::Dat => dat.serve(case, count)?,
        }
        // An unattended sample is served while this blocks.
        control::await_end()?;
        let calls = counting.and_then(Counting::end);
        control::say(&format!(
            "done {}",
            calls.map_or_else(|| NONE.into(), |calls| calls.to_string())
        ))?;
    }
    Ok(())
}
