//! The command `ss`.

use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::Result;
use ops::observe::{Listing, PageRoot};
use serde_json::{Value, json};
use tool_args::opsrun::Listed;

use crate::sockets::{self, Shown};
use crate::{listing, openmetrics, statistics, watch};

/// Prints the sockets.
pub(crate) fn run(how: Listed) -> Result<ExitCode> {
    let root = PageRoot::choose(host::environment::variable);
    if let Some(interval) = how.watch {
        return written(watch::run(&root, interval, how));
    }
    let has_metrics = how.openmetrics || how.prometheus;
    let mut listing = match has_metrics || how.statistics {
        // These have the addresses of listeners at most, which are in the pages.
        true => Listing::read(&root),
        false => listing::read(&root),
    };
    listing::keep(&mut listing, how);
    if let Some(obstacle) = root.obstacle() {
        eprintln!(
            "opsrun: {} belongs to another user or is open to others; another directory is used",
            obstacle.display()
        );
    }
    for (user, name, fault) in &listing.faults {
        eprintln!("opsrun: page {name} of user {user} is not read: {fault}");
    }
    let text = if how.json {
        let processes: Vec<Value> = listing.processes.iter().map(sockets::process).collect();
        format!("{:#}\n", json!({ "processes": processes }))
    } else if how.statistics {
        statistics::text(&listing.processes)?
    } else if has_metrics {
        let format = match how.prometheus {
            true => openmetrics::Format::Prometheus,
            false => openmetrics::Format::OpenMetrics,
        };
        openmetrics::text(&listing, format)
    } else {
        sockets::table(&listing.processes, Shown::of(how).on_terminal())
    };
    print(&text)
}

/// Writes a text to standard output.
pub(crate) fn print(text: &str) -> Result<ExitCode> {
    written(io::stdout().write_all(text.as_bytes()))
}

/// Returns the exit code after output. A reader that has closed the pipe is no error.
fn written(result: io::Result<()>) -> Result<ExitCode> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        result => Ok(result.map(|()| ExitCode::SUCCESS)?),
    }
}
