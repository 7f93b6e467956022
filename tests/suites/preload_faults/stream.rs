//! Byte patterns that show their position, so that a lost, doubled or moved byte is detected.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Result, ensure};

/// The length of the pattern: a prime, so that it does not align with any buffer's size.
const PERIOD: usize = 65_537;
/// The number of bytes of one call.
const PIECE: usize = 64 * 1024;

/// Two periods of the pattern, so that a piece from any position is one slice.
fn pattern() -> &'static [u8] {
    static PATTERN: OnceLock<Vec<u8>> = OnceLock::new();
    PATTERN.get_or_init(|| {
        let mut state = 1_u64;
        let period: Vec<u8> = (0..PERIOD)
            .map(|_| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                (state >> 56) as u8
            })
            .collect();
        [period.clone(), period].concat()
    })
}

fn piece(at: u64, len: usize) -> &'static [u8] {
    let start = (at % PERIOD as u64) as usize;
    &pattern()[start..start + len.min(PIECE)]
}

/// Fills `into` with the bytes from position `at` on.
pub(crate) fn fill(into: &mut [u8], at: u64) {
    let mut done = 0;
    while done < into.len() {
        let some = piece(at + done as u64, into.len() - done);
        into[done..done + some.len()].copy_from_slice(some);
        done += some.len();
    }
}

/// Writes the bytes from position `at` to position `end`, and advances `at`. Stops at errors,
/// `WouldBlock` included.
pub(crate) fn write_bytes(to: &mut TcpStream, at: &mut u64, end: u64) -> io::Result<()> {
    while *at < end {
        let len = usize::try_from(end - *at).unwrap_or(PIECE);
        match to.write(piece(*at, len)) {
            Ok(count) => *at += count as u64,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads bytes from position `at` until position `end`, the end of the stream or an error.
pub(crate) fn read_bytes(from: &mut TcpStream, at: &mut u64, end: u64) -> Result<io::Result<()>> {
    let mut buffer = vec![0; PIECE];
    while *at < end {
        let room = usize::try_from(end - *at).unwrap_or(PIECE).min(PIECE);
        match from.read(&mut buffer[..room]) {
            Ok(0) => return Ok(Ok(())),
            Ok(count) => {
                ensure!(
                    buffer[..count] == *piece(*at, count),
                    "the bytes from {at} on are others"
                );
                *at += count as u64;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Ok(Err(error)),
        }
    }
    Ok(Ok(()))
}

/// Returns true if `poll` reports one of the events within a time.
pub(crate) fn shows(socket: &TcpStream, events: i16, within: Duration) -> bool {
    let mut set = libc::pollfd {
        fd: socket.as_raw_fd(),
        events,
        revents: 0,
    };
    let timeout = i32::try_from(within.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: the set is in this frame.
    unsafe { libc::poll(&raw mut set, 1, timeout) > 0 && set.revents & events != 0 }
}
