//! The second contender: SDP streams over DAT, used as sockets are.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::thread;

use anyhow::{Context, Result, bail, ensure};
use sdp_over_dat::{Config, Options, SdpListener, SdpStream, Stack};

use crate::case::{Case, SIZE_MAX, Work};
use crate::raw::STALL;

/// A side of two streams: one that chooses how bytes move, and one that copies all bytes that it
/// sends.
pub(crate) struct SdpLink {
    choosing: SdpStream,
    copying: SdpStream,
    buffer: Vec<u8>,
}

impl SdpLink {
    /// Waits for one peer. `announce` receives the address to connect to.
    pub(crate) fn listen(
        ia: &str,
        announce: impl FnOnce(SocketAddr, u64) -> Result<()>,
    ) -> Result<Self> {
        let stack = Stack::open(ia)?;
        let own = stack.address().context("the adapter has no address")?;
        let listener = SdpListener::bind(&stack, SocketAddr::new(own.ip(), 0))?;
        announce(listener.local_addr(), listener.conn_qual())?;
        let next = || listener.accept_timeout(Some(STALL)).context("nobody came");
        let (choosing, copying) = (next()?.0, next()?.0);
        Ok(Self::new(choosing, copying))
    }

    /// Connects to the peer that announced itself.
    pub(crate) fn connect(ia: &str, address: SocketAddr) -> Result<Self> {
        let copies = Config {
            lend_threshold: usize::MAX,
            zcopy_threshold: usize::MAX,
            ..Config::default()
        };
        let choosing = SdpStream::connect(&Stack::open(ia)?, address)?;
        let copying = SdpStream::connect(&Stack::open_with(ia, copies)?, address)?;
        Ok(Self::new(choosing, copying))
    }

    fn new(choosing: SdpStream, copying: SdpStream) -> Self {
        Self {
            choosing,
            copying,
            buffer: vec![0x5A; SIZE_MAX],
        }
    }

    /// The bytes that both streams have copied so far, out of their user's memory and into it.
    pub(crate) fn copied(&self) -> u64 {
        [&self.choosing, &self.copying]
            .map(SdpStream::statistics)
            .map(|done| done.bytes_copied + done.bytes_received - done.bytes_direct)
            .iter()
            .sum()
    }

    /// The active side of one sample. Returns when the peer has received all data. The function is
    /// not inlined, so that a profiler can be limited to it.
    #[inline(never)]
    pub(crate) fn drive(&mut self, case: Case, count: u64) -> Result<()> {
        let (stream, buffer) = self.prepare(case);
        let message = &mut buffer[..case.size];
        match case.work {
            Work::SdpPing | Work::SdpBlockedPing => (0..count).try_for_each(|_| {
                send(stream, message)?;
                receive(stream, message)
            }),
            Work::SdpWrite | Work::SdpCopy => {
                (0..count).try_for_each(|_| send(stream, message))?;
                receive(stream, &mut message[..1])
            }
            work => bail!("{work:?} is none of a stream"),
        }
    }

    /// The passive side of one sample.
    #[inline(never)]
    pub(crate) fn serve(&mut self, case: Case, count: u64) -> Result<()> {
        let (stream, buffer) = self.prepare(case);
        match case.work {
            Work::SdpPing | Work::SdpBlockedPing => (0..count).try_for_each(|_| {
                receive(stream, &mut buffer[..case.size])?;
                send(stream, &buffer[..case.size])
            }),
            Work::SdpWrite | Work::SdpCopy => {
                drain(stream, buffer, case.size as u64 * count)?;
                send(stream, &[0])
            }
            work => bail!("{work:?} is none of a stream"),
        }
    }

    fn prepare(&mut self, case: Case) -> (&SdpStream, &mut [u8]) {
        let stream = match case.work {
            Work::SdpCopy => &self.copying,
            _ => &self.choosing,
        };
        stream.set_options(Options {
            nonblocking: case.is_ping() && !case.is_blocking(),
            read_timeout: Some(STALL),
            ..Options::default()
        });
        (stream, &mut self.buffer)
    }
}

impl Drop for SdpLink {
    fn drop(&mut self) {
        // A sample ends with an answer, so nothing is in flight, and neither end needs to wait for
        // the other's close.
        self.choosing.abort();
        self.copying.abort();
    }
}

fn send(mut stream: &SdpStream, mut bytes: &[u8]) -> Result<()> {
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if is_full(stream, error.kind()) => thread::yield_now(),
            Err(error) => return Err(error).context("write"),
        }
    }
    Ok(())
}

/// Fills `bytes`. A non-blocking stream is called again until it has data.
fn receive(mut stream: &SdpStream, mut bytes: &mut [u8]) -> Result<()> {
    while !bytes.is_empty() {
        match stream.read(bytes) {
            Ok(0) => bail!("the peer hung up"),
            Ok(got) => bytes = &mut bytes[got..],
            Err(error) if is_full(stream, error.kind()) => {}
            Err(error) => return Err(error).context("read"),
        }
    }
    Ok(())
}

/// True if an error means only that a non-blocking stream would block.
fn is_full(stream: &SdpStream, kind: ErrorKind) -> bool {
    kind == ErrorKind::WouldBlock && stream.options().nonblocking
}

fn drain(mut stream: &SdpStream, buffer: &mut [u8], mut len: u64) -> Result<()> {
    while len > 0 {
        let room = usize::try_from(len).map_or(buffer.len(), |len| len.min(buffer.len()));
        let got = stream.read(&mut buffer[..room]).context("read")?;
        ensure!(got > 0, "the peer hung up");
        len -= got as u64;
    }
    Ok(())
}
