//! Where diagnostics go: one subscriber for this library, set up on its first use.
//!
//! | Variable | Meaning |
//! |---|---|
//! | `DAT_LOG` | levels by target, in the syntax of `tracing_subscriber::EnvFilter`; wins over the next |
//! | `DAT_DBG_TYPE` | OFA's bit mask: 1 errors (the default), 2 to 8 registry, 16 and 32 calls |
//! | `DAT_DBG_DEST` | 1 standard output, 2 the system log; otherwise standard error |

use std::ffi::CString;
use std::io::{self, Write};
use std::sync::Once;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// Sets logging up, once. If the program (a Rust test, say) already has a subscriber, that one
/// stays.
pub fn init() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let (filter, complaint) = filter(
            host::environment::text("DAT_LOG"),
            host::environment::text("DAT_DBG_TYPE"),
        );
        let destination = host::environment::text("DAT_DBG_DEST");
        let destination = Destination::from_variable(destination.as_deref());
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_ansi(false)
            .with_writer(destination)
            .finish();
        if tracing::subscriber::set_global_default(subscriber).is_ok()
            && let Some(complaint) = complaint
        {
            tracing::warn!("DAT_LOG is ignored: {complaint}");
        }
    });
}

/// The filter, and what is wrong with `DAT_LOG` if anything is.
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

/// The level that shows what the bits of `DAT_DBG_TYPE` ask for.
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

/// A number as `strtol` with base 0 reads it: decimal, `0x` hexadecimal or `0` octal.
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

impl MakeWriter<'_> for Destination {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        *self
    }
}

impl Write for Destination {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match self {
            Self::StandardError => io::stderr().write(line),
            Self::StandardOutput => io::stdout().write(line),
            Self::SystemLog => {
                write_to_system_log(line);
                Ok(line.len())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::StandardError => io::stderr().flush(),
            Self::StandardOutput => io::stdout().flush(),
            Self::SystemLog => Ok(()),
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
    fn a_bad_filter_is_complained_about_and_replaced() {
        let (filter_used, complaint) = filter(Some("libdat2=loud".into()), Some("0".into()));
        assert_eq!(filter_used.to_string(), "off");
        assert!(complaint.expect("a complaint").contains("libdat2=loud"));
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
