//! The second process: runs the orders that it reads from its standard input.

use std::net::{IpAddr, SocketAddr, TcpListener};

use anyhow::{Context, Result, bail};
use nix::unistd::{SysconfVar, sysconf};
use tool_args::bench::Args;
use tool_args::bench::case::{Case, Stack, Work};

use crate::contender::Contender;
use crate::control::{self, Counted};
use crate::raw::RawLink;
use crate::setup;
use crate::syscalls::{Counting, SyscallCounter};

/// The word for an absent congestion control, trace point or count.
pub(crate) const NONE: &str = "-";

/// Serves until the input ends; `found` holds the settings that the first process determined.
pub(crate) fn serve(args: &Args, found: &[String]) -> Result<()> {
    let [contender, ia, address, cpu, spare, congestion, trace_point] = found else {
        bail!("--serve takes seven values")
    };
    let cpu = cpu.parse()?;
    setup::pin(cpu)?;
    setup::lift_descriptor_limit()?;
    let counter = SyscallCounter::new(trace_point.parse().ok());
    let address: IpAddr = address.parse()?;
    let listener = TcpListener::bind((address, 0)).context("listening for the raw connection")?;
    let raw_port = listener.local_addr()?.port();
    let announce = |address: SocketAddr, conn_qual| {
        control::send(&format!("ready {raw_port} {address} {conn_qual}"))
    };
    let contender = Contender::listen(contender.parse()?, ia, args.sleep_on_bulk, announce)?;
    let raw = RawLink::new(listener.accept()?.0)?.with_listener(listener);
    if congestion != NONE {
        raw.set_congestion(congestion)?;
    }
    let mut links = Links {
        raw,
        contender,
        cpu,
        spare: spare.parse().ok(),
    };
    while let Some(order) = control::next_order()? {
        let (counted, stack, case, count) = control::parse_run(&order)?;
        let counting = (counted == Counted::Calls)
            .then(|| counter.begin())
            .flatten();
        let (resident, copied) = (resident_bytes(), links.contender.copied());
        let used = setup::processor_seconds()?;
        control::send("go")?;
        links.serve(stack, case, count)?;
        // An unattended sample is served while this blocks.
        control::await_end()?;
        let count_of_peer = match counted {
            Counted::Memory => grown_since(resident),
            Counted::Processor => Some(((setup::processor_seconds()? - used) * 1e6) as u64),
            Counted::Copies => links
                .contender
                .copied()
                .zip(copied)
                .map(|(now, then)| now - then),
            Counted::Calls | Counted::Nothing => counting.and_then(Counting::end),
        };
        control::send(&format!(
            "done {}",
            count_of_peer.map_or_else(|| NONE.into(), |count| count.to_string())
        ))?;
    }
    Ok(())
}

/// Both connections at this side, and the processors for the threads that serve them.
struct Links {
    raw: RawLink,
    contender: Contender,
    /// The processor of this process.
    cpu: usize,
    /// A processor that no other thread of the two processes uses.
    spare: Option<usize>,
}

impl Links {
    /// The passive side of one sample.
    fn serve(&mut self, stack: Stack, case: Case, count: u64) -> Result<()> {
        match (stack, case.work) {
            (Stack::Raw | Stack::RawBatch | Stack::Framed, _) => self.raw.serve(stack, case, count),
            (Stack::Dat, Work::UnattendedPing) => self.watch(case, count),
            (Stack::Dat | Stack::Sdp, _) => self.contender.serve(case, count),
        }
    }

    /// Serves the samples in which the program polls its memory, on this processor. The provider's
    /// thread runs on the spare processor meanwhile.
    fn watch(&mut self, case: Case, count: u64) -> Result<()> {
        if let Some(spare) = self.spare {
            setup::pin_other_threads(spare)?;
        }
        let watched = self.contender.watch(&mut self.raw, case, count);
        setup::pin_other_threads(self.cpu)?;
        watched
    }
}

/// The bytes of this process's memory that are in RAM.
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
