//! The yardstick: a TCP connection with Nagle off, driven by plain system calls.

use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::case::{BATCH, Case, Stack, Work};

/// Spins between two looks at the clock.
const SPINS_PER_LOOK: u32 = 1 << 16;
/// A sample that makes no progress for so long has failed.
pub(crate) const STALL: Duration = Duration::from_secs(20);
/// What a receiver of a stream takes at once.
const RECV_LEN: usize = 1 << 20;

/// One side of the raw connection.
#[derive(Debug)]
pub(crate) struct RawLink {
    socket: TcpStream,
    buffer: Vec<u8>,
}

impl RawLink {
    pub(crate) fn new(socket: TcpStream) -> Result<Self> {
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(STALL))?;
        socket.set_write_timeout(Some(STALL))?;
        Ok(Self {
            socket,
            buffer: vec![0x5A; RECV_LEN],
        })
    }

    /// The active side of one sample; returns when the peer has everything, or when it has arrived
    /// here.
    pub(crate) fn drive(&mut self, stack: Stack, case: Case, count: u64) -> Result<()> {
        match case.work {
            Work::SendPing | Work::WritePing => (0..count).try_for_each(|_| {
                self.send(case.size)?;
                self.spin_recv(case.size)
            }),
            Work::BlockedPing => (0..count).try_for_each(|_| {
                self.send(case.size)?;
                self.recv(case.size)
            }),
            Work::StreamSend | Work::StreamWrite => {
                self.stream_out(stack, case.size, count)?;
                self.recv(1)
            }
            Work::StreamRead => {
                self.send(1)?;
                self.drain(case.size as u64 * count)
            }
        }
    }

    /// The passive side of one sample.
    pub(crate) fn serve(&mut self, stack: Stack, case: Case, count: u64) -> Result<()> {
        match case.work {
            Work::SendPing | Work::WritePing => (0..count).try_for_each(|_| {
                self.spin_recv(case.size)?;
                self.send(case.size)
            }),
            Work::BlockedPing => (0..count).try_for_each(|_| {
                self.recv(case.size)?;
                self.send(case.size)
            }),
            Work::StreamSend | Work::StreamWrite => {
                self.drain(case.size as u64 * count)?;
                self.send(1)
            }
            Work::StreamRead => {
                self.recv(1)?;
                self.stream_out(stack, case.size, count)
            }
        }
    }

    fn stream_out(&mut self, stack: Stack, size: usize, count: u64) -> Result<()> {
        if stack != Stack::RawBatch {
            return (0..count).try_for_each(|_| self.send(size));
        }
        ensure!(count.is_multiple_of(BATCH as u64), "whole batches only");
        for _ in 0..count / BATCH as u64 {
            let message = &self.buffer[..size];
            let mut slices = [IoSlice::new(message); BATCH];
            let mut rest = &mut slices[..];
            while !rest.is_empty() {
                let sent = self.socket.write_vectored(rest).context("writev")?;
                IoSlice::advance_slices(&mut rest, sent);
            }
        }
        Ok(())
    }

    fn send(&mut self, size: usize) -> Result<()> {
        self.socket.write_all(&self.buffer[..size]).context("send")
    }

    fn recv(&mut self, size: usize) -> Result<()> {
        self.socket
            .read_exact(&mut self.buffer[..size])
            .context("recv")
    }

    /// Reads `len` bytes as they come, sleeping in between: on bulk a receiver that spins is
    /// slower, because it fights the sender for the socket's lock.
    fn drain(&mut self, mut len: u64) -> Result<()> {
        while len > 0 {
            let room = usize::try_from(len).unwrap_or(usize::MAX).min(RECV_LEN);
            let got = self.socket.read(&mut self.buffer[..room]).context("recv")?;
            ensure!(got > 0, "the peer hung up");
            len -= got as u64;
        }
        Ok(())
    }

    fn spin_recv(&mut self, size: usize) -> Result<()> {
        let mut at = 0;
        let mut spins = 0u32;
        let mut since = None;
        while at < size {
            let room = &mut self.buffer[at..size];
            // SAFETY: the descriptor is open and `room` is writable for its length.
            let got = unsafe {
                libc::recv(
                    self.socket.as_raw_fd(),
                    room.as_mut_ptr().cast(),
                    room.len(),
                    libc::MSG_DONTWAIT,
                )
            };
            if let Ok(got) = usize::try_from(got) {
                ensure!(got > 0, "the peer hung up");
                at += got;
                continue;
            }
            let error = std::io::Error::last_os_error();
            ensure!(error.kind() == ErrorKind::WouldBlock, "recv: {error}");
            spins += 1;
            if spins.is_multiple_of(SPINS_PER_LOOK)
                && since.get_or_insert_with(Instant::now).elapsed() > STALL
            {
                bail!("nothing arrived for {STALL:?}");
            }
        }
        Ok(())
    }

    /// The congestion control in force on this connection.
    pub(crate) fn congestion(&self) -> Result<String> {
        use nix::sys::socket::{getsockopt, sockopt::TcpCongestion};
        let name = getsockopt(&self.socket, TcpCongestion)?;
        Ok(name.to_string_lossy().trim_end_matches('\0').to_owned())
    }

    /// Sets the congestion control of this connection.
    pub(crate) fn set_congestion(&self, name: &str) -> Result<()> {
        use nix::sys::socket::{setsockopt, sockopt::TcpCongestion};
        setsockopt(&self.socket, TcpCongestion, &std::ffi::OsString::from(name))
            .with_context(|| format!("setting congestion control {name}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn pair() -> (RawLink, RawLink) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (b, _) = listener.accept().unwrap();
        (RawLink::new(a).unwrap(), RawLink::new(b).unwrap())
    }

    #[test]
    fn both_sides_of_every_case_agree_on_the_bytes() {
        let (mut active, mut passive) = pair();
        for case in Case::all() {
            let stacks: &[Stack] = if case.is_ping() {
                &[Stack::Raw]
            } else {
                &[Stack::Raw, Stack::RawBatch]
            };
            for stack in stacks.iter().copied() {
                std::thread::scope(|scope| {
                    let served = scope.spawn(|| passive.serve(stack, case, 32));
                    active.drive(stack, case, 32).unwrap();
                    served.join().unwrap().unwrap();
                });
            }
        }
    }
}
