//! `opsrun ss` for the sockets of this process, which writes a page as a program under `opsrun`
//! does.

mod metrics;

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use ops::observe::{
    Carrier, Counter, Description, Kind, Meter as _, PageRoot, Record, State, Writer,
};

use metrics::{Exposition, parse};

/// A reason with the characters that the format escapes and a page can contain.
const REASON: &str = "no \"way\" \\ at all";

fn ss(pages: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_opsrun"));
    command.arg("ss").env("OPS_PAGES", pages);
    command
}

fn success(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).expect("the program prints UTF-8")
}

fn list(writer: &'static Writer, kind: Kind, carrier: Carrier, state: State) -> Record {
    let description = Description {
        kind,
        local: ([192, 0, 2, 1], 40000).into(),
        remote: ([192, 0, 2, 2], 5001).into(),
        carrier,
    };
    writer.list(&description, state)
}

fn sdp() -> Carrier {
    Carrier::Offload {
        protocol: "sdp".to_owned(),
        device: "mlx5_0".to_owned(),
    }
}

/// The value of the sample whose labels contain `labels`.
fn value(metrics: &Exposition, name: &str, labels: &[(&str, &str)]) -> f64 {
    let found: Vec<_> = metrics
        .samples
        .iter()
        .filter(|sample| sample.name == name)
        .filter(|sample| {
            labels.iter().all(|(key, value)| {
                let label = sample.labels.get(*key);
                label.is_some_and(|label| label == value)
            })
        })
        .collect();
    assert_eq!(found.len(), 1, "{name} {labels:?}: {:?}", metrics.samples);
    found[0].value
}

#[test]
fn metrics_and_statistics_are_those_of_the_sockets() {
    static WRITER: Writer = Writer::new();
    let dir = tempfile::tempdir().unwrap();
    WRITER.begin(PageRoot::at(dir.path()));
    let one = list(&WRITER, Kind::Connection, sdp(), State::Established);
    let two = list(&WRITER, Kind::Connection, sdp(), State::Established);
    let listener = list(&WRITER, Kind::Listener, sdp(), State::Listening);
    let tcp = Carrier::Tcp {
        reason: REASON.to_owned(),
    };
    let _tcp = list(&WRITER, Kind::Connection, tcp, State::Native);
    one.count(Counter::Sent, 70);
    two.count(Counter::Sent, 7);
    two.count(Counter::Received, 3);
    listener.count(Counter::AcceptedTcp, 2);
    one.set(&[
        (Counter::SentWritten, 60),
        (Counter::Credits, 5),
        (Counter::Sinks, 3),
    ]);
    two.set(&[
        (Counter::SentWritten, 6),
        (Counter::Credits, 9),
        (Counter::StallsReader, 4),
    ]);
    // A connection that is closed counts as well.
    drop(one);
    let output = ss(dir.path()).arg("--openmetrics").output().unwrap();
    let metrics = parse(&success(&output)).unwrap();
    let pid = std::process::id().to_string();
    let ours = ("pid", pid.as_str());
    assert_eq!(value(&metrics, "ops_sent_bytes_total", &[ours]), 77.0);
    assert_eq!(value(&metrics, "ops_received_bytes_total", &[ours]), 3.0);
    let carried = |carrier| {
        value(
            &metrics,
            "ops_connections_total",
            &[ours, ("carrier", carrier)],
        )
    };
    assert_eq!((carried("offload"), carried("tcp")), (2.0, 1.0));
    let reason = [ours, ("reason", REASON)];
    assert_eq!(value(&metrics, "ops_tcp_connections_total", &reason), 1.0);
    let open = |labels: &[_]| value(&metrics, "ops_sockets", &[&[ours], labels].concat());
    assert_eq!(open(&[("protocol", "sdp"), ("state", "ESTAB")]), 1.0);
    assert_eq!(open(&[("protocol", "tcp"), ("state", "kernel")]), 1.0);
    assert_eq!(open(&[("kind", "listener")]), 1.0);
    let accepted = [ours, ("local", "192.0.2.1:40000"), ("carrier", "tcp")];
    let count = value(&metrics, "ops_accepted_connections_total", &accepted);
    assert_eq!(count, 2.0);
    let of_protocol = |name, labels: &[_]| value(&metrics, name, &[&[ours], labels].concat());
    let written = [("direction", "sent"), ("mechanism", "written")];
    assert_eq!(of_protocol("ops_mechanism_bytes_total", &written), 66.0);
    let read = [("direction", "received"), ("mechanism", "read")];
    assert_eq!(of_protocol("ops_mechanism_bytes_total", &read), 0.0);
    let made = [("owner", "reader"), ("result", "made")];
    assert_eq!(of_protocol("ops_adverts_total", &made), 3.0);
    let reader = [("reason", "reader")];
    assert_eq!(of_protocol("ops_stalls_total", &reader), 4.0);
    // A closed connection has no credits.
    assert_eq!(of_protocol("ops_credits", &[]), 9.0);
    assert_eq!(metrics.units["ops_mechanism_bytes"], "bytes");
    assert_eq!(value(&metrics, "ops_unreadable_pages", &[]), 0.0);
    assert_eq!(metrics.units["ops_sent_bytes"], "bytes");

    let output = ss(dir.path()).arg("--statistics").output().unwrap();
    let statistics = success(&output);
    let number = |protocol: &str, name: &str| {
        let mut lines = statistics
            .lines()
            .filter_map(|line| line.strip_prefix(protocol));
        let [names, numbers] = [(); 2].map(|()| lines.next().unwrap().split(' '));
        let named: Vec<_> = names.zip(numbers).filter(|pair| pair.0 == name).collect();
        assert_eq!(named.len(), 1, "{protocol} {name}");
        named[0].1.parse::<i64>().unwrap()
    };
    number("Tcp:", "CurrEstab");
    for (name, expected) in [
        ("CurrConns", 1),
        ("Connections", 2),
        ("StayedOnTcp", 1),
        ("AcceptedTcp", 2),
        ("OutBytes", 77),
        ("InBytes", 3),
        ("OutWritten", 66),
        ("WaitsForReader", 4),
    ] {
        assert_eq!(number("Offload:", name), expected, "{name}");
    }
}

#[test]
fn a_watch_prints_again_and_ends_with_its_reader() {
    static WRITER: Writer = Writer::new();
    let dir = tempfile::tempdir().unwrap();
    WRITER.begin(PageRoot::at(dir.path()));
    let one = list(&WRITER, Kind::Connection, sdp(), State::Established);
    let mut child = ss(dir.path())
        .args(["--watch", "0.1"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || lines.next().unwrap().unwrap();
    assert_eq!(next(), "processes 1, sockets 1");
    assert!(next().starts_with("Proto "), "the titles");
    let row = next();
    let words: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(words[4..8], ["0", "-", "0", "-"], "{row}");
    assert_eq!(next(), "");
    // Bytes that are counted between two frames have a rate in the second one.
    let counts = loop {
        one.count(Counter::Sent, 1_000_000);
        assert!(next().contains(" B/s, received 0 B/s"), "the totals");
        assert!(next().starts_with("Proto "), "the titles");
        let row = next();
        assert_eq!(next(), "");
        let words: Vec<String> = row.split_whitespace().map(str::to_owned).collect();
        let [sent, rate] = [4, 5].map(|column| words[column].parse::<u64>().unwrap());
        if rate > 0 {
            break [sent, rate];
        }
    };
    assert!(counts[0] >= 1_000_000 && counts[0].is_multiple_of(1_000_000));
    drop(lines);
    assert!(child.wait().unwrap().success());
}

#[test]
fn formats_exclude_each_other_and_intervals_have_limits() {
    let dir = tempfile::tempdir().unwrap();
    for args in [
        "--json --openmetrics",
        "--json --watch",
        "--openmetrics --watch 1",
        "--openmetrics --info",
        "-i --json",
        "--statistics --json",
        "--watch 0",
        "--watch nan",
        "--watch 1e9",
        "--watch soon",
    ] {
        let output = ss(dir.path()).args(args.split(' ')).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args}: {output:?}");
    }
}
