//! Standard output that ends early.

use std::io::pipe;
use std::process::{Command, Stdio};

/// Tools with options that print without adapters.
const PRINTING: [(&str, &[&str]); 3] = [
    (env!("CARGO_BIN_EXE_dat-conformance"), &["--list"]),
    (env!("CARGO_BIN_EXE_datinfo"), &["--events"]),
    (env!("CARGO_BIN_EXE_datinfo"), &["--check"]),
];

#[test]
fn a_reader_that_has_closed_the_pipe_ends_a_tool_without_a_word() {
    for (tool, options) in PRINTING {
        let (reader, writer) = pipe().expect("a pipe");
        drop(reader);
        let output = Command::new(tool)
            .args(options)
            .stdout(Stdio::from(writer))
            .stderr(Stdio::piped())
            .output();
        let output = output.expect("the tool runs");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{tool}: {output:?}");
        assert!(!error.contains("output"), "{tool}: {error}");
    }
}
