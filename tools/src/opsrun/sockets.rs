//! The sockets of all programs that run with the library, read from the pages that they write.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::Result;
use ops::observe::{Carrier, Counter, Kind, Listing, Place, Process, Row, State};
use serde_json::{Value, json};

use crate::args::Listed;

/// The names of the columns. The last one holds the device of an offloaded socket, or the reason
/// for which another socket is on TCP.
const TITLES: [&str; 8] = [
    "Proto", "State", "Local", "Peer", "Sent", "Received", "Process", "By",
];
/// The columns of numbers, which are aligned to the right.
const NUMBERS: [usize; 2] = [4, 5];

/// Prints the sockets.
pub(crate) fn run(how: Listed) -> Result<ExitCode> {
    let listing = Listing::read(&Place::choose(host::environment::variable));
    for (user, name, fault) in &listing.faults {
        eprintln!("opsrun: page {name} of user {user} is passed over: {fault}");
    }
    let text = if how.json {
        let processes: Vec<Value> = listing.processes.iter().map(process).collect();
        format!("{:#}\n", json!({ "processes": processes }))
    } else {
        table(&listing.processes, !how.no_header)
    };
    match io::stdout().write_all(text.as_bytes()) {
        // The reader has closed the pipe, which is no error.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        written => Ok(written.map(|()| ExitCode::SUCCESS)?),
    }
}

fn process(process: &Process) -> Value {
    let live = |which| -> u64 { process.rows.iter().map(|row| row.counter(which)).sum() };
    let reasons: Vec<Value> = process
        .reasons
        .iter()
        .map(|(reason, count)| json!({ "reason": reason, "count": count }))
        .collect();
    json!({
        "pid": process.pid,
        "program": process.program,
        "user": process.user,
        "net_namespace": process.net_space,
        "totals": {
            "offloaded": process.totals.offloaded,
            "tcp": process.totals.tcp,
            "sent": process.totals.sent.wrapping_add(live(Counter::Sent)),
            "received": process.totals.received.wrapping_add(live(Counter::Received)),
            "unlisted": process.totals.unlisted,
        },
        "tcp_reasons": reasons,
        "sockets": process.rows.iter().map(socket).collect::<Vec<Value>>(),
    })
}

fn socket(row: &Row) -> Value {
    let description = &row.description;
    let mut value = json!({
        "kind": match description.kind {
            Kind::Connection => "connection",
            Kind::Listener => "listener",
        },
        "protocol": description.carrier.protocol(),
        "state": state(row.state),
        "local": description.local.to_string(),
    });
    match &description.carrier {
        Carrier::Offload { device, .. } => value["device"] = json!(device),
        Carrier::Tcp { reason } => value["reason"] = json!(reason),
    }
    if description.kind == Kind::Listener {
        if let Carrier::Tcp { .. } = description.carrier {
            // Connections that the kernel alone accepts are not counted.
            return value;
        }
        value["accepted_offloaded"] = json!(row.counter(Counter::AcceptedOffloaded));
        value["accepted_tcp"] = json!(row.counter(Counter::AcceptedTcp));
        return value;
    }
    value["peer"] = json!(description.remote.to_string());
    if row.state != State::Native {
        value["sent"] = json!(row.counter(Counter::Sent));
        value["received"] = json!(row.counter(Counter::Received));
    }
    value
}

/// Returns the state; `None` for a kernel socket, whose state this program does not know.
fn state(state: State) -> Option<String> {
    (state != State::Native).then(|| state.to_string())
}

fn table(processes: &[Process], header: bool) -> String {
    let mut lines: Vec<[String; TITLES.len()]> = Vec::new();
    if header {
        lines.push(TITLES.map(str::to_owned));
    }
    for process in processes {
        lines.extend(process.rows.iter().map(|row| line(process, row)));
    }
    let width = |column: usize| {
        let widths = lines.iter().map(|line| line[column].chars().count());
        widths.max().unwrap_or(0)
    };
    let widths: [usize; TITLES.len()] = std::array::from_fn(width);
    let mut text = String::new();
    for line in &lines {
        let mut printed = String::new();
        for (column, (word, width)) in line.iter().zip(widths).enumerate() {
            let word = match NUMBERS.contains(&column) {
                true => format!("{word:>width$}  "),
                false => format!("{word:<width$}  "),
            };
            printed.push_str(&word);
        }
        text.push_str(printed.trim_end());
        text.push('\n');
    }
    text
}

fn line(process: &Process, row: &Row) -> [String; TITLES.len()] {
    let description = &row.description;
    let count = |which| match row.state {
        State::Native | State::Listening => "-".to_owned(),
        _ => row.counter(which).to_string(),
    };
    let (peer, by) = match description.kind {
        Kind::Connection => (address(description.remote), by(&description.carrier)),
        Kind::Listener => ("*:*".to_owned(), accepted(row)),
    };
    [
        description.carrier.protocol().to_owned(),
        row.state.to_string(),
        address(description.local),
        peer,
        count(Counter::Sent),
        count(Counter::Received),
        format!("{}[{}]", process.program, process.pid),
        by,
    ]
}

fn by(carrier: &Carrier) -> String {
    match carrier {
        Carrier::Offload { device, .. } => device.clone(),
        Carrier::Tcp { reason } => reason.clone(),
    }
}

fn accepted(row: &Row) -> String {
    let by = by(&row.description.carrier);
    if let Carrier::Tcp { .. } = row.description.carrier {
        return by;
    }
    let offloaded = row.counter(Counter::AcceptedOffloaded);
    let tcp = row.counter(Counter::AcceptedTcp);
    let accepted = format!("accepted {offloaded} offloaded and {tcp} over TCP");
    if by.is_empty() {
        accepted
    } else {
        format!("{by}; {accepted}")
    }
}

fn address(address: SocketAddr) -> String {
    match address.ip().is_unspecified() {
        true if address.port() == 0 => "*:*".to_owned(),
        true => format!("*:{}", address.port()),
        false => address.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use ops::observe::{Description, Writer};

    use super::*;
    use crate::args::{Args, Command};

    fn written(dir: &std::path::Path) -> Listing {
        static WRITER: Writer = Writer::new();
        WRITER.begin(Place::at(dir));
        let list = |kind, remote: &str, carrier, state| {
            let local = "192.0.2.1:40000".parse().unwrap();
            let remote = remote.parse().unwrap();
            let description = Description {
                kind,
                local,
                remote,
                carrier,
            };
            WRITER.list(&description, state)
        };
        let sdp = || Carrier::Offload {
            protocol: "sdp".to_owned(),
            device: "iwarp-soft".to_owned(),
        };
        let tcp = Carrier::Tcp {
            reason: "the peer refused".to_owned(),
        };
        let peer = "192.0.2.2:5001";
        let one = list(Kind::Connection, peer, sdp(), State::Established);
        let _two = list(Kind::Connection, peer, tcp, State::Native);
        let three = list(Kind::Listener, "[::]:0", sdp(), State::Listening);
        one.count(Counter::Sent, 70);
        three.count(Counter::AcceptedTcp, 2);
        Listing::read(&Place::at(dir))
    }

    #[test]
    fn a_table_and_json_are_printed() {
        let dir = tempfile::tempdir().unwrap();
        let mut processes = written(dir.path()).processes;
        processes[0].pid = 7;
        processes[0].program = "curl".to_owned();
        assert_eq!(
            table(&processes, true),
            "Proto  State   Local            Peer            Sent  Received  Process  By\n\
             sdp    ESTAB   192.0.2.1:40000  192.0.2.2:5001    70         0  curl[7]  iwarp-soft\n\
             tcp    -       192.0.2.1:40000  192.0.2.2:5001     -         -  curl[7]  \
             the peer refused\n\
             sdp    LISTEN  192.0.2.1:40000  *:*                -         -  curl[7]  \
             iwarp-soft; accepted 0 offloaded and 2 over TCP\n"
        );
        assert_eq!(table(&[], false), "");
        let json = process(&processes[0]);
        assert_eq!(json["totals"]["sent"], 70);
        assert_eq!(json["totals"]["tcp"], 1);
        assert_eq!(json["tcp_reasons"][0]["reason"], "the peer refused");
        assert_eq!(json["sockets"][0]["protocol"], "sdp");
        assert_eq!(json["sockets"][1]["state"], Value::Null);
        assert_eq!(json["sockets"][2]["accepted_tcp"], 2);
    }

    #[test]
    fn a_program_of_the_same_name_can_be_run() {
        let parse = |line: &[&str]| Args::try_parse_from([&["opsrun"], line].concat()).unwrap();
        assert!(matches!(parse(&["ss"]).command, Some(Command::Ss(_))));
        assert!(matches!(
            parse(&["ss", "--json", "-H"]).command,
            Some(Command::Ss(how)) if how.json && how.no_header
        ));
        let args = parse(&["--", "ss", "-t"]);
        assert!(args.command.is_none() && args.words.len() == 2);
        let args = parse(&["--rules", "x", "ss", "-t"]);
        assert!(args.command.is_none() && args.words.len() == 2);
        assert!(Args::try_parse_from(["opsrun"]).is_err());
    }
}
