//! The command line of `sdp-checker`.

use std::path::PathBuf;

use clap::Parser;

/// Prints the messages of recorded SDP connections and the rules that they break.
#[derive(Debug, Parser)]
#[command(name = "sdp-checker", version)]
pub struct Args {
    /// The files that a program with SDP_TRACE wrote. Their names end in .active or .passive.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
}
