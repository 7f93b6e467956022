//! The command `ss`.

use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::Result;
use ops::observe::{Listing, PageRoot};
use serde_json::{Value, json};
use tool_args::opsrun::Listed;

use crate::sockets::{self, Shown};
use crate::{listing, openmetrics, watch};

/// Prints the sockets.
pub(crate) fn run(how: Listed) -> Result<ExitCode> {
    let root = PageRoot::choose(host::environment::variable);
    if let Some(interval) = how.watch {
        let shown = Shown::of(how);
        return written(watch::run(&root, interval, shown));
    }
    let listing = match how.openmetrics {
        // The metrics have the addresses of listeners only, which are in the pages.
        true => Listing::read(&root),
        false => listing::read(&root),
    };
    for (user, name, fault) in &listing.faults {
        eprintln!("opsrun: page {name} of user {user} is not read: {fault}");
    }
    let text = if how.json {
        let processes: Vec<Value> = listing.processes.iter().map(sockets::process).collect();
        format!("{:#}\n", json!({ "processes": processes }))
    } else if how.openmetrics {
        openmetrics::text(&listing)
    } else {
        sockets::table(&listing.processes, Shown::of(how))
    };
    written(io::stdout().write_all(text.as_bytes()))
}

/// Returns the exit code after output. A reader that has closed the pipe is no error.
fn written(result: io::Result<()>) -> Result<ExitCode> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        result => Ok(result.map(|()| ExitCode::SUCCESS)?),
    }
}
