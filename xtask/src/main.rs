//! The tasks of the project; `cargo xtask --help` lists them.
//!
//! - `stage` builds everything in release form and lays it out under `target/stage`.
//! - `install` copies the stage below a prefix, and `uninstall` removes it again.
//! - `package` makes Debian packages and an archive from the stage.
//! - `test` runs every check and suite and reports the result of each.
//! - `demo` demonstrates the stack, in under a minute after the build.
//! - `bench` prints latency and bandwidth compared with raw TCP.
//! - `fuzz` runs the parsers and the C library with inputs that a fuzzer generates.
//! - `sanitize` runs the suites of C programs with checks for memory errors and leaks.
//! - `miri` interprets the code that needs no system calls.
//! - `vm` runs programs in a guest that has the kernel's own RDMA devices.
//! - `programs` runs Debian's programs under `opsrun` and generates a page of the results.
//! - `tidy` runs the project's own style checks alone.
//! - `advisories` looks up known vulnerabilities of the dependencies.
//! - `bindings` generates the bindings of the verbs libraries from their headers.
//!
//! | File | Contents |
//! |---|---|
//! | `stage`, `exports` | the stage, and the symbols that its libraries must export |
//! | `prefix` | the tasks `install` and `uninstall` |
//! | `package` | the packages, and their test in a fresh Debian root |
//! | `pages`, `calls` | manual pages and completions, from the declarations of tools and `docs/calls` |
//! | `test`, `suites` | every check and suite; suites of tests, built, run and counted |
//! | `tidy` | the project's own style checks |
//! | `demo`, `bench`, `fuzz`, `sanitize`, `advisories`, `bindings` | the tasks of these names |
//! | `vm`, `programs`, `table` | runs that fill tables of `docs`, and these tables |
//! | `workspace` | the location and the content of the workspace |
//! | `job`, `install` | one external command, and the programs that commands need |
//! | `report` | one line per step, and the summary |
//! | `at_once` | work on several items at the same time |

mod advisories;
mod at_once;
mod bench;
mod bindings;
mod calls;
mod demo;
mod exports;
mod fuzz;
mod install;
mod job;
mod package;
mod pages;
mod prefix;
mod programs;
mod report;
mod sanitize;
mod stage;
mod suites;
mod table;
mod test;
mod tidy;
mod vm;
mod workspace;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::stage::{Form, Progress};
use crate::workspace::Workspace;

#[derive(Debug, Parser)]
#[command(
    name = "cargo xtask",
    about = "Build, demonstrate, test and measure the stack"
)]
struct Cli {
    #[command(subcommand)]
    command: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Build in release form and lay out target/stage.
    Stage,
    /// Copy target/stage below a prefix.
    Install(prefix::Options),
    /// Remove the files of `install` below a prefix.
    Uninstall(prefix::Place),
    /// Make Debian packages and an archive from the stage.
    Package(package::Options),
    /// Write the notices of the linked crates; `debian/rules` starts it.
    #[command(hide = true)]
    Notices { directory: PathBuf },
    /// Run every check and suite; nonzero exit if one fails.
    Test(test::Options),
    /// Demonstrate the stack.
    Demo,
    /// Print latency and bandwidth compared with raw TCP.
    Bench(bench::Options),
    /// An end of connections; `bench` starts it.
    #[command(hide = true)]
    Ends(bench::ends::Options),
    /// Run the fuzz targets for a while.
    Fuzz(fuzz::Options),
    /// Run the suites with their C programs under AddressSanitizer and valgrind.
    Sanitize(sanitize::Options),
    /// Interpret code that needs no system calls, to find undefined behaviour.
    Miri,
    /// Run programs in a guest with the kernel's RDMA devices.
    Vm(vm::Options),
    /// Run Debian's programs under opsrun; compare the page.
    Programs(programs::Options),
    /// Run the style checks alone.
    Tidy,
    /// Look up known vulnerabilities of the dependencies, by cargo-deny.
    Advisories,
    /// Generate the bindings of libibverbs and librdmacm.
    Bindings,
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> Result<ExitCode> {
    // `install` must not call this, because root may have no cargo.
    let workspace = Workspace::find;
    match task {
        Task::Install(options) => {
            print!("{}", prefix::install(&prefix::stage()?, &options)?);
            Ok(ExitCode::SUCCESS)
        }
        Task::Ends(options) => bench::ends::run(&options).map(|()| ExitCode::SUCCESS),
        Task::Uninstall(place) => {
            print!("{}", prefix::uninstall(&place)?);
            Ok(ExitCode::SUCCESS)
        }
        Task::Stage => stage::run(&workspace()?, Progress::Shown, Form::Release).map(|staged| {
            println!("{staged}");
            ExitCode::SUCCESS
        }),
        Task::Package(options) => package::run(&workspace()?, &options),
        Task::Notices { directory } => {
            package::notices::write(&workspace()?, &directory).map(|()| ExitCode::SUCCESS)
        }
        Task::Test(options) => test::run(&workspace()?, &options),
        Task::Demo => demo::run(&workspace()?),
        Task::Bench(options) => bench::run(&workspace()?, &options),
        Task::Sanitize(options) => sanitize::run(&workspace()?, &options),
        Task::Miri => sanitize::miri(&workspace()?),
        Task::Advisories => advisories::run(&workspace()?),
        Task::Bindings => bindings::run(&workspace()?).map(|()| ExitCode::SUCCESS),
        Task::Fuzz(options) => fuzz::run(&workspace()?, &options),
        Task::Programs(options) => programs::run(&workspace()?, &options),
        Task::Vm(options) => vm::run(&workspace()?, &options),
        Task::Tidy => tidy::run(&workspace()?),
    }
}
