//! Tests that cannot check their subject on this machine.

use std::io::Write as _;

/// Reports that a test could not check its subject here, and why; the caller then returns `Ok`.
///
/// The line is written to the descriptor itself, past the capture of the test harness, because
/// `cargo xtask test` counts and prints these lines. A test that did not run must not count as
/// passed.
pub fn not_run(why: &str) {
    let name = std::thread::current().name().unwrap_or("a test").to_owned();
    // Without a standard error the line cannot be counted.
    let _ = std::io::stderr().write_all(format!("\nNOT RUN: {name}: {why}\n").as_bytes());
}

/// The value of an `Option`. With `None`, the calling test returns, because its subject is not
/// available on this machine. The reason is the second argument, or has been reported already.
#[macro_export]
macro_rules! available {
    ($option:expr $(, $why:expr)? $(,)?) => {
        match $option {
            Some(value) => value,
            None => {
                $($crate::not_run($why);)?
                return Ok(());
            }
        }
    };
}
