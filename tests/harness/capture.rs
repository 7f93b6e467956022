//! Records the packets on an interface, and decodes them with an independent decoder.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::{Program, Running, until};

const DEADLINE: Duration = Duration::from_secs(240);

/// The kernel's buffer of captured packets, in MiB. The default of 2 overflows when a busy machine
/// runs dumpcap late.
const BUFFER_MIB: usize = 64;

/// The content of a datagram to the discard port that is sent after the traffic. A capture that
/// contains the datagram contains all earlier packets.
const END_MARK: &[u8] = b"end of the capture";

/// A running capture of a device in the network namespace of the calling thread.
#[derive(Debug)]
pub struct Capture {
    dumpcap: Running,
    dir: TempDir,
    file: PathBuf,
    /// An address that is reached through the device, so that a datagram to it is captured.
    beyond: IpAddr,
}

/// A finished capture.
#[derive(Debug)]
pub struct CaptureFile {
    _dir: TempDir,
    /// The path of the file, which is removed when this value is dropped.
    pub path: PathBuf,
}

/// The decoder's result for a capture.
#[derive(Debug)]
pub struct Decoded {
    _file: CaptureFile,
    /// The decoder's full text.
    pub text: String,
    /// Segments with data in which the decoder found no part of an MPA stream, one line each.
    pub strays: Vec<String>,
}

impl Capture {
    /// Starts capturing the loopback device; `None` if this user has no right to capture.
    pub fn start() -> Result<Option<Self>> {
        Self::start_on("lo", Ipv4Addr::LOCALHOST.into())
    }

    /// Starts capturing `device`, through which `beyond` is reached; `None` if this user has no
    /// right to capture.
    pub fn start_on(device: &str, beyond: IpAddr) -> Result<Option<Self>> {
        let dir = TempDir::with_prefix("dat-capture-")?;
        let file = dir.path().join("capture.pcapng");
        let dumpcap = Program::new("dumpcap")
            .args_line(&format!("-q -B {BUFFER_MIB} -i {device} -w"))
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

    /// Stops capturing.
    pub fn stop(self) -> Result<CaptureFile> {
        let any: IpAddr = match self.beyond {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        UdpSocket::bind((any, 0))?.send_to(END_MARK, (self.beyond, 9))?;
        self.wait_for_end_mark()?;
        self.dumpcap.signal(Signal::SIGINT)?;
        let text = self.dumpcap.finish(DEADLINE)?.success()?.text;
        ensure!(lost_none(&text), "packets were not captured: {text}");
        Ok(CaptureFile {
            _dir: self.dir,
            path: self.file,
        })
    }

    /// Stops capturing and decodes the captured packets as iWARP.
    pub fn decode(self) -> Result<Decoded> {
        let file = self.stop()?;
        let tshark = |args: &str, filter: &str| {
            Program::new("tshark")
                // The MPA dissector is a heuristic. Heuristics for the payload of DDP are off,
                // because they would decode the consumer's bytes as other protocols.
                .args_line("-2 -o tcp.try_heuristic_first:TRUE")
                .args_line("-o tcp.reassemble_out_of_order:TRUE")
                .args_line("--disable-protocol rpcordma --disable-protocol smb_direct -r")
                .arg(&file.path)
                .args_line(args)
                .arg(filter)
                .run(DEADLINE)
        };
        let text = tshark("-V -Y", "tcp.len > 0")?.text;
        // On a busy machine TCP retransmits segments, which were decoded when they were first
        // received.
        let rest = "tcp.len > 0 && !iwarp_mpa && !tcp.reassembled_in && \
                    !tcp.analysis.retransmission";
        let rest = tshark("-Y", rest)?.text;
        let strays = rest
            .lines()
            .filter(|line| line.contains("TCP"))
            .map(Into::into)
            .collect();
        Ok(Decoded {
            _file: file,
            text,
            strays,
        })
    }

    fn wait_for_end_mark(&self) -> Result<()> {
        let has_mark = |bytes: Vec<u8>| bytes.windows(END_MARK.len()).any(|part| part == END_MARK);
        until!(
            has_mark(fs::read(&self.file)?),
            "the end mark was not captured"
        );
        Ok(())
    }
}

/// True if dumpcap's report says that it dropped no packet.
fn lost_none(report: &str) -> bool {
    // The line is: Packets received/dropped on interface 'Loopback: lo': 88/0
    // (pcap:0/dumpcap:0/flushed:0/ps_ifdrop:0)
    let counts = report
        .split_once("dropped on interface")
        .and_then(|(_, rest)| rest.split_once("': "))
        .and_then(|(_, counts)| counts.split_whitespace().next());
    counts.is_some_and(|counts| counts.ends_with("/0"))
}

impl Decoded {
    /// The ULPDU lengths of all FPDUs, in bytes.
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

    /// The number of lines of the decoder's text that contain `what`.
    pub fn count(&self, what: &str) -> usize {
        self.text.lines().filter(|line| line.contains(what)).count()
    }
}
