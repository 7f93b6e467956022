//! Long blocking sends and receives are not copied, and nothing uses their memory after they have
//! returned.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::Signal;
use stack_tests::{OffloadProtocol, rows};

use crate::Test;
use crate::process::{Environment, Process};

/// The settings of each mechanism.
const READ: &str = "sdp.read-zcopy=256K sdp.write-zcopy=off";
const REGISTERED: &str = "sdp.registered=128K sdp.read-zcopy=off sdp.write-zcopy=off";
const WRITTEN: &str = "sdp.write-zcopy=128K sdp.read-zcopy=off sdp.registered=off";

/// The length of the reads of a test, and the bytes of a sender of which a read gets the first part
/// only.
const READ_LEN: u64 = 8 << 20;
const FIRST: u64 = 3 << 20;
const ALL: u64 = 64 << 20;

/// The sends of a test: their number and their length, which is far above what the buffers of both
/// ends hold in [`LONG`].
const MANY: &str = "64 1048576";
const LONG: &str = "2 67108864";
const LONG_BYTES: u64 = 128 << 20;

/// The time between two signals to a program whose call is to be interrupted.
const BETWEEN: Duration = Duration::from_millis(20);

pub(crate) const TESTS: &[(&str, Test)] = &rows! {
    "the_peer_reads_most_bytes", the_peer_reads_most_bytes;
    "messages_are_posted_from_memory", messages_are_posted_from_memory;
    "memory_is_unmapped_at_once", memory_is_unmapped_at_once;
    "memory_is_read_only", memory_is_read_only;
    "a_signal_ends_a_send", a_signal_ends_a_send;
    "a_time_limit_ends_a_send", a_time_limit_ends_a_send;
    "a_shutdown_ends_a_send", a_shutdown_ends_a_send;
    "a_killed_receiver_is_seen", a_killed_receiver_is_seen;
    "receives_use_the_memory_of_the_program", receives_use_the_memory_of_the_program;
    "a_signal_ends_a_receive", a_signal_ends_a_receive;
    "a_time_limit_ends_a_receive", a_time_limit_ends_a_receive;
    "a_shutdown_ends_a_receive", a_shutdown_ends_a_receive;
    "a_killed_sender_is_seen", a_killed_sender_is_seen;
    "a_receive_into_read_only_memory_fails", a_receive_into_read_only_memory_fails;
    "memory_unmapped_during_a_receive", memory_unmapped_during_a_receive;
};

/// A receiver, and a sender that is connected to it.
fn start(
    environment: &Environment,
    receiver: &str,
    sends: &str,
    how: &str,
) -> Result<(Process, Process)> {
    let receiver = Process::start(receiver, environment)?;
    let port = receiver.read_line("port")?;
    let sender = Process::start(&format!("long-sends {port} {sends} {how}"), environment)?;
    Ok((receiver, sender))
}

/// Ends both processes after the receiver has received every byte in order.
fn finish(
    environment: &Environment,
    (receiver, mut sender): (Process, Process),
    bytes: u64,
) -> Result<()> {
    sender.write_line("end")?;
    sender.finish()?;
    ensure!(receiver.read_line("received")? == format!("{bytes} end"));
    receiver.finish()?;
    environment.check_end()
}

/// Sends 64 MiB. Returns the listing of the sender's counters.
fn send_many(protocol: &'static OffloadProtocol, settings: &str, how: &str) -> Result<String> {
    let environment = Environment::with_settings(protocol, settings)?;
    let (receiver, sender) = start(&environment, "receive", MANY, how)?;
    let bytes = 64 << 20;
    ensure!(sender.read_line("sent")? == format!("{bytes} end"));
    let listed = environment.listed_with("ss -H -i")?;
    finish(&environment, (receiver, sender), bytes)?;
    Ok(listed)
}

/// The value of a counter, in the listing of a sender and its receiver.
fn counter(listed: &str, name: &str) -> u64 {
    let words = listed.split_whitespace();
    let values = words.filter_map(|word| word.strip_prefix(name)?.strip_prefix(':'));
    values.filter_map(|value| value.parse::<u64>().ok()).sum()
}

/// Checks that most of 64 MiB went by one mechanism. After a stall of the receiver some sends are
/// copied.
fn check_share(listed: &str, name: &str) -> Result<()> {
    let moved = counter(listed, name);
    ensure!(moved * 2 >= 64 << 20, "{name}: {moved} in\n{listed}");
    Ok(())
}

/// The receiver gets the bytes of the calls, although the program changes its memory at once.
fn the_peer_reads_most_bytes(protocol: &'static OffloadProtocol) -> Result<()> {
    let listed = send_many(protocol, READ, "changed")?;
    check_share(&listed, "sent_read")
}

fn messages_are_posted_from_memory(protocol: &'static OffloadProtocol) -> Result<()> {
    let listed = send_many(protocol, REGISTERED, "changed")?;
    check_share(&listed, "sent_registered")
}

fn memory_is_unmapped_at_once(protocol: &'static OffloadProtocol) -> Result<()> {
    send_many(protocol, REGISTERED, "unmapped")?;
    let listed = send_many(protocol, READ, "unmapped")?;
    check_share(&listed, "sent_read")
}

fn memory_is_read_only(protocol: &'static OffloadProtocol) -> Result<()> {
    let listed = send_many(protocol, READ, "read-only")?;
    check_share(&listed, "sent_read")
}

/// A send that cannot end returns the number of its bytes that are part of the stream, and the next
/// send continues there.
fn a_signal_ends_a_send(protocol: &'static OffloadProtocol) -> Result<()> {
    for (settings, how) in [
        (READ, "interrupted"),
        (READ, "restarted"),
        (REGISTERED, "interrupted"),
    ] {
        let environment = Environment::with_settings(protocol, settings)?;
        let (mut receiver, sender) = start(&environment, "receive-late", LONG, how)?;
        // A signal before the handler is installed would end the process.
        sender.read_line("connected")?;
        let partial = loop {
            sender.signal(Signal::SIGUSR1)?;
            if let Some(partial) = sender.try_read_line("partial", BETWEEN)? {
                break partial;
            }
        };
        ensure!(partial.parse::<u64>()? > 0, "{how}: {partial}");
        receiver.write_line("read")?;
        ensure!(
            sender.read_line("sent")? == format!("{LONG_BYTES} end"),
            "{how}"
        );
        finish(&environment, (receiver, sender), LONG_BYTES)?;
    }
    Ok(())
}

fn a_time_limit_ends_a_send(protocol: &'static OffloadProtocol) -> Result<()> {
    for settings in [READ, REGISTERED] {
        let environment = Environment::with_settings(protocol, settings)?;
        let (mut receiver, sender) = start(&environment, "receive-late", LONG, "limited")?;
        sender.read_line("partial")?;
        receiver.write_line("read")?;
        ensure!(sender.read_line("sent")? == format!("{LONG_BYTES} end"));
        finish(&environment, (receiver, sender), LONG_BYTES)?;
    }
    Ok(())
}

/// The receiver gets exactly the bytes that the writes reported.
fn a_shutdown_ends_a_send(protocol: &'static OffloadProtocol) -> Result<()> {
    let environment = Environment::with_settings(protocol, READ)?;
    let (mut receiver, sender) = start(&environment, "receive-late", LONG, "shut")?;
    let sent = sender.read_line("sent")?;
    let bytes = sent.strip_suffix(" BrokenPipe");
    let bytes = bytes.with_context(|| format!("sent {sent}"))?.parse()?;
    receiver.write_line("read")?;
    finish(&environment, (receiver, sender), bytes)
}

fn a_killed_receiver_is_seen(protocol: &'static OffloadProtocol) -> Result<()> {
    let environment = Environment::with_settings(protocol, READ)?;
    let (receiver, mut sender) = start(&environment, "receive-late", LONG, "changed")?;
    sender.read_line("connected")?;
    receiver.signal(Signal::SIGKILL)?;
    let sent = sender.read_line("sent")?;
    let is_error = sent.ends_with("BrokenPipe") || sent.ends_with("ConnectionReset");
    ensure!(is_error, "{sent}");
    sender.write_line("end")?;
    sender.finish()?;
    drop(receiver);
    environment.check_end()
}

/// A reader, and a sender that has sent the first part of its bytes.
fn start_read(environment: &Environment, len: u64, how: &str) -> Result<(Process, Process)> {
    start_read_of(environment, len, how, FIRST)
}

/// A reader, and a sender that has sent `first` bytes.
fn start_read_of(
    environment: &Environment,
    len: u64,
    how: &str,
    first: u64,
) -> Result<(Process, Process)> {
    let reader = Process::start(&format!("long-reads {len} {how}"), environment)?;
    let port = reader.read_line("port")?;
    let sender = Process::start(&format!("send-in-two {port} {first} {ALL}"), environment)?;
    reader.read_line("connected")?;
    sender.read_line("first")?;
    Ok((reader, sender))
}

/// Sends the rest of the bytes, all of which the reader receives.
fn finish_read(environment: &Environment, ends: (Process, Process)) -> Result<String> {
    let (mut reader, mut sender) = ends;
    sender.write_line("rest")?;
    ensure!(sender.read_line("sent")? == format!("{ALL} end"));
    let listed = environment.listed_with("ss -H -i")?;
    sender.write_line("end")?;
    sender.finish()?;
    ensure!(reader.read_line("received")? == format!("{ALL} end"));
    reader.write_line("end")?;
    reader.finish()?;
    environment.check_end()?;
    Ok(listed)
}

/// A reader that is slower than its sender seldom waits, and then reads the memory of the sender
/// instead of offering its own.
fn receives_use_the_memory_of_the_program(protocol: &'static OffloadProtocol) -> Result<()> {
    for (settings, names) in [
        (READ, &["received_read"] as &[_]),
        ("", &["received_read", "received_written"]),
    ] {
        for how in ["whole", "some"] {
            let environment = Environment::with_settings(protocol, settings)?;
            let ends = start_read(&environment, 1 << 20, how)?;
            let listed = finish_read(&environment, ends)?;
            let moved: u64 = names.iter().map(|name| counter(&listed, name)).sum();
            // On a busy machine some calls copy, because a call before has stalled.
            ensure!(moved >= 1 << 20, "{settings} {how}: {moved} in\n{listed}");
        }
    }
    Ok(())
}

/// A receive that cannot end returns the bytes that have arrived, and the next receive continues
/// there.
fn a_signal_ends_a_receive(protocol: &'static OffloadProtocol) -> Result<()> {
    for (settings, how) in [
        (WRITTEN, "interrupted"),
        (WRITTEN, "restarted"),
        (READ, "interrupted"),
    ] {
        let environment = Environment::with_settings(protocol, settings)?;
        let (reader, sender) = start_read(&environment, READ_LEN, how)?;
        // A signal before the first byte is received does not end the loop of the reads.
        let partial = loop {
            reader.signal(Signal::SIGUSR1)?;
            if let Some(partial) = reader.try_read_line("partial", BETWEEN)? {
                break partial.parse::<u64>()?;
            }
        };
        ensure!((1..=FIRST).contains(&partial), "{how}: {partial}");
        finish_read(&environment, (reader, sender))?;
    }
    Ok(())
}

/// On a busy machine a receive may give up before it offers its memory, so it may try again.
fn a_time_limit_ends_a_receive(protocol: &'static OffloadProtocol) -> Result<()> {
    let mut offered = 0;
    for settings in [READ, WRITTEN, WRITTEN, WRITTEN, WRITTEN, WRITTEN] {
        let environment = Environment::with_settings(protocol, settings)?;
        let (reader, sender) = start_read(&environment, READ_LEN, "limited")?;
        ensure!(reader.read_line("partial")?.parse::<u64>()? == FIRST);
        offered += counter(&environment.listed_with("ss -H -i")?, "sinks_made");
        finish_read(&environment, (reader, sender))?;
        if offered > 0 {
            return Ok(());
        }
    }
    bail!("no receive has offered its memory")
}

fn a_shutdown_ends_a_receive(protocol: &'static OffloadProtocol) -> Result<()> {
    let environment = Environment::with_settings(protocol, WRITTEN)?;
    let (mut reader, sender) = start_read(&environment, READ_LEN, "shut")?;
    ensure!(reader.read_line("received")? == format!("{FIRST} end"));
    drop(sender);
    reader.write_line("end")?;
    reader.finish()?;
    environment.check_end()
}

/// The reader receives no byte that was not sent.
fn a_killed_sender_is_seen(protocol: &'static OffloadProtocol) -> Result<()> {
    for settings in [WRITTEN, READ] {
        let environment = Environment::with_settings(protocol, settings)?;
        let (mut reader, mut sender) = start_read(&environment, READ_LEN, "whole")?;
        sender.write_line("rest")?;
        sender.signal(Signal::SIGKILL)?;
        let received = reader.read_line("received")?;
        let (bytes, _) = received.split_once(' ').context("no end")?;
        ensure!(bytes.parse::<u64>()? <= ALL, "{received}");
        reader.write_line("end")?;
        reader.finish()?;
        drop(sender);
        environment.check_end()?;
    }
    Ok(())
}

fn a_receive_into_read_only_memory_fails(protocol: &'static OffloadProtocol) -> Result<()> {
    for settings in [WRITTEN, READ] {
        let environment = Environment::with_settings(protocol, settings)?;
        let ends = start_read_of(&environment, READ_LEN, "read-only", 0)?;
        ends.0.read_line("meanwhile")?;
        finish_read(&environment, ends)?;
    }
    Ok(())
}

/// The receive fails or returns the bytes that had arrived before, or the program ends by SIGSEGV
/// as if it had written there itself.
fn memory_unmapped_during_a_receive(protocol: &'static OffloadProtocol) -> Result<()> {
    for settings in [WRITTEN, READ] {
        let environment = Environment::with_settings(protocol, settings)?;
        let (reader, mut sender) = start_read(&environment, READ_LEN, "unmapped")?;
        reader.read_line("meanwhile")?;
        sender.write_line("rest")?;
        if let Ok(received) = reader.read_line("received") {
            let (bytes, _) = received.split_once(' ').context("no end")?;
            ensure!(bytes.parse::<u64>()? <= FIRST, "{received}");
        }
        drop((reader, sender));
    }
    Ok(())
}
