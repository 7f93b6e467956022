//! A peer is killed or stopped.

use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use nix::sys::signal::Signal;
use stack_tests::{OffloadProtocol, is_full};

use crate::process::{Environment, Process};

/// The time for which the peer is stopped in the long form.
const LONG: Duration = Duration::from_secs(30);

/// The number of bytes and the way in which the stream ended: `COUNT end`, `COUNT ConnectionReset`.
fn count(line: &str) -> Result<(u64, &str)> {
    let (count, how) = line.split_once(' ').unwrap_or((line, ""));
    Ok((count.parse()?, how))
}

/// Starts a receiver, and a sender that connects to it. Returns both.
fn start(environment: &Environment, role: &str, amount: &str) -> Result<(Process, Process)> {
    let receiver = Process::start("receive", environment)?;
    let port = receiver.read_line("port")?;
    let sender = Process::start(&format!("{role} {port} {amount}"), environment)?;
    Ok((receiver, sender))
}

/// Waits for the end of a sender whose receiver was killed.
fn expect_error(sender: Process) -> Result<()> {
    let line = sender.read_line("sent")?;
    let (_, how) = count(&line)?;
    ensure!(how == "BrokenPipe" || how == "ConnectionReset", "{line}");
    sender.finish()
}

/// The receiver gets the end of the stream or a reset. All earlier bytes are in the right order.
pub(crate) fn a_killed_sender_is_seen(protocol: &'static OffloadProtocol) -> Result<()> {
    let environment = Environment::new(protocol)?;
    let (receiver, sender) = start(&environment, "send", "endless")?;
    sender.read_line("far")?;
    sender.signal(Signal::SIGKILL)?;
    let line = receiver.read_line("received")?;
    let (bytes, how) = count(&line)?;
    ensure!(bytes >= 1 << 20, "{line}");
    ensure!(how == "end" || how == "ConnectionReset", "{line}");
    receiver.finish()?;
    drop(sender);
    environment.check_end()
}

/// The sender gets an error because the receiver is gone.
pub(crate) fn a_killed_receiver_is_seen(protocol: &'static OffloadProtocol) -> Result<()> {
    let environment = Environment::new(protocol)?;
    let (receiver, sender) = start(&environment, "send", "endless")?;
    sender.read_line("far")?;
    receiver.signal(Signal::SIGKILL)?;
    expect_error(sender)?;
    drop(receiver);
    environment.check_end()
}

/// The socket of the stopped peer fills, the sender's socket shows that it is full, and
/// transmission continues where it stopped.
pub(crate) fn a_stopped_peer_loses_nothing(protocol: &'static OffloadProtocol) -> Result<()> {
    let environment = Environment::new(protocol)?;
    let bytes = 32 << 20;
    let (receiver, mut sender) = start(&environment, "fill", &bytes.to_string())?;
    // A peer that is stopped earlier is not offloaded.
    sender.read_line("connected")?;
    receiver.signal(Signal::SIGSTOP)?;
    sender.write_line("go on")?;
    let full = sender.read_line("full")?;
    ensure!(full.parse::<u64>()? > 0, "nothing fits: {full}");
    if is_full() {
        thread::sleep(LONG);
    }
    receiver.signal(Signal::SIGCONT)?;
    ensure!(sender.read_line("sent")? == format!("{bytes} end"));
    ensure!(receiver.read_line("received")? == format!("{bytes} end"));
    sender.finish()?;
    receiver.finish()?;
    environment.check_end()
}

/// If a peer is stopped and then killed, the connection ends.
pub(crate) fn a_stopped_peer_can_be_killed(protocol: &'static OffloadProtocol) -> Result<()> {
    let environment = Environment::new(protocol)?;
    let (receiver, mut sender) = start(&environment, "fill", &(32 << 20).to_string())?;
    sender.read_line("connected")?;
    receiver.signal(Signal::SIGSTOP)?;
    sender.write_line("go on")?;
    sender.read_line("full")?;
    receiver.signal(Signal::SIGKILL)?;
    expect_error(sender)?;
    drop(receiver);
    environment.check_end()
}
