//! The command line of `datinfo`.

use clap::Parser;

/// Lists the interface adapters of the DAT registry, one per line, and checks the configuration of
/// this host.
#[derive(Debug, Parser)]
#[command(name = "datinfo", version)]
pub struct Args {
    /// Print one JSON object, with all attributes.
    #[arg(long)]
    pub json: bool,
    /// Print all attributes of each adapter, and the lines of the registry file that are not used.
    /// With --check, print the checks without a problem too.
    #[arg(short, long)]
    pub verbose: bool,
    /// Print the sizes and limits of each adapter, as a table.
    #[arg(long, conflicts_with_all = ["list", "counters", "check"])]
    pub limits: bool,
    /// Print only the adapters whose provider has this in its name, such as `iwarp` or `ib`.
    #[arg(short, long, value_name = "NAME", conflicts_with = "check")]
    pub provider: Option<String>,
    /// Print only the adapters whose device has this in its name, such as `eth0` or `mlx5`.
    #[arg(short, long, value_name = "NAME", conflicts_with = "check")]
    pub device: Option<String>,
    /// Do not open the adapters.
    #[arg(long)]
    pub list: bool,
    /// Connect each adapter to itself, and print whether shared memory or TCP carries the payload.
    #[arg(long, conflicts_with = "list")]
    pub counters: bool,
    /// Print the numbers of all events with their names in C.
    #[arg(long, exclusive = true)]
    pub events: bool,
    /// Print the problems of the DAT configuration of this host, and the action that solves each.
    #[arg(long, conflicts_with_all = ["list", "counters", "names"])]
    pub check: bool,
    /// Print only these interface adapters, with all attributes.
    pub names: Vec<String>,
}
