//! The command line of `opsrun`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};

/// Runs a program whose TCP connections are offloaded where possible, explains the choice for one
/// socket, or lists the sockets of all such programs.
#[derive(Debug, Parser)]
#[command(
    name = "opsrun",
    version,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    disable_help_subcommand = true
)]
pub struct Args {
    /// The command to execute instead of a program. `opsrun -- ss` runs the program of that name.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Run no program. Print the protocol that would carry a socket that connects to ADDRESS:PORT,
    /// or listens there, and the reason.
    #[arg(long, value_name = "WHAT")]
    pub explain: Option<Role>,
    /// The rule file. Without it, the file that OPS_RULES or LIBSDP_CONFIG_FILE names, else that of
    /// /etc.
    #[arg(long, value_name = "FILE")]
    pub rules: Option<PathBuf>,
    /// Carry each socket by SDP over the software provider, for development and tests; it is slower
    /// than TCP. Without this option, SDP carries only the sockets for which a rule names `sdp`.
    #[arg(long)]
    pub software: bool,
    /// Have threads poll connections within the host for 50 microseconds before they sleep, if a
    /// processor is idle. This shortens the response time and takes more processor time.
    #[arg(long)]
    pub spin: bool,
    /// With --explain: the program whose socket it is, as a shell would start it.
    #[arg(
        long,
        value_name = "PATH",
        default_value = "opsrun",
        requires = "explain"
    )]
    pub program: String,
    /// The program and its arguments. With --explain: an address and port, such as `192.0.2.1:6379`
    /// or `[::]:80`.
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true)]
    pub words: Vec<OsString>,
}

/// The call that the socket is about to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Role {
    /// Connect to the address.
    Connect,
    /// Listen at the address.
    Listen,
}

/// The commands that run no program.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the sockets of all programs that run under opsrun, and the reasons for which some are
    /// on TCP.
    Ss(Listed),
}

/// The output format of a list of sockets.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct Listed {
    /// Print JSON, with the totals of each process since its first socket.
    #[arg(long, conflicts_with_all = ["openmetrics", "prometheus", "watch"])]
    pub json: bool,
    /// Print metrics of each process in the OpenMetrics text format, for Prometheus.
    #[arg(long, conflicts_with_all = ["prometheus", "watch"])]
    pub openmetrics: bool,
    /// Print the same metrics in the text format 0.0.4 of Prometheus, for its textfile collector.
    #[arg(long, conflicts_with = "watch")]
    pub prometheus: bool,
    /// Print the numbers of the kernel's protocols in the format of /proc/net/snmp, followed by
    /// those of the offloaded connections of the same network namespace. The bytes of connections
    /// within the host are not counted.
    #[arg(long, conflicts_with_all = ["json", "openmetrics", "prometheus", "watch", "port"])]
    pub statistics: bool,
    /// Print only the process with this number.
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
    /// Print only sockets with this port at either end.
    #[arg(long, value_name = "PORT", conflicts_with_all = ["openmetrics", "prometheus"])]
    pub port: Option<u16>,
    /// Print the list again and again, with the bytes per second since the last time. The interval
    /// is in seconds; without a number, 1 second.
    #[arg(
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        default_missing_value = "1",
        value_parser = seconds
    )]
    pub watch: Option<Duration>,
    /// Below each connection over SDP, print its bytes by mechanism, its advertisements of memory,
    /// its credits, and how often bytes had to wait.
    #[arg(short, long, conflicts_with_all = ["json", "openmetrics", "prometheus", "statistics"])]
    pub info: bool,
    /// Print no line with the names of the columns.
    #[arg(short = 'H', long)]
    pub no_header: bool,
}

/// The shortest and the longest interval, in seconds.
const INTERVALS: std::ops::RangeInclusive<f64> = 0.1..=86_400.0;

fn seconds(text: &str) -> Result<Duration, String> {
    let number = text
        .parse()
        .ok()
        .filter(|number| INTERVALS.contains(number));
    let (min, max) = (INTERVALS.start(), INTERVALS.end());
    number
        .map(Duration::from_secs_f64)
        .ok_or_else(|| format!("a number of seconds from {min} to {max} is expected"))
}
