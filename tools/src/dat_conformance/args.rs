//! The command line. This file is separate because the manual page is generated from it too.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Parser, ValueEnum};

/// Asks whether an interface adapter keeps what DAT 2.0 promises its consumers.
#[derive(Debug, Parser)]
#[command(
    name = "dat-conformance",
    version,
    override_usage = "dat-conformance --ia <NAME> [OPTIONS]\n       dat-conformance --list"
)]
pub(crate) struct Args {
    /// Interface adapter to ask.
    #[arg(long, value_name = "NAME", required_unless_present = "list")]
    pub(crate) ia: Option<String>,
    /// Which ends this machine has.
    #[arg(long, value_enum, default_value_t = Role::Both)]
    pub(crate) role: Role,
    /// With both ends here: another interface adapter for the server's.
    #[arg(long, value_name = "NAME", conflicts_with = "peer")]
    pub(crate) peer_ia: Option<String>,
    /// With the client here: the address and port at which the server listens.
    #[arg(long, value_name = "ADDRESS:PORT", required_if_eq("role", "client"))]
    pub(crate) peer: Option<SocketAddr>,
    /// The server's: where it waits for the client, on plain TCP.
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        default_value = "0.0.0.0:45300",
        conflicts_with = "peer"
    )]
    pub(crate) listen: SocketAddr,
    /// Only cases whose names match: * stands for anything. Several are separated by commas.
    #[arg(long, value_name = "GLOB", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// No cases whose names match.
    #[arg(long, value_name = "GLOB", value_delimiter = ',')]
    pub(crate) skip: Vec<String>,
    /// The long cases too.
    #[arg(long)]
    pub(crate) long: bool,
    /// Name the cases and what each holds, and run none.
    #[arg(long)]
    pub(crate) list: bool,
    /// How long a case may take.
    #[arg(long, value_name = "SECONDS", default_value_t = 20)]
    pub(crate) limit: u32,
    /// Name of this adapter, and of the place where it runs, in the table of differences.
    #[arg(long, value_name = "NAME", requires = "differences")]
    pub(crate) ground: Option<String>,
    /// The table of known differences.
    #[arg(long, value_name = "FILE", requires = "ground")]
    pub(crate) differences: Option<PathBuf>,
    /// A process that runs cases: where its peer is, or - for a connection at standard input.
    #[arg(long, hide = true, value_name = "PEER")]
    pub(crate) worker: Option<String>,
}

/// The ends of the connections that a process of this tool has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Role {
    /// Both, in two processes.
    Both,
    /// The one that listens.
    Server,
    /// The one that connects, leads and reports.
    Client,
}
