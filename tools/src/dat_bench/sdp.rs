//! The second contender: SDP streams over DAT, used as sockets are.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::thread;

use anyhow::{Context, Result, bail, ensure};
use sdp_over_dat::{Config, Options, SdpListener, SdpStream, Stack};
use tool_args::bench::case::{Case, Mechanism, SIZE_MAX, Work};

use crate::laps::Laps;
use crate::raw::STALL;

/// Returns the configuration of a writer that uses the mechanism; `None` for that of the adapter.
fn writer_config(mechanism: Mechanism) -> Option<Config> {
    let (registered_threshold, zcopy_threshold, pipelined_threshold) = match mechanism {
        Mechanism::Chosen => return None,
        Mechanism::Copied => (usize::MAX, usize::MAX, usize::MAX),
        Mechanism::Registered => (1, usize::MAX, usize::MAX),
        Mechanism::Read => (1, 1, usize::MAX),
        Mechanism::Written => (1, usize::MAX, 1),
    };
    Some(Config {
        registered_threshold,
        zcopy_threshold,
        pipelined_threshold,
        ..Config::default()
    })
}

/// Returns the room from which on a reader advertises its memory; `None` for that of the adapter.
const fn sink_threshold(mechanism: Mechanism) -> Option<usize> {
    match mechanism {
        Mechanism::Chosen => None,
        Mechanism::Written => Some(1),
        Mechanism::Copied | Mechanism::Registered | Mechanism::Read => Some(usize::MAX),
    }
}

/// A side of one stream for each mechanism. The active side, which sends, decides on the mechanism
/// with its configuration. [`Mechanism::Written`] also needs a reader that advertises its memory;
/// bytes that the writer sends before the reader waits are sent in Sends.
pub(crate) struct SdpLink {
    streams: [SdpStream; Mechanism::ALL.len()],
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
        let next = || {
            listener
                .accept_timeout(Some(STALL))
                .context("no peer connected")
        };
        Self::new(|_| Ok(next()?.0))
    }

    /// Connects to the peer that announced itself.
    pub(crate) fn connect(ia: &str, address: SocketAddr) -> Result<Self> {
        Self::new(|mechanism| {
            let stack = match writer_config(mechanism) {
                Some(config) => Stack::open_with(ia, config),
                None => Stack::open(ia),
            };
            Ok(SdpStream::connect(&stack?, address)?)
        })
    }

    fn new(mut make: impl FnMut(Mechanism) -> Result<SdpStream>) -> Result<Self> {
        let [chosen, copied, registered, read, written] = Mechanism::ALL.map(&mut make);
        Ok(Self {
            streams: [chosen?, copied?, registered?, read?, written?],
            buffer: vec![0x5A; SIZE_MAX],
        })
    }

    /// The bytes that the streams have copied so far, out of their user's memory and into it.
    pub(crate) fn copied(&self) -> u64 {
        let all = self.streams.iter().map(SdpStream::statistics);
        all.map(|done| done.bytes_copied + done.bytes_received - done.bytes_direct)
            .sum()
    }

    /// The active side of one sample. Returns when the peer has received all data. The function is
    /// not inlined, so that a profiler can be limited to it.
    #[inline(never)]
    pub(crate) fn drive(&mut self, case: Case, count: u64, laps: &mut Laps) -> Result<()> {
        let (end, buffer) = self.prepare(case);
        let message = &mut buffer[..case.size];
        match case.work {
            Work::SdpPing | Work::SdpBlockedPing => (0..count).try_for_each(|_| {
                laps.mark();
                end.send(message)?;
                end.receive(message)
            }),
            Work::SdpWrite(_) => {
                (0..count).try_for_each(|_| end.send(message))?;
                end.receive(&mut message[..1])
            }
            work => bail!("{work:?} cannot be measured on an SDP stream"),
        }
    }

    /// The passive side of one sample.
    #[inline(never)]
    pub(crate) fn serve(&mut self, case: Case, count: u64) -> Result<()> {
        let (end, buffer) = self.prepare(case);
        match case.work {
            Work::SdpPing | Work::SdpBlockedPing => (0..count).try_for_each(|_| {
                end.receive(&mut buffer[..case.size])?;
                end.send(&buffer[..case.size])
            }),
            Work::SdpWrite(_) => {
                end.drain(buffer, case.size as u64 * count)?;
                end.send(&[0])
            }
            work => bail!("{work:?} cannot be measured on an SDP stream"),
        }
    }

    fn prepare(&mut self, case: Case) -> (End<'_>, &mut [u8]) {
        let mechanism = match case.work {
            Work::SdpWrite(mechanism) => mechanism,
            _ => Mechanism::Chosen,
        };
        let end = End {
            stream: &self.streams[mechanism as usize],
            polls: case.is_ping() && !case.is_blocking(),
        };
        end.stream.set_options(Options {
            nonblocking: end.polls,
            read_timeout: Some(STALL),
            sink_threshold: sink_threshold(mechanism),
            ..Options::default()
        });
        (end, &mut self.buffer)
    }
}

impl Drop for SdpLink {
    fn drop(&mut self) {
        // A sample ends with an answer, so nothing is in flight, and neither end needs to wait for
        // the other's close.
        self.streams.iter().for_each(SdpStream::abort);
    }
}

/// The stream of a case, and how its calls are made.
struct End<'a> {
    stream: &'a SdpStream,
    /// True if the stream does not block, and a call that cannot proceed is repeated.
    polls: bool,
}

impl End<'_> {
    fn send(&self, mut bytes: &[u8]) -> Result<()> {
        let mut stream = self.stream;
        while !bytes.is_empty() {
            match stream.write(bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(error) if self.is_to_repeat(&error) => thread::yield_now(),
                Err(error) => return Err(error).context("write"),
            }
        }
        Ok(())
    }

    fn receive(&self, mut bytes: &mut [u8]) -> Result<()> {
        let mut stream = self.stream;
        while !bytes.is_empty() {
            match stream.read(bytes) {
                Ok(0) => bail!("the peer closed the connection"),
                Ok(got) => bytes = &mut bytes[got..],
                Err(error) if self.is_to_repeat(&error) => {}
                Err(error) => return Err(error).context("read"),
            }
        }
        Ok(())
    }

    /// True if an error means only that the call would block. A blocking call fails with the same
    /// error at its timeout.
    fn is_to_repeat(&self, error: &io::Error) -> bool {
        self.polls && error.kind() == ErrorKind::WouldBlock
    }

    fn drain(&self, buffer: &mut [u8], mut len: u64) -> Result<()> {
        let mut stream = self.stream;
        while len > 0 {
            let room = usize::try_from(len).map_or(buffer.len(), |len| len.min(buffer.len()));
            let got = stream.read(&mut buffer[..room]).context("read")?;
            ensure!(got > 0, "the peer closed the connection");
            len -= got as u64;
        }
        Ok(())
    }
}
