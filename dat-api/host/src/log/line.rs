//! The text of an event.

use std::fmt::{self, Write as _};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tracing::field::{Field, Visit};
use tracing::{Event, Level};

/// The text of an event and its level.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) level: Level,
    /// Target, message and fields.
    pub(super) text: String,
}

impl Line {
    pub(super) fn of(event: &Event<'_>) -> Self {
        let mut text = Text(format!("{}:", event.metadata().target()));
        event.record(&mut text);
        Self {
            level: *event.metadata().level(),
            text: text.0,
        }
    }

    /// Returns the line for files and terminals. It has the name of the library and the process id,
    /// because several libraries and processes may share a file.
    pub(super) fn dated(&self, now: SystemTime, name: &str, process: i32) -> String {
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let (level, text) = (self.level, &self.text);
        format!("{} {level:>5} {name}[{process}] {text}\n", date(since))
    }

    /// Returns the datagram for the system's log: priority, tag and text (RFC 3164), but no time,
    /// which the system's log adds itself.
    pub(super) fn for_system(&self, name: &str, process: i32) -> String {
        const USER: u8 = 1 << 3;
        let severity = match self.level {
            Level::ERROR => 3,
            Level::WARN => 4,
            Level::INFO => 6,
            _ => 7,
        };
        format!("<{}>{name}[{process}]: {}", USER | severity, self.text)
    }
}

/// Collects the fields of an event in the order in which the macros record them, the message first.
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let mut text = String::new();
        // Writing into a string does not fail.
        let _ = match field.name() {
            "message" => write!(text, " {value:?}"),
            name => write!(text, " {name}={value:?}"),
        };
        // Control characters are escaped, so that one event is one line even if a peer chose a
        // value.
        for one in text.chars() {
            match one.is_control() {
                true => self.0.extend(one.escape_default()),
                false => self.0.push(one),
            }
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }
}

/// Date and time of day in UTC, by the days of the Gregorian calendar counted from a 1st of March.
fn date(since: Duration) -> String {
    let seconds = since.as_secs();
    let days = seconds / 86400 + 719_468;
    let of_era = days % 146_097;
    let year = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = days / 146_097 * 400 + year + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let micros = since.subsec_micros();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (951_782_400, "2000-02-29T00:00:00.000000Z"),
            (951_868_799, "2000-02-29T23:59:59.000000Z"),
            (951_868_800, "2000-03-01T00:00:00.000000Z"),
            (1_767_225_599, "2025-12-31T23:59:59.000000Z"),
            (4_102_444_800, "2100-01-01T00:00:00.000000Z"),
        ] {
            assert_eq!(date(Duration::from_secs(seconds)), expected);
        }
        let soon = Duration::from_micros(1_500_007);
        assert_eq!(date(soon), "1970-01-01T00:00:01.500007Z");
    }

    #[test]
    fn a_line_names_the_process_the_time_and_the_level() {
        let line = Line {
            level: Level::WARN,
            text: "ops: a b=c".to_owned(),
        };
        assert_eq!(
            line.dated(UNIX_EPOCH, "opsrun", 7),
            "1970-01-01T00:00:00.000000Z  WARN opsrun[7] ops: a b=c\n"
        );
        assert_eq!(line.for_system("opsrun", 7), "<12>opsrun[7]: ops: a b=c");
    }
}
