//! Output of diagnostics: one subscriber for this library, set up on its first use.
//!
//! | Variable | Meaning |
//! |---|---|
//! | `DAT_LOG` | levels by target, as for [`host::log`]; overrides `DAT_DBG_TYPE` |
//! | `DAT_DBG_TYPE` | OFA's bit mask: 1 errors (the default), 2 to 8 registry, 16 and 32 calls |
//! | `DAT_DBG_DEST` | 1 standard output, 2 the system log; otherwise standard error |
//!
//! If neither `DAT_LOG` nor `DAT_DBG_TYPE` is set, the user has not requested log lines. In that
//! case a line is written to descriptor 1 or 2 only if the descriptor refers to the same file as
//! when this library was loaded: a program may close a descriptor, and another file or a connection
//! may then get its number.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use host::descriptors::Identity;
use host::forks::HeldLock;
use host::log::{DAT_LOG, Destination, Outlet};
use tracing::level_filters::LevelFilter;

/// Begins the log, once. A subscriber that the program has installed (a Rust test, for example) is
/// kept.
pub fn init() {
    static HAS_BEGUN: AtomicBool = AtomicBool::new(false);
    if HAS_BEGUN.load(Ordering::Acquire) {
        return;
    }
    let _beginning = BEGINNING.lock();
    if !HAS_BEGUN.load(Ordering::Relaxed) {
        let dbg_type = host::environment::text("DAT_DBG_TYPE");
        let is_requested = dbg_type.is_some() || host::environment::text(DAT_LOG).is_some();
        let dbg_dest = host::environment::text("DAT_DBG_DEST");
        let destination = destination(dbg_dest.as_deref(), is_requested);
        let level = level_of_mask(dbg_type.as_deref());
        host::log::begin(Outlet::new("libdat2", destination), Some(level));
        HAS_BEGUN.store(true, Ordering::Release);
    }
}

/// Held while the log begins.
pub(crate) static BEGINNING: HeldLock<()> = HeldLock::new(());

/// Returns the level for the bits of `DAT_DBG_TYPE`.
fn level_of_mask(value: Option<&str>) -> LevelFilter {
    const ERROR: u64 = 0x01;
    const GENERIC_AND_REGISTRIES: u64 = 0x0E;
    match value.and_then(c_number).unwrap_or(ERROR) {
        0 => LevelFilter::OFF,
        ERROR => LevelFilter::WARN,
        mask if mask & !(ERROR | GENERIC_AND_REGISTRIES) == 0 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
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

/// Returns the destination for the value of `DAT_DBG_DEST`.
fn destination(value: Option<&str>, is_requested: bool) -> Destination {
    let (at_load, fd) = match value.and_then(c_number) {
        Some(1) => (0, libc::STDOUT_FILENO),
        Some(2) => return Destination::SystemLog,
        _ => (1, libc::STDERR_FILENO),
    };
    match FILES_AT_LOAD.get().map(|files| files[at_load]) {
        _ if is_requested => Destination::Descriptor(fd),
        // If the loader has not run `record_descriptors`, the file counts as unchanged.
        None => Destination::Descriptor(fd),
        Some(file) => file.map_or(Destination::Nowhere, |file| Destination::SameFile(fd, file)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_debug_mask_is_read_in_every_c_base() {
        assert_eq!(level_of_mask(None), LevelFilter::WARN);
        assert_eq!(level_of_mask(Some("nonsense")), LevelFilter::WARN);
        assert_eq!(level_of_mask(Some("0")), LevelFilter::OFF);
        assert_eq!(level_of_mask(Some("1")), LevelFilter::WARN);
        assert_eq!(level_of_mask(Some("0xF")), LevelFilter::DEBUG);
        assert_eq!(level_of_mask(Some("017")), LevelFilter::DEBUG);
        assert_eq!(level_of_mask(Some("0xff")), LevelFilter::TRACE);
        assert_eq!(level_of_mask(Some("32")), LevelFilter::TRACE);
    }

    #[test]
    fn the_debug_destination_is_a_number() {
        for (value, fd) in [(None, 2), (Some("1"), 1), (Some("3"), 2)] {
            let found = destination(value, true);
            assert!(matches!(found, Destination::Descriptor(number) if number == fd));
            let found = destination(value, false);
            assert!(matches!(found, Destination::SameFile(number, _) if number == fd));
        }
        assert!(matches!(
            destination(Some("0x2"), false),
            Destination::SystemLog
        ));
    }
}
