//! The command line of dat-bench, whose files name each other as they do in the tool.

#[allow(dead_code, reason = "the file is also a module of dat-bench")]
#[path = "../../../tools/src/dat_bench/args.rs"]
mod args;
#[allow(dead_code, reason = "the file is also a module of dat-bench")]
#[path = "../../../tools/src/dat_bench/case.rs"]
mod case;

pub(super) use args::Args;
