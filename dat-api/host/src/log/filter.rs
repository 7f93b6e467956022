//! The selection of the events that are reported.

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;

use crate::rules::Log;

/// Returns the selected events, `None` if none are, and a complaint if `DAT_LOG` cannot be parsed.
/// `DAT_LOG` has priority over the rule file's line.
pub(super) fn chosen(
    log: Option<&Log>,
    directives: Option<&str>,
) -> (Option<Targets>, Option<String>) {
    let by_rule_file = log.map(|log| Targets::new().with_default(level(log.level_min)));
    match directives.filter(|text| !text.is_empty()) {
        None => (by_rule_file, None),
        Some(text) => match text.parse() {
            Ok(targets) => (Some(targets), None),
            Err(error) => {
                let complaint = format!("DAT_LOG={text:?} is ignored here: {error}");
                (by_rule_file, Some(complaint))
            }
        },
    }
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

/// Returns the highest level of any target, so that events above it cost one comparison.
pub(super) fn highest(targets: &Targets) -> Option<LevelFilter> {
    let listed = targets.iter().map(|(_, level)| level);
    listed.chain(targets.default_level()).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(level_min: Option<u8>, directives: Option<&str>) -> (String, bool) {
        let log = level_min.map(|level_min| Log {
            level_min,
            ..Log::default()
        });
        let (targets, complaint) = chosen(log.as_ref(), directives);
        let shown = targets.map_or("off".to_owned(), |targets| targets.to_string());
        (shown, complaint.is_some())
    }

    #[test]
    fn nothing_is_reported_unless_somebody_wants_it() {
        assert_eq!(printed(None, None), ("off".to_owned(), false));
        assert_eq!(printed(None, Some("")), ("off".to_owned(), false));
    }

    #[test]
    fn levels_of_libsdp_mean_what_they_meant() {
        let by_level = ["trace", "debug", "debug", "debug", "info", "info", "info"];
        let by_level = by_level.into_iter().chain(["warn", "error"]);
        for (level, expected) in (1..).zip(by_level) {
            assert_eq!(printed(Some(level), None), (expected.to_owned(), false));
        }
    }

    #[test]
    fn the_environment_wins_unless_it_says_nothing() {
        assert_eq!(printed(Some(9), Some("ops=debug,info")).0, "ops=debug,info");
        assert_eq!(
            printed(Some(8), Some("ops=loud")),
            ("warn".to_owned(), true)
        );
        assert_eq!(printed(None, Some("ops=loud")), ("off".to_owned(), true));
    }

    #[test]
    fn the_highest_level_is_that_of_any_target() {
        let highest = |text: &str| highest(&text.parse().unwrap());
        assert_eq!(highest("warn,ops=debug"), Some(LevelFilter::DEBUG));
        assert_eq!(highest("info"), Some(LevelFilter::INFO));
    }
}
