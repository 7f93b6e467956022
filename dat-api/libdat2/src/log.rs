//! Output of diagnostics: one subscriber for this library, set up on its first use.
//!
//! | Variable | Meaning |
//! |---|---|
//! | `DAT_LOG` | levels by target, as for `tracing_subscriber::EnvFilter`; overrides `DAT_DBG_TYPE` |
//! | `DAT_DBG_TYPE` | OFA's bit mask: 1 errors (the default), 2 to 8 registry, 16 and 32 calls |
//! | `DAT_DBG_DEST` | 1 standard output, 2 the system log; otherwise standard error |
//!
//! If neither `DAT_LOG` nor `DAT_DBG_TYPE` is set, the user has not requested log lines. In that
//! case a line is written to descriptor 1 or 2 only if the descriptor still refers to the file of
//! the time when this library was loaded: a program may close a descriptor and get its number again
//! for a file or a connection. No line is ever written to a pipe without a reader, because SIGPIPE
//! would end the program.

use std::ffi::CString;
use std::io::{self, Write};
use std::os::fd::RawFd;
use std::sync::{Once, OnceLock};

use host::descriptors::Identity;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// Sets up logging, once. A subscriber that the program has installed (a Rust test, for example) is
/// kept.
pub fn init() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let dat_log = host::environment::text("DAT_LOG");
        let dbg_type = host::environment::text("DAT_DBG_TYPE");
        let is_requested = dat_log.is_some() || dbg_type.is_some();
        let (filter, problem) = filter(dat_log, dbg_type);
        let destination = host::environment::text("DAT_DBG_DEST");
        let outlet = Outlet {
            destination: Destination::from_variable(destination.as_deref()),
            is_requested,
        };
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_ansi(false)
            .with_writer(outlet)
            .finish();
        if tracing::subscriber::set_global_default(subscriber).is_ok()
            && let Some(problem) = problem
        {
            tracing::warn!("DAT_LOG is ignored: {problem}");
        }
    });
}

/// Returns the filter, and the error of `DAT_LOG` if there is one.
fn filter(dat_log: Option<String>, dbg_type: Option<String>) -> (EnvFilter, Option<String>) {
    let fallback = || EnvFilter::new(level_of_mask(dbg_type.as_deref()));
    match dat_log.filter(|text| !text.is_empty()) {
        None => (fallback(), None),
        Some(text) => match EnvFilter::builder().parse(&text) {
            Ok(filter) => (filter, None),
            Err(error) => (fallback(), Some(format!("{text:?}: {error}"))),
        },
    }
}

/// Returns the level for the bits of `DAT_DBG_TYPE`.
fn level_of_mask(value: Option<&str>) -> &'static str {
    const ERROR: u64 = 0x01;
    const GENERIC_AND_REGISTRIES: u64 = 0x0E;
    match value.and_then(c_number).unwrap_or(ERROR) {
        0 => "off",
        ERROR => "warn",
        mask if mask & !(ERROR | GENERIC_AND_REGISTRIES) == 0 => "debug",
        _ => "trace",
    }
}

/// Parses a number as `strtol` with base 0 does: decimal, `0x` hexadecimal or `0` octal.
fn c_number(text: &str) -> Option<u64> {
    let text = text.trim();
    if let Some(digits) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        u64::from_str_radix(digits, 16).ok()
    } else if let Some(digits) = text.strip_prefix('0').filter(|digits| !digits.is_empty()) {
        u64::from_str_radix(digits, 8).ok()
    } else {
        text.parse().ok()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Destination {
    StandardError,
    StandardOutput,
    SystemLog,
}

impl Destination {
    fn from_variable(value: Option<&str>) -> Self {
        match value.and_then(c_number) {
            Some(1) => Self::StandardOutput,
            Some(2) => Self::SystemLog,
            _ => Self::StandardError,
        }
    }
}

/// The files of descriptors 1 and 2 when this library was loaded.
static FILES_AT_LOAD: OnceLock<[Option<Identity>; 2]> = OnceLock::new();

/// Called by the loader when the library is loaded.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = record_descriptors;

extern "C" fn record_descriptors() {
    let _ = FILES_AT_LOAD
        .set([libc::STDOUT_FILENO, libc::STDERR_FILENO].map(|fd| Identity::of_number(fd).ok()));
}

/// Destination of log lines.
#[derive(Clone, Copy, Debug)]
struct Outlet {
    destination: Destination,
    /// True if the user has requested log lines, by `DAT_LOG` or `DAT_DBG_TYPE`.
    is_requested: bool,
}

/// True while `fd`, which is 1 or 2, refers to the file of the time when this library was loaded.
fn is_as_at_load(fd: RawFd) -> bool {
    let now = Identity::of_number(fd).ok();
    let at_load = FILES_AT_LOAD
        .get()
        .map(|all| all[usize::from(fd == libc::STDERR_FILENO)]);
    // If the loader has not run `record_descriptors`, the file counts as unchanged.
    now.is_some() && at_load.is_none_or(|first| first == now)
}

/// True for a pipe without a reader.
fn is_broken(fd: RawFd) -> bool {
    let mut poll = libc::pollfd {
        fd,
        events: 0,
        revents: 0,
    };
    // SAFETY: one structure, in this frame.
    let ready = unsafe { libc::poll(&raw mut poll, 1, 0) };
    ready > 0 && poll.revents & libc::POLLERR != 0
}

impl Outlet {
    fn takes_lines(self, fd: RawFd) -> bool {
        (self.is_requested || is_as_at_load(fd)) && !is_broken(fd)
    }
}

impl MakeWriter<'_> for Outlet {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        *self
    }
}

impl Write for Outlet {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match self.destination {
            Destination::StandardError if self.takes_lines(libc::STDERR_FILENO) => {
                io::stderr().write(line)
            }
            Destination::StandardOutput if self.takes_lines(libc::STDOUT_FILENO) => {
                io::stdout().write(line)
            }
            Destination::StandardError | Destination::StandardOutput => Ok(line.len()),
            Destination::SystemLog => {
                write_to_system_log(line);
                Ok(line.len())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.destination {
            Destination::StandardError => io::stderr().flush(),
            Destination::StandardOutput => io::stdout().flush(),
            Destination::SystemLog => Ok(()),
        }
    }
}

fn write_to_system_log(line: &[u8]) {
    let text: Vec<u8> = line.iter().copied().filter(|&byte| byte != 0).collect();
    if let Ok(text) = CString::new(text) {
        // SAFETY: format and argument are C strings and the format has one `%s`.
        unsafe {
            libc::syslog(
                libc::LOG_USER | libc::LOG_WARNING,
                c"%s".as_ptr(),
                text.as_ptr(),
            )
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_debug_mask_is_read_in_every_c_base() {
        assert_eq!(level_of_mask(None), "warn");
        assert_eq!(level_of_mask(Some("nonsense")), "warn");
        assert_eq!(level_of_mask(Some("0")), "off");
        assert_eq!(level_of_mask(Some("1")), "warn");
        assert_eq!(level_of_mask(Some("0xF")), "debug");
        assert_eq!(level_of_mask(Some("017")), "debug");
        assert_eq!(level_of_mask(Some("0xff")), "trace");
        assert_eq!(level_of_mask(Some("32")), "trace");
    }

    #[test]
    fn a_bad_filter_is_reported_and_replaced() {
        let (filter_used, problem) = filter(Some("libdat2=loud".into()), Some("0".into()));
        assert_eq!(filter_used.to_string(), "off");
        assert!(problem.expect("a problem").contains("libdat2=loud"));
        assert!(filter(Some("debug".into()), None).1.is_none());
    }

    #[test]
    fn destinations() {
        assert_eq!(Destination::from_variable(None), Destination::StandardError);
        assert_eq!(
            Destination::from_variable(Some("1")),
            Destination::StandardOutput
        );
        assert_eq!(
            Destination::from_variable(Some("0x2")),
            Destination::SystemLog
        );
    }
}
