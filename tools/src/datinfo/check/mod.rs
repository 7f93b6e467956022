//! The check of the configuration: what is wrong with DAT on this host, and how to fix it.
//!
//! Each file checks one subject. A check reads the host through [`Host`] or takes the values to be
//! judged as arguments, so that its tests need no second machine.
//!
//! - `item.rs` the result of a check, and its printed form
//! - `host.rs` files of the system, and the privileges of this process
//! - `registry.rs` the registry file and its adapters
//! - `loader.rs` the registry library that programs load
//! - `devices.rs` RDMA devices, their files and their lines
//! - `limits.rs` resource limits
//! - `policing.rs` limits of the administrator
//! - `memory.rs` shared memory between processes
//! - `processes.rs` the permission to read the memory of another process
//! - `host_name.rs` name resolution
//! - `port.rs` the port of the iWARP port mapper

mod devices;
mod host;
mod host_name;
mod item;
mod limits;
mod loader;
mod memory;
mod policing;
mod port;
mod processes;
mod registry;

use std::process::ExitCode;

use dat_api::Library;
use serde_json::{Value, json};
use tool_args::datinfo::Args;
use tool_args::terminal;

use self::host::{Host, Privileges};
use self::item::{Item, Outcome};
use crate::lines::Registry;
use crate::{lines, reason};

/// Checks everything, prints the problems, and returns 1 if there are any.
pub(crate) fn run(args: &Args) -> ExitCode {
    let items = items(args);
    let problems = items.iter().filter(|item| item.is_problem()).count();
    let text = if args.json {
        let items: Vec<Value> = items.iter().map(Item::json).collect();
        format!("{:#}\n", json!({ "problems": problems, "checks": items }))
    } else {
        let is_shown = |item: &&Item| args.verbose || !matches!(item.outcome, Outcome::Passed);
        let shown = items.iter().filter(is_shown);
        let has_colours = terminal::has_colours();
        let shown = shown.map(|item| format!("{}\n", item.shown(has_colours)));
        let shown: String = shown.collect();
        format!("{shown}{}\n", item::total(problems, items.len()))
    };
    terminal::print(text);
    match problems {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

fn items(args: &Args) -> Vec<Item> {
    let host = Host::this();
    let privileges = Privileges::read(&host);
    // The probe forks, so it precedes the libraries, which may start threads.
    let probe = processes::probe();
    let (report, log) = reason::catch(|| crate::report(args));
    let registry = lines::read();
    let mut items = registry::items(&host, &registry, report.as_ref());
    let is_explained = items.iter().any(Item::is_problem);
    if !is_explained {
        // Without a problem in the registry, the libraries report something else.
        reason::pass_on(&log);
    }
    let library = Library::get();
    let is_builtin = matches!(registry, Registry::Builtin);
    items.extend(loader::items(library.as_ref().copied(), is_builtin));
    let devices = devices::read(&host);
    items.extend(devices::items(&host, &devices, registry.lines()));
    items.extend(limits::items(&limits::read(), &devices, privileges));
    items.extend(policing::items());
    items.extend(memory::items(&host));
    items.extend(processes::items(&host, probe, privileges));
    items.push(host_name::item(&host));
    items.push(port::item(&host));
    items
}
