//! Debian's programs under `opsrun`, and the page with the results.

use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Args;

use crate::install::{
    self, CC, CURL, DOVECOT, ERLANG, GO, HAPROXY, INETD, IPERF3, JAVA, MARIADB, MEMCACHED, NGINX,
    NM, NODE, Need, OPENSSL, PEN, PHP, POSTGRES, PYTHON, REDIS, REDIS_TOOLS, SOCKET_ACTIVATE,
    SQUID, SSH, SSHD, STUNNEL, SUPERVISOR, VARNISH, VSFTPD, WRK,
};
use crate::stage::{self, Form, Progress};
use crate::suites::Suite;
use crate::table::{Action, Page, Scope};
use crate::workspace::Workspace;

/// The programs that the suite needs.
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

/// Further programs that the suite runs; if one is missing, its cases are not run.
const MORE: &[Need] = &[
    VSFTPD,
    HAPROXY,
    INETD,
    SOCKET_ACTIVATE,
    STUNNEL,
    OPENSSL,
    PEN,
    PHP,
];

/// Further programs in full runs, which are in large packages or start services on the machine.
const MORE_IN_FULL: &[Need] = &[
    VARNISH, SQUID, SSHD, SSH, DOVECOT, SUPERVISOR, NODE, JAVA, ERLANG, GO, MARIADB,
];

/// Installs the further programs where possible; the suite runs without them too.
pub(crate) fn provide_more(workspace: &Workspace, full: bool) {
    let in_full = if full { MORE_IN_FULL } else { &[] };
    for need in MORE.iter().chain(in_full) {
        // The cases report the missing programs.
        let _ = install::provide(workspace, std::slice::from_ref(need));
    }
}

/// The page of programs by arrangement and protocol, with their results.
pub(crate) const PAGE: Page = Page {
    file: "docs/programs.md",
    title: "Program",
    command: "cargo xtask programs --write",
};

/// The selection of programs, and whether the page is written.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Write the results into docs/programs.md.
    #[arg(long)]
    write: bool,
    /// Run the long form of each program.
    #[arg(long)]
    full: bool,
    /// Run only cases that contain this word, such as a program; the page keeps the rest.
    #[arg(long, value_name = "WORD", default_value = "")]
    only: String,
}

/// Runs the suite, and checks or writes the page.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<ExitCode> {
    install::provide(workspace, NEEDS)?;
    let absent = install::missing(NEEDS);
    ensure!(absent.is_empty(), "{}", install::advice(&absent));
    provide_more(workspace, options.full);
    println!("{}", stage::run(workspace, Progress::Shown, Form::Release)?);
    let step = "suite programs";
    let finished =
        Suite::build(workspace, options.full, "stack-tests", step)?.run(&options.only)?;
    let lines = finished.text.lines();
    lines
        .filter(|line| line.starts_with("test "))
        .for_each(|line| println!("{line}"));
    let finished = finished.success()?;
    let scope = Scope::of(&options.only);
    let result = PAGE.apply(Action::of(options.write), workspace, &finished.text, scope)?;
    println!("programs: {result}");
    Ok(ExitCode::SUCCESS)
}
