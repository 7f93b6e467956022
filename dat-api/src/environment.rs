//! Environment variables, which a program with raised privileges ignores.

use std::ffi::OsString;

/// Returns the value of a variable, unless the kernel started the program with the privileges of
/// another user (`AT_SECURE` in getauxval(3)). The user who starts such a program chooses its
/// environment and must not choose the libraries that it loads.
pub(crate) fn variable(name: &str) -> Option<OsString> {
    // SAFETY: the call takes a number and returns the value that the kernel set when the process
    // started.
    let is_trusted = unsafe { libc::getauxval(libc::AT_SECURE) == 0 };
    is_trusted.then(|| std::env::var_os(name)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The suite `registry` starts privileged programs.
    #[test]
    fn an_ordinary_program_reads_its_environment() {
        assert_eq!(variable("PATH"), std::env::var_os("PATH"));
        assert_eq!(variable("DAT_API_NO_SUCH_VARIABLE"), None);
    }
}
