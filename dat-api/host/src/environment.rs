//! Environment variables, which a program with raised privileges ignores.
//!
//! The variables of these crates name libraries to load, files to read and files to write. The user
//! who starts a set-user-ID program chooses its environment, and must not gain privileges by it. So
//! the crates read the environment only through [`variable`].

use std::ffi::OsString;

/// Returns the value of a variable, unless the environment is not trusted.
#[must_use]
pub fn variable(name: &str) -> Option<OsString> {
    let trusted = is_trusted();
    trusted.then(|| std::env::var_os(name)).flatten()
}

/// Returns the value of a variable as text; `None` also for a value that is not UTF-8.
#[must_use]
pub fn text(name: &str) -> Option<String> {
    variable(name)?.into_string().ok()
}

/// Returns true if the user who chose the environment has all privileges of this process. Returns
/// `false` for a program that the kernel started with the privileges of another user, by
/// set-user-ID, set-group-ID or a file's capabilities (`AT_SECURE` in getauxval(3), which
/// secure_getenv(3) uses too).
#[must_use]
pub fn is_trusted() -> bool {
    // SAFETY: the call takes a number and returns the value that the kernel set when the process
    // started.
    unsafe { libc::getauxval(libc::AT_SECURE) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Privileged programs are tested by the suite `registry`, which creates such a program.
    #[test]
    fn an_ordinary_program_reads_the_variables_that_are_set() {
        assert!(is_trusted());
        assert_eq!(variable("PATH"), std::env::var_os("PATH"));
        assert_eq!(text("PATH"), std::env::var("PATH").ok());
        assert_eq!(variable("DAT_RS_NO_SUCH_VARIABLE"), None);
    }
}
