//! The reason why an adapter cannot be opened, taken from the log of the libraries.
//!
//! DAT returns a number to a consumer and no text. The libraries write more details to their log,
//! which goes to standard error, or to standard output in OFA's libraries. While an adapter is
//! being opened, both are redirected to a file that is read here.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use nix::unistd::{dup, dup2_stderr, dup2_stdout};

/// The maximum number of bytes of a log that are read. A library that writes more has logged the
/// reason earlier.
const LOG_MAX: usize = 64 * 1024;

/// The text of OFA's providers in front of the reason for which a device cannot be opened.
const OFA_OPEN: &str = " open_hca: ";

/// Makes the registry library log its default warnings. Without this setting it logs only to the
/// initial standard error, which [`catch`] replaces.
///
/// # Safety
///
/// The process has no thread but the caller's.
pub(crate) unsafe fn enable_registry_warnings() {
    let is_set = |name| host::environment::variable(name).is_some();
    if !is_set("DAT_LOG") && !is_set("DAT_DBG_TYPE") {
        // SAFETY: no thread reads the environment meanwhile, because the caller guarantees that it
        // is the only thread.
        unsafe { std::env::set_var("DAT_DBG_TYPE", "1") };
    }
}

/// Makes provider libraries log warnings, unless the user has configured the log.
///
/// # Safety
///
/// The process has no thread but the caller's.
pub(crate) unsafe fn enable_provider_warnings() {
    if host::environment::variable("DAT_LOG").is_none() {
        // SAFETY: no thread reads the environment meanwhile, because the caller guarantees that it
        // is the only thread.
        unsafe { std::env::set_var("DAT_LOG", "warn") };
    }
}

/// Runs `open`. Returns its result and the text that was written to standard output and standard
/// error meanwhile. If these cannot be replaced, the text is empty.
///
/// `open` must not print.
pub(crate) fn catch<T>(open: impl FnOnce() -> T) -> (T, String) {
    flush();
    let Ok((saved, log)) = replace_outputs() else {
        return (open(), String::new());
    };
    let result = open();
    flush();
    // The descriptors were valid a moment ago. If this fails, the tool has no output.
    let _ = dup2_stdout(&saved[0]);
    let _ = dup2_stderr(&saved[1]);
    (result, text_of(&log))
}

/// Writes the buffered output of C code, which OFA's libraries log to.
fn flush() {
    // SAFETY: a null pointer selects all streams; the call has no other argument.
    unsafe { libc::fflush(std::ptr::null_mut()) };
}

/// Redirects both outputs to a file. Returns the outputs and the file.
fn replace_outputs() -> io::Result<([OwnedFd; 2], File)> {
    let log = tempfile::tempfile()?;
    let saved = [dup(io::stdout())?, dup(io::stderr())?];
    dup2_stdout(&log)?;
    dup2_stderr(&log)?;
    Ok((saved, log))
}

fn text_of(log: &File) -> String {
    let mut bytes = vec![0; LOG_MAX];
    let len = log.read_at(&mut bytes, 0).unwrap_or(0);
    String::from_utf8_lossy(&bytes[..len]).into_owned()
}

/// Writes the caught text that is not part of a displayed reason to standard error.
pub(crate) fn pass_on(log: &str) {
    // A failure cannot be reported anywhere.
    let _ = io::stderr().write_all(log.as_bytes());
}

/// Splits a log into the reason why `ia_name` was not opened, if the log has one, and the rest.
pub(crate) fn split(log: &str, ia_name: &str) -> (Option<String>, String) {
    let mut reasons: Vec<String> = Vec::new();
    let mut rest = String::new();
    for line in log.split_inclusive('\n') {
        match reason_of(line.trim_end(), ia_name) {
            Some(reason) if reasons.contains(&reason) => (),
            Some(reason) => reasons.push(reason),
            None => rest.push_str(line),
        }
    }
    let reason = (!reasons.is_empty()).then(|| reasons.join("; "));
    (reason, rest)
}

/// The error that a line reports for the adapter: `open failed ia=NAME error=WHY` of a provider,
/// any error that the registry logs with the name, such as a library that does not load, or the
/// error of OFA's providers, which do not log the name.
fn reason_of(line: &str, ia_name: &str) -> Option<String> {
    if let Some((_, error)) = line.split_once(OFA_OPEN) {
        return Some(error.to_owned());
    }
    let (_, event) = line.split_once(" WARN ")?;
    let (_, message) = event.split_once(": ")?;
    let (what, fields) = message.split_once(&format!(" ia={ia_name} "))?;
    Some(match fields.split_once("error=") {
        Some((_, error)) if what == "open failed" => error.to_owned(),
        Some((_, error)) => format!("{what}: {error}"),
        None => what.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_of_a_provider_is_taken_from_its_log() {
        let log = "libibverbs: Warning: no driver\n\
            2026-01-01T00:00Z  WARN libdapl[7] access_layer::ia: open failed ia=a error=bad: x: y\n\
            2026-01-01T00:00Z  WARN libdapl[7] access_layer::ia: open failed ia=b error=other\n";
        let (reason, rest) = split(log, "a");
        assert_eq!(reason.as_deref(), Some("bad: x: y"));
        assert_eq!(rest.lines().count(), 2, "{rest}");
        assert_eq!(split("", "a"), (None, String::new()));
    }

    #[test]
    fn a_provider_of_ofa_logs_the_reason_without_the_name() {
        let log = "node:CMA:39dc:e14b9800: 51 us(51 us):  open_hca: getaddr_netdev ERROR:No such \
            device. Is ib0 configured?\n";
        let (reason, rest) = split(log, "a");
        let wanted = "getaddr_netdev ERROR:No such device. Is ib0 configured?";
        assert_eq!((reason.as_deref(), rest.as_str()), (Some(wanted), ""));
    }

    #[test]
    fn the_registry_logs_a_library_that_does_not_load() {
        let log = "2026-01-01T00:00Z  WARN libdat2[7] libdat2::registry: provider library does not \
            load ia=a u2.0 nonthreadsafe line=1 error=no such file\n";
        let (reason, rest) = split(log, "a");
        let wanted = "provider library does not load: no such file";
        assert_eq!((reason.as_deref(), rest.as_str()), (Some(wanted), ""));
    }
}
