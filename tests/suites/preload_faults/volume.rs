//! Full buffers on both sides, and many bytes.

use std::time::Duration;

use anyhow::{Result, ensure};
use stack_tests::{OffloadProtocol, is_full};

use crate::process::{Environment, Process};

/// The number of bytes of the quick form, and of the long form.
const BYTES: u64 = 256 << 20;
const BYTES_FULL: u64 = 16 << 30;
/// The time limit of the long form on a machine that is not busy.
const LONG: Duration = Duration::from_mins(30);

/// Both ends write until their sockets are full, and neither reads; then both read and write the
/// rest.
pub(crate) fn both_sides_full(protocol: &'static OffloadProtocol) -> Result<()> {
    let environment = Environment::new(protocol)?;
    let bytes = 8 << 20;
    let mut server = Process::start(&format!("exchange - {bytes}"), &environment)?;
    let port = server.read_line("port")?;
    let mut client = Process::start(&format!("exchange {port} {bytes}"), &environment)?;
    for side in [&mut server, &mut client] {
        let full = side.read_line("full")?;
        ensure!(full.parse::<u64>()? > 0, "nothing fits: {full}");
    }
    for side in [&mut server, &mut client] {
        side.write_line("go on")?;
    }
    for side in [server, client] {
        ensure!(side.read_line("exchanged")? == format!("{bytes} {bytes}"));
        side.finish()?;
    }
    environment.check_end()
}

/// Every byte is received once and in order.
pub(crate) fn many_bytes(protocol: &'static OffloadProtocol) -> Result<()> {
    let environment = Environment::new(protocol)?;
    let bytes = if is_full() { BYTES_FULL } else { BYTES };
    let receiver = Process::start("receive", &environment)?;
    let port = receiver.read_line("port")?;
    let sender = Process::start(&format!("send {port} {bytes}"), &environment)?;
    sender.read_line_within("sent", LONG)?;
    ensure!(receiver.read_line("received")? == format!("{bytes} end"));
    sender.finish()?;
    receiver.finish()?;
    environment.check_end()
}
