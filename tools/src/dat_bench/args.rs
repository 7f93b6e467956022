//! The command line. This file is separate because the manual page is generated from it too.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

use super::case::{Case, Wire};

/// The part of the help below the options.
const AFTER_HELP: &str = "\
Each row is measured in rounds: raw TCP, then DAT or SDP, then raw TCP again. A row prints the
medians, and the ratio to raw TCP of the same round. dat-bench(1) describes rows and units.

A case is WORK:BYTES:DEPTH or WORK:BYTES:DEPTH@PLACE, where DEPTH operations are queued.
  latency     send-ping, write-ping, read-ping, blocked-ping, read-other-evd,
              write-unattended-ping, sdp-ping, sdp-blocked-ping
  bandwidth   send, write, read, write-unattended, read-unattended, sdp-write, sdp-copy,
              sdp-registered, sdp-rdma-read, sdp-rdma-write
  cost        send-cost (processor time), connect (connections), idle-ep (memory)
A place is local (shared memory, the default), tcp (loopback), no-crc (tcp without CRC), veth
(virtual Ethernet), veth-segments (one frame per TCP segment) or 10g (veth with 10 Gbit/s).

Examples:
  dat-bench --quick                                    a first impression
  dat-bench --place local,tcp --csv table.csv          the rows of two places, as a file
  dat-bench --cases send-ping:64:1,send:65536:16@veth  two cases";

/// Measures latency and bandwidth of DAT and of SDP streams, compared with raw TCP.
#[derive(Debug, Parser)]
#[command(name = "dat-bench", version, after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Measure seven cases in a few seconds.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Interface adapter; default: the software provider on loopback.
    #[arg(long, value_name = "NAME")]
    pub(crate) ia: Option<String>,
    /// Measure only these cases, with commas in between.
    #[arg(long, value_name = "CASE", value_delimiter = ',')]
    pub(crate) cases: Vec<Case>,
    /// Measure only the rows of these places, with commas in between.
    #[arg(long, value_name = "PLACE", value_delimiter = ',')]
    pub(crate) place: Vec<Wire>,
    /// Measure only the rows of one contender: dat or sdp.
    #[arg(long, value_name = "CONTENDER", hide_possible_values = true)]
    pub(crate) only: Option<Contender>,
    /// Rounds of each case; default: 7, with --quick 3.
    #[arg(long, value_name = "N")]
    pub(crate) rounds: Option<usize>,
    /// Length of a sample; default: 150, with --quick 120.
    #[arg(long, value_name = "MILLISECONDS")]
    pub(crate) sample_ms: Option<u32>,
    /// Sleep in dat_evd_wait during bulk transfers instead of polling.
    #[arg(long)]
    pub(crate) sleep_on_bulk: bool,
    /// Use the caller's network instead of a network namespace.
    #[arg(long)]
    pub(crate) no_namespace: bool,
    /// Write the results to a file as one JSON object.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Write the results to a file as CSV, one line per row and stack.
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
    /// Run as the second process, with the values that the first process determined.
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
