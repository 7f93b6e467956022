//! Falling back to TCP. If any step fails before the first byte, the program soon gets a working
//! connection, and `opsrun ss` lists the reason.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use stack_tests::frame_writer::{enhanced_reply, enhanced_request, reply};
use stack_tests::{IA_NAME, Offload, OffloadProtocol, Stage, adapter_line, rows, until};
use tempfile::TempDir;

use crate::Test;
use crate::process::{Environment, Process};

use Mapper::{Absent, Maps, Rejects};
use Provider::{Good, Library, NoDevice, NoLibrary, NotListed};

/// The time limit of a connection. Offload protocols may delay TCP by a fifth of a second; the rest
/// is for a busy machine. The limit is half of the time limit of [`Offload::All`].
const SOON: Duration = Duration::from_secs(30);

/// The UDP port of port mappers.
const MAPPER: u16 = 3935;

/// The behaviour of the peer's port mapper.
#[derive(Clone, Copy)]
enum Mapper {
    /// There is no port mapper, and the host answers with ICMP.
    Absent,
    /// The port mapper does not answer.
    Silent,
    /// The port mapper rejects the query, because it has no entry for the service.
    Rejects,
    /// The port mapper names this peer.
    Maps(Peer),
}

/// The behaviour of the peer that the port mapper names.
#[derive(Clone, Copy)]
enum Peer {
    /// There is no listener.
    Nobody,
    /// The peer closes the connection in the middle of the set-up.
    Leaves,
    /// The peer sends nothing.
    Silent,
    /// The peer uses another protocol.
    Babbles,
    /// The peer closes the connection when it has received the offer.
    LeavesRendezvous,
    /// The peer does not answer the offer.
    SilentRendezvous,
    /// The peer answers the offer in another protocol.
    BabblesRendezvous,
    /// The peer answers the offer in an unknown version.
    OtherRendezvous,
    /// The peer has no adapter of a kind that was offered.
    ChoosesNothing,
    /// The peer chooses a device although none was offered.
    ChoosesDevice,
    /// The peer accepts, in an unknown version.
    AcceptsOtherVersion,
    /// The peer refuses, and sends the version that it supports.
    RefusesVersion,
}

/// A reason to fall back, and the text that lists it.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    mapper: Mapper,
    provider: Provider,
    reason: &'static str,
}

/// The state of the software provider's adapter in `dat.conf`.
#[derive(Clone, Copy)]
enum Provider {
    /// A correct entry.
    Good,
    /// There is no `dat.conf`.
    NotListed,
    /// A library, as a path or as a name for the loader.
    Library(&'static str),
    /// A file that is not a library.
    NoLibrary,
    /// A device that this host does not have.
    NoDevice,
}

/// Declares cases: the name, the port mapper, the adapter if it is not a good one, and the reason.
macro_rules! cases {
    ($($name:ident: $mapper:expr, $provider:expr => $reason:literal;)+) => {
        &[$(Case {
            name: stringify!($name),
            mapper: $mapper,
            provider: $provider,
            reason: $reason,
        }),+]
    };
}

pub(crate) const CASES: &[Case] = cases! {
    the_provider_is_absent: Absent, NotListed
        => "dat.conf lists no adapter of the software provider";
    the_provider_is_a_missing_library: Maps(Peer::Nobody), Library("/nowhere/libdapl-none.so.2")
        => "iwarp-odd cannot be opened: dat_ia_open: DAT_PROVIDER_NOT_FOUND";
    the_provider_is_no_library: Maps(Peer::Nobody), NoLibrary
        => "iwarp-odd cannot be opened: dat_ia_open: DAT_PROVIDER_NOT_FOUND";
    the_provider_is_another_library: Maps(Peer::Nobody), Library("libm.so.6")
        => "iwarp-odd cannot be opened: dat_ia_open: DAT_PROVIDER_NOT_FOUND";
    the_provider_finds_no_device: Maps(Peer::Nobody), NoDevice
        => "iwarp-odd cannot be opened: dat_ia_open: ";
    no_program_of_the_peer_runs_under_opsrun: Absent, Good
        => "no program of the peer runs under opsrun";
    queries_are_not_answered: Mapper::Silent, Good => "UDP port 3935 of the peer does not answer";
    the_service_is_not_offered: Rejects, Good => "the peer does not offer this service over RDMA";
    the_listener_is_gone: Maps(Peer::Nobody), Good => "the peer refused";
    the_peer_leaves_in_the_middle: Maps(Peer::Leaves), Good => "the peer refused";
    the_peer_sends_nothing: Maps(Peer::Silent), Good => "no connection was made within 200ms";
    the_peer_uses_another_protocol: Maps(Peer::Babbles), Good => "the peer refused";
    the_peer_leaves_at_the_rendezvous: Maps(Peer::LeavesRendezvous), Good => "the peer refused";
    the_peer_sends_nothing_at_the_rendezvous: Maps(Peer::SilentRendezvous), Good
        => "no connection was made within 200ms";
    the_peer_uses_another_protocol_at_the_rendezvous: Maps(Peer::BabblesRendezvous), Good
        => "failed: Protocol error";
    the_peer_answers_the_offer_in_another_version: Maps(Peer::OtherRendezvous), Good
        => "the peer speaks another version";
    the_peer_has_no_such_adapter: Maps(Peer::ChoosesNothing), Good => "the peer refused";
    the_peer_chooses_what_was_not_offered: Maps(Peer::ChoosesDevice), Good
        => "failed: Protocol error";
    the_peer_accepts_in_another_version: Maps(Peer::AcceptsOtherVersion), Good
        => "the peer speaks another version";
    the_peer_refuses_our_version: Maps(Peer::RefusesVersion), Good
        => "the peer speaks another version";
};

/// The tests of other kinds, with their names.
pub(crate) const TESTS: &[(&str, Test)] = &rows! {
    "another_version_receives_this_version", another_version_receives_this_version;
    "flags_set_meanwhile_stay_set", flags_set_meanwhile_stay_set;
};

impl Case {
    /// The rules of the case. A wait for a silent peer ends at the time limit that users get. An
    /// answer with an error ends the wait, even if it is received late on a busy machine.
    fn offload(&self) -> Offload {
        match self.mapper {
            Mapper::Silent | Mapper::Maps(Peer::Silent | Peer::SilentRendezvous) => {
                Offload::AllSoon
            }
            _ => Offload::All,
        }
    }

    /// Connects programs to a peer that behaves like this.
    pub(crate) fn run(&self, protocol: &'static OffloadProtocol) -> Result<()> {
        for role in ["visit", "visit-without-blocking"] {
            self.run_visitor(protocol, role)
                .with_context(|| format!("role {role}"))?;
        }
        Ok(())
    }

    fn run_visitor(&self, protocol: &'static OffloadProtocol, role: &str) -> Result<()> {
        let environment = Environment::with_offload(self.offload(), protocol)?;
        let service = echo()?;
        self.mapper.begin()?;
        let role = format!("{role} {}", service.port());
        let files = TempDir::new()?;
        let listed = self.provider.listed(files.path())?;
        let visitor = Process::start_with(&role, &environment, |command| {
            if let Some(file) = listed {
                command.env("DAT_OVERRIDE", file);
            }
        })?;
        let took = Duration::from_millis(visitor.read_line("visited")?.parse()?);
        ensure!(took < SOON, "it took {took:?}");
        // The reason is listed a moment after the program has the connection.
        let has_reason = |line: &str| line.starts_with("tcp ") && line.contains(self.reason);
        until!(
            environment.listed()?.lines().any(has_reason),
            "{}",
            environment.listed()?
        );
        visitor.finish()?;
        let messages = environment.messages_of_victims()?;
        ensure!(
            messages == 0,
            "{messages} SDP messages where no connection was made"
        );
        Ok(())
    }
}

/// A flag that the program sets during an attempt stays set when TCP takes over, at whatever moment
/// it is set.
fn flags_set_meanwhile_stay_set(protocol: &'static OffloadProtocol) -> Result<()> {
    let case = CASES
        .iter()
        .find(|it| it.name == "the_provider_is_a_missing_library");
    let case = case.context("no such case")?;
    for late in (0..2000).step_by(20) {
        case.run_visitor(protocol, &format!("visit-and-then-block {late}"))
            .with_context(|| format!("{late} us after the call"))?;
    }
    Ok(())
}

/// A peer with an unknown version receives this end's version in the refusal.
fn another_version_receives_this_version(protocol: &'static OffloadProtocol) -> Result<()> {
    let environment = Environment::new(protocol)?;
    let server = Process::start("receive", &environment)?;
    let service = SocketAddr::from((Ipv4Addr::LOCALHOST, server.read_line("port")?.parse()?));
    let listed = environment.listed()?;
    let has_adapter = |line: &str| line.starts_with("sdp ") && line.contains(IA_NAME);
    ensure!(listed.lines().any(has_adapter), "no adapter in {listed}");
    let mut peer = TcpStream::connect(ask(service)?)?;
    peer.set_read_timeout(Some(SOON))?;
    peer.write_all(&offer(&hello(0x22)))?;
    let mut answer = [0; ANSWER_LEN];
    peer.read_exact(&mut answer)?;
    ensure!(answer == answer_of(CONVERT), "not converted: {answer:02x?}");
    peer.write_all(&enhanced_request(4, 4, &hello(0x30)).bytes())?;
    let mut head = [0; 20];
    peer.read_exact(&mut head)?;
    ensure!(head[16] & 0x20 != 0, "not refused: {head:02x?}");
    let mut private_data = Vec::new();
    peer.read_to_end(&mut private_data)?;
    // After the depths: a HelloAck, with the version at its byte 16.
    let ack = &private_data[4..];
    ensure!(ack[0] == 1 && ack[16] == 0x22, "{private_data:02x?}");
    // The service still works.
    Process::start(&format!("send {} 1000", service.port()), &environment)?.finish()?;
    ensure!(server.read_line("received")? == "1000 end");
    server.finish()?;
    environment.check_end()
}

/// Queries the port mapper for the address at which a service is offered.
fn ask(service: SocketAddr) -> Result<SocketAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.set_read_timeout(Some(SOON))?;
    let mut question = [0; 48];
    question[0] = 0x04;
    question[4..6].copy_from_slice(&service.port().to_be_bytes());
    question[6..8].copy_from_slice(&socket.local_addr()?.port().to_be_bytes());
    for at in [16, 32] {
        question[at..at + 4].copy_from_slice(&Ipv4Addr::LOCALHOST.octets());
    }
    socket.send_to(&question, (Ipv4Addr::LOCALHOST, MAPPER))?;
    let mut answer = [0; 64];
    socket
        .recv(&mut answer)
        .context("receiving the answer of the port mapper")?;
    ensure!(answer[0] == 0x14, "not accepted: {answer:02x?}");
    let port = u16::from_be_bytes([answer[4], answer[5]]);
    Ok((Ipv4Addr::LOCALHOST, port).into())
}

/// A plain service that echoes the bytes of one connection.
fn echo() -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    thread::spawn(move || -> Option<()> {
        let (mut peer, _) = listener.accept().ok()?;
        let mut buffer = [0; 1024];
        while let Ok(count @ 1..) = peer.read(&mut buffer) {
            peer.write_all(&buffer[..count]).ok()?;
        }
        None
    });
    Ok(address)
}

impl Provider {
    /// Writes a `dat.conf` that differs from the stage's, if the case needs one.
    fn listed(self, directory: &Path) -> Result<Option<PathBuf>> {
        let file = directory.join("dat.conf");
        let (library, device) = match self {
            Self::Good => return Ok(None),
            Self::NotListed => return Ok(Some(file)),
            Self::Library(library) => (PathBuf::from(library), "lo"),
            Self::NoLibrary => (file.clone(), "lo"),
            Self::NoDevice => (Stage::find()?.provider(), "nosuchdevice"),
        };
        let params = format!("{device} 0");
        fs::write(&file, adapter_line("iwarp-odd", library.display(), &params))?;
        Ok(Some(file))
    }
}

impl Mapper {
    /// Answers queries from now on, until the test's network is gone.
    fn begin(self) -> Result<()> {
        let (kind, port) = match self {
            Self::Absent => return Ok(()),
            Self::Silent => (None, None),
            Self::Rejects => (Some(3), None),
            Self::Maps(peer) => (Some(1), Some(peer.begin()?)),
        };
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, MAPPER))?;
        thread::spawn(move || {
            let mut datagram = [0; 64];
            while let Ok((count, from)) = socket.recv_from(&mut datagram) {
                let Some(kind) = kind else { continue };
                let answer = &mut datagram[..count.min(48)];
                answer[0] = kind << 4 | answer[0] & 0x0f;
                answer[2..4].fill(0);
                if let Some(port) = port {
                    answer[4..6].copy_from_slice(&u16::to_be_bytes(port));
                }
                // If the datagram is lost, the program sends its query again.
                let _ = socket.send_to(answer, from);
            }
        });
        Ok(())
    }
}

impl Peer {
    fn begin(self) -> Result<u16> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        if let Self::Nobody = self {
            return Ok(port);
        }
        thread::spawn(move || {
            let mut kept = Vec::new();
            while let Ok((mut peer, _)) = listener.accept() {
                // If this fails, the test does not find the expected reason.
                if self.answer(&mut peer).is_ok() {
                    kept.push(peer);
                }
            }
        });
        Ok(port)
    }

    fn answer(self, peer: &mut TcpStream) -> Result<()> {
        let mut offered = [0; OFFER_LEN];
        peer.read_exact(&mut offered)?;
        peer.write_all(&match self {
            Self::LeavesRendezvous => anyhow::bail!("it leaves"),
            Self::SilentRendezvous => return Ok(()),
            Self::BabblesRendezvous => return Ok(peer.write_all(b"HTTP/1.1 400 Bad Request")?),
            Self::OtherRendezvous => {
                let mut answer = answer_of(CONVERT);
                answer[4] = 2;
                answer
            }
            Self::ChoosesNothing => answer_of(NOTHING),
            Self::ChoosesDevice => answer_of(DEVICE),
            _ => answer_of(CONVERT),
        })?;
        let mut head = [0; 20];
        peer.read_exact(&mut head)?;
        let mut private_data = vec![0; u16::from_be_bytes([head[18], head[19]]).into()];
        peer.read_exact(&mut private_data)?;
        let refuses = match self {
            Self::Leaves => anyhow::bail!("it leaves"),
            Self::Babbles => return Ok(peer.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")?),
            Self::AcceptsOtherVersion => 0,
            Self::RefusesVersion => 1,
            // These peers send nothing more.
            _ => return Ok(()),
        };
        let ack = hello_ack(0x30);
        let answer = match head[17] {
            1 => reply(&ack),
            _ => enhanced_reply(4, 4, &ack),
        };
        Ok(peer.write_all(&answer.with("r", refuses).bytes())?)
    }
}

/// Bytes of an offer of one adapter.
const OFFER_LEN: usize = 8 + 4 + 4 + 92;

/// An offer of the software provider.
fn offer(hello: &[u8]) -> Vec<u8> {
    let mut bytes = b"SDPr\x01\x01\x00\x6c\x00\x00\x00\x01\x01\x00\x00\x00".to_vec();
    bytes.extend(hello);
    bytes
}

/// Bytes of an answer to an offer.
const ANSWER_LEN: usize = 56;

const NOTHING: u8 = 0;
const CONVERT: u8 = 1;
const DEVICE: u8 = 2;

/// An answer with this choice. A choice of nothing has a reason, and that of a device an address.
fn answer_of(choice: u8) -> [u8; ANSWER_LEN] {
    let mut bytes = [0; ANSWER_LEN];
    bytes[..8].copy_from_slice(b"SDPr\x01\x02\x00\x38");
    bytes[8] = choice;
    match choice {
        NOTHING => bytes[10] = 1,
        DEVICE => {
            bytes[11] = 4;
            bytes[28..32].copy_from_slice(&Ipv4Addr::LOCALHOST.octets());
        }
        _ => {}
    }
    bytes
}

/// A HelloAck of this version: 64 buffers of 32 KiB.
fn hello_ack(version: u8) -> Vec<u8> {
    let mut bytes = vec![0; 196];
    bytes[..8].copy_from_slice(&[1, 0, 0, 64, 0, 0, 0, 196]);
    bytes[16..24].copy_from_slice(&[version, 0, 0, 1, 0, 0, 0x80, 0x10]);
    bytes
}

/// A Hello of this version, from port 40000 of the same host.
fn hello(version: u8) -> Vec<u8> {
    let mut bytes = vec![0; 92];
    bytes[..8].copy_from_slice(&[0, 0, 0, 64, 0, 0, 0, 92]);
    bytes[16..24].copy_from_slice(&[version, 0x40, 0, 1, 0, 0, 0x80, 0x10]);
    bytes[24..30].copy_from_slice(&[0, 0, 0x80, 0x10, 0x9c, 0x40]);
    for at in [44, 60] {
        bytes[at..at + 4].copy_from_slice(&Ipv4Addr::LOCALHOST.octets());
    }
    bytes
}
