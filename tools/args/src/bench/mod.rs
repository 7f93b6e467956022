//! The command line of `dat-bench`.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

pub mod case;
pub mod rows;
pub mod spread;

use self::case::{Case, Wire};

/// The part of the help below the options.
const AFTER_HELP: &str = "\
Each row compares with raw TCP in the same rounds. dat-bench(1) describes rows and units.

A case is WORK:BYTES:DEPTH or WORK:BYTES:DEPTH@PLACE, where DEPTH operations are queued.
  latency     send-ping, write-ping, read-ping, blocked-ping, read-other-evd, after-polls,
              after-polls-computing, write-unattended-ping, sdp-ping, sdp-blocked-ping
  bandwidth   send, write, read, write-unattended, read-unattended, send-bidirectional,
              write-bidirectional, read-bidirectional, sdp-write, sdp-copy, sdp-registered,
              sdp-rdma-read, sdp-rdma-write
  cost        send-cost (processor time), connect (connections), idle-ep (memory)
A place is local (shared memory, the default), tcp or no-crc (loopback), veth, veth-segments or 10g
(virtual Ethernet), or network (to HOST).
For example: dat-bench --cases send-ping:64:1,send:65536:16@veth --csv table.csv";

/// Measures latency and bandwidth of DAT and of SDP streams, compared with raw TCP.
#[derive(Debug, Parser)]
#[command(name = "dat-bench", version, after_help = AFTER_HELP)]
pub struct Args {
    /// Host that runs `dat-bench --server`; without it, a second process on this host.
    #[arg(conflicts_with_all = ["quick", "place"])]
    pub host: Option<String>,
    /// Serve one dat-bench of another host after the other.
    #[arg(long, conflicts_with_all = ["host", "cases", "quick", "place", "json", "csv"])]
    pub server: bool,
    /// Port of the server.
    #[arg(short, long, value_name = "PORT", default_value_t = 18515)]
    pub port: u16,
    /// Measure all powers of two from 2 bytes to 1 MiB.
    #[arg(short, long)]
    pub all: bool,
    /// Measure these sizes, with commas in between.
    #[arg(
        short,
        long,
        value_name = "BYTES",
        value_delimiter = ',',
        conflicts_with = "all",
        value_parser = clap::value_parser!(u32).range(1..=case::SIZE_MAX as i64)
    )]
    pub size: Vec<u32>,
    /// Measure only bandwidth, in one direction.
    #[arg(long, conflicts_with = "cases")]
    pub one_way: bool,
    /// Measure only bandwidth, in both directions at once.
    #[arg(short, long, conflicts_with = "cases")]
    pub bidirectional: bool,
    /// Measure seven cases in a few seconds.
    #[arg(long)]
    pub quick: bool,
    /// Interface adapter; default: the software provider on the route.
    #[arg(long, value_name = "NAME")]
    pub ia: Option<String>,
    /// Measure only these cases, with commas in between.
    #[arg(long, value_name = "CASE", value_delimiter = ',')]
    pub cases: Vec<Case>,
    /// Measure only the rows of these places, with commas in between.
    #[arg(long, value_name = "PLACE", value_delimiter = ',')]
    pub place: Vec<Wire>,
    /// Measure only the rows of one contender: dat or sdp.
    #[arg(long, value_name = "CONTENDER", hide_possible_values = true)]
    pub only: Option<Contender>,
    /// Rounds of each case; default: 7, with --quick or HOST 3.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub rounds: Option<u32>,
    /// Length of a sample; default: 150, with --quick 120, with HOST 100.
    #[arg(
        long,
        value_name = "MILLISECONDS",
        value_parser = clap::value_parser!(u32).range(1..=60_000)
    )]
    pub sample_ms: Option<u32>,
    /// Sleep in dat_evd_wait during bulk transfers instead of polling.
    #[arg(long)]
    pub sleep_on_bulk: bool,
    /// Use the caller's network instead of a network namespace.
    #[arg(long)]
    pub no_namespace: bool,
    /// Write the results to a file as one JSON object.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write the results to a file as CSV, one line per row and stack.
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Run as the second process, with the values that the first process determined.
    #[arg(
        long,
        hide = true,
        num_args = 7,
        value_names = ["CONTENDER", "IA", "ADDRESS", "CPU", "SPARE", "CC", "TRACEPOINT"]
    )]
    pub serve: Option<Vec<String>>,
}

/// The stack that is measured against raw TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Contender {
    /// DAT endpoints.
    Dat,
    /// SDP streams over DAT.
    Sdp,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    /// The lines and the columns of a terminal window of common size.
    const SCREEN: (usize, usize) = (40, 100);

    #[test]
    fn the_help_fits_on_a_screen_and_names_every_work_and_place() {
        let command = Args::command();
        let help = command.try_get_matches_from(["dat-bench", "--help"]);
        let help = help.unwrap_err().to_string();
        let widest = help.lines().map(|line| line.chars().count()).max();
        assert!(help.lines().count() <= SCREEN.0, "{help}");
        assert!(widest.is_some_and(|width| width <= SCREEN.1), "{help}");
        for name in case::WORKS.map(|(_, name, _)| name) {
            assert!(help.contains(name), "{name}");
        }
        assert!(Args::try_parse_from(["dat-bench", "--rounds", "0"]).is_err());
        for place in Wire::all() {
            assert!(help.contains(place.name()), "{}", place.name());
        }
    }
}
