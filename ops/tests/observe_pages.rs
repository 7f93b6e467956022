//! Pages that a process writes, and the listings that a reader on the same machine gets.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ops::observe::layout::{Header, RECORDS_MAX, ReasonSlot, VERSION};
use ops::observe::{
    Carrier, Counter, Description, Fault, Kind, Listing, Meter as _, Native, NativeRecord,
    PageRoot, ReasonText, Snapshot, State, Writer,
};
use tempfile::TempDir;

fn writer(dir: &TempDir) -> &'static Writer {
    let writer = Box::leak(Box::new(Writer::new()));
    writer.begin(PageRoot::at(dir.path()));
    writer
}

fn writer_of_own_directory() -> (TempDir, &'static Writer) {
    let dir = TempDir::new().unwrap();
    let writer = writer(&dir);
    (dir, writer)
}

fn listing(dir: &TempDir) -> Listing {
    Listing::read(&PageRoot::at(dir.path()))
}

fn files(dir: &TempDir) -> Vec<String> {
    let entries = std::fs::read_dir(path(dir, ""));
    entries
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}

fn connection(port: u16, carrier: Carrier) -> Description {
    Description {
        kind: Kind::Connection,
        local: SocketAddr::from(([192, 0, 2, 1], port)),
        remote: SocketAddr::from(([192, 0, 2, 2], 5001)),
        carrier,
    }
}

fn offloaded() -> Carrier {
    Carrier::Offload {
        protocol: "test".to_owned(),
        device: "none".to_owned(),
    }
}

fn tcp(reason: &str) -> Carrier {
    Carrier::Tcp {
        reason: reason.to_owned(),
    }
}

#[test]
fn a_socket_is_listed_and_counted_until_its_record_is_dropped() {
    let (dir, writer) = writer_of_own_directory();
    assert!(listing(&dir).processes.is_empty());
    assert!(files(&dir).is_empty(), "no page without a socket");
    let first = writer.list(&connection(40000, offloaded()), State::Established);
    let second = writer.list(&connection(40001, tcp("no route")), State::Native);
    first.count(Counter::Sent, 7);
    first.count(Counter::Sent, 5);
    first.count(Counter::Received, 1 << 40);
    first.set_state(State::PeerEnded);
    let found = listing(&dir);
    assert!(found.faults.is_empty());
    let [process] = &found.processes[..] else {
        panic!("{found:?}")
    };
    assert_eq!(process.pid, std::process::id());
    assert!(!process.program.is_empty());
    let [one, two] = &process.rows[..] else {
        panic!("{process:?}")
    };
    assert_eq!(one.description, connection(40000, offloaded()));
    assert_eq!(one.state, State::PeerEnded);
    assert_eq!(
        [one.counter(Counter::Sent), one.counter(Counter::Received)],
        [12, 1 << 40]
    );
    assert_eq!(two.description, connection(40001, tcp("no route")));
    assert_eq!(two.counter(Counter::Sent), 0);
    drop(first);
    let third = writer.list(&connection(40002, tcp("no route")), State::Native);
    let found = listing(&dir);
    let process = &found.processes[0];
    let ports: Vec<u16> = process
        .rows
        .iter()
        .map(|row| row.description.local.port())
        .collect();
    assert_eq!(ports, [40002, 40001], "a free record is used again");
    assert_eq!(process.rows[0].counter(Counter::Sent), 0);
    assert_eq!(process.totals.offloaded, 1);
    assert_eq!(process.totals.tcp, 2);
    assert_eq!(
        [Counter::Sent, Counter::Received].map(|of| process.totals.closed(of)),
        [12, 1 << 40]
    );
    assert_eq!(process.reasons, [("no route".to_owned(), 2)]);
    writer.end();
    assert!(files(&dir).is_empty(), "nothing is left behind");
    third.count(Counter::Sent, 1);
    drop((second, third));
    assert!(files(&dir).is_empty());
}

/// A protocol reports values and not differences. The sums outlast the connection, except that of
/// credits, which a closed connection does not have.
#[test]
fn the_counters_of_a_protocol_are_listed_and_summed() {
    let (dir, writer) = writer_of_own_directory();
    let values = |factor: u64| {
        let numbered = |(number, counter): (u64, Counter)| (counter, factor * (number + 1));
        let all = (0..).zip(Counter::OF_PROTOCOL).map(numbered);
        all.collect::<Vec<_>>()
    };
    let first = writer.list(&connection(40000, offloaded()), State::Established);
    let second = writer.list(&connection(40001, offloaded()), State::Established);
    first.set(&values(1));
    first.set(&values(1000));
    second.set(&values(7));
    let found = listing(&dir);
    for (counter, value) in values(1000) {
        assert_eq!(found.processes[0].rows[0].counter(counter), value);
        assert_eq!(found.processes[0].totals.closed(counter), 0, "{counter:?}");
    }
    drop((first, second));
    let found = listing(&dir);
    for (counter, sum) in values(1007) {
        let sum = if counter == Counter::Credits { 0 } else { sum };
        assert_eq!(
            found.processes[0].totals.closed(counter),
            sum,
            "{counter:?}"
        );
    }
    let third = writer.list(&connection(40002, offloaded()), State::Established);
    let found = listing(&dir);
    let is_fresh = |counter| found.processes[0].rows[0].counter(counter) == 0;
    assert!(Counter::OF_PROTOCOL.into_iter().all(is_fresh));
    drop(third);
}

#[test]
fn more_reasons_than_places_are_counted_together() {
    let (dir, writer) = writer_of_own_directory();
    for number in 0..40 {
        drop(writer.list(&connection(1, tcp(&format!("{number}"))), State::Native));
    }
    let reasons = &listing(&dir).processes[0].reasons;
    assert_eq!(reasons.len(), 16);
    assert_eq!(reasons[15], ("other reasons".to_owned(), 25));
    assert_eq!(reasons.iter().map(|(_, count)| count).sum::<u64>(), 40);
}

/// Lists a connection over TCP with a [`NativeRecord`].
fn list_native(writer: &'static Writer, port: u16, reason: &str) -> Option<NativeRecord> {
    let description = connection(port, tcp(reason));
    writer.list_native(&Native {
        kind: description.kind,
        local: description.local,
        remote: description.remote,
        reason: &ReasonText::of(reason),
    })
}

#[test]
fn a_socket_on_tcp_is_listed_until_its_record_is_dropped() {
    let (dir, writer) = writer_of_own_directory();
    let long = "ü".repeat(100);
    let first = list_native(writer, 1, "no route").unwrap();
    let second = list_native(writer, 2, &long).unwrap();
    let third = list_native(writer, 3, "").unwrap();
    let process = listing(&dir).processes.remove(0);
    let listed: Vec<_> = process.rows.iter().map(|row| &row.description).collect();
    let short = "ü".repeat(56);
    let expected =
        [(1, "no route"), (2, &short), (3, "")].map(|(port, why)| connection(port, tcp(why)));
    assert_eq!(listed, expected.iter().collect::<Vec<_>>());
    assert_eq!(process.totals.tcp, 3);
    assert_eq!(process.reasons, [("no route".to_owned(), 1), (short, 1)]);
    let number = first.into_number();
    assert_eq!(
        listing(&dir).processes[0].rows.len(),
        3,
        "a number keeps the row"
    );
    drop(NativeRecord::from_number(writer, number));
    drop(second);
    assert_eq!(listing(&dir).processes[0].rows.len(), 1);
    assert!(NativeRecord::from_number(writer, 0).is_none());
    drop(third);
    assert!(listing(&dir).processes[0].rows.is_empty());
}

/// The numbers that a child inherits are those of its parent's page.
#[test]
fn a_number_from_before_a_fork_has_no_effect() {
    let (dir, writer) = writer_of_own_directory();
    let number = list_native(writer, 1, "").unwrap().into_number();
    writer.forked();
    let own = list_native(writer, 2, "").unwrap();
    drop(NativeRecord::from_number(writer, number));
    let rows = |port| {
        let all = listing(&dir).processes;
        let rows = all.iter().flat_map(|process| &process.rows);
        rows.filter(|row| row.description.local.port() == port)
            .count()
    };
    assert_eq!((rows(1), rows(2)), (1, 1));
    drop(own);
    assert_eq!((rows(1), rows(2)), (1, 0));
}

#[test]
fn sockets_beyond_the_page_are_counted_and_harm_nothing() {
    let (dir, writer) = writer_of_own_directory();
    let records: Vec<_> = (0..RECORDS_MAX + 3)
        .map(|_| writer.list(&connection(1, offloaded()), State::Established))
        .collect();
    records
        .iter()
        .for_each(|record| record.count(Counter::Sent, 1));
    let found = listing(&dir);
    assert_eq!(found.processes[0].rows.len(), RECORDS_MAX);
    assert_eq!(found.processes[0].totals.unlisted, 3);
    drop(records);
    let totals = listing(&dir).processes[0].totals;
    assert_eq!(totals.closed(Counter::Sent), RECORDS_MAX as u64);
    let again = writer.list(&connection(2, offloaded()), State::Established);
    assert_eq!(listing(&dir).processes[0].rows.len(), 1);
    drop(again);
}

#[test]
fn without_a_directory_nothing_is_recorded_and_nothing_fails() {
    for writer in [Writer::new(), Writer::new()] {
        let writer: &'static Writer = Box::leak(Box::new(writer));
        let record = writer.list(&connection(1, offloaded()), State::Established);
        record.count(Counter::Sent, 1);
        record.set_state(State::Ended);
        drop(record);
        writer.begin(PageRoot::at("/nonexistent"));
    }
}

#[test]
fn a_reader_never_sees_half_a_description() {
    let (dir, writer) = writer_of_own_directory();
    let stop = AtomicBool::new(false);
    let kept = writer.list(&connection(9, offloaded()), State::Established);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for port in [1000, 2000] {
                    let reason = port.to_string().repeat(20);
                    drop(writer.list(&connection(port, tcp(&reason)), State::Native));
                }
            }
        });
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(500) {
            for row in &listing(&dir).processes[0].rows {
                let port = row.description.local.port();
                if port != 9 {
                    assert_eq!(row.description.carrier, tcp(&port.to_string().repeat(20)));
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    drop(kept);
}

/// Returns a page's bytes and name, and a directory for changed copies of it.
fn page_of_this_process() -> (TempDir, Vec<u8>, String) {
    let (dir, writer) = writer_of_own_directory();
    let record = writer.list(&connection(40000, tcp("no route")), State::Native);
    let name = files(&dir).remove(0);
    let bytes = std::fs::read(path(&dir, &name)).unwrap();
    writer.end();
    drop(record);
    (dir, bytes[..8192].to_vec(), name)
}

fn path(dir: &TempDir, name: &str) -> std::path::PathBuf {
    let user = rustix::process::geteuid().as_raw();
    dir.path().join(format!("ops-{user}")).join(name)
}

/// Returns a page of a process that has ended, and the number and the start of that process, as
/// names of pages have them.
fn of_an_ended_process(page: &[u8]) -> (Vec<u8>, String) {
    let mut child = Command::new("true").spawn().unwrap();
    let pid = child.id();
    let started = ops::observe::process::started(pid).unwrap();
    child.wait().unwrap();
    let mut dead = page.to_vec();
    dead[12..16].copy_from_slice(&pid.to_ne_bytes());
    dead[16..24].copy_from_slice(&started.to_ne_bytes());
    (dead, format!("{pid}.{started}"))
}

#[test]
fn pages_of_ended_processes_are_removed() {
    let (dir, bytes, name) = page_of_this_process();
    let put = |name: &str, bytes: &[u8]| std::fs::write(path(&dir, name), bytes).unwrap();
    // This process runs but does not map that file, as after an `exec`.
    put(&name, &bytes);
    assert!(listing(&dir).processes.is_empty());
    assert!(files(&dir).is_empty());
    // A page of a process that has ended.
    let (dead, process) = of_an_ended_process(&bytes);
    put(&format!("{process}.1"), &dead);
    assert!(listing(&dir).processes.is_empty());
    assert!(files(&dir).is_empty());
    // Making another page removes it as well.
    put(&format!("{process}.1"), &dead);
    let writer = writer(&dir);
    drop(writer.list(&connection(1, offloaded()), State::Established));
    assert_eq!(files(&dir).len(), 1);
}

#[test]
fn a_page_of_an_ended_process_is_removed_after_many_of_other_namespaces() {
    let (dir, bytes, _) = page_of_this_process();
    let (dead, process) = of_an_ended_process(&bytes);
    // A page of another PID namespace, where the process may be alive.
    let mut elsewhere = dead.clone();
    elsewhere[24..32].copy_from_slice(&1_u64.to_ne_bytes());
    for made in 1..=41 {
        let name = format!("{process}.{made}");
        std::fs::write(path(&dir, &name), &elsewhere).unwrap();
    }
    let last = files(&dir).pop().unwrap();
    std::fs::write(path(&dir, &last), &dead).unwrap();
    let writer = writer(&dir);
    let record = writer.list(&connection(1, offloaded()), State::Established);
    assert!(!path(&dir, &last).exists());
    assert_eq!(files(&dir).len(), 41);
    drop(record);
}

#[test]
fn a_malformed_page_is_reported_and_not_changed() {
    let (dir, bytes, name) = page_of_this_process();
    let fault = |bytes: &[u8]| {
        let path = path(&dir, &name);
        std::fs::write(&path, bytes).unwrap();
        let faults = listing(&dir).faults;
        let there = path.exists();
        let _ = std::fs::remove_file(path);
        (faults.first().map(|(_, _, fault)| *fault), there)
    };
    let with = |at: usize, number: &[u8]| {
        let mut changed = bytes.clone();
        changed[at..at + number.len()].copy_from_slice(number);
        changed
    };
    let newer = Fault::Version(VERSION + 1);
    for (page, expected) in [
        // The process of an empty page may still be writing it.
        (Vec::new(), None),
        (b"something".to_vec(), Some(Fault::Foreign)),
        (with(8, &(VERSION + 1).to_ne_bytes()), Some(newer)),
        (with(12, &1_u32.to_ne_bytes()), Some(Fault::Process)),
        // A page of another PID namespace is neither listed nor removed.
        (with(24, &1_u64.to_ne_bytes()), None),
    ] {
        assert_eq!(fault(&page), (expected, true));
    }
    assert!(Path::new("/proc/1").exists());
}

#[test]
fn the_counts_of_a_reason_with_two_slots_are_added() {
    let (_dir, mut page, _) = page_of_this_process();
    let at = std::mem::offset_of!(Header, reasons);
    let len = size_of::<ReasonSlot>();
    page.copy_within(at..at + len, at + len);
    let snapshot = Snapshot::parse(&page, &page, &page).unwrap();
    assert_eq!(snapshot.reasons, [("no route".to_owned(), 2)]);
}

#[test]
fn a_forked_child_has_a_page_of_its_own() {
    let (dir, writer) = writer_of_own_directory();
    let record = writer.list(&connection(40000, offloaded()), State::Established);
    record.count(Counter::Sent, 1);
    let (receiver, sender) = rustix::pipe::pipe().unwrap();
    // SAFETY: the child counts, waits to be killed, and runs nothing else of this program.
    let child = match unsafe { nix::unistd::fork() }.unwrap() {
        nix::unistd::ForkResult::Child => {
            writer.forked();
            record.count(Counter::Sent, 10);
            rustix::io::write(&sender, &[1]).unwrap();
            loop {
                std::thread::sleep(Duration::from_secs(1));
            }
        }
        nix::unistd::ForkResult::Parent { child } => child,
    };
    rustix::io::read(&receiver, &mut [0]).unwrap();
    record.count(Counter::Sent, 2);
    let found = listing(&dir);
    let sent = |pid: u32| {
        let process = found.processes.iter().find(|process| process.pid == pid);
        process.unwrap().rows[0].counter(Counter::Sent)
    };
    assert_eq!(sent(std::process::id()), 3);
    assert_eq!(sent(child.as_raw().cast_unsigned()), 10);
    nix::sys::signal::kill(child, nix::sys::signal::Signal::SIGKILL).unwrap();
    nix::sys::wait::waitpid(child, None).unwrap();
    assert_eq!(
        listing(&dir).processes.len(),
        1,
        "the page of the ended child is removed"
    );
    assert_eq!(files(&dir).len(), 1);
}

#[test]
fn a_forked_child_counts_for_a_socket_that_the_parent_lists() {
    let (dir, writer) = writer_of_own_directory();
    let record = writer.list(&connection(40000, offloaded()), State::Listening);
    let tally = record.tally().unwrap();
    // SAFETY: the child counts, ends, and runs nothing else of this program.
    let child = match unsafe { nix::unistd::fork() }.unwrap() {
        nix::unistd::ForkResult::Child => {
            writer.forked();
            tally.count(Counter::AcceptedTcp, 7);
            // SAFETY: the call takes a number and does not return.
            unsafe { nix::libc::_exit(0) }
        }
        nix::unistd::ForkResult::Parent { child } => child,
    };
    nix::sys::wait::waitpid(child, None).unwrap();
    record.count(Counter::AcceptedTcp, 1);
    let found = listing(&dir);
    assert_eq!(found.processes.len(), 1, "the child lists nothing");
    assert_eq!(found.processes[0].rows[0].counter(Counter::AcceptedTcp), 8);
}
