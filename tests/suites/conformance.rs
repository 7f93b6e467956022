//! `dat-conformance` over the software provider: on loopback, also by TCP alone without CRC and
//! with short FPDUs, and across two networks.
//!
//! Each case of the tool is a test. The tool runs once per configuration (a kind of network with
//! settings of the adapter), and the tests report the results of the cases.
//! `tests/conformance/differences.txt` lists known differences.

use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use libtest_mimic::{Arguments, Failed, Trial};
use stack_tests::{
    Finished, IA_NAME, Program, Registry, SOFTWARE, StackEnv, Veth, adapter_line, is_full, not_run,
};

/// The time after which a run of the tool counts as hanging; each case has a limit of its own.
const DEADLINE: Duration = Duration::from_secs(120);

/// The port on which the server of the far network listens.
const CONTROL_PORT: u16 = 45300;

/// Runs the tool on a configuration; `None` if this machine cannot create the configuration.
type Configuration = fn(&str) -> Result<Option<Finished>>;

const CONFIGURATIONS: [(&str, Configuration); 4] = [
    ("soft-lo", |name| loopback(name, "")),
    ("soft-no-crc", |name| loopback(name, "local=off crc=off")),
    ("soft-short", |name| {
        loopback(name, "local=off fpdu_max=1442")
    }),
    ("soft-veth", veth),
];

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let runs = CONFIGURATIONS.map(|(name, run)| (name, thread::spawn(move || run(name))));
    let trials = runs.into_iter().flat_map(|(name, run)| {
        let result = run
            .join()
            .unwrap_or_else(|_| Err(anyhow!("the run panicked")));
        trials(name, result)
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

/// A test for each line that reports a case, and a test for the run as a whole.
fn trials(configuration: &str, result: Result<Option<Finished>>) -> Vec<Trial> {
    let whole = format!("{configuration} as a whole");
    let finished = match result {
        Ok(Some(finished)) => finished,
        Ok(None) => {
            let why = format!("{configuration}: this needs a network namespace of its own");
            let trial = Trial::test(whole, move || {
                not_run(&why);
                Ok(())
            });
            return vec![trial];
        }
        Err(error) => return vec![Trial::test(whole, move || Err(failed(&error)))],
    };
    let mut trials: Vec<Trial> = finished
        .text
        .lines()
        .filter_map(|line| of_case(configuration, line))
        .collect();
    trials.push(Trial::test(whole, move || {
        let done = finished
            .success()
            .and_then(|done| done.prints(" 0 failed,"));
        done.map(drop).map_err(|error| failed(&error))
    }));
    trials
}

/// The test of a case, if the line reports one.
fn of_case(configuration: &str, line: &str) -> Option<Trial> {
    let words = ["ok ", "FAIL ", "DIFFERS ", "NOT RUN "];
    let (word, rest) = words
        .iter()
        .find_map(|word| Some((word.trim(), line.strip_prefix(word)?.trim_start())))?;
    let case = rest.split([' ', ':']).next()?;
    let line = line.to_owned();
    Some(Trial::test(format!("{configuration} {case}"), move || {
        match word {
            "FAIL" => return Err(Failed::from(line)),
            // A case that the provider reports as unsupported is a test that was not run.
            "NOT RUN" => not_run(&line),
            _ => {}
        }
        Ok(())
    }))
}

fn failed(error: &anyhow::Error) -> Failed {
    Failed::from(format!("{error:#}"))
}

/// Runs both ends over the loopback device, with these words in the adapter's parameters.
fn loopback(configuration: &str, params: &str) -> Result<Option<Finished>> {
    let mut env = StackEnv::new()?;
    env.registry = Registry::loopback_with("libdapl-iwarp.so.2", params)?;
    let tool = tool(&env, env.registry.file(), IA_NAME);
    finish(with_table(tool, configuration)).map(Some)
}

/// Runs the client in this network, and the server in the network at the other end of a cable.
fn veth(configuration: &str) -> Result<Option<Finished>> {
    let env = StackEnv::new()?;
    let Some(veth) = Veth::create(&env.net)? else {
        return Ok(None);
    };
    let line = |device: &str| adapter_line(device, SOFTWARE, &format!("{device} 0"));
    let registry = Registry::with_text(&[Veth::NEAR, Veth::FAR].map(line).concat())?;
    let address = format!("{}:{CONTROL_PORT}", Veth::FAR_V4);
    let server = tool(&env, registry.file(), Veth::FAR)
        .args_line(&format!("--role server --listen {address}"))
        .in_network_of(&veth)?
        .spawn()?;
    server.wait_for("listening at", DEADLINE)?;
    let client = tool(&env, registry.file(), Veth::NEAR)
        .args_line(&format!("--role client --peer {address}"));
    finish(with_table(client, configuration))
        .with_context(|| server.text())
        .map(Some)
}

fn tool(env: &StackEnv, registry: &Path, ia_name: &str) -> Program {
    let tool = env.stage.bin("dat-conformance");
    env.program_with(tool, registry)
        .args_line(&format!("--ia {ia_name}"))
}

fn with_table(tool: Program, configuration: &str) -> Program {
    let table = Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance/differences.txt");
    let tool = tool.args_line(&format!("--configuration {configuration} --differences"));
    let tool = tool.arg(table);
    if is_full() { tool.arg("--long") } else { tool }
}

fn finish(tool: Program) -> Result<Finished> {
    let deadline = if is_full() { DEADLINE * 10 } else { DEADLINE };
    tool.spawn()?.finish(deadline)
}
