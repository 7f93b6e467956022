//! The list of sockets, printed at intervals with the bytes per second of each socket.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _, Write as _};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ops::observe::{Counter, Listing, PageRoot, Process, Row};
use tool_args::opsrun::Listed;

use crate::columns::Column;
use crate::listing;
use crate::sockets::{self, Shown};

/// The columns: those of the list, and the bytes per second next to the counts.
const COLUMNS: [Column; 11] = [
    Column::text("Proto"),
    Column::text("State"),
    Column::text("Local"),
    Column::text("Peer"),
    Column::number("Sent"),
    Column::number("B/s"),
    Column::number("Received"),
    Column::number("B/s"),
    Column::text("Process"),
    Column::text("Net"),
    Column::text("By"),
];

/// The directions, in the order of the columns.
const DIRECTIONS: [Counter; 2] = [Counter::Sent, Counter::Received];

/// The control sequences of a terminal (ECMA-48): cursor to the first line, erase to the end of the
/// line, erase to the end of the screen.
const HOME: &str = "\x1b[H";
const ERASE_LINE: &str = "\x1b[K";
const ERASE_BELOW: &str = "\x1b[J";

/// The key of a socket: process, time of listing, both addresses. The number of a process and an
/// address may be reused; the time distinguishes the sockets.
type Identity = (u32, u64, SocketAddr, SocketAddr);

/// The bytes that were counted at one time, by direction.
struct Sample {
    taken: Instant,
    sockets: BTreeMap<Identity, [u64; 2]>,
    /// The bytes of each process, which include those of its closed connections.
    processes: BTreeMap<u32, [u64; 2]>,
}

/// Prints the list at each interval until output fails, for instance because the reader of a pipe
/// has closed it.
pub(crate) fn run(root: &PageRoot, interval: Duration, how: Listed) -> io::Result<()> {
    let shown = Shown::of(how);
    let mut last: Option<Sample> = None;
    loop {
        let mut listing = listing::read(root);
        listing::keep(&mut listing, how);
        let sample = Sample::of(&listing, Instant::now());
        show(&frame(&listing, &sample, last.as_ref(), shown))?;
        last = Some(sample);
        std::thread::sleep(interval);
    }
}

/// Writes a frame. On a terminal the frame replaces the last frame; otherwise a blank line
/// separates the frames.
fn show(frame: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if out.is_terminal() {
        let size = rustix::termios::tcgetwinsize(&out).ok();
        let size = size.map(|size| (usize::from(size.ws_row), usize::from(size.ws_col)));
        out.write_all(on_screen(frame, size).as_bytes())?;
    } else {
        writeln!(out, "{frame}")?;
    }
    out.flush()
}

/// Returns the frame with control sequences, cut to the lines and columns of the screen, because a
/// line that the terminal wraps or scrolls would move the frame.
fn on_screen(frame: &str, size: Option<(usize, usize)>) -> String {
    let (lines, columns) = size
        .filter(|size| size.0 > 1 && size.1 > 0)
        .unwrap_or((25, 80));
    let mut text = HOME.to_owned();
    for line in frame.lines().take(lines - 1) {
        text.extend(line.chars().take(columns));
        text.push_str(ERASE_LINE);
        text.push('\n');
    }
    text.push_str(ERASE_BELOW);
    text
}

impl Sample {
    fn of(listing: &Listing, taken: Instant) -> Self {
        let mut sample = Self {
            taken,
            sockets: BTreeMap::new(),
            processes: BTreeMap::new(),
        };
        for process in &listing.processes {
            let totals = DIRECTIONS.map(|which| sockets::total(process, which));
            sample.processes.insert(process.pid, totals);
            for row in process.rows.iter().filter(|row| sockets::counts_bytes(row)) {
                let counts = DIRECTIONS.map(|which| row.counter(which));
                sample.sockets.insert(identity(process, row), counts);
            }
        }
        sample
    }
}

fn identity(process: &Process, row: &Row) -> Identity {
    let description = &row.description;
    (
        process.pid,
        row.since,
        description.local,
        description.remote,
    )
}

/// Returns the text of a frame: a line of totals, then the sockets.
fn frame(listing: &Listing, now: &Sample, last: Option<&Sample>, shown: Shown) -> String {
    let mut rows = Vec::new();
    for process in &listing.processes {
        for row in &process.rows {
            let identity = identity(process, row);
            let rates = rates(now, last, |sample| sample.sockets.get(&identity));
            let rates = rates.map_or_else(
                || ["-", "-"].map(str::to_owned),
                |rates| rates.map(|rate| rate.to_string()),
            );
            let [sent_rate, received_rate] = rates;
            let [proto, state, local, peer, sent, received, process, net, by] =
                sockets::line(process, row);
            rows.push([
                proto,
                state,
                local,
                peer,
                sent,
                sent_rate,
                received,
                received_rate,
                process,
                net,
                by,
            ]);
        }
    }
    let totals = totals(listing, now, last);
    let table = shown.table(&COLUMNS, &rows, &listing.processes);
    format!("{totals}\n{table}")
}

/// Returns the line above the list.
fn totals(listing: &Listing, now: &Sample, last: Option<&Sample>) -> String {
    let processes = &listing.processes;
    let sockets: usize = processes.iter().map(|process| process.rows.len()).sum();
    let mut text = format!("processes {}, sockets {sockets}", processes.len());
    let all = processes
        .iter()
        .filter_map(|process| rates(now, last, |sample| sample.processes.get(&process.pid)));
    let [sent, received] = all.fold([0_u64; 2], |[sent, received], rates| {
        [
            sent.saturating_add(rates[0]),
            received.saturating_add(rates[1]),
        ]
    });
    if last.is_some() {
        text.push_str(&format!(", sent {sent} B/s, received {received} B/s"));
    }
    if !listing.faults.is_empty() {
        text.push_str(&format!(", pages not read {}", listing.faults.len()));
    }
    text
}

/// Returns the bytes per second of a counted object since the last sample, by direction; `None` if
/// either sample lacks the object.
fn rates<'a>(
    now: &'a Sample,
    last: Option<&'a Sample>,
    counts: impl Fn(&'a Sample) -> Option<&'a [u64; 2]>,
) -> Option<[u64; 2]> {
    let last = last?;
    let (after, before) = (counts(now)?, counts(last)?);
    let elapsed = now
        .taken
        .saturating_duration_since(last.taken)
        .as_secs_f64();
    let rate = |index: usize| {
        // The numbers are from another program: a counter that decreases has the rate 0.
        let bytes = after[index].saturating_sub(before[index]) as f64;
        if elapsed > 0.0 {
            (bytes / elapsed).round() as u64
        } else {
            0
        }
    };
    Some([rate(0), rate(1)])
}

#[cfg(test)]
mod tests {
    use ops::observe::{Carrier, Description, Kind, State, Writer};

    use super::*;

    fn shown(header: bool) -> Shown {
        Shown {
            header,
            info: false,
            width: None,
            is_coloured: false,
        }
    }

    #[test]
    fn a_frame_has_the_bytes_per_second_since_the_last_one() {
        static WRITER: Writer = Writer::new();
        let dir = tempfile::tempdir().unwrap();
        let root = PageRoot::at(dir.path());
        WRITER.begin(root.clone());
        let list = |carrier, state| {
            let description = Description {
                kind: Kind::Connection,
                local: "192.0.2.1:40000".parse().unwrap(),
                remote: "192.0.2.2:5001".parse().unwrap(),
                carrier,
            };
            WRITER.list(&description, state)
        };
        let sdp = || Carrier::Offload {
            protocol: "sdp".to_owned(),
            device: "mlx5_0".to_owned(),
        };
        let tcp = Carrier::Tcp {
            reason: "no".to_owned(),
        };
        let one = list(sdp(), State::Established);
        let _kernel = list(tcp, State::Native);
        one.count(Counter::Sent, 1000);
        let start = Instant::now();
        let listing = Listing::read(&root);
        let first = Sample::of(&listing, start);
        let text = frame(&listing, &first, None, shown(true));
        assert!(text.starts_with("processes 1, sockets 2\nProto "), "{text}");
        assert!(text.contains(" 1000    -         0    -  "), "{text}");

        one.count(Counter::Sent, 3000);
        one.count(Counter::Received, 10);
        let two = list(sdp(), State::Established);
        two.count(Counter::Sent, 7);
        let listing = Listing::read(&root);
        let second = Sample::of(&listing, start + Duration::from_secs(2));
        let text = frame(&listing, &second, Some(&first), shown(false));
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(
            lines[0].join(" "),
            "processes 1, sockets 3, sent 1504 B/s, received 5 B/s"
        );
        let count = |row: usize| lines[row][4..8].join(" ");
        assert_eq!(count(1), "4000 1500 10 5");
        assert_eq!(count(2), "- - - -", "a socket of the kernel");
        let new = count(3);
        assert_eq!(new, "7 - 0 -", "a socket that the last frame did not have");
    }

    #[test]
    fn a_counter_that_decreases_has_no_rate() {
        let start = Instant::now();
        let sample = |after, count| Sample {
            taken: start + Duration::from_millis(after),
            sockets: BTreeMap::new(),
            processes: [(7, [count; 2])].into(),
        };
        let of = |now, last| rates(&now, Some(&last), |sample| sample.processes.get(&7));
        assert_eq!(of(sample(500, 10), sample(0, 5)), Some([10, 10]));
        assert_eq!(of(sample(500, 5), sample(0, 10)), Some([0, 0]));
        assert_eq!(of(sample(0, 10), sample(0, 5)), Some([0, 0]));
    }

    #[test]
    fn a_frame_is_truncated_to_the_screen() {
        let text = on_screen("first line\nsecond\nthird\n", Some((3, 5)));
        assert_eq!(text, "\x1b[Hfirst\x1b[K\nsecon\x1b[K\n\x1b[J");
        assert!(on_screen("a\n", None).contains('a'));
        assert!(on_screen("a\n", Some((0, 0))).contains('a'));
    }
}
