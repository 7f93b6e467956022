//! The second process: does as it is told over its standard input.

use std::net::{IpAddr, SocketAddr, TcpListener};

use anyhow::{Context, Result, bail};
use nix::unistd::{SysconfVar, sysconf};

use crate::args::Args;
use crate::case::Stack;
use crate::contender::Contender;
use crate::control::{self, Counted};
use crate::raw::RawLink;
use crate::setup;
use crate::syscalls::{Counting, SyscallCounter};

/// A congestion control or trace point that is not given.
pub(crate) const NONE: &str = "-";

/// Serves until the input ends; `found` is what the first process found out.
pub(crate) fn serve(args: &Args, found: &[String]) -> Result<()> {
    let [contender, ia, address, cpu, congestion, trace_point] = found else {
        bail!("--serve takes six values")
    };
    setup::pin(cpu.parse()?)?;
    setup::lift_descriptor_limit()?;
    let counter = SyscallCounter::new(trace_point.parse().ok());
    let address: IpAddr = address.parse()?;
    let listener = TcpListener::bind((address, 0)).context("listening for the raw connection")?;
    let raw_port = listener.local_addr()?.port();
    let announce = |address: SocketAddr, conn_qual| {
        control::say(&format!("ready {raw_port} {address} {conn_qual}"))
    };
    let mut contender = Contender::listen(contender.parse()?, ia, args.sleep_on_bulk, announce)?;
    let mut raw = RawLink::new(listener.accept()?.0)?.with_listener(listener);
    if congestion != NONE {
        raw.set_congestion(congestion)?;
    }
    while let Some(order) = control::next_order()? {
        let (counted, stack, case, count) = control::parse_run(&order)?;
        let counting = (counted == Counted::Calls)
            .then(|| counter.begin())
            .flatten();
        let (resident, copied) = (resident_bytes(), contender.copied());
        control::say("go")?;
        match stack {
            Stack::Raw | Stack::RawBatch | Stack::Framed => raw.serve(stack, case, count)?,
            Stack::Dat | Stack::Sdp => contender.serve(case, count)?,
        }
        // An unattended sample is served while this blocks.
        control::await_end()?;
        let told = match counted {
            Counted::Memory => grown_since(resident),
            Counted::Copies => contender.copied().zip(copied).map(|(now, then)| now - then),
            Counted::Calls | Counted::Nothing => counting.and_then(Counting::end),
        };
        control::say(&format!(
            "done {}",
            told.map_or_else(|| NONE.into(), |told| told.to_string())
        ))?;
    }
    Ok(())
}

/// Memory of this process that is in RAM.
fn resident_bytes() -> Option<u64> {
    // Second column: resident pages.
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split(' ').nth(1)?.parse().ok()?;
    let page = sysconf(SysconfVar::PAGE_SIZE).ok()??;
    Some(pages * u64::try_from(page).ok()?)
}

fn grown_since(before: Option<u64>) -> Option<u64> {
    Some(resident_bytes()?.saturating_sub(before?))
}
