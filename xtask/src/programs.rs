//! Debian's programs under `opsrun`, and the page that says what comes of them.

use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Args;

use crate::install::{
    self, CC, CURL, IPERF3, MEMCACHED, NGINX, NM, Need, POSTGRES, PYTHON, REDIS, REDIS_TOOLS, WRK,
};
use crate::stage::{self, Progress};
use crate::table::{Page, Scope};
use crate::test;
use crate::workspace::Workspace;

/// What the suite runs.
pub(crate) const NEEDS: &[Need] = &[
    CC,
    NM,
    PYTHON,
    REDIS,
    REDIS_TOOLS,
    NGINX,
    WRK,
    POSTGRES,
    MEMCACHED,
    IPERF3,
    CURL,
];

/// Programs by arrangement and protocol, and what came of them.
pub(crate) const PAGE: Page = Page {
    file: "docs/programs.md",
    title: "Program",
    command: "cargo xtask programs --write",
};

/// Which of them, and what becomes of the page.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Take what came into docs/programs.md.
    #[arg(long)]
    write: bool,
    /// The long form of each.
    #[arg(long)]
    full: bool,
    /// Run only what holds this word, such as a program's name; the page keeps the rest.
    #[arg(long, value_name = "WORD", default_value = "")]
    only: String,
}

/// Runs the suite and settles the page.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<ExitCode> {
    install::provide(workspace, NEEDS)?;
    let absent = install::missing(NEEDS);
    ensure!(absent.is_empty(), "{}", install::advice(&absent));
    println!("{}", stage::run(workspace, Progress::Shown)?);
    let step = "suite programs";
    let finished =
        test::finished_suite(workspace, options.full, "stack-tests", step, &options.only)?;
    let told = finished.text.lines();
    told.filter(|line| line.starts_with("test "))
        .for_each(|line| println!("{line}"));
    let finished = finished.success()?;
    let scope = Scope::of(&options.only);
    let told = PAGE.settle(workspace, &finished.text, scope, options.write)?;
    println!("programs: {told}");
    Ok(ExitCode::SUCCESS)
}
