//! `opsrun` as it is installed: what it explains, and what it runs.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use anyhow::{Result, ensure};
use stack_tests::Stage;
use tempfile::TempDir;

/// Both ends of a conversation in one interpreter, which fails when a byte is wrong.
const THREADS: &str = include_str!("preload/threads.py");

fn opsrun(args: &[&str]) -> Result<Output> {
    let mut command = Command::new(Stage::find()?.bin("opsrun"));
    command
        .args(args)
        .env_remove("LD_PRELOAD")
        .env_remove("OPS_RULES");
    Ok(command.env("OPS_TEST_PROTOCOL", "1").output()?)
}

fn rule_file(text: &str) -> Result<(TempDir, PathBuf)> {
    let dir = TempDir::new()?;
    let path = dir.path().join("rules");
    fs::write(&path, text)?;
    Ok((dir, path))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_rule_that_decides_is_explained() -> Result<()> {
    let (_dir, rules) = rule_file("# ours\nuse tcp connect redis* 127.0.0.0/8:*\n")?;
    let rules = rules.display().to_string();
    let program = "/usr/bin/redis-cli";
    let args = [
        "--explain",
        "connect",
        "--rules",
        &rules,
        "--program",
        program,
        "127.0.0.1:6379",
    ];
    let output = opsrun(&args)?;
    let expected = format!(
        "file     {rules}\n\
         rule     line 2: use tcp connect redis* 127.0.0.0/8:*\n\
         verdict  tcp, because line 2 of the rule file says tcp\n"
    );
    ensure!(
        output.status.success() && text(&output.stdout) == expected,
        "{output:?}"
    );
    Ok(())
}

#[test]
fn a_program_runs_with_the_library_in_front_of_it() -> Result<()> {
    let (_dir, rules) = rule_file("use both connect * *:*\n")?;
    let rules = rules.display().to_string();
    let script = "echo \"$LD_PRELOAD $OPS_RULES $1\"; exit 7";
    let output = opsrun(&["--rules", &rules, "sh", "-c", script, "sh", "--rules"])?;
    // The path of the stage may run through links.
    let said = text(&output.stdout);
    let library = Stage::find()?.lib().join("libops-preload.so");
    ensure!(output.status.code() == Some(7), "{output:?}");
    ensure!(
        said.ends_with(&format!("libops-preload.so {rules} --rules\n")),
        "{said}"
    );
    let named = said.split(' ').next().unwrap_or_default();
    ensure!(
        fs::canonicalize(named)? == fs::canonicalize(library)?,
        "{said}"
    );
    Ok(())
}

#[test]
fn an_unchanged_program_talks_to_itself() -> Result<()> {
    let output = opsrun(&["python3", "-c", THREADS])?;
    ensure!(output.status.success(), "{output:?}");
    Ok(())
}

#[test]
fn a_faulty_rule_file_is_told_and_nothing_is_started() -> Result<()> {
    let (_dir, rules) = rule_file("use both connect * *:*\nuse both connect * here\n")?;
    let rules = rules.display().to_string();
    let output = opsrun(&["--rules", &rules, "echo", "started"])?;
    let told = text(&output.stderr);
    ensure!(
        output.status.code() == Some(1) && output.stdout.is_empty(),
        "{output:?}"
    );
    ensure!(
        told.starts_with(&format!("opsrun: {rules}:2:20: ")),
        "{told}"
    );
    Ok(())
}

#[test]
fn a_program_that_cannot_be_run_is_told_as_a_shell_would() -> Result<()> {
    for (program, code) in [("/nonexistent/program", 127), ("/etc/passwd", 126)] {
        let output = opsrun(&[program])?;
        ensure!(output.status.code() == Some(code), "{output:?}");
        ensure!(text(&output.stderr).contains(program), "{output:?}");
    }
    Ok(())
}
