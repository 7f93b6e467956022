//! `dat-conformance` over the kernel's RDMA devices.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use libtest_mimic::Trial;
use stack_tests::{Finished, IA_NAME, Program, StackEnv, is_full};

use crate::configuration::{CONFIGURATIONS, Configuration};
use crate::lines::{ATTEMPTS, record_retry};
use crate::times::timed;

/// The configurations with which `dat-conformance` runs. The tool's table of differences uses their
/// names.
const KNOWN: &[&str] = &["ofa-rxe", "ofa-siw", "ib-rxe", "ib-siw"];

/// The cases of every run: at least one of each object and of each kind of transfer. All cases
/// would take minutes per configuration under emulation.
const CHOICE: &str = "ia/attributes,ia/close-abrupt,pz/in-use-by-region,lmr/privileges,\
    evd/threshold,evd/resize-transfers,evd/overflow,cno/wakes,ep/granted,psp/any,rsp/accept,\
    connect/private-data-24,connect/timeout,connect/unreachable,reject/private-data-24,\
    disconnect/flushes,send/0,send/1,send/no-segments,send/64K,send/gather,write/64K,read/64K,\
    read/mixed,read/fence,read/overtaken,read/suppressed,read/fenced-read,flags/suppress,\
    protection/write-key,rmr/write,srq/one,srq/low-watermark,ib/fetch-add,many/threads";

/// The cases over OFA's provider, for comparison: mostly cases that this provider passes, because
/// each case that hangs costs minutes.
const OFAS_CHOICE: &str = "ia/attributes,pz/in-use-by-region,lmr/privileges,evd/threshold,\
    cno/wakes,ep/granted,psp/any,rsp/accept,connect/private-data-24,disconnect/flushes,send/1,\
    send/64K,send/gather,write/64K,read/64K,flags/suppress";

const DEADLINE: Duration = Duration::from_secs(2400);

/// The time limit of a case, in seconds, on a machine that has other work.
const LIMIT_S: u32 = 180;

/// The time limit of a case over OFA's provider, over which some cases hang.
const OFAS_LIMIT_S: u32 = 60;

/// Two tests per configuration: all cases, and the chosen cases. The tool reports the result of
/// each case.
pub(crate) fn trials() -> Vec<Trial> {
    let known = CONFIGURATIONS
        .iter()
        .filter(|configuration| KNOWN.contains(&configuration.name));
    known.flat_map(of_configuration).collect()
}

fn of_configuration(configuration: &'static Configuration) -> [Trial; 2] {
    // The first test runs all cases; the table of lines has one row for it.
    let whole = trial(
        format!("{}: dat-conformance", configuration.name),
        configuration,
        Vec::new(),
    );
    let name = format!("a choice of dat-conformance on {}", configuration.name);
    let cases = if configuration.is_ofas() {
        OFAS_CHOICE
    } else {
        CHOICE
    };
    let choice = trial(name, configuration, vec!["--only", cases]);
    [
        whole.with_ignored_flag(!is_full()),
        choice.with_ignored_flag(is_full()),
    ]
}

fn trial(name: String, configuration: &'static Configuration, args: Vec<&'static str>) -> Trial {
    timed(name, move || run(configuration, &args))
}

/// Runs the cases. Over OFA's provider, connections break occasionally under
/// their first message, so failed cases are repeated; a case that fails there three times in a row
/// has another reason. Each failure before that is reported.
fn run(configuration: &Configuration, args: &[&str]) -> Result<()> {
    let attempts = if configuration.is_ofas() { ATTEMPTS } else { 1 };
    let mut finished = run_once(configuration, args)?;
    for attempt in 1..attempts {
        let failed = failed_cases(&finished.text);
        // An outdated row fails the run, whatever the results of the cases are.
        if failed.is_empty() || !finished.text.contains(", 0 outdated rows") {
            break;
        }
        record_retry(
            configuration,
            "dat-conformance",
            attempt,
            &failed.join(", "),
        );
        finished = run_once(configuration, &["--only", &failed.join(",")])?;
    }
    let failures: Vec<&str> = finished
        .text
        .lines()
        .filter(|line| !line.starts_with("ok ") && !line.starts_with("DIFFERS "))
        .collect();
    let failures = failures.join("\n");
    finished.success().with_context(|| failures)?;
    Ok(())
}

fn run_once(configuration: &Configuration, args: &[&str]) -> Result<Finished> {
    let env = configuration.env()?;
    let mut tool = tool(&env, configuration);
    for arg in args {
        tool = tool.arg(arg);
    }
    tool.spawn()?.finish(DEADLINE)
}

fn failed_cases(text: &str) -> Vec<String> {
    let failed = text.lines().filter_map(|line| line.strip_prefix("FAIL "));
    let names = failed.filter_map(|line| line.split_whitespace().next());
    names.map(str::to_owned).collect()
}

fn tool(env: &StackEnv, configuration: &Configuration) -> Program {
    let table = Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance/differences.txt");
    let limit = if configuration.is_ofas() {
        OFAS_LIMIT_S
    } else {
        LIMIT_S
    };
    let args = format!(
        "--ia {IA_NAME} --limit {limit} --configuration {} --differences",
        configuration.name
    );
    env.program(env.stage.bin("dat-conformance"))
        .args_line(&args)
        .arg(table)
}
