//! A guest with the kernel's own RDMA devices, on machines that have none.
//!
//! - `kernel.rs` gets a kernel and its modules from Debian's packages, and builds `siw`.
//! - `cache.rs` keeps complete kernels.
//! - `initramfs.rs` packs the archive with which the kernel starts.
//! - `machine.rs` boots QEMU with a job and returns its result.
//! - `suite.rs` runs the suite `guest` there, from which `docs/compatibility.md` is generated.
//! - `parts.rs` runs several guests at the same time if the suite is long.
//! - `bench.rs` measures there, for `docs/rdma-performance.md`.
//!
//! The files that run inside are in `tests/vm`, with a README. The guest runs under software
//! emulation only, because `/dev/kvm` may exist without working.

mod bench;
mod cache;
mod initramfs;
mod kernel;
mod machine;
mod parts;
pub(crate) mod suite;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Args, Subcommand};

use crate::stage::{self, Form, Progress};
use crate::table::{Action, Scope};
use crate::workspace::Workspace;

pub(crate) use self::machine::Output;

use self::kernel::Kernel;
use self::machine::{Job, Machine};
use self::suite::Extent;

/// The directory of the guest's own files.
const FILES: &str = "tests/vm";

/// The task for the guest, and its options.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Fetch a kernel from Debian's packages and build siw; once, about two minutes.
    Setup,
    /// Boot, run a job, and exit with its status.
    Run(RunOptions),
    /// Boot and open a shell, which reads its script from a pipe if there is one.
    Shell,
    /// Print the directory of the kernel and its modules.
    Where,
    /// Run OFA's command lines on every configuration, for over an hour, and compare the page.
    Table(TableOptions),
    /// Measure every device and raw TCP, and print the table of docs/rdma-performance.md.
    Bench(BenchOptions),
}

#[derive(Debug, Args)]
struct RunOptions {
    /// End the guest after this time.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    timeout: u64,
    /// Processors of the guest.
    #[arg(long, value_name = "COUNT", default_value_t = 2)]
    cpus: u32,
    /// Memory of the guest, which also holds the files that jobs write.
    #[arg(long, value_name = "MIB", default_value_t = 4096)]
    memory: u32,
    /// A job of tests/vm/jobs by its name, or a program by its path, and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "JOB")]
    job: Vec<OsString>,
}

#[derive(Debug, Args)]
struct TableOptions {
    /// Write the results into docs/compatibility.md.
    #[arg(long)]
    write: bool,
    /// Run only the lines that every test run has.
    #[arg(long)]
    quick: bool,
    /// Run only lines that contain this word, such as a configuration; the page keeps the rest.
    #[arg(long, value_name = "WORD", default_value = "")]
    only: String,
}

#[derive(Debug, Args)]
struct BenchOptions {
    /// Put the table into docs/rdma-performance.md.
    #[arg(long)]
    write: bool,
    /// Rounds of each case.
    #[arg(long, value_name = "N", default_value_t = 3)]
    rounds: u32,
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<ExitCode> {
    match &options.command {
        Command::Setup => Kernel::renew(workspace).map(|kernel| {
            println!("{kernel}");
            ExitCode::SUCCESS
        }),
        Command::Where => Kernel::get(workspace).map(|kernel| {
            println!("{}", kernel.directory().display());
            ExitCode::SUCCESS
        }),
        Command::Run(options) => run_job(workspace, options),
        Command::Table(options) => make_table(workspace, options),
        Command::Bench(options) => measure(workspace, options),
        Command::Shell => {
            let kernel = Kernel::get(workspace)?;
            Machine::new(workspace, &kernel).shell().map(ExitCode::from)
        }
    }
}

fn run_job(workspace: &Workspace, options: &RunOptions) -> Result<ExitCode> {
    let (program, args) = options.job.split_first().context("a job has a name")?;
    let job = Job::new(program_of(workspace, program)?)
        .args(args)
        .env("DAT_STAGE", workspace.stage_dir())
        .deadline(Duration::from_secs(options.timeout));
    let kernel = Kernel::get(workspace)?;
    let finished = Machine::new(workspace, &kernel)
        .cpus(options.cpus)
        .memory_mib(options.memory)
        .run(&job, Output::Shown)?;
    // The exit status of a process fits into a byte; `machine.rs` has checked that there is one.
    let status = finished.status.code().unwrap_or(1);
    Ok(ExitCode::from(u8::try_from(status).unwrap_or(1)))
}

fn make_table(workspace: &Workspace, options: &TableOptions) -> Result<ExitCode> {
    println!("{}", stage::run(workspace, Progress::Shown, Form::Release)?);
    let extent = if options.quick {
        Extent::Quick
    } else {
        Extent::Full
    };
    let finished = suite::run(workspace, extent, &options.only, Output::Shown)?;
    // A failed test does not report its place in the table, so the run counts as a part. All other
    // results are valid, and are kept because the run is long.
    let scope = if finished.status.success() {
        Scope::of(&options.only)
    } else {
        Scope::Part
    };
    let result = suite::PAGE.apply(Action::of(options.write), workspace, &finished.text, scope);
    finished.success()?;
    println!("guest: {}", result?);
    Ok(ExitCode::SUCCESS)
}

fn measure(workspace: &Workspace, options: &BenchOptions) -> Result<ExitCode> {
    println!("{}", stage::run(workspace, Progress::Shown, Form::Release)?);
    let table = bench::run(workspace, options.rounds)?;
    println!("\n{table}");
    if options.write {
        bench::write_page(workspace, &table)?;
        println!("guest: {} has the figures", bench::PAGE);
    }
    Ok(ExitCode::SUCCESS)
}

/// The path of one of our jobs by its name, otherwise of a program by its path.
fn program_of(workspace: &Workspace, name: &OsString) -> Result<PathBuf> {
    let jobs = workspace.root().join(FILES).join("jobs");
    let ours = jobs.join(name).with_added_extension("sh");
    if ours.is_file() {
        return Ok(ours);
    }
    let path = PathBuf::from(name);
    ensure!(
        path.is_file(),
        "{} is neither a job of {} nor a file",
        path.display(),
        jobs.display()
    );
    path.canonicalize()
        .with_context(|| format!("finding {}", path.display()))
}
