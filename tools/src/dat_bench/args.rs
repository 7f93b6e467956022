//! The command line. This file is separate because the manual page is generated from it too.

use clap::{Parser, ValueEnum};

use super::case::{Case, Wire};

/// Measures DAT beside raw TCP.
#[derive(Debug, Parser)]
#[command(name = "dat-bench", version)]
pub(crate) struct Args {
    /// A few seconds' worth: 64 B latency and 64 KiB bandwidth.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Interface adapter to measure, from the registry as it is. Without it: the software provider
    /// on the loopback device.
    #[arg(long, value_name = "NAME")]
    pub(crate) ia: Option<String>,
    /// Measure only these cases: work:bytes:depth, where work is send-ping, write-ping, read-ping,
    /// blocked-ping, send, write, read, write-unattended, read-unattended, write-unattended-ping,
    /// read-other-evd, send-cost, connect, idle-ep, sdp-ping, sdp-blocked-ping, sdp-write or
    /// sdp-copy; with @ and a place behind it, in that place.
    #[arg(long, value_name = "CASE", value_delimiter = ',')]
    pub(crate) cases: Vec<Case>,
    /// Only the rows of these places: local is shared memory; tcp is TCP over the loopback device,
    /// and no-crc the same without CRC; veth and veth-segments are virtual Ethernet, and 10g is
    /// virtual Ethernet that carries 10 Gbit/s.
    #[arg(long, value_name = "PLACE", value_delimiter = ',')]
    pub(crate) place: Vec<Wire>,
    /// Only the rows of this contender.
    #[arg(long, value_name = "CONTENDER")]
    pub(crate) only: Option<Contender>,
    /// Rounds of each case; without it 7, and 3 with --quick.
    #[arg(long, value_name = "N")]
    pub(crate) rounds: Option<usize>,
    /// Length of a sample; without it 150, and 120 with --quick.
    #[arg(long, value_name = "MILLISECONDS")]
    pub(crate) sample_ms: Option<u32>,
    /// On bulk, sleep in dat_evd_wait instead of polling.
    #[arg(long)]
    pub(crate) sleep_on_bulk: bool,
    /// Stay in the caller's network.
    #[arg(long)]
    pub(crate) no_namespace: bool,
    /// The second process: what the first one found out.
    #[arg(
        long,
        hide = true,
        num_args = 7,
        value_names = ["CONTENDER", "IA", "ADDRESS", "CPU", "SPARE", "CC", "TRACEPOINT"]
    )]
    pub(crate) serve: Option<Vec<String>>,
}

/// The stack that is measured against raw TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Contender {
    /// DAT endpoints.
    Dat,
    /// SDP streams over DAT.
    Sdp,
}
