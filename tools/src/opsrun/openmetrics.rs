//! The sockets as metrics in the text format of OpenMetrics 1.0, or in the format 0.0.4 of
//! Prometheus, whose metadata differ.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ops::observe::{Carrier, Counter, Kind, Listing, Process, Row, State};

use crate::{mechanisms, sockets};

/// The labels of a sample, in the order in which they are printed.
type Labels = Vec<(&'static str, String)>;

/// The samples of a family. Each set of labels occurs once, as the format demands.
type Samples = BTreeMap<Labels, u64>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Type {
    /// A number that never decreases while the process lives. Its samples end in `_total`.
    Counter,
    /// A number that may decrease.
    Gauge,
}

struct Family {
    /// The name, which ends in the unit, if there is one.
    name: &'static str,
    kind: Type,
    unit: Option<&'static str>,
    help: &'static str,
    samples: Samples,
}

/// A text format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    OpenMetrics,
    Prometheus,
}

/// Returns the metrics of all processes.
pub(crate) fn text(listing: &Listing, format: Format) -> String {
    let mut text = String::new();
    for family in families(listing) {
        family.write(&mut text, format);
    }
    if format == Format::OpenMetrics {
        text.push_str("# EOF\n");
    }
    text
}

/// Makes an array of families. A row has the type, the name, the text of help, and the samples.
macro_rules! families {
    ($($kind:ident $name:literal: $help:literal => $samples:expr;)+) => {
        [$(Family::$kind($name, $help, $samples)),+]
    };
}

fn families(listing: &Listing) -> [Family; 12] {
    let of = |samples: fn(&Process) -> Vec<(Labels, u64)>| each(&listing.processes, samples);
    let unreadable = u64::try_from(listing.faults.len()).unwrap_or(u64::MAX);
    families! {
        gauge "ops_sockets": "Sockets that a process has open." => of(open_sockets);
        counter "ops_connections": "Connections by carrier: an offload protocol, or TCP." =>
            of(connections);
        counter "ops_tcp_connections": "Connections that stayed on TCP, by reason." => of(reasons);
        counter "ops_accepted_connections":
            "Connections that an open listener has accepted, by carrier." => of(accepted);
        bytes "ops_sent_bytes": "Bytes that a process has sent on offloaded connections." =>
            of(|process| bytes(process, Counter::Sent));
        bytes "ops_received_bytes": "Bytes that a process has received on offloaded connections." =>
            of(|process| bytes(process, Counter::Received));
        bytes "ops_mechanism_bytes": "Bytes of connections over SDP, by direction and mechanism." =>
            of(bytes_by_mechanism);
        counter "ops_adverts":
            "Advertisements of a process's memory to peers, by owner and result." => of(adverts);
        counter "ops_stalls":
            "Number of times that bytes of connections over SDP had to wait, by reason." =>
            of(|process| counters(process, mechanisms::STALLS, &[], Some("reason")));
        gauge "ops_credits":
            "Messages for which the peers of all connections over SDP have receive buffers." =>
            of(|process| counters(process, &[("", Counter::Credits)], &[], None));
        counter "ops_unlisted_sockets": "Sockets for which the page of a process had no record." =>
            of(|process| vec![(vec![], process.totals.unlisted)]);
        gauge "ops_unreadable_pages": "Pages of processes that cannot be read." =>
            [(vec![], unreadable)].into();
    }
}

fn bytes(process: &Process, which: Counter) -> Vec<(Labels, u64)> {
    let counted = sockets::counted(process, which);
    counted.map(|count| (vec![], count)).into_iter().collect()
}

/// Returns the samples of all processes, with the labels of the process in front of their own.
fn each(processes: &[Process], of: fn(&Process) -> Vec<(Labels, u64)>) -> Samples {
    let mut samples = Samples::new();
    for process in processes {
        for (labels, value) in of(process) {
            let mut all = vec![
                ("pid", process.pid.to_string()),
                ("program", process.program.clone()),
                ("user", process.user.to_string()),
            ];
            all.extend(labels);
            let sum = samples.entry(all).or_default();
            // The numbers are from another program and may have any value.
            *sum = sum.wrapping_add(value);
        }
    }
    samples
}

fn open_sockets(process: &Process) -> Vec<(Labels, u64)> {
    let rows = process.rows.iter();
    rows.map(|row| {
        let kind = match row.description.kind {
            Kind::Connection => "connection",
            Kind::Listener => "listener",
        };
        let state = match row.state {
            // The page does not contain the state of a kernel socket.
            State::Native => "kernel".to_owned(),
            state => state.to_string(),
        };
        let labels = vec![
            ("protocol", row.description.carrier.protocol().to_owned()),
            ("kind", kind.to_owned()),
            ("state", state),
        ];
        (labels, 1)
    })
    .collect()
}

fn connections(process: &Process) -> Vec<(Labels, u64)> {
    by_carrier(&[], process.totals.offloaded, process.totals.tcp)
}

fn reasons(process: &Process) -> Vec<(Labels, u64)> {
    let reasons = process.reasons.iter();
    reasons
        .map(|(reason, count)| (vec![("reason", reason.clone())], *count))
        .collect()
}

fn accepted(process: &Process) -> Vec<(Labels, u64)> {
    // Connections that the kernel alone accepts are not counted.
    let is_counted = |row: &&Row| {
        row.description.kind == Kind::Listener
            && matches!(row.description.carrier, Carrier::Offload { .. })
    };
    let rows = process.rows.iter();
    rows.filter(is_counted)
        .flat_map(|row| {
            by_carrier(
                &[("local", row.description.local.to_string())],
                row.counter(Counter::AcceptedOffloaded),
                row.counter(Counter::AcceptedTcp),
            )
        })
        .collect()
}

fn bytes_by_mechanism(process: &Process) -> Vec<(Labels, u64)> {
    let of = |direction, words| {
        counters(
            process,
            words,
            &[("direction", direction)],
            Some("mechanism"),
        )
    };
    [
        of("sent", mechanisms::SENT),
        of("received", mechanisms::RECEIVED),
    ]
    .concat()
}

fn adverts(process: &Process) -> Vec<(Labels, u64)> {
    let of = |owner, words| counters(process, words, &[("owner", owner)], Some("result"));
    [
        of("writer", mechanisms::SOURCES),
        of("reader", mechanisms::SINKS),
    ]
    .concat()
}

/// Returns a sample for each of the counters in `words`, with these labels, and a label for the
/// word. Returns no sample for a process in which no protocol has counted anything.
fn counters(
    process: &Process,
    words: &[(&str, Counter)],
    labels: &[(&'static str, &str)],
    of_word: Option<&'static str>,
) -> Vec<(Labels, u64)> {
    let mut all = Counter::OF_PROTOCOL.into_iter();
    if !all.any(|counter| sockets::total(process, counter) > 0) {
        return Vec::new();
    }
    let sample = |(word, counter): &(&str, Counter)| {
        let labels = labels
            .iter()
            .copied()
            .chain(of_word.map(|label| (label, *word)));
        let labels = labels.map(|(label, value)| (label, value.to_owned()));
        (labels.collect(), sockets::total(process, *counter))
    };
    words.iter().map(sample).collect()
}

fn by_carrier(labels: &[(&'static str, String)], offloaded: u64, tcp: u64) -> Vec<(Labels, u64)> {
    let carriers = [("offload", offloaded), ("tcp", tcp)];
    let samples = carriers.map(|(carrier, count)| {
        let carrier = ("carrier", carrier.to_owned());
        (labels.iter().cloned().chain([carrier]).collect(), count)
    });
    samples.into()
}

impl Family {
    fn counter(name: &'static str, help: &'static str, samples: Samples) -> Self {
        Self {
            name,
            kind: Type::Counter,
            unit: None,
            help,
            samples,
        }
    }

    fn gauge(name: &'static str, help: &'static str, samples: Samples) -> Self {
        Self {
            kind: Type::Gauge,
            ..Self::counter(name, help, samples)
        }
    }

    /// A counter of bytes; `name` ends in the unit.
    fn bytes(name: &'static str, help: &'static str, samples: Samples) -> Self {
        Self {
            unit: Some("bytes"),
            ..Self::counter(name, help, samples)
        }
    }

    /// Appends the metadata and the samples.
    fn write(&self, text: &mut String, format: Format) {
        let Self { name, help, .. } = self;
        let (kind, suffix) = match self.kind {
            Type::Counter => ("counter", "_total"),
            Type::Gauge => ("gauge", ""),
        };
        // In the format of Prometheus, the metadata name the samples and not the family.
        let family = match format {
            Format::OpenMetrics => (*name).to_owned(),
            Format::Prometheus => format!("{name}{suffix}"),
        };
        // Writing to a string does not fail.
        let _ = writeln!(text, "# TYPE {family} {kind}");
        if let Some(unit) = self.unit.filter(|_| format == Format::OpenMetrics) {
            let _ = writeln!(text, "# UNIT {family} {unit}");
        }
        let _ = writeln!(text, "# HELP {family} {help}");
        for (labels, value) in &self.samples {
            let _ = writeln!(text, "{name}{suffix}{} {value}", set(labels));
        }
    }
}

/// Returns the labels between braces; nothing if there are none.
fn set(labels: &Labels) -> String {
    let pairs = labels.iter();
    let pairs: Vec<String> = pairs
        .map(|(name, value)| format!("{name}=\"{}\"", escaped(value)))
        .collect();
    match pairs.is_empty() {
        true => String::new(),
        false => format!("{{{}}}", pairs.join(",")),
    }
}

/// Escapes the value of a label (OpenMetrics 1.0, section "Escaping").
fn escaped(value: &str) -> String {
    let mut text = String::new();
    for character in value.chars() {
        match character {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            other => text.push(other),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_labels_are_escaped() {
        assert_eq!(escaped("a\\b\"c\nd"), "a\\\\b\\\"c\\nd");
        let labels = vec![("a", "x".to_owned()), ("b", "\"".to_owned())];
        assert_eq!(set(&labels), "{a=\"x\",b=\"\\\"\"}");
        assert_eq!(set(&Labels::new()), "");
    }

    #[test]
    fn no_process_is_no_error() {
        let of = |format| text(&Listing::default(), format);
        let open = of(Format::OpenMetrics);
        assert!(open.contains("\nops_unreadable_pages 0\n"), "{open}");
        assert!(open.contains("# TYPE ops_sent_bytes counter\n# UNIT ops_sent_bytes bytes\n"));
        assert!(open.ends_with("# EOF\n"), "{open}");
        let old = of(Format::Prometheus);
        assert!(
            old.contains("# TYPE ops_sent_bytes_total counter\n"),
            "{old}"
        );
        let is_known = |line: &str| {
            !line.starts_with('#') || line.starts_with("# TYPE ") || line.starts_with("# HELP ")
        };
        assert!(old.lines().all(is_known), "{old}");
    }
}
