//! Starts a program with the library loaded before its C library.

use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use tool_args::opsrun::Args;

use crate::{launch, load_rules, reach};

const LIBRARY: &str = "libops-preload.so";

/// The variable that the loader reads.
const LD_PRELOAD: &str = "LD_PRELOAD";

/// The variable that makes the library offer SDP over the software provider for every socket.
pub(crate) const SOFTWARE: &str = "OPS_SOFTWARE";

/// The variable that makes threads of the program poll before they sleep, and the time in
/// microseconds: about as long as it takes to wake a thread on an idle processor.
const SPIN: (&str, &str) = ("OPS_SPIN", "50");

/// Executes the program. Returns only if that fails.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    // The rule file is checked here: with an unusable file the program would stay on TCP unnoticed.
    load_rules(args)?;
    let own = std::env::current_exe().context("finding opsrun itself")?;
    let library = launch::directory_of(LIBRARY, &own, &[""])?.join(LIBRARY);
    // The loader separates the list at colons and at blanks.
    let list = launch::listed_first(&library, host::environment::variable(LD_PRELOAD), b": ")?;
    let (program, rest) = args.words.split_first().context("no program was given")?;
    if let Some(why) = reach::reason_against(program) {
        let program = program.display();
        eprintln!("opsrun: warning: {program} runs without the library, because {why}");
    }
    let mut command = Command::new(program);
    command.args(rest).env(LD_PRELOAD, list);
    if let Some(rules) = &args.rules {
        // The path is made absolute, because the program may change its working directory.
        let rules = std::path::absolute(rules).context("finding the rule file")?;
        command.env(ops::rules::VARIABLES[0], rules);
    }
    if args.software {
        command.env(SOFTWARE, "1");
    }
    if args.spin {
        command.env(SPIN.0, SPIN.1);
    }
    Ok(launch::execute(&mut command, "opsrun"))
}
