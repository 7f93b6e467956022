//! The command line of `dat-conformance`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Parser, ValueEnum};

/// Tests whether an interface adapter does what DAT 2.0 requires.
#[derive(Debug, Parser)]
#[command(
    name = "dat-conformance",
    version,
    override_usage = "dat-conformance --ia <NAME> [OPTIONS]\n       dat-conformance --list"
)]
pub struct Args {
    /// The interface adapter to test.
    #[arg(long, value_name = "NAME", required_unless_present = "list")]
    pub ia: Option<String>,
    /// The ends that run on this machine.
    #[arg(long, value_enum, default_value_t = Role::Both)]
    pub role: Role,
    /// With both ends on this machine: the interface adapter of the server, if it is another one.
    #[arg(long, value_name = "NAME", conflicts_with = "peer")]
    pub peer_ia: Option<String>,
    /// With only the client on this machine: the address and port at which the server listens.
    #[arg(long, value_name = "ADDRESS:PORT", required_if_eq("role", "client"))]
    pub peer: Option<SocketAddr>,
    /// The address and port at which the server waits for the client, on plain TCP.
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        default_value = "0.0.0.0:45300",
        conflicts_with = "peer"
    )]
    pub listen: SocketAddr,
    /// Run only cases whose names match; * matches any text. Separate several patterns by commas.
    #[arg(long, value_name = "GLOB", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Run no cases whose names match.
    #[arg(long, value_name = "GLOB", value_delimiter = ',')]
    pub skip: Vec<String>,
    /// Also run the long cases.
    #[arg(long)]
    pub long: bool,
    /// List the cases with the requirement that each tests, and run none.
    #[arg(long)]
    pub list: bool,
    /// The time limit of a case, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 20)]
    pub limit: u32,
    /// The name, in the table of differences, of this adapter and of the system on which it runs.
    #[arg(long, value_name = "NAME", requires = "differences")]
    pub configuration: Option<String>,
    /// The table of known differences.
    #[arg(long, value_name = "FILE", requires = "configuration")]
    pub differences: Option<PathBuf>,
    /// For a process that runs cases: the address of its peer, or - for a connection at standard
    /// input.
    #[arg(long, hide = true, value_name = "PEER")]
    pub worker: Option<String>,
}

/// The ends of the connections that a process of this tool has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Role {
    /// Both ends, in two processes.
    Both,
    /// The end that listens.
    Server,
    /// The end that connects, selects the cases and reports.
    Client,
}
