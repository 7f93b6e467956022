//! The process at the other end of a connection: this test binary again, in another role.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

/// Another process, which ends with this value.
pub struct OtherProcess {
    pub child: Child,
    output: BufReader<ChildStdout>,
}

impl OtherProcess {
    /// Starts the test `other_process` of this binary with the variable `role`. `prepare` changes
    /// the command before it runs.
    pub fn start(role: (&str, &str), prepare: impl FnOnce(&mut Command)) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "other_process", "--nocapture"]);
        command.env(role.0, role.1).stdout(Stdio::piped());
        prepare(&mut command);
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output }
    }

    /// Returns the next word that the process writes after `prefix`.
    pub fn word_after(&mut self, prefix: &str) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "no {prefix}");
            // The test harness writes the name of the test before the first line.
            if let Some((_, word)) = line.split_once(prefix) {
                return word.trim().to_owned();
            }
        }
    }

    pub fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for OtherProcess {
    fn drop(&mut self) {
        self.end();
    }
}

/// Returns what a child of a fork finds. The check may only call the kernel.
pub fn is_so_in_child(check: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child only calls the kernel, as each check does, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let is_so = check();
        // SAFETY: the call takes a number and does not return.
        unsafe { libc::_exit(i32::from(is_so)) };
    }
    let mut status = 0;
    // SAFETY: this process's child, and the out-pointer is of this frame.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert!(libc::WIFEXITED(status), "{status:#x}");
    libc::WEXITSTATUS(status) == 1
}
