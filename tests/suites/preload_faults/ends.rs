//! A peer is killed or stopped.

use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use nix::sys::signal::Signal;
use stack_tests::{OffloadProtocol, is_full};

use crate::apart::{Apart, Place};

/// The time for which the peer is stopped in the long form.
const LONG: Duration = Duration::from_secs(30);

/// The number of bytes and the way in which the stream ended: `COUNT end`, `COUNT ConnectionReset`.
fn count(told: &str) -> Result<(u64, &str)> {
    let (count, how) = told.split_once(' ').unwrap_or((told, ""));
    Ok((count.parse()?, how))
}

/// The receiver gets the end or a reset after bytes that are all in the right order.
pub(crate) fn a_killed_sender_is_seen(protocol: &'static OffloadProtocol) -> Result<()> {
    let place = Place::new(protocol)?;
    let receiver = Apart::start("receive", &place)?;
    let port = receiver.hear("port")?;
    let sender = Apart::start(&format!("send {port} endless"), &place)?;
    sender.hear("far")?;
    sender.signal(Signal::SIGKILL)?;
    let told = receiver.hear("received")?;
    let (bytes, how) = count(&told)?;
    ensure!(bytes >= 1 << 20, "{told}");
    ensure!(how == "end" || how == "ConnectionReset", "{told}");
    receiver.finish()?;
    drop(sender);
    place.is_left()
}

/// The sender gets an error because the receiver is gone.
pub(crate) fn a_killed_receiver_is_seen(protocol: &'static OffloadProtocol) -> Result<()> {
    let place = Place::new(protocol)?;
    let receiver = Apart::start("receive", &place)?;
    let port = receiver.hear("port")?;
    let sender = Apart::start(&format!("send {port} endless"), &place)?;
    sender.hear("far")?;
    receiver.signal(Signal::SIGKILL)?;
    let told = sender.hear("sent")?;
    let (_, how) = count(&told)?;
    ensure!(how == "BrokenPipe" || how == "ConnectionReset", "{told}");
    sender.finish()?;
    drop(receiver);
    place.is_left()
}

/// The socket of the stopped peer fills, the sender's socket shows that it is full, and
/// transmission continues where it stopped.
pub(crate) fn a_stopped_peer_loses_nothing(protocol: &'static OffloadProtocol) -> Result<()> {
    let place = Place::new(protocol)?;
    let receiver = Apart::start("receive", &place)?;
    let port = receiver.hear("port")?;
    let bytes = 32 << 20;
    let mut sender = Apart::start(&format!("fill {port} {bytes}"), &place)?;
    // A peer that is stopped earlier is not offloaded.
    sender.hear("met")?;
    receiver.signal(Signal::SIGSTOP)?;
    sender.tell("go on")?;
    let full = sender.hear("full")?;
    ensure!(full.parse::<u64>()? > 0, "nothing fits: {full}");
    if is_full() {
        thread::sleep(LONG);
    }
    receiver.signal(Signal::SIGCONT)?;
    ensure!(sender.hear("sent")? == format!("{bytes} end"));
    ensure!(receiver.hear("received")? == format!("{bytes} end"));
    sender.finish()?;
    receiver.finish()?;
    place.is_left()
}

/// If a peer is stopped and then killed, the connection ends.
pub(crate) fn a_stopped_peer_can_be_killed(protocol: &'static OffloadProtocol) -> Result<()> {
    let place = Place::new(protocol)?;
    let receiver = Apart::start("receive", &place)?;
    let port = receiver.hear("port")?;
    let mut sender = Apart::start(&format!("fill {port} {}", 32 << 20), &place)?;
    sender.hear("met")?;
    receiver.signal(Signal::SIGSTOP)?;
    sender.tell("go on")?;
    sender.hear("full")?;
    receiver.signal(Signal::SIGKILL)?;
    let told = sender.hear("sent")?;
    let (_, how) = count(&told)?;
    ensure!(how == "BrokenPipe" || how == "ConnectionReset", "{told}");
    sender.finish()?;
    drop(receiver);
    place.is_left()
}
