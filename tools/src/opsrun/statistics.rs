//! The numbers of the host's network with those of the offloaded connections, in the format of
//! `/proc/net/snmp`: pairs of lines, one with the names and one with the numbers.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::MetadataExt as _;

use anyhow::{Context, Result};
use ops::observe::{Carrier, Counter, Description, Kind, Process};

use crate::sockets;

/// Counters and their names, in the order in which they are printed.
const NAMES: [(&str, Counter); 16] = [
    ("AcceptedOffloaded", Counter::AcceptedOffloaded),
    ("AcceptedTcp", Counter::AcceptedTcp),
    ("InBytes", Counter::Received),
    ("InCopied", Counter::ReceivedCopied),
    ("InRead", Counter::ReceivedRead),
    ("InWritten", Counter::ReceivedWritten),
    ("OutBytes", Counter::Sent),
    ("OutCopied", Counter::SentCopied),
    ("OutRegistered", Counter::SentRegistered),
    ("OutRead", Counter::SentRead),
    ("OutWritten", Counter::SentWritten),
    ("WaitsForCredits", Counter::StallsCredits),
    ("WaitsForSends", Counter::StallsSends),
    ("WaitsForRoom", Counter::StallsRoom),
    ("WaitsForReader", Counter::StallsReader),
    ("Adverts", Counter::Sources),
];

/// Returns the kernel's numbers, and a pair of lines for the processes of the same network
/// namespace: programs that read the file find both.
pub(crate) fn text(processes: &[Process]) -> Result<String> {
    const KERNEL: &str = "/proc/net/snmp";
    let text = fs::read_to_string(KERNEL).with_context(|| format!("reading {KERNEL}"))?;
    let space = "/proc/self/ns/net";
    let space = fs::metadata(space).with_context(|| format!("reading {space}"))?;
    let ours = processes.iter().filter(|it| it.net_space == space.ino());
    Ok(text + &pair(&ours.collect::<Vec<_>>()))
}

fn pair(processes: &[&Process]) -> String {
    let sum = |of: &dyn Fn(&Process) -> u64| {
        // The numbers are from other programs and may have any value.
        let all = processes.iter().map(|process| of(process));
        all.fold(0, u64::wrapping_add)
    };
    let open = |process: &Process| {
        let ends = process.rows.iter().map(|row| &row.description);
        let offloaded = |end: &&Description| {
            end.kind == Kind::Connection && matches!(end.carrier, Carrier::Offload { .. })
        };
        ends.filter(offloaded).count() as u64
    };
    let mut names = "Offload: CurrConns Connections StayedOnTcp".to_owned();
    let mut numbers = format!(
        "Offload: {} {} {}",
        sum(&open),
        sum(&|process| process.totals.offloaded),
        sum(&|process| process.totals.tcp)
    );
    for (name, counter) in NAMES {
        // Writing to a string cannot fail.
        let _ = write!(names, " {name}");
        let _ = write!(numbers, " {}", sum(&|it| sockets::total(it, counter)));
    }
    format!("{names}\n{numbers}\n")
}
