//! Programs with the runtime of a sanitizer. A runtime in a library of its own precedes no other
//! library where `opsrun` loads one.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Result, ensure};
use stack_tests::{Stage, not_run};
use tempfile::TempDir;

use super::{command, text};

/// Sends bytes to itself, from memory that it frees before if it has an argument.
const SOURCE: &str = include_str!("sanitized.c");

/// The compilers, and their flags for one sanitizer.
const BUILDS: [(&str, &str); 6] = [
    ("gcc", "-fsanitize=address"),
    ("gcc", "-fsanitize=address -static-libasan"),
    ("gcc", "-fsanitize=undefined"),
    ("gcc", "-fsanitize=thread"),
    ("clang", "-fsanitize=address"),
    ("clang", "-fsanitize=address -shared-libasan"),
];

/// Compiles the program. `None`: the compiler or the runtime is not installed.
fn compile(dir: &TempDir, compiler: &str, flags: &str) -> Result<Option<PathBuf>> {
    let (source, program) = (dir.path().join("program.c"), dir.path().join("program"));
    std::fs::write(&source, SOURCE)?;
    let mut line = Command::new(compiler);
    line.args(["-g", "-O0", "-w", "-pthread"])
        .args(flags.split(' '))
        .arg("-o")
        .args([&program, &source]);
    let is_made = line.output().is_ok_and(|output| output.status.success());
    Ok(is_made.then_some(program))
}

fn run(program: &Path, arguments: &[&str]) -> Result<Output> {
    let mut opsrun = command(Stage::find()?.bin("opsrun"));
    for variable in ["ASAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS"] {
        opsrun.env_remove(variable);
    }
    Ok(opsrun.arg(program).args(arguments).output()?)
}

#[test]
fn programs_of_sanitizers_run_and_report_their_faults() -> Result<()> {
    let mut missing = Vec::new();
    for (compiler, flags) in BUILDS {
        let dir = TempDir::new()?;
        let Some(program) = compile(&dir, compiler, flags)? else {
            missing.push(format!("{compiler} {flags}"));
            continue;
        };
        let output = run(&program, &[])?;
        let has_run = output.status.success() && text(&output.stdout) == "offloaded\n";
        ensure!(
            has_run && output.stderr.is_empty(),
            "{compiler} {flags}: {output:?}"
        );
        if flags.contains("address") {
            let output = run(&program, &["freed"])?;
            let found = text(&output.stderr).contains("heap-use-after-free");
            ensure!(
                found && !output.status.success(),
                "{compiler} {flags}: {output:?}"
            );
        }
    }
    if !missing.is_empty() {
        not_run(&format!("not installed: {}", missing.join(", ")));
    }
    Ok(())
}
