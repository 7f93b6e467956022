//! Checks of the C programs for memory errors and leaks while the suites run.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result};

/// Valgrind with the options of the suites: a memory error or a leak sets the exit status.
pub const VALGRIND: &str = concat!(
    "valgrind --quiet --error-exitcode=99 --leak-check=full --show-leak-kinds=definite",
    " --errors-for-leak-kinds=definite",
    " --suppressions=",
    env!("CARGO_MANIFEST_DIR"),
    "/harness/valgrind.supp"
);

/// The checker, as `STACK_TESTS_SANITIZER` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sanitizer {
    /// No checker.
    None,
    /// `address`: AddressSanitizer, LeakSanitizer and UndefinedBehaviorSanitizer in the program.
    /// The libraries use AddressSanitizer's allocator.
    Address,
    /// `valgrind`: memcheck around program and libraries.
    Valgrind,
}

impl Sanitizer {
    /// The checker that the variable names.
    pub fn chosen() -> Self {
        match env::var("STACK_TESTS_SANITIZER").as_deref() {
            Ok("address") => Self::Address,
            Ok("valgrind") => Self::Valgrind,
            _ => Self::None,
        }
    }

    /// Flags for compiler and linker.
    pub fn flags(self) -> &'static str {
        match self {
            Self::Address => {
                "-fsanitize=address,undefined -fno-sanitize-recover=undefined \
                 -fno-omit-frame-pointer"
            }
            Self::None | Self::Valgrind => "",
        }
    }

    /// Replaces the file of `program` by a script that starts it under the checker.
    pub fn wrap(self, program: &Path) -> Result<()> {
        if self != Self::Valgrind {
            return Ok(());
        }
        let itself = program.with_extension("program");
        fs::rename(program, &itself).context("moving a program aside")?;
        let script = format!("#!/bin/sh\nexec {VALGRIND} {} \"$@\"\n", itself.display());
        fs::write(program, script).context("writing a script in its place")?;
        fs::set_permissions(program, fs::Permissions::from_mode(0o755))
            .context("making it executable")
    }
}
