//! The log of the preload library, which the rule file's `log` lines configure.

use host::log::{Destination, Outlet};
use tracing::level_filters::LevelFilter;

use crate::rules::{self, Log};

/// Begins to log the events that `DAT_LOG` or the rule file's `log` lines select. Does nothing if
/// neither is set, or if the process has a subscriber already.
pub fn begin(log: Option<&Log>) {
    let destination = log.map_or(&rules::Destination::Stderr, |log| &log.destination);
    let fallback = log.map(|log| level(log.level_min));
    host::log::begin(outlet(destination), fallback);
}

/// Writes a message for the user to standard error, whatever events are selected.
pub fn print_error(text: &str) {
    outlet(&rules::Destination::Stderr).print_error(text);
}

fn outlet(destination: &rules::Destination) -> Outlet {
    let destination = match destination {
        rules::Destination::Stderr => Destination::present_file(libc::STDERR_FILENO),
        rules::Destination::Syslog => Destination::SystemLog,
        // The path is made absolute now, because the program may change its directory.
        rules::Destination::File(path) => {
            Destination::File(std::path::absolute(path).unwrap_or_else(|_| path.into()))
        }
    };
    Outlet::new("opsrun", destination)
}

/// Maps the levels of libsdp: 9 errors, 8 warnings, 7 a summary of each connect and listen, 4 and 3
/// rules, 2 calls, 1 everything.
fn level(min: u8) -> LevelFilter {
    match min {
        0 | 1 => LevelFilter::TRACE,
        2..=4 => LevelFilter::DEBUG,
        5..=7 => LevelFilter::INFO,
        8 => LevelFilter::WARN,
        _ => LevelFilter::ERROR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_levels_of_libsdp_are_mapped_to_those_of_this_log() {
        use LevelFilter as L;
        let expected = [
            L::TRACE,
            L::DEBUG,
            L::DEBUG,
            L::DEBUG,
            L::INFO,
            L::INFO,
            L::INFO,
        ];
        let expected = expected.into_iter().chain([L::WARN, L::ERROR]);
        for (number, level_expected) in (1..).zip(expected) {
            assert_eq!(level(number), level_expected);
        }
    }
}
