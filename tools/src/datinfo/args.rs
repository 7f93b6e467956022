//! The command line. This file is separate because the manual page is generated from it too.

use clap::Parser;

/// Lists the interface adapters of the DAT registry, one per line, and checks the configuration of
/// this host.
#[derive(Debug, Parser)]
#[command(name = "datinfo", version)]
pub(crate) struct Args {
    /// Print one JSON object with everything.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print all attributes of each adapter, and each line of the registry file that is not used.
    /// With --check, print also what was found in order.
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Do not open the adapters.
    #[arg(long)]
    pub(crate) list: bool,
    /// Connect each adapter to itself and print the carrier of the payload: shared memory, or TCP
    /// and the reason.
    #[arg(long, conflicts_with = "list")]
    pub(crate) counters: bool,
    /// Check the DAT configuration of this host. Print one line per problem, with the action that
    /// solves it.
    #[arg(long, conflicts_with_all = ["list", "counters", "names"])]
    pub(crate) check: bool,
    /// The interface adapters to print, with all attributes. Without a name, every adapter of the
    /// registry is printed.
    pub(crate) names: Vec<String>,
}
