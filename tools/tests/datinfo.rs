//! `datinfo --check` where the registry library cannot be loaded, which needs no staged library.

use std::process::{Command, Output};

use serde_json::Value;

/// The program with a registry library that does not exist.
fn datinfo(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_datinfo"));
    command
        .args(args)
        .env("DAT_LIBRARY", "/nonexistent/libdat2.so.2");
    command
}

fn text(output: &Output) -> String {
    // Nothing but the findings is printed.
    assert!(output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout.clone()).expect("the program prints UTF-8")
}

#[track_caller]
fn says(output: &str, text: &str) {
    assert!(output.contains(text), "{output}");
}

#[test]
fn a_library_that_does_not_load_is_a_problem() {
    let output = datinfo(&["--check"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = text(&output);
    says(&text, "not checked: adapters: ");
    let is_named = |line: &str| {
        line.starts_with("problem: loader: ") && line.contains("/nonexistent/libdat2.so.2: ")
    };
    assert!(text.lines().any(is_named), "{text}");
    assert!(text.lines().last().unwrap().contains("found in "), "{text}");
}

#[test]
fn a_registry_file_that_does_not_exist_is_a_problem() {
    let mut command = datinfo(&["--check"]);
    let output = command
        .env("DAT_OVERRIDE", "/nonexistent/dat.conf")
        .output();
    let text = text(&output.unwrap());
    says(
        &text,
        "problem: registry: /nonexistent/dat.conf cannot be read: ",
    );
    says(&text, "; fix: unset DAT_OVERRIDE, or ");
}

#[test]
fn output_that_cannot_be_written_is_an_error_and_a_closed_pipe_is_none() {
    for options in ["--check", "-v", "--json", ""] {
        let run = |to: &str| {
            let program = env!("CARGO_BIN_EXE_datinfo");
            let script = format!("{program} {options} {to}");
            let output = Command::new("sh").args(["-c", &script]).output();
            output.expect("the shell runs")
        };
        let full = run(">/dev/full");
        let error = String::from_utf8_lossy(&full.stderr);
        if !error.contains("cannot load the DAT registry library") {
            assert_eq!(full.status.code(), Some(1), "{full:?}");
            says(
                &error,
                "writing to standard output: No space left on device",
            );
        }
        let closed = run("| :");
        let error = String::from_utf8_lossy(&closed.stderr);
        assert!(!error.contains("panicked"), "{error}");
    }
}

/// Runs the check with a limit that the shell sets.
fn limited(limit: &str) -> String {
    let program = env!("CARGO_BIN_EXE_datinfo");
    let script = format!("ulimit {limit}; exec {program} --check -v");
    let mut command = Command::new("sh");
    command
        .args(["-c", &script])
        .env("DAT_LIBRARY", "/nonexistent/libdat2.so.2");
    text(&command.output().expect("the shell runs"))
}

#[test]
fn low_limits_are_problems() {
    let low = limited("-S -n 256");
    says(&low, "problem: limits: RLIMIT_NOFILE is 256, ");
    says(&low, "; fix: run `ulimit -S -n ");
    let low = limited("-f 100");
    says(&low, "problem: limits: RLIMIT_FSIZE is ");
    says(&low, "limits.conf");
    let enough = limited("-S -n 1024");
    says(&enough, "ok: limits: RLIMIT_NOFILE is 1024\n");
}

#[test]
fn a_directory_of_pages_that_does_not_exist_is_a_problem() {
    let output = datinfo(&["--check"])
        .env("OPS_PAGES", "/nonexistent")
        .output();
    let text = text(&output.unwrap());
    says(
        &text,
        "problem: memory: /nonexistent does not exist, so `opsrun ss` shows no",
    );
}

#[test]
fn the_check_is_one_json_object_too() {
    let output = datinfo(&["--check", "--json"]).output().unwrap();
    let value: Value = serde_json::from_str(&text(&output)).unwrap();
    let checks = value["checks"].as_array().unwrap();
    let problems = checks.iter().filter(|check| check["result"] == "problem");
    assert_eq!(value["problems"], problems.clone().count());
    assert!(problems.clone().count() > 0, "{value}");
    let have_fixes = problems.clone().all(|problem| problem["fix"].is_string());
    assert!(have_fixes, "{value}");
    // The probe has run: the kernel has permitted or refused the call.
    let mut checks = checks.iter();
    assert!(
        checks.any(|check| check["subject"] == "processes" && check["result"] != "not checked")
    );
}
