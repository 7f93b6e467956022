//! The command line. A file of its own, because the manual page is made out of it too.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

/// Runs a program with its TCP connections offloaded where possible, or explains one choice.
#[derive(Debug, Parser)]
#[command(
    name = "opsrun",
    version,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    disable_help_subcommand = true
)]
pub(crate) struct Args {
    /// The command instead of a program; `opsrun -- ss` runs the program of that name.
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    /// Run nothing; tell what would carry a socket that connects to ADDRESS:PORT or listens there,
    /// and why.
    #[arg(long, value_name = "WHAT")]
    pub(crate) explain: Option<Role>,
    /// Use this rule file instead of the one of OPS_RULES, LIBSDP_CONFIG_FILE or /etc.
    #[arg(long, value_name = "FILE")]
    pub(crate) rules: Option<PathBuf>,
    /// Carry each socket by SDP over the software provider, which is slower than TCP and meant for
    /// development and tests; without this, only those for which a rule names `sdp`.
    #[arg(long)]
    pub(crate) software: bool,
    /// Have threads poll connections within the host for 50 microseconds before they sleep, where a
    /// processor is idle: answers come sooner and take more processor time.
    #[arg(long)]
    pub(crate) spin: bool,
    /// With --explain: the program that the rules are asked about, as a shell would start it.
    #[arg(
        long,
        value_name = "PATH",
        default_value = "opsrun",
        requires = "explain"
    )]
    pub(crate) program: String,
    /// The program and its arguments; with --explain an address and port, such as `192.0.2.1:6379`
    /// or `[::]:80`.
    #[arg(
        value_name = "COMMAND",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub(crate) words: Vec<OsString>,
}

/// The call that the socket is about to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Role {
    /// Connect to the address.
    Connect,
    /// Listen at the address.
    Listen,
}

/// The commands instead of a program.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List the sockets of all programs that run with the library, and why some are on TCP.
    Ss(Listed),
}

/// The output format of a list of sockets.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Listed {
    /// Print JSON, with what each process has counted since its first socket.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print no line with the names of the columns.
    #[arg(short = 'H', long)]
    pub(crate) no_header: bool,
}
