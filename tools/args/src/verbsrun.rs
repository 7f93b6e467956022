//! The command line of `verbsrun`.

use std::ffi::OsString;

use clap::Parser;

/// Runs a program written to verbs on a machine without an RDMA device.
#[derive(Debug, Parser)]
#[command(name = "verbsrun", version)]
pub struct Args {
    /// List the devices that the program would find.
    #[arg(long, conflicts_with = "explain")]
    pub devices: bool,

    /// Print the libraries, and whether they reach the program; do not run it.
    #[arg(long)]
    pub explain: bool,

    /// The program and its arguments.
    #[arg(
        required_unless_present = "devices",
        value_name = "PROGRAM",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub words: Vec<OsString>,
}
