//! An urgent byte when the socket is full.

use std::os::fd::RawFd;
use std::thread;
use std::time::{Duration, Instant};

use stack_tests::let_others_run;

use crate::pair::Pair;
use crate::step::{number, receive};

/// The number of refused writes, with a pause after each, after which the socket counts as full.
const REFUSALS: usize = 12;
/// The number of times that the socket is filled until it refuses the urgent byte.
const ATTEMPTS: usize = 5;
const PAUSE: Duration = Duration::from_millis(5);
/// The time limit of the peer, far longer than the peer needs.
const LIMIT: Duration = Duration::from_secs(60);
const CHUNK: usize = 64 * 1024;

/// Fills the buffers between an end and its peer. Sends an urgent byte, which fails for lack of
/// room, then an urgent byte while the peer reads, then an ordinary byte. Appends the error of the
/// first send and the two received bytes to `bytes`. No byte remains in flight.
///
/// # Errors
/// The error number of a send that should have succeeded.
pub(crate) fn send_urgent(pair: &Pair, end: usize, bytes: &mut Vec<u8>) -> Result<i64, i32> {
    let (fd, peer) = (pair.fd(end), pair.fd(1 - end));
    let mut under_way = unread(peer);
    let mut at_once = Ok(0);
    for _ in 0..ATTEMPTS {
        under_way += fill(fd)?;
        at_once = send(fd, b'?', libc::MSG_OOB | libc::MSG_DONTWAIT);
        if at_once.is_err() {
            break;
        }
        // Room has become free since the last poll: the kernel's timer sends a part of a segment
        // if the window is too small for the whole segment.
        drain(peer, std::mem::take(&mut under_way))?;
        let mut read = Vec::new();
        await_one(peer, libc::MSG_OOB, &mut read)?;
        send(fd, b'.', 0)?;
        await_one(peer, libc::MSG_DONTWAIT, &mut read)?;
    }
    bytes.push(at_once.err().unwrap_or(0) as u8);
    let sent = thread::scope(|scope| {
        let draining = scope.spawn(move || {
            thread::sleep(PAUSE);
            drain(peer, under_way)
        });
        let sent = send(fd, b'!', libc::MSG_OOB);
        draining.join().unwrap_or(Err(0)).and(sent)
    })?;
    // A read after the urgent mark passes the mark.
    await_one(peer, libc::MSG_OOB, bytes)?;
    send(fd, b'.', 0)?;
    await_one(peer, libc::MSG_DONTWAIT, bytes)?;
    Ok(sent)
}

fn send(fd: RawFd, byte: u8, flags: i32) -> Result<i64, i32> {
    let flags = flags | libc::MSG_NOSIGNAL;
    // SAFETY: the byte lives through the call.
    number(unsafe { libc::send(fd, (&raw const byte).cast(), 1, flags) } as i64)
}

fn unread(fd: RawFd) -> usize {
    let mut count: libc::c_int = 0;
    // SAFETY: the integer is in this frame.
    unsafe { libc::ioctl(fd, libc::FIONREAD, &raw mut count) };
    usize::try_from(count).unwrap_or(0)
}

/// Writes until the socket stays full without a reader.
fn fill(fd: RawFd) -> Result<usize, i32> {
    let data = vec![0; CHUNK];
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    let mut filled = 0;
    let mut refusals = 0;
    while refusals < REFUSALS {
        // SAFETY: the bytes live through the call.
        let sent = unsafe { libc::send(fd, data.as_ptr().cast(), data.len(), flags) };
        match number(sent as i64) {
            Ok(count) => {
                filled += usize::try_from(count).unwrap_or(0);
                refusals = 0;
            }
            Err(libc::EAGAIN) => {
                refusals += 1;
                let_others_run(1, PAUSE);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

fn drain(fd: RawFd, mut count: usize) -> Result<(), i32> {
    let start = Instant::now();
    let mut got = Vec::new();
    while count > 0 {
        match receive(fd, CHUNK.min(count), libc::MSG_DONTWAIT, &mut got) {
            Ok(_) => count -= got.len(),
            Err(libc::EAGAIN) if start.elapsed() < LIMIT => thread::sleep(PAUSE / 10),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Waits for one byte. Until the kernel has announced an urgent byte, `recv` fails with `EINVAL`.
fn await_one(fd: RawFd, flags: i32, bytes: &mut Vec<u8>) -> Result<(), i32> {
    let start = Instant::now();
    let mut got = Vec::new();
    loop {
        match receive(fd, 1, flags, &mut got) {
            Ok(_) => {
                bytes.append(&mut got);
                return Ok(());
            }
            Err(libc::EAGAIN | libc::EINVAL) if start.elapsed() < LIMIT => thread::sleep(PAUSE),
            Err(error) => return Err(error),
        }
    }
}
