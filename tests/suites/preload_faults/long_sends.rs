//! A program that makes long blocking writes, whose memory it uses for something else as soon as
//! they return.

use std::io::{self, ErrorKind, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

use crate::stream::fill;

/// The time limit of a write that is to end by it.
const LIMIT: Duration = Duration::from_secs(1);

/// Memory of its own mapping, which is unmapped when this value is dropped.
pub(crate) struct Mapping {
    pub(crate) at: *mut u8,
    pub(crate) len: usize,
}

// SAFETY: the value owns its mapping, which belongs to no thread.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps `len` bytes and fills them with the stream from position `at` on.
    pub(crate) fn of_stream(at: u64, len: usize) -> Result<Self> {
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses an unused address for the new mapping.
        let made = unsafe { mmap_anonymous(std::ptr::null_mut(), len, rights, MapFlags::PRIVATE) }?;
        let mut mapping = Self {
            at: made.cast(),
            len,
        };
        fill(mapping.bytes(), at);
        Ok(mapping)
    }

    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the mapping has this length, and only this value refers to it.
        unsafe { std::slice::from_raw_parts_mut(self.at, self.len) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by this value, and no reference to it is left.
        let _ = unsafe { munmap(self.at.cast(), self.len) };
    }
}

extern "C" fn ignore(_: i32) {}

/// Handles SIGUSR1, whose handler does nothing.
pub(crate) fn handle_signals(flags: SaFlags) -> Result<()> {
    let action = SigAction::new(SigHandler::Handler(ignore), flags, SigSet::empty());
    // SAFETY: the handler does nothing.
    unsafe { sigaction(Signal::SIGUSR1, &action) }?;
    Ok(())
}

/// Writes `count` times `len` bytes, in the way `how`:
///
/// - `changed`, `unmapped`, `read-only`: the memory is changed or unmapped as soon as each write
///   returns, or cannot be written to;
/// - `interrupted`, `restarted`: a signal ends the first write;
/// - `limited`: a time limit ends the first writes;
/// - `shut`: another thread ends the direction during the writes.
///
/// Prints `connected` first. Prints the number of bytes and the end, `sent BYTES end`, and waits
/// for a line of input. A write that ends early first prints its result, `partial BYTES`.
pub(crate) fn run(peer: TcpStream, count: u64, len: usize, how: &str) -> Result<()> {
    let mut at = 0;
    let end = count * len as u64;
    match how {
        "changed" | "unmapped" | "read-only" => {}
        "interrupted" => handle_signals(SaFlags::empty())?,
        "restarted" => handle_signals(SaFlags::SA_RESTART)?,
        "limited" => peer.set_write_timeout(Some(LIMIT))?,
        "shut" => return end_meanwhile(&peer, len),
        _ => bail!("no way to write `{how}`"),
    }
    println!("connected");
    if matches!(how, "interrupted" | "restarted" | "limited") {
        let partial = loop {
            match write(&peer, &mut at, len, how) {
                // A signal before the first byte.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                written => break written?,
            }
        };
        ensure!(partial > 0 && partial < len, "the write of {partial} bytes");
        println!("partial {partial}");
    }
    let ended = write_all(&peer, &mut at, end, len, how)?;
    println!("sent {at} {ended}");
    io::stdin().read_line(&mut String::new())?;
    Ok(())
}

/// Writes from position `at` to `end`. Returns the way in which the writes ended.
fn write_all(peer: &TcpStream, at: &mut u64, end: u64, len: usize, how: &str) -> Result<String> {
    while *at < end {
        let len = len.min(usize::try_from(end - *at)?);
        match write(peer, at, len, how) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock && how == "limited" => {}
            Err(error) => return Ok(format!("{:?}", error.kind())),
        }
    }
    Ok("end".to_owned())
}

/// Writes `len` bytes of the stream in one call. Their memory holds other bytes afterwards, or is
/// gone.
fn write(mut peer: &TcpStream, at: &mut u64, len: usize, how: &str) -> io::Result<usize> {
    let mut memory = Mapping::of_stream(*at, len).map_err(io::Error::other)?;
    if how == "read-only" {
        // SAFETY: nothing writes to the mapping from now on.
        unsafe { mprotect(memory.at.cast(), len, MprotectFlags::READ) }?;
    }
    let written = peer.write(memory.bytes());
    match how {
        "unmapped" | "read-only" => drop(memory),
        _ => memory.bytes().fill(0xff),
    }
    let written = written?;
    *at += written as u64;
    Ok(written)
}

/// Ends the direction while another thread writes.
fn end_meanwhile(peer: &TcpStream, len: usize) -> Result<()> {
    static WRITER: AtomicI32 = AtomicI32::new(0);
    let (at, ended) = thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let id = rustix::thread::gettid();
            WRITER.store(id.as_raw_nonzero().get(), Ordering::SeqCst);
            let mut at = 0;
            let ended = write_all(peer, &mut at, u64::MAX, len, "shut");
            ended.map(|ended| (at, ended))
        });
        await_sleep(&WRITER);
        peer.shutdown(Shutdown::Write)?;
        writer.join().ok().context("the writer has panicked")?
    })?;
    println!("sent {at} {ended}");
    io::stdin().read_line(&mut String::new())?;
    Ok(())
}

/// Waits until a thread was found asleep many times: it is in a call that cannot end.
pub(crate) fn await_sleep(thread: &AtomicI32) {
    let mut asleep = 0;
    while asleep < 30 {
        let id = thread.load(Ordering::SeqCst);
        let stat = std::fs::read_to_string(format!("/proc/self/task/{id}/stat"));
        let is_asleep = stat.is_ok_and(|stat| stat.contains(") S "));
        asleep = if is_asleep { asleep + 1 } else { 0 };
        thread::sleep(Duration::from_millis(2));
    }
}
