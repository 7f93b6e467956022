//! A program that makes long blocking reads, whose memory it uses for something else as soon as
//! they return, and a program that sends to it in two parts.

use std::io::{self, ErrorKind, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::SaFlags;
use rustix::mm::{MprotectFlags, mprotect, munmap};

use crate::long_sends::{Mapping, await_sleep, handle_signals};
use crate::stream::fill;

/// The time limit of a read that is to end by it.
const LIMIT: Duration = Duration::from_millis(2500);

/// The byte that memory holds between two reads.
const UNUSED: u8 = 0xee;

/// The reads of a connection.
struct Reads {
    peer: TcpStream,
    memory: Mapping,
    flags: i32,
    at: u64,
}

impl Reads {
    /// Reads once. Checks the bytes, and that the rest of the memory is unchanged.
    fn read(&mut self) -> io::Result<usize> {
        let bytes = self.memory.bytes();
        assert!(bytes.iter().all(|byte| *byte == UNUSED), "a late write");
        // SAFETY: the memory has this length and may be written to.
        let count = unsafe {
            libc::recv(
                self.peer.as_raw_fd(),
                bytes.as_mut_ptr().cast(),
                bytes.len(),
                self.flags,
            )
        };
        let Ok(count) = usize::try_from(count) else {
            return Err(io::Error::last_os_error());
        };
        let mut expected = vec![0; count];
        fill(&mut expected, self.at);
        let (received, rest) = bytes.split_at(count);
        assert!(
            received == expected,
            "the bytes from {} on are others",
            self.at
        );
        assert!(
            rest.iter().all(|byte| *byte == UNUSED),
            "bytes behind the end"
        );
        self.at += count as u64;
        bytes.fill(UNUSED);
        Ok(count)
    }

    /// Reads to the end of the stream. Returns the way in which the reads ended.
    fn read_all(&mut self) -> String {
        loop {
            match self.read() {
                Ok(0) => return "end".to_owned(),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return format!("{:?}", error.kind()),
            }
        }
    }
}

/// Reads `len` bytes at a time, in the way `how`:
///
/// - `whole`, `some`: with `MSG_WAITALL`, or without;
/// - `interrupted`, `restarted`: a signal ends the first read;
/// - `limited`: a time limit ends the first read;
/// - `shut`: another thread ends the direction during the reads;
/// - `read-only`: the first read is into memory that cannot be written to;
/// - `unmapped`: another thread unmaps the memory during a read.
///
/// Prints the number of bytes and the end, `received BYTES end`, and waits for a line of input. A
/// read that ends early first prints its result, `partial BYTES`.
pub(crate) fn run(peer: TcpStream, len: usize, how: &str) -> Result<()> {
    let mut memory = Mapping::of_stream(0, len)?;
    memory.bytes().fill(UNUSED);
    let flags = if how == "some" { 0 } else { libc::MSG_WAITALL };
    match how {
        "whole" | "some" | "shut" | "read-only" | "unmapped" => {}
        "interrupted" => handle_signals(SaFlags::empty())?,
        "restarted" => handle_signals(SaFlags::SA_RESTART)?,
        "limited" => peer.set_read_timeout(Some(LIMIT))?,
        _ => bail!("no way to read `{how}`"),
    }
    println!("connected");
    let mut reads = Reads {
        peer,
        memory,
        flags,
        at: 0,
    };
    match how {
        "interrupted" | "restarted" | "limited" => {
            let partial = loop {
                match reads.read() {
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    read => break read?,
                }
            };
            println!("partial {partial}");
            reads.peer.set_read_timeout(None)?;
        }
        "read-only" => read_only(&reads)?,
        "shut" | "unmapped" => return end_meanwhile(reads, how),
        _ => {}
    }
    let ended = reads.read_all();
    println!("received {} {ended}", reads.at);
    io::stdin().read_line(&mut String::new())?;
    Ok(())
}

/// Reads into memory that cannot be written to, which takes no byte from the stream.
fn read_only(reads: &Reads) -> Result<()> {
    static READER: AtomicI32 = AtomicI32::new(0);
    let memory = Mapping::of_stream(0, reads.memory.len)?;
    // SAFETY: nothing writes to the mapping from now on.
    unsafe { mprotect(memory.at.cast(), memory.len, MprotectFlags::READ) }?;
    let (fd, flags) = (reads.peer.as_raw_fd(), reads.flags);
    let reader = thread::spawn(move || {
        let id = rustix::thread::gettid();
        READER.store(id.as_raw_nonzero().get(), Ordering::SeqCst);
        let memory = memory;
        // SAFETY: the kernel, or the library, refuses the memory.
        let count = unsafe { libc::recv(fd, memory.at.cast(), memory.len, flags) };
        (count, io::Error::last_os_error())
    });
    await_sleep(&READER);
    println!("meanwhile");
    let (count, error) = reader.join().ok().context("the reader has panicked")?;
    let is_refused = count < 0 && error.raw_os_error() == Some(libc::EFAULT);
    ensure!(is_refused, "{count}, {error}");
    Ok(())
}

/// Ends the direction, or unmaps the memory, while another thread reads.
fn end_meanwhile(mut reads: Reads, how: &str) -> Result<()> {
    static READER: AtomicI32 = AtomicI32::new(0);
    let peer = reads.peer.try_clone()?;
    let (at, len) = (reads.memory.at.addr(), reads.memory.len);
    let unmaps = how == "unmapped";
    let reader = thread::spawn(move || {
        let id = rustix::thread::gettid();
        READER.store(id.as_raw_nonzero().get(), Ordering::SeqCst);
        if !unmaps {
            let ended = reads.read_all();
            return (reads.at, ended);
        }
        let (fd, flags) = (reads.peer.as_raw_fd(), reads.flags);
        // SAFETY: the memory is this mapping's, which another thread unmaps during the call.
        let count = unsafe { libc::recv(fd, reads.memory.at.cast(), reads.memory.len, flags) };
        let error = io::Error::last_os_error();
        std::mem::forget(reads.memory);
        match u64::try_from(count) {
            Ok(count) => (count, "end".to_owned()),
            Err(_) => (0, format!("{:?}", error.kind())),
        }
    });
    await_sleep(&READER);
    match unmaps {
        // SAFETY: only the call of the other thread uses the memory.
        true => unsafe { munmap(std::ptr::with_exposed_provenance_mut(at), len) }?,
        false => peer.shutdown(Shutdown::Read)?,
    }
    println!("meanwhile");
    let (at, ended) = reader.join().ok().context("the reader has panicked")?;
    println!("received {at} {ended}");
    io::stdin().read_line(&mut String::new())?;
    Ok(())
}

/// Sends `first` bytes, and after a line of input the bytes up to `end`. Prints the number of bytes
/// and the end, `sent BYTES end`, and waits for a line of input.
pub(crate) fn send_in_two(mut peer: TcpStream, first: u64, end: u64) -> Result<()> {
    let mut at = 0;
    send_to(&mut peer, &mut at, first)?;
    println!("first");
    io::stdin().read_line(&mut String::new())?;
    let word = match send_to(&mut peer, &mut at, end) {
        Ok(()) => "end".to_owned(),
        Err(error) => format!("{:?}", error.kind()),
    };
    println!("sent {at} {word}");
    io::stdin().read_line(&mut String::new())?;
    Ok(())
}

/// Writes up to 1 MiB at a time from position `at` to `end`.
fn send_to(peer: &mut TcpStream, at: &mut u64, end: u64) -> io::Result<()> {
    let mut bytes = vec![0; 1 << 20];
    while *at < end {
        let len = (end - *at).min(bytes.len() as u64) as usize;
        fill(&mut bytes[..len], *at);
        *at += peer.write(&bytes[..len])? as u64;
    }
    Ok(())
}
