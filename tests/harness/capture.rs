//! Recording what crosses an interface, and having it decoded by somebody else.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::{Program, Running};

const DEADLINE: Duration = Duration::from_secs(60);

/// How often the file is looked at for the end mark.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A datagram to the discard port with this content follows the traffic, so that a capture which
/// holds it holds everything before it.
const END_MARK: &[u8] = b"end of the capture";

/// A running capture of a device in the network of the calling thread.
#[derive(Debug)]
pub struct Capture {
    dumpcap: Running,
    dir: TempDir,
    file: PathBuf,
    /// Behind the device, so that what is sent there is caught.
    beyond: IpAddr,
}

/// What the decoder made of a capture.
#[derive(Debug)]
pub struct Decoded {
    _dir: TempDir,
    /// The decoder's full text.
    pub text: String,
    /// Segments with data in which it saw no part of an MPA stream, one line each.
    pub strangers: Vec<String>,
}

impl Capture {
    /// Starts capturing the loopback device; `None` where this user may not.
    ///
    /// # Errors
    /// When dumpcap is not there or fails.
    pub fn start() -> Result<Option<Self>> {
        Self::start_on("lo", Ipv4Addr::LOCALHOST.into())
    }

    /// Starts capturing `device`, through which `beyond` is reached; `None` where this user may
    /// not.
    ///
    /// # Errors
    /// When dumpcap is not there or fails.
    pub fn start_on(device: &str, beyond: IpAddr) -> Result<Option<Self>> {
        let dir = TempDir::with_prefix("dat-capture-")?;
        let file = dir.path().join("capture.pcapng");
        let dumpcap = Program::new("dumpcap")
            .args_line(&format!("-q -i {device} -w"))
            .arg(&file)
            .spawn()?;
        if let Err(error) = dumpcap.wait_for("File:", DEADLINE) {
            let is_forbidden = dumpcap.text().contains("do not have permission to capture");
            return if is_forbidden { Ok(None) } else { Err(error) };
        }
        Ok(Some(Self {
            dumpcap,
            dir,
            file,
            beyond,
        }))
    }

    /// Stops capturing and decodes what was caught as iWARP.
    ///
    /// # Errors
    /// When the capture or the decoder fails.
    pub fn decode(self) -> Result<Decoded> {
        let any: IpAddr = match self.beyond {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        UdpSocket::bind((any, 0))?.send_to(END_MARK, (self.beyond, 9))?;
        self.wait_for_end_mark()?;
        self.dumpcap.signal(Signal::SIGINT)?;
        self.dumpcap.finish(DEADLINE)?.success()?;
        let tshark = |args: &str, filter: &str| {
            Program::new("tshark")
                // The MPA dissector is a heuristic; the payload heuristics above DDP take the
                // consumer's bytes for protocols of their own.
                .args_line("-2 -o tcp.try_heuristic_first:TRUE")
                .args_line("-o tcp.reassemble_out_of_order:TRUE")
                .args_line("--disable-protocol rpcordma --disable-protocol smb_direct -r")
                .arg(&self.file)
                .args_line(args)
                .arg(filter)
                .spawn()?
                .finish(DEADLINE)?
                .success()
        };
        let text = tshark("-V -Y", "tcp.len > 0")?.text;
        // What a busy machine makes TCP send twice was decoded when it came first.
        let rest = "tcp.len > 0 && !iwarp_mpa && !tcp.reassembled_in && \
                    !tcp.analysis.retransmission";
        let rest = tshark("-Y", rest)?.text;
        let strangers = rest
            .lines()
            .filter(|line| line.contains("TCP"))
            .map(Into::into)
            .collect();
        Ok(Decoded {
            _dir: self.dir,
            text,
            strangers,
        })
    }

    fn wait_for_end_mark(&self) -> Result<()> {
        let end = Instant::now() + DEADLINE;
        loop {
            let caught = fs::read(&self.file)?;
            if caught
                .windows(END_MARK.len())
                .any(|window| window == END_MARK)
            {
                return Ok(());
            }
            ensure!(
                Instant::now() < end,
                "the capture never got to its end mark"
            );
            thread::sleep(LOOK_AGAIN);
        }
    }
}

impl Decoded {
    /// The ULPDU lengths of all FPDUs, in bytes.
    ///
    /// # Errors
    /// When the decoder writes them in a way that was not expected.
    pub fn ulpdu_lengths(&self) -> Result<Vec<usize>> {
        self.text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("ULPDU length: "))
            .map(|rest| {
                let digits = rest.split_whitespace().next().unwrap_or_default();
                digits.parse().with_context(|| format!("{rest:?}"))
            })
            .collect()
    }

    /// How many lines of the decoder's text hold `what`.
    #[must_use]
    pub fn count(&self, what: &str) -> usize {
        self.text.lines().filter(|line| line.contains(what)).count()
    }
}
