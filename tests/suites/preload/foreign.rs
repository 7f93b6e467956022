//! Offload protocols in shared objects, which the rule file names.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use stack_tests::{
    CProgram, DEADLINE, NetSpace, Offload, OffloadProtocol, OpsRun, Stage, make_c_examples, rows,
};

/// A test and its name.
type Case = (&'static str, fn() -> Result<()>);

const CASES: &[Case] = &[
    (
        "the_example_carries_all_connections_of_a_program",
        the_example,
    ),
    ("the_priority_of_the_rule_file_decides", priorities),
    ("an_object_that_returns_nonsense_harms_no_program", nonsense),
    (
        "an_object_that_cannot_be_loaded_leaves_the_other_protocols",
        absent,
    ),
];

pub(crate) fn cases() -> impl Iterator<Item = &'static Case> {
    CASES.iter()
}

/// A program with both ends of connections, for rules that permit only the protocol of the example.
const OVER_UNIX: &str = include_str!("over_unix.py");

/// A program that connects twice, whatever carries the connections. Prints `done`.
const ANY: &str = include_str!("any_stack.py");

/// Rules for connections by these protocols, or by TCP.
fn only(protocols: &str) -> String {
    let connect = format!("use both connect * *:* within=60s protocol={protocols}");
    format!("use both listen * *:* protocol={protocols}\n{connect}\n")
}

/// Runs a script with an object whose `protocol` line ends with `line`.
fn run(object: &Path, line: &str, rules: &str, script: &str, bad: &str) -> Result<String> {
    let _net = NetSpace::enter()?;
    let dir = tempfile::tempdir()?;
    let sdp = OffloadProtocol::ALL.iter().find(|it| it.is_sdp);
    let sdp = sdp.context("the protocol SDP")?;
    let ops = OpsRun::new(&Stage::find()?, sdp, Offload::All, dir.path())?;
    let file = dir.path().join("own.rules");
    let log = "log destination stderr min-level 7";
    let object = object.display();
    fs::write(&file, format!("protocol {object} {line}\n{log}\n{rules}"))?;
    let program = ops.program("python3").arg("-c").arg(script);
    let program = program.env("OPS_RULES", &file).env("BAD", bad);
    let finished = program.env("OPS_UNIX_VERBOSE", "1").run(DEADLINE)?;
    Ok(finished.text)
}

fn the_example() -> Result<()> {
    let dir = tempfile::tempdir()?;
    make_c_examples(&Stage::find()?, dir.path(), "ops_unix.so")?;
    let object = dir.path().join("ops_unix.so");
    let rules = "use offload listen * *:* protocol=unix\nuse offload connect * *:* protocol=unix\n";
    let text = run(&object, "priority=5", rules, OVER_UNIX, "")?;
    ensure!(text.contains("done"), "{text}");
    ensure!(
        text.contains("ops_unix: the network has changed: "),
        "{text}"
    );
    Ok(())
}

fn priorities() -> Result<()> {
    let dir = tempfile::tempdir()?;
    make_c_examples(&Stage::find()?, dir.path(), "ops_unix.so")?;
    let object = dir.path().join("ops_unix.so");
    for (line, event, expected) in rows! {
        "priority=5", "a connection is offloaded", "protocol=unix";
        "priority=-5", "a connection is offloaded", "protocol=sdp";
        "", "a connection is offloaded", "protocol=sdp";
    } {
        let text = run(&object, line, &only("unix,sdp"), ANY, "")?;
        let connected = text.lines().find(|text| text.contains(event));
        let text = connected.context(text.clone())?.to_owned();
        ensure!(text.contains(expected), "{line}: {text}");
    }
    Ok(())
}

fn nonsense() -> Result<()> {
    let object = CProgram::compile_shared("bad_protocol")?;
    for (bad, expected) in rows! {
        "table", "no table";
        "misaligned", "no table";
        "version", "another version";
        "size", "another version";
        "name", "no proper name";
        "taken", "registered already";
        "function", "a function is missing";
        "null", "carried by tcp";
        "descriptor", "carried by tcp";
        "negative", "carried by tcp";
        "result", "carried by tcp";
        "errno", "carried by tcp";
        "connected", "carried by tcp";
        "names", "an error: [Errno 71]";
        "accept", "an error: [Errno 71]";
        "nothing", "an error: [Errno 71]";
        "count", "an error: [Errno 71]";
    } {
        let text =
            run(object.file(), "", &only("bad"), ANY, bad).with_context(|| bad.to_owned())?;
        ensure!(
            text.contains(expected) && text.contains("done"),
            "{bad}: {text}"
        );
    }
    Ok(())
}

fn absent() -> Result<()> {
    let text = run(Path::new("/nowhere/absent.so"), "", "", ANY, "")?;
    ensure!(text.contains("/nowhere/absent.so"), "{text}");
    ensure!(
        text.contains("carried by a protocol") && text.contains("done"),
        "{text}"
    );
    Ok(())
}
