//! The sockets of all programs that run with the library, read from the pages that they write.

use std::net::SocketAddr;

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::sync::LazyLock;

use ops::observe::{Carrier, Counter, Kind, Process, Row, State};
use serde_json::{Value, json};
use tool_args::opsrun::Listed;
use tool_args::terminal::{self, Colour};

use crate::columns::{self, Column};
use crate::{listing, mechanisms};

/// The columns. The last column has the device of an offloaded socket, or the reason for which the
/// socket is on TCP.
const COLUMNS: [Column; 9] = [
    Column::text("Proto"),
    Column::text("State"),
    Column::text("Local"),
    Column::text("Peer"),
    Column::number("Sent"),
    Column::number("Received"),
    Column::text("Process"),
    Column::text("Net"),
    Column::text("By"),
];
/// The first column that is in a line of its own where the table is wider than the terminal.
const REST: usize = 6;

/// The network namespace of this process, by its inode.
static OWN_NET: LazyLock<Option<u64>> =
    LazyLock::new(|| Some(fs::metadata("/proc/self/ns/net").ok()?.ino()));

/// The parts of a list.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shown {
    /// The line with the names of the columns.
    pub(crate) header: bool,
    /// The counters of a connection's protocol, in a line below the connection.
    pub(crate) info: bool,
    /// The width of the terminal, in columns.
    pub(crate) width: Option<usize>,
    /// The protocol in colour.
    pub(crate) is_coloured: bool,
}

impl Shown {
    pub(crate) fn of(how: Listed) -> Self {
        Self {
            header: !how.no_header,
            info: how.info,
            width: None,
            is_coloured: false,
        }
    }

    /// A list that is printed once, as the terminal can show it.
    pub(crate) fn on_terminal(self) -> Self {
        let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok();
        let width = size.map(|size| usize::from(size.ws_col));
        Self {
            width: width.filter(|width| *width > 0),
            is_coloured: terminal::has_colours(),
            ..self
        }
    }

    /// Returns the table, with the lines of the counters if they are shown.
    pub(crate) fn table<const N: usize>(
        self,
        columns: &[Column; N],
        rows: &[[String; N]],
        processes: &[Process],
    ) -> String {
        let layout = (self.width, REST);
        let mut blocks = columns::table(columns, rows, self.header, layout).into_iter();
        let mut text = String::new();
        let titles = self.header.then(|| blocks.next()).flatten();
        titles.iter().for_each(|titles| add_line(&mut text, titles));
        let sockets = processes.iter().flat_map(|process| &process.rows);
        for (block, row) in blocks.zip(sockets) {
            add_line(&mut text, &self.coloured(&block, row));
            if let Some(counters) = self.info.then(|| mechanisms::line(row)).flatten() {
                add_line(&mut text, &format!("\t{counters}"));
            }
        }
        text
    }

    /// Returns the block with its first word in colour: red for a connection that failed, green for
    /// an offload protocol, yellow for a connection that is on TCP for a reason.
    fn coloured(self, block: &str, row: &Row) -> String {
        let colour = match &row.description.carrier {
            _ if row.state == State::Broken => Colour::Red,
            Carrier::Offload { .. } => Colour::Green,
            Carrier::Tcp { .. } => Colour::Yellow,
        };
        let (word, rest) = block.split_at(block.find(' ').unwrap_or(block.len()));
        let word = terminal::painted(word, self.is_coloured.then_some(colour));
        format!("{word}{rest}")
    }
}

fn add_line(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}

/// Returns a counter of a process, which includes its open and its closed connections.
pub(crate) fn total(process: &Process, which: Counter) -> u64 {
    let open = process.rows.iter().map(|row| row.counter(which));
    let closed = process.totals.closed(which);
    // The numbers are from another program and may have any value.
    open.fold(closed, u64::wrapping_add)
}

/// Returns a counter of bytes of a process; `None` if it has had no connection whose bytes are
/// counted: the library does not see the bytes of `local`.
pub(crate) fn counted(process: &Process, which: Counter) -> Option<u64> {
    let total = total(process, which);
    let is_counted = total > 0 || process.rows.iter().any(counts_bytes);
    is_counted.then_some(total)
}

/// Returns a process with its sockets for `--json`.
pub(crate) fn process(process: &Process) -> Value {
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
            "sent": counted(process, Counter::Sent),
            "received": counted(process, Counter::Received),
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
        "local": (!listing::has_no_address(row)).then(|| description.local.to_string()),
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
    if counts_bytes(row) {
        value["sent"] = json!(row.counter(Counter::Sent));
        value["received"] = json!(row.counter(Counter::Received));
    }
    if let Some(mechanisms) = mechanisms::json(row) {
        value["mechanisms"] = mechanisms;
    }
    value
}

/// Returns the state; `None` for a kernel socket, whose state the pages do not contain.
fn state(state: State) -> Option<String> {
    (state != State::Native).then(|| state.to_string())
}

pub(crate) fn table(processes: &[Process], shown: Shown) -> String {
    let rows = processes
        .iter()
        .flat_map(|process| process.rows.iter().map(|row| line(process, row)));
    shown.table(&COLUMNS, &rows.collect::<Vec<_>>(), processes)
}

/// Returns the cells of a socket.
pub(crate) fn line(process: &Process, row: &Row) -> [String; COLUMNS.len()] {
    let description = &row.description;
    let count = |which| match counts_bytes(row) {
        true => row.counter(which).to_string(),
        false => "-".to_owned(),
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
        net(process),
        by,
    ]
}

/// Returns `here` for a process in the network namespace of this one, otherwise the inode of its
/// namespace.
fn net(process: &Process) -> String {
    match *OWN_NET {
        Some(own) if own == process.net_space => "here".to_owned(),
        _ => process.net_space.to_string(),
    }
}

/// Returns true if the process counts the bytes of the socket. The library does not count the bytes
/// of a kernel socket, over TCP or within the host.
pub(crate) fn counts_bytes(row: &Row) -> bool {
    let is_kernels = match &row.description.carrier {
        Carrier::Offload { protocol, .. } => protocol == ops_local_protocol::NAME,
        Carrier::Tcp { .. } => true,
    };
    row.description.kind == Kind::Connection && !is_kernels
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
    use ops::observe::{Description, Listing, Meter as _, PageRoot, Writer};

    use super::*;
    use tool_args::opsrun::{Args, Command};

    fn written(dir: &std::path::Path) -> Listing {
        static WRITER: Writer = Writer::new();
        WRITER.begin(PageRoot::at(dir));
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
        one.set(&[
            (Counter::SentCopied, 70),
            (Counter::Credits, 13),
            (Counter::StallsRoom, 2),
        ]);
        three.count(Counter::AcceptedTcp, 2);
        Listing::read(&PageRoot::at(dir))
    }

    fn shown(header: bool, info: bool) -> Shown {
        Shown {
            header,
            info,
            width: None,
            is_coloured: false,
        }
    }

    #[test]
    fn a_table_and_json_are_printed() {
        let dir = tempfile::tempdir().unwrap();
        let mut processes = written(dir.path()).processes;
        processes[0].pid = 7;
        processes[0].program = "curl".to_owned();
        assert_eq!(
            table(&processes, shown(true, false)),
            "Proto  State   Local            Peer            Sent  Received  Process  Net   By\n\
             sdp    ESTAB   192.0.2.1:40000  192.0.2.2:5001    70         0  curl[7]  here  \
             iwarp-soft\n\
             tcp    -       192.0.2.1:40000  192.0.2.2:5001     -         -  curl[7]  here  \
             the peer refused\n\
             sdp    LISTEN  192.0.2.1:40000  *:*                -         -  curl[7]  here  \
             iwarp-soft; accepted 0 offloaded and 2 over TCP\n"
        );
        assert_eq!(table(&[], shown(false, true)), "");
        for header in [true, false] {
            let text = table(&processes, shown(header, true));
            let row = usize::from(header);
            let lines: Vec<&str> = text.lines().collect();
            assert_eq!(lines.len(), 4 + row, "{text}");
            assert!(lines[row].starts_with("sdp "), "{text}");
            assert_eq!(lines[row + 1], "\tcredits:13 sent_copied:70 stalls_room:2");
            assert!(lines[row + 2].starts_with("tcp "), "{text}");
        }
        let narrow = Shown {
            width: Some(80),
            is_coloured: true,
            ..shown(false, false)
        };
        processes[0].net_space = 7;
        let text = table(&processes, narrow);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 6, "{text}");
        assert!(lines[0].starts_with("\x1b[32msdp\x1b[0m  ESTAB"), "{text}");
        assert!(lines[2].starts_with("\x1b[33mtcp\x1b[0m "), "{text}");
        assert_eq!(lines[3], "\tcurl[7]  7  the peer refused");
        let json = process(&processes[0]);
        assert_eq!(json["totals"]["sent"], 70);
        assert_eq!(json["totals"]["tcp"], 1);
        assert_eq!(json["tcp_reasons"][0]["reason"], "the peer refused");
        assert_eq!(json["sockets"][0]["protocol"], "sdp");
        let mechanisms = &json["sockets"][0]["mechanisms"];
        assert_eq!(mechanisms["sent"]["copied"], 70);
        assert_eq!(mechanisms["credits"], 13);
        assert_eq!(mechanisms["stalls"]["room"], 2);
        assert_eq!(mechanisms["sinks"]["made"], 0);
        assert_eq!(json["sockets"][1].get("mechanisms"), None);
        assert_eq!(json["sockets"][1]["state"], Value::Null);
        assert_eq!(json["sockets"][2]["accepted_tcp"], 2);
    }

    #[test]
    fn a_program_with_the_name_of_a_subcommand_can_be_run() {
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
        let args = parse(&["curl", "--silent", "-o", "x"]);
        assert!(args.command.is_none() && args.words.len() == 4);
        assert!(Args::try_parse_from(["opsrun"]).is_err());
        let unknown = Args::try_parse_from(["opsrun", "--bogus", "curl"]).unwrap_err();
        assert_eq!(unknown.kind(), clap::error::ErrorKind::UnknownArgument);
    }
}
