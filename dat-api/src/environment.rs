//! Environment variables, which a program with raised privileges ignores.

use std::ffi::OsString;
use std::path::PathBuf;

/// Returns the value of a variable, unless the kernel started the program with the privileges of
/// another user (`AT_SECURE` in getauxval(3)). The user who starts such a program chooses its
/// environment and must not choose the libraries that it loads.
pub(crate) fn variable(name: &str) -> Option<OsString> {
    is_trusted().then(|| std::env::var_os(name)).flatten()
}

/// Returns the file that was installed with this program as `directory/name`, next to the directory
/// of the program. A program with raised privileges has none, because its user may start it by a
/// link in another directory.
pub(crate) fn installed(directory: &str, name: &str) -> Option<PathBuf> {
    let program = is_trusted().then(std::env::current_exe)?.ok()?;
    let file = program.parent()?.parent()?.join(directory).join(name);
    file.exists().then_some(file)
}

fn is_trusted() -> bool {
    // SAFETY: the call takes a number and returns the value that the kernel set when the process
    // started.
    unsafe { libc::getauxval(libc::AT_SECURE) == 0 }
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

    #[test]
    fn a_file_is_found_next_to_the_directory_of_the_program() {
        let program = std::env::current_exe().unwrap();
        let [name, directory] = [program.as_path(), program.parent().unwrap()]
            .map(|path| path.file_name().unwrap().to_str().unwrap());
        assert_eq!(installed(directory, name), Some(program.clone()));
        assert_eq!(installed("no-such-directory", name), None);
    }
}
