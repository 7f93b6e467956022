//! The second process: runs the orders that it reads from its control channel.

use std::net::{IpAddr, SocketAddr, TcpListener};

use anyhow::{Context, Result, bail};
use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::{TimeVal, TimeValLike as _};
use nix::unistd::{SysconfVar, sysconf};
use tool_args::bench::Args;
use tool_args::bench::case::{Case, Stack, Work};

use crate::contender::Contender;
use crate::control::{self, Channel, Counted, NONE};
use crate::raw::{RawLink, STALL};
use crate::setup;
use crate::syscalls::{Counting, SyscallCounter};

/// Serves as the child of the first process until the input ends; `found` holds the settings that
/// the first process determined.
pub(crate) fn serve(args: &Args, found: &[String]) -> Result<()> {
    let [contender, ia, address, cpu, spare, congestion, trace_point] = found else {
        bail!("--serve takes seven values")
    };
    let cpu = cpu.parse()?;
    setup::pin(cpu)?;
    setup::lift_descriptor_limit()?;
    let mut channel = Channel::of_child();
    let ends = Ends {
        stack: contender.parse()?,
        ia,
        address: address.parse()?,
        sleep_on_bulk: args.sleep_on_bulk,
        congestion: Some(congestion.as_str()).filter(|name| *name != NONE),
    };
    let (raw, contender) = ends.accept(&mut channel)?;
    let mut links = Links {
        raw,
        contender,
        cpu: Some(cpu),
        spare: spare.parse().ok(),
        counter: SyscallCounter::new(trace_point.parse().ok()),
    };
    links.serve_orders(&mut channel)
}

/// The settings of both connections at this side.
pub(crate) struct Ends<'a> {
    pub(crate) stack: Stack,
    pub(crate) ia: &'a str,
    /// The address at which the raw connection is accepted.
    pub(crate) address: IpAddr,
    pub(crate) sleep_on_bulk: bool,
    /// The congestion control of the raw connection; `None` keeps the default.
    pub(crate) congestion: Option<&'a str>,
}

impl Ends<'_> {
    /// Reports the addresses to the first process, and accepts its two connections.
    pub(crate) fn accept(&self, channel: &mut Channel) -> Result<(RawLink, Contender)> {
        let listener = TcpListener::bind((self.address, 0));
        let listener = listener.context("listening for the raw connection")?;
        // A first process that ends between its two connections must not block this one.
        let patience = TimeVal::seconds(i64::try_from(STALL.as_secs())?);
        setsockopt(&listener, sockopt::ReceiveTimeout, &patience)?;
        let raw_port = listener.local_addr()?.port();
        let announce = |address: SocketAddr, conn_qual| {
            channel.send(&format!("ready {raw_port} {address} {conn_qual}"))
        };
        let contender = Contender::listen(self.stack, self.ia, self.sleep_on_bulk, announce)?;
        let raw = RawLink::new(listener.accept()?.0)?.with_listener(listener);
        if let Some(congestion) = self.congestion {
            raw.set_congestion(congestion)?;
        }
        Ok((raw, contender))
    }
}

/// Both connections at this side, and the processors for the threads that serve them.
pub(crate) struct Links {
    pub(crate) raw: RawLink,
    pub(crate) contender: Contender,
    /// The processor of this process, if the process is bound to one.
    pub(crate) cpu: Option<usize>,
    /// A processor that no other thread of the two processes uses.
    pub(crate) spare: Option<usize>,
    pub(crate) counter: SyscallCounter,
}

impl Links {
    /// Serves samples until the channel ends.
    pub(crate) fn serve_orders(&mut self, channel: &mut Channel) -> Result<()> {
        while let Some(order) = channel.next_line()? {
            let (counted, stack, case, count) = control::parse_run(&order)?;
            let counter = &self.counter;
            let counting = (counted == Counted::Calls)
                .then(|| counter.begin())
                .flatten();
            let (resident, copied) = (resident_bytes(), self.contender.copied());
            let used = setup::processor_seconds()?;
            channel.send("go")?;
            self.serve(stack, case, count)?;
            // An unattended sample is served while this blocks.
            channel.await_end()?;
            let count_of_peer = match counted {
                Counted::Memory => grown_since(resident),
                Counted::Processor => Some(((setup::processor_seconds()? - used) * 1e6) as u64),
                Counted::Copies => self
                    .contender
                    .copied()
                    .zip(copied)
                    .map(|(now, then)| now - then),
                Counted::Calls | Counted::Nothing => counting.and_then(Counting::end),
            };
            channel.send(&format!(
                "done {}",
                count_of_peer.map_or_else(|| NONE.into(), |count| count.to_string())
            ))?;
        }
        Ok(())
    }

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
        if let Some(cpu) = self.cpu {
            setup::pin_other_threads(cpu)?;
        }
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
