//! The command line of dat-bench, in modules whose names are those of the tool.

#[allow(dead_code, reason = "the file is also a module of dat-bench")]
#[path = "../../../tools/src/dat_bench/args.rs"]
mod args;
#[allow(dead_code, reason = "the file is also a module of dat-bench")]
#[path = "../../../tools/src/dat_bench/case.rs"]
mod case;

pub(super) use args::Args;
