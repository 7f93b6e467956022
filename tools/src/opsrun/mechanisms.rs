//! The counters that the protocol of a connection keeps: bytes by mechanism, advertisements,
//! credits, and waits by reason.

use ops::observe::{Counter, Row};
use serde_json::{Value, json};

/// A counter, and its word in its group.
type Word = (&'static str, Counter);

/// The bytes that were sent, by mechanism.
pub(crate) const SENT: &[Word] = &[
    ("copied", Counter::SentCopied),
    ("registered", Counter::SentRegistered),
    ("read", Counter::SentRead),
    ("written", Counter::SentWritten),
];

/// The bytes that were received, by mechanism.
pub(crate) const RECEIVED: &[Word] = &[
    ("copied", Counter::ReceivedCopied),
    ("read", Counter::ReceivedRead),
    ("written", Counter::ReceivedWritten),
];

/// The advertisements of writers' memory.
pub(crate) const SOURCES: &[Word] = &[
    ("made", Counter::Sources),
    ("used", Counter::SourcesUsed),
    ("cancelled", Counter::SourcesCancelled),
];

/// The advertisements of readers' memory.
pub(crate) const SINKS: &[Word] = &[
    ("made", Counter::Sinks),
    ("used", Counter::SinksUsed),
    ("cancelled", Counter::SinksCancelled),
];

/// The times for which bytes waited, by reason.
pub(crate) const STALLS: &[Word] = &[
    ("credits", Counter::StallsCredits),
    ("sends", Counter::StallsSends),
    ("room", Counter::StallsRoom),
    ("reader", Counter::StallsReader),
];

/// The groups, in the order in which they are printed. The credits are no part of a group.
const GROUPS: [(&str, &[Word]); 5] = [
    ("sent", SENT),
    ("received", RECEIVED),
    ("sources", SOURCES),
    ("sinks", SINKS),
    ("stalls", STALLS),
];

/// Returns true if the protocol of a socket has reported counters.
fn has_reported(row: &Row) -> bool {
    let mut all = Counter::OF_PROTOCOL.into_iter();
    all.any(|counter| row.counter(counter) > 0)
}

/// Returns the counters of a socket as words and numbers, without those that are zero; `None` if
/// its protocol has reported none. The credits are always there.
pub(crate) fn line(row: &Row) -> Option<String> {
    if !has_reported(row) {
        return None;
    }
    let mut words = vec![format!("credits:{}", row.counter(Counter::Credits))];
    for (group, counters) in GROUPS {
        for (word, counter) in counters {
            let value = row.counter(*counter);
            if value > 0 {
                words.push(format!("{group}_{word}:{value}"));
            }
        }
    }
    Some(words.join(" "))
}

/// Returns all counters of a socket as JSON; `None` if its protocol has reported none.
pub(crate) fn json(row: &Row) -> Option<Value> {
    if !has_reported(row) {
        return None;
    }
    let mut value = json!({ "credits": row.counter(Counter::Credits) });
    for (group, counters) in GROUPS {
        for (word, counter) in counters {
            value[group][word] = json!(row.counter(*counter));
        }
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_of_a_protocol_has_one_word() {
        let mut named: Vec<Counter> = GROUPS
            .iter()
            .flat_map(|(_, counters)| counters.iter().map(|(_, counter)| *counter))
            .chain([Counter::Credits])
            .collect();
        named.sort_by_key(|counter| *counter as usize);
        let mut all = Counter::OF_PROTOCOL;
        all.sort_by_key(|counter| *counter as usize);
        assert_eq!(named, all);
    }
}
