//! Long blocking sends are not copied, if a rule says so, and nothing uses their memory after they
//! have returned.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use stack_tests::{OffloadProtocol, rows};

use crate::Test;
use crate::process::{Environment, Process};

/// The settings of each mechanism.
const READ: &str = "sdp.read-zcopy=256K";
const REGISTERED: &str = "sdp.registered=128K";

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
