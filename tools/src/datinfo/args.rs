//! The command line. This file is separate because the manual page is generated from it too.

use clap::Parser;

/// Lists the DAT registry and the attributes of each interface adapter that can be opened.
#[derive(Debug, Parser)]
#[command(name = "datinfo", version)]
pub(crate) struct Args {
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
    /// List the adapters without opening them.
    #[arg(long)]
    pub(crate) list: bool,
    /// Connect each adapter to itself and print how the payload travelled, and why it stayed on TCP
    /// if it did.
    #[arg(long, conflicts_with = "list")]
    pub(crate) counters: bool,
    /// Only these interface adapters.
    pub(crate) names: Vec<String>,
}
