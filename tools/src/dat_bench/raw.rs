//! The reference: a TCP connection with Nagle off, used through plain system calls.

use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::socket::{getsockopt, setsockopt, sockopt};
use tool_args::bench::case::{BATCH, Case, SIZE_MAX, Stack, Wire, Work};

use crate::clock;
use crate::framed::{Framer, PAYLOAD_LONG};
use crate::laps::Laps;

/// Spins between two checks of the clock.
const SPINS_PER_LOOK: u32 = 1 << 16;
/// A sample that makes no progress for this long has failed.
pub(crate) const STALL: Duration = Duration::from_secs(20);
/// The bytes that a receiver of a stream reads at once.
const RECV_LEN: usize = 1 << 20;
/// Bytes of a time that one side sends to the other.
const TIME_LEN: usize = 8;

/// A side of the raw connection.
#[derive(Debug)]
pub(crate) struct RawLink {
    socket: TcpStream,
    buffer: Vec<u8>,
    framer: Framer,
    /// The listener for further connections, at the passive side.
    listener: Option<TcpListener>,
}

/// The way in which a side waits for messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Await {
    Spinning,
    Asleep,
}

impl RawLink {
    pub(crate) fn new(socket: TcpStream) -> Result<Self> {
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(STALL))?;
        socket.set_write_timeout(Some(STALL))?;
        Ok(Self {
            socket,
            buffer: vec![0x5A; RECV_LEN],
            framer: Framer::new(),
            listener: None,
        })
    }

    /// Makes the passive side accept further connections on the listener of this one.
    pub(crate) fn with_listener(self, listener: TcpListener) -> Self {
        Self {
            listener: Some(listener),
            ..self
        }
    }

    /// The active side of one sample. Returns when the peer has received all data, or when all data
    /// has been received here.
    pub(crate) fn drive(
        &mut self,
        stack: Stack,
        case: Case,
        count: u64,
        laps: &mut Laps,
    ) -> Result<()> {
        self.prepare(case)?;
        match case.work {
            Work::SendPing
            | Work::WritePing
            | Work::ReadPing
            | Work::ReadOtherEvd
            | Work::BlockedPing
            | Work::SdpPing
            | Work::SdpBlockedPing => (0..count).try_for_each(|_| {
                laps.mark();
                self.send(stack, case.size)?;
                self.recv(stack, case)
            }),
            Work::StreamSend
            | Work::StreamWrite
            | Work::UnattendedWrite
            | Work::SendCost
            | Work::SdpWrite(_) => {
                self.stream_out(stack, case, count)?;
                self.recv_exact(1)
            }
            Work::StreamRead | Work::UnattendedRead => {
                self.send(Stack::Raw, 1)?;
                self.stream_in(stack, case, count)
            }
            Work::Bidirectional(_) => self.both_ways(case, count),
            Work::UnattendedPing => self.seen_ping(stack, case, count).map(drop),
            Work::Connect => self.call(count),
            Work::IdleEndpoints | Work::AfterPolls(_) => bail!("{case} is of DAT alone"),
        }
    }

    /// The passive side of one sample.
    pub(crate) fn serve(&mut self, stack: Stack, case: Case, count: u64) -> Result<()> {
        self.prepare(case)?;
        match case.work {
            Work::SendPing
            | Work::WritePing
            | Work::ReadPing
            | Work::ReadOtherEvd
            | Work::BlockedPing
            | Work::SdpPing
            | Work::SdpBlockedPing => (0..count).try_for_each(|_| {
                self.recv(stack, case)?;
                self.send(stack, case.size)
            }),
            Work::StreamSend
            | Work::StreamWrite
            | Work::UnattendedWrite
            | Work::SendCost
            | Work::SdpWrite(_) => {
                self.stream_in(stack, case, count)?;
                self.send(Stack::Raw, 1)
            }
            Work::StreamRead | Work::UnattendedRead => {
                self.recv_exact(1)?;
                self.stream_out(stack, case, count)
            }
            Work::Bidirectional(_) => self.both_ways(case, count),
            Work::UnattendedPing => (0..count).try_for_each(|_| {
                self.recv(stack, case)?;
                self.send_time()
            }),
            Work::Connect => self.answer_calls(count),
            Work::IdleEndpoints | Work::AfterPolls(_) => bail!("{case} is of DAT alone"),
        }
    }

    /// Sends messages one at a time. The peer answers each with the time at which it saw the
    /// message. Returns the sum of the times of one direction, in seconds.
    pub(crate) fn seen_ping(&mut self, stack: Stack, case: Case, count: u64) -> Result<f64> {
        let mut seconds = 0.0;
        for _ in 0..count {
            let sent = clock::now_ns()?;
            self.send(stack, case.size)?;
            seconds += clock::seconds_between(sent, self.await_time(|| Ok(()))?);
        }
        Ok(seconds)
    }

    pub(crate) fn send_time(&mut self) -> Result<()> {
        let now = clock::now_ns()?.to_ne_bytes();
        self.socket.write_all(&now).context("send")
    }

    /// Spins until the peer has sent a time, and calls `meanwhile` on each spin.
    pub(crate) fn await_time(&mut self, meanwhile: impl FnMut() -> Result<()>) -> Result<u64> {
        let mut time = [0; TIME_LEN];
        spin_exact(&self.socket, &mut time, meanwhile)?;
        Ok(u64::from_ne_bytes(time))
    }

    /// One side of messages in both directions at once. A byte at the end says that all messages
    /// of the peer were received.
    fn both_ways(&mut self, case: Case, count: u64) -> Result<()> {
        let message = vec![0x5A; case.size];
        let mut socket = &self.socket;
        std::thread::scope(|scope| {
            let writer = scope.spawn(move || {
                (0..count).try_for_each(|_| socket.write_all(&message).context("send"))
            });
            let drained = drain(&self.socket, &mut self.buffer, case.size as u64 * count);
            let written = writer.join();
            drained.and(written.unwrap_or_else(|_| bail!("the writing thread panicked")))
        })?;
        self.send(Stack::Raw, 1)?;
        self.recv_exact(1)
    }

    /// Connects, sends a byte and receives it back, and closes, `count` times.
    fn call(&mut self, count: u64) -> Result<()> {
        let peer = self.socket.peer_addr()?;
        for _ in 0..count {
            let mut call = TcpStream::connect(peer).context("connect")?;
            call.set_nodelay(true)?;
            call.write_all(&[1])?;
            call.read_exact(&mut [0])?;
        }
        Ok(())
    }

    fn answer_calls(&mut self, count: u64) -> Result<()> {
        let listener = self.listener.as_ref().context("no listener of the peer")?;
        for _ in 0..count {
            let (mut call, _) = listener.accept()?;
            call.set_nodelay(true)?;
            call.read_exact(&mut [0])?;
            call.write_all(&[1])?;
        }
        Ok(())
    }

    fn prepare(&mut self, case: Case) -> Result<()> {
        let payload_max = match case.wire {
            Wire::Local
            | Wire::Tcp
            | Wire::TcpNoCrc
            | Wire::Veth
            | Wire::Shaped
            | Wire::Network => PAYLOAD_LONG,
            Wire::VethSegments => {
                let mss = getsockopt(&self.socket, sockopt::TcpMaxSeg)?;
                Framer::payload_in_segment(usize::try_from(mss)?)
            }
        };
        self.framer.set_payload_max(payload_max);
        Ok(())
    }

    fn stream_out(&mut self, stack: Stack, case: Case, count: u64) -> Result<()> {
        match stack {
            Stack::RawBatch => self.stream_batches(case.size, count),
            Stack::Framed => self.stream_frames(case, count),
            Stack::Raw | Stack::Dat | Stack::Sdp => {
                (0..count).try_for_each(|_| self.send(stack, case.size))
            }
        }
    }

    fn stream_batches(&mut self, size: usize, count: u64) -> Result<()> {
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

    /// Writes as many messages at once as the case allows in flight, up to [`SIZE_MAX`] bytes.
    fn stream_frames(&mut self, case: Case, count: u64) -> Result<()> {
        let batch = case.depth.min(SIZE_MAX / case.size) as u64;
        let mut left = count;
        while left > 0 {
            let now = left.min(batch);
            let message = &self.buffer[..case.size];
            let frames = self.framer.assemble(message, usize::try_from(now)?)?;
            self.socket.write_all(frames).context("send")?;
            left -= now;
        }
        Ok(())
    }

    fn stream_in(&mut self, stack: Stack, case: Case, count: u64) -> Result<()> {
        match stack {
            Stack::Framed => self.recv_framed(Await::Asleep, count),
            _ => drain(&self.socket, &mut self.buffer, case.size as u64 * count),
        }
    }

    fn send(&mut self, stack: Stack, size: usize) -> Result<()> {
        let message = &self.buffer[..size];
        let bytes = match stack {
            Stack::Framed => self.framer.assemble(message, 1)?,
            _ => message,
        };
        self.socket.write_all(bytes).context("send")
    }

    /// Receives one message of a ping-pong.
    fn recv(&mut self, stack: Stack, case: Case) -> Result<()> {
        let how = if case.is_blocking() {
            Await::Asleep
        } else {
            Await::Spinning
        };
        match (stack, how) {
            (Stack::Framed, how) => self.recv_framed(how, 1),
            (_, Await::Asleep) => self.recv_exact(case.size),
            (_, Await::Spinning) => self.spin_recv(case.size),
        }
    }

    fn recv_framed(&mut self, how: Await, count: u64) -> Result<()> {
        let mut messages = 0;
        while messages < count {
            let room = self.framer.room();
            let got = match how {
                Await::Asleep => self.socket.read(room).context("recv")?,
                Await::Spinning => spin(&self.socket, room, || Ok(()))?,
            };
            ensure!(got > 0, "the peer closed the connection");
            messages += self.framer.arrived(got)?;
        }
        Ok(())
    }

    fn recv_exact(&mut self, size: usize) -> Result<()> {
        self.socket
            .read_exact(&mut self.buffer[..size])
            .context("recv")
    }

    fn spin_recv(&mut self, size: usize) -> Result<()> {
        spin_exact(&self.socket, &mut self.buffer[..size], || Ok(()))
    }

    /// The congestion control in force on this connection.
    pub(crate) fn congestion(&self) -> Result<String> {
        let name = getsockopt(&self.socket, sockopt::TcpCongestion)?;
        Ok(name.to_string_lossy().trim_end_matches('\0').to_owned())
    }

    /// Sets the congestion control of this connection.
    pub(crate) fn set_congestion(&self, name: &str) -> Result<()> {
        setsockopt(
            &self.socket,
            sockopt::TcpCongestion,
            &std::ffi::OsString::from(name),
        )
        .with_context(|| format!("setting congestion control {name}"))
    }
}

/// Reads `len` bytes as they are received, sleeping in between. On bulk a receiver that spins is
/// slower, because it contends with the sender for the socket's lock.
fn drain(mut socket: &TcpStream, buffer: &mut [u8], mut len: u64) -> Result<()> {
    while len > 0 {
        let room = usize::try_from(len).map_or(buffer.len(), |len| len.min(buffer.len()));
        let got = socket.read(&mut buffer[..room]).context("recv")?;
        ensure!(got > 0, "the peer closed the connection");
        len -= got as u64;
    }
    Ok(())
}

/// Fills `room` without sleeping.
fn spin_exact(
    socket: &TcpStream,
    room: &mut [u8],
    mut meanwhile: impl FnMut() -> Result<()>,
) -> Result<()> {
    let mut at = 0;
    while at < room.len() {
        at += spin(socket, &mut room[at..], &mut meanwhile)?;
    }
    Ok(())
}

/// Receives at least one byte without sleeping. Calls `meanwhile` after each attempt that receives
/// none.
fn spin(
    socket: &TcpStream,
    room: &mut [u8],
    mut meanwhile: impl FnMut() -> Result<()>,
) -> Result<usize> {
    let mut spins = 0u32;
    let mut since = None;
    loop {
        // SAFETY: the descriptor is open and `room` is writable for its length.
        let got = unsafe {
            libc::recv(
                socket.as_raw_fd(),
                room.as_mut_ptr().cast(),
                room.len(),
                libc::MSG_DONTWAIT,
            )
        };
        if let Ok(got) = usize::try_from(got) {
            ensure!(got > 0, "the peer closed the connection");
            return Ok(got);
        }
        let error = std::io::Error::last_os_error();
        ensure!(error.kind() == ErrorKind::WouldBlock, "recv: {error}");
        meanwhile()?;
        spins += 1;
        if spins.is_multiple_of(SPINS_PER_LOOK)
            && since.get_or_insert_with(Instant::now).elapsed() > STALL
        {
            bail!("no data was received for {STALL:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use tool_args::bench::rows;

    use super::*;

    fn pair() -> (RawLink, RawLink) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (b, _) = listener.accept().unwrap();
        let passive = RawLink::new(b).unwrap().with_listener(listener);
        (RawLink::new(a).unwrap(), passive)
    }

    #[test]
    fn both_sides_of_every_case_agree_on_the_bytes() {
        let (mut active, mut passive) = pair();
        for case in rows::ALL.iter().map(|row| row.case) {
            if !case.is_compared() {
                continue;
            }
            let stacks: &[Stack] = match case.is_ping() {
                true => &[Stack::Raw, Stack::Framed],
                false => &[Stack::Raw, Stack::RawBatch, Stack::Framed],
            };
            for stack in stacks.iter().copied() {
                std::thread::scope(|scope| {
                    let served = scope.spawn(|| passive.serve(stack, case, 16));
                    active.drive(stack, case, 16, &mut Laps::off()).unwrap();
                    served.join().unwrap().unwrap();
                });
            }
        }
    }
}
