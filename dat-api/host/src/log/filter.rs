//! The selection of the events that are logged.

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;

/// Returns the selected events, `None` if none are, and a complaint if `DAT_LOG` cannot be parsed.
/// The text of `DAT_LOG`, `directives`, has priority over the level `fallback`.
pub(super) fn chosen(
    fallback: Option<LevelFilter>,
    directives: Option<&str>,
) -> (Option<Targets>, Option<String>) {
    let fallback = fallback.map(|level| Targets::new().with_default(level));
    match directives.filter(|text| !text.is_empty()) {
        None => (fallback, None),
        Some(text) => match text.parse() {
            Ok(targets) => (Some(targets), None),
            Err(error) => {
                let complaint = format!("DAT_LOG={text:?} is ignored here: {error}");
                (fallback, Some(complaint))
            }
        },
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

    fn printed(fallback: Option<LevelFilter>, directives: Option<&str>) -> (String, bool) {
        let (targets, complaint) = chosen(fallback, directives);
        let shown = targets.map_or("none".to_owned(), |targets| targets.to_string());
        (shown, complaint.is_some())
    }

    #[test]
    fn nothing_is_reported_unless_somebody_wants_it() {
        assert_eq!(printed(None, None), ("none".to_owned(), false));
        assert_eq!(printed(None, Some("")), ("none".to_owned(), false));
    }

    #[test]
    fn the_environment_wins_unless_it_says_nothing() {
        let (error, warn) = (Some(LevelFilter::ERROR), Some(LevelFilter::WARN));
        assert_eq!(printed(error, Some("ops=debug,info")).0, "ops=debug,info");
        assert_eq!(printed(error, Some("off")), ("off".to_owned(), false));
        assert_eq!(printed(warn, Some("ops=loud")), ("warn".to_owned(), true));
        assert_eq!(printed(None, Some("ops=loud")), ("none".to_owned(), true));
    }

    #[test]
    fn the_highest_level_is_that_of_any_target() {
        let highest = |text: &str| highest(&text.parse().unwrap());
        assert_eq!(highest("warn,ops=debug"), Some(LevelFilter::DEBUG));
        assert_eq!(highest("info"), Some(LevelFilter::INFO));
    }
}
