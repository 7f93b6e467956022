//! Environment variables that a program with raised privileges does not obey.
//!
//! Our variables name libraries to load, files to read and files to write. Who starts a set-user-ID
//! program chooses its environment, and must get nothing by it that he could not do himself. So no
//! crate asks the environment but through [`variable`].

use std::ffi::OsString;

/// The value of a variable, unless the environment is not to be trusted.
#[must_use]
pub fn variable(name: &str) -> Option<OsString> {
    let trusted = is_trusted();
    trusted.then(|| std::env::var_os(name)).flatten()
}

/// The same as text; what is none is as good as not set.
#[must_use]
pub fn text(name: &str) -> Option<String> {
    variable(name)?.into_string().ok()
}

/// Whether whoever chose the environment may do all that this process may: `false` for a program
/// that the kernel started with the rights of somebody else, by set-user-ID, set-group-ID or a
/// file's capabilities (`AT_SECURE` in getauxval(3), by which secure_getenv(3) goes too).
#[must_use]
pub fn is_trusted() -> bool {
    // SAFETY: it takes a number and returns one, which the kernel gave the process at its start.
    unsafe { libc::getauxval(libc::AT_SECURE) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Privileged programs are tested by the suite `registry`, which makes one.
    #[test]
    fn an_ordinary_program_is_told_what_is_set() {
        assert!(is_trusted());
        assert_eq!(variable("PATH"), std::env::var_os("PATH"));
        assert_eq!(text("PATH"), std::env::var("PATH").ok());
        assert_eq!(variable("DAT_RS_NO_SUCH_VARIABLE"), None);
    }
}
