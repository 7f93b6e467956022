//! Lists the interface adapters of the DAT registry, and checks the configuration of this host.
//!
//! - `tool_args::datinfo` the command line
//! - `check` the check of the configuration: what is wrong, and how to fix it
//! - `lines.rs` the result of each line of the registry file, and why a line is not used
//! - `fields.rs` attributes as names and values
//! - `names.rs` enums and flags by their C names
//! - `reason.rs` the reason why an adapter cannot be opened, from the libraries' log
//! - `traffic.rs` the carrier of the payload of connections within this host
//! - `table.rs` the short form, one line per adapter; `text.rs` the long form with all attributes;
//!   `--json` prints the data of the long form as one object

mod check;
mod fields;
mod lines;
mod names;
mod reason;
mod table;
mod text;
mod traffic;

use std::process::ExitCode;

use clap::Parser;
use dat_api::{Ia, Library, list_providers};
use serde_json::{Value, json};
use tool_args::datinfo::Args;
use tool_args::terminal::print;

fn main() -> ExitCode {
    let args = Args::parse();
    if args.check {
        return check::run(&args);
    }
    if args.events {
        print(names::events());
        return ExitCode::SUCCESS;
    }
    match report(&args) {
        Ok(report) => {
            let text = if args.json {
                format!("{report:#}\n")
            } else if args.limits {
                table::limits(&report)
            } else if args.verbose || args.counters || !args.names.is_empty() {
                text::text(&report)
            } else {
                table::table(&report)
            };
            print(text);
            let code = complain_of_unknown(&args, &report);
            if args.names.is_empty() && has_none(&report) {
                let file = report["registry_file"].as_str().unwrap_or_default();
                if args.provider.is_some() || args.device.is_some() {
                    eprintln!("datinfo: no interface adapter in the registry ({file}) is so");
                } else {
                    eprintln!(
                        "datinfo: the registry is empty ({file}): dat.conf(5) describes its lines, \
                         and `datinfo --check` lists the problems"
                    );
                }
                return ExitCode::FAILURE;
            }
            code
        }
        Err(error) => {
            eprintln!("datinfo: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The whole report, as the JSON form has it: usable adapters first.
fn report(args: &Args) -> Result<Value, dat_api::Error> {
    // SAFETY: no thread runs before an adapter is opened.
    unsafe { reason::enable_registry_warnings() };
    let library = Library::get()?;
    let registry = lines::read();
    let lines = registry.lines();
    let mut adapters = Vec::new();
    let providers = list_providers()?;
    // The registry has opened its log by now, as the user configured it. Providers are loaded after
    // this.
    // SAFETY: no thread runs before an adapter is opened.
    unsafe { reason::enable_provider_warnings() };
    for info in providers {
        // An entry for an older version is one of the lines that are not used.
        if info.version_major != lines::DAT_VERSION
            || !args.names.is_empty() && !args.names.contains(&info.ia_name)
        {
            continue;
        }
        let line = lines.iter().find(|line| line.registers(&info));
        let library = line.map_or("", |line| &line.library);
        if !has_part(library, args.provider.as_deref()) {
            continue;
        }
        let mut adapter = json!({
            "ia_name": info.ia_name,
            "version": format!("{}.{}", info.version_major, info.version_minor),
            "thread_safe": info.is_thread_safe,
            "library": line.map(|line| &line.library),
            "params": line.map(|line| &line.params),
            "line": line.map(|line| line.number),
        });
        if !args.list {
            adapter["opened"] = open(&info.ia_name, args.counters);
        }
        summarize(&mut adapter);
        let device = adapter["device"].as_str().unwrap_or_default();
        if has_part(device, args.device.as_deref()) {
            adapters.push(adapter);
        }
    }
    adapters.sort_by_key(|adapter| adapter["state"] != "usable");
    Ok(json!({
        "registry_library": library.path().to_string_lossy(),
        "registry_file": registry.path(),
        "adapters": adapters,
        "unused_lines": lines::unused(lines),
    }))
}

/// Returns true if `text` contains what the user asked for.
fn has_part(text: &str, part: Option<&str>) -> bool {
    part.is_none_or(|part| text.contains(part))
}

/// Adds the state, the device and the address of an adapter. An adapter that is not open has the
/// device that its line names.
fn summarize(adapter: &mut Value) {
    let opened = &adapter["opened"];
    let (state, attributes) = match opened {
        Value::Null => ("not opened", &Value::Null),
        opened if opened.get("error").is_some() => ("unusable", &Value::Null),
        opened => ("usable", &opened["adapter"]),
    };
    let named = adapter["params"].as_str();
    let named = named.and_then(|params| params.split_ascii_whitespace().next());
    let device = match attributes["adapter_name"].as_str() {
        Some(name) if !name.is_empty() => Some(name),
        _ => named,
    };
    let summary = [
        ("state", json!(state)),
        ("device", json!(device)),
        ("address", attributes["address"].clone()),
    ];
    for (key, value) in summary {
        adapter[key] = value;
    }
}

/// Returns true if there is no adapter at all. A script that checks for DAT must notice this.
fn has_none(report: &Value) -> bool {
    report["adapters"].as_array().is_none_or(Vec::is_empty)
}

/// Fails if the registry lacks a name that the user gave, so that a script notices a missing
/// adapter.
fn complain_of_unknown(args: &Args, report: &Value) -> ExitCode {
    let adapters = report["adapters"].as_array();
    let is_known = |name: &str| {
        let mut names = adapters.into_iter().flatten().map(|one| &one["ia_name"]);
        names.any(|known| known == name)
    };
    let mut code = ExitCode::SUCCESS;
    for name in args.names.iter().filter(|name| !is_known(name)) {
        let file = report["registry_file"].as_str().unwrap_or_default();
        eprintln!(
            "datinfo: no interface adapter {name:?} in the registry ({file}): \
             `datinfo -v` lists all adapters and the lines that are not used"
        );
        code = ExitCode::FAILURE;
    }
    code
}

/// The attributes of an adapter; or, if it cannot be opened, the code and the logged reason, if
/// any.
fn open(name: &str, has_counters: bool) -> Value {
    let (opened, log) = reason::catch(|| Ia::open(name));
    let attributes = match opened {
        Ok(ia) => {
            reason::pass_on(&log);
            attributes(&ia, has_counters)
        }
        Err(error) => return refusal(&error, &log, name),
    };
    attributes.unwrap_or_else(|error| json!({ "error": error.to_string() }))
}

fn attributes(ia: &Ia, has_counters: bool) -> Result<Value, dat_api::Error> {
    let mut attributes = json!({
        "adapter": fields::of_ia(&ia.attr()?),
        "provider": fields::of_provider(&ia.provider_attr()?),
    });
    if has_counters {
        attributes["traffic"] = traffic::report(ia);
    }
    Ok(attributes)
}

fn refusal(error: &dat_api::Error, log: &str, name: &str) -> Value {
    let (reason, rest) = reason::split(log, name);
    reason::pass_on(&rest);
    let code = without_advice(error);
    match reason {
        Some(reason) => json!({ "error": code, "reason": reason }),
        None => json!({ "error": code }),
    }
}

/// The text of an error without the advice that the crate adds for the code, which is to run this
/// tool.
fn without_advice(error: &dat_api::Error) -> String {
    let text = error.to_string();
    let advice = match error {
        dat_api::Error::Call(call) => call.advice().unwrap_or_default(),
        _ => "",
    };
    let code = text.strip_suffix(advice).unwrap_or(&text);
    code.trim_end_matches(": ").to_owned()
}
