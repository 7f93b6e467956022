//! The connecting end of the set-up of a connection.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use host::descriptors::OwnDescriptor;
use ops::{ConnectFailure, OffloadConnecting, OffloadStream, Target};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, sockopt};
use sdp_over_dat::{SdpStream, Stack};

use crate::adapter::Adapter;
use crate::adapters::Adapters;
use crate::errno_of;
use crate::rendezvous::{self, AdapterKind, Answer, Incoming, NoChoice, Offer};
use crate::settings::Settings;
use crate::stream::{SdpOffload, WakeupFd};

/// A local adapter that may carry the connection.
#[derive(Debug)]
pub(crate) struct Candidate {
    pub(crate) adapter: Arc<Adapter>,
    pub(crate) kind: AdapterKind,
}

/// A candidate whose adapter is open.
#[derive(Debug)]
struct Open {
    adapter: Arc<Adapter>,
    kind: AdapterKind,
    stack: Stack,
}

/// The progress of the set-up.
///
/// ```text
/// TCP ──connected──> OFFERED ──answer──> CONNECTING ──established──> OVER
/// ```
#[derive(Debug)]
enum State {
    /// The kernel connects.
    Tcp(OwnDescriptor),
    /// The offer was sent.
    Offered(OwnDescriptor, Incoming),
    /// The stream connects over this adapter.
    Connecting(SdpStream, Arc<Adapter>),
    /// The set-up has succeeded or failed.
    Over,
}

/// The connecting end's side of the set-up.
#[derive(Debug)]
pub(crate) struct SdpConnecting {
    candidates: Vec<Open>,
    state: State,
    /// The TCP connection of the rendezvous, open while a device connects. The peer treats its end
    /// as an abort.
    _rendezvous: Option<OwnDescriptor>,
    poller: OwnDescriptor,
    wakeup: Arc<WakeupFd>,
    local: SocketAddr,
    peer: SocketAddr,
}

impl SdpConnecting {
    /// Begins to connect. `candidates` are the local adapters, the best first.
    pub(crate) fn begin(
        adapters: &Adapters,
        candidates: Vec<Candidate>,
        target: &Target<'_>,
    ) -> Result<Self, Errno> {
        let raise = adapters.raise();
        let candidates = opened(candidates, Settings::of(target.terms));
        if candidates.is_empty() {
            return Err(Errno::NODEV);
        }
        let family = if target.mapped.is_ipv4() {
            AddressFamily::INET
        } else {
            AddressFamily::INET6
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let tcp = rustix::net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
        let tcp = raise(tcp)?;
        // The peer reads the local address from its kernel, so the socket is bound to that address.
        let mut source = target.local;
        source.set_port(0);
        rustix::net::bind(&tcp, &source)?;
        match rustix::net::connect(&tcp, &target.mapped) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(errno) => return Err(errno),
        }
        let poller = raise(epoll::create(CreateFlags::CLOEXEC)?)?;
        let wakeup = Arc::new(WakeupFd::new(raise)?);
        epoll::add(&poller, &tcp, EventData::new_u64(0), EventFlags::OUT)?;
        epoll::add(&poller, &*wakeup, EventData::new_u64(1), EventFlags::IN)?;
        Ok(Self {
            candidates,
            state: State::Tcp(tcp.into()),
            _rendezvous: None,
            poller: poller.into(),
            wakeup,
            local: target.local,
            peer: target.service,
        })
    }

    /// Sends the offer, with the Hello of the best adapter. It holds for all devices of the offer,
    /// because all have the same configuration.
    fn offer(&mut self, tcp: OwnDescriptor) -> Result<(), Errno> {
        let best = self.candidates.first().ok_or(Errno::NODEV)?;
        let offer = Offer {
            adapters: self.candidates.iter().map(|it| Some(it.kind)).collect(),
            hello: SdpStream::hello(&best.stack, self.local, self.peer),
        };
        rendezvous::send(tcp.as_fd(), &offer.emit())?;
        epoll::modify(&self.poller, &tcp, EventData::new_u64(0), EventFlags::IN)?;
        self.state = State::Offered(tcp, Incoming::default());
        Ok(())
    }

    /// Starts to connect over the adapter that the peer has chosen.
    fn follow(&mut self, tcp: OwnDescriptor, answer: Answer) -> Result<(), ConnectFailure> {
        let failed = |error: std::io::Error| ConnectFailure::Failed(errno_of(&error));
        epoll::delete(&self.poller, &tcp).map_err(ConnectFailure::Failed)?;
        let (stream, chosen, tcp) = match answer {
            Answer::Nothing(NoChoice::NoAdapter) => return Err(ConnectFailure::Refused),
            Answer::Nothing(NoChoice::Version) => return Err(ConnectFailure::Version),
            Answer::Nothing(NoChoice::Failed) => {
                return Err(ConnectFailure::Failed(Errno::CONNABORTED));
            }
            Answer::Convert => {
                let chosen = self.offered(|it| it.kind == AdapterKind::Socket)?;
                let tcp = tcp.into_owned().map_err(ConnectFailure::Failed)?;
                let stream =
                    SdpStream::start_connect_over(&chosen.stack, tcp, self.local, self.peer);
                (stream.map_err(failed)?, chosen, None)
            }
            Answer::Device {
                adapter,
                at,
                conn_qual,
                token,
            } => {
                let is_device = |it: &&Open| it.kind != AdapterKind::Socket;
                let named = self.candidates.get(usize::from(adapter)).filter(is_device);
                let chosen = named.ok_or(ConnectFailure::Failed(Errno::PROTO))?;
                let at = device_address(at, self.peer);
                let at = at.ok_or(ConnectFailure::Failed(Errno::PROTO))?;
                let service_point = (at, conn_qual);
                let (stack, local, peer) = (&chosen.stack, self.local, self.peer);
                let stream = SdpStream::start_connect_met(stack, service_point, token, local, peer);
                (stream.map_err(failed)?, chosen, Some(tcp))
            }
        };
        let adapter = Arc::clone(&chosen.adapter);
        stream.set_nonblocking(true);
        stream.watch(Arc::clone(&self.wakeup) as _);
        self._rendezvous = tcp;
        self.state = State::Connecting(stream, adapter);
        Ok(())
    }

    fn offered(&self, is_it: impl Fn(&&Open) -> bool) -> Result<&Open, ConnectFailure> {
        let found = self.candidates.iter().find(is_it);
        found.ok_or(ConnectFailure::Failed(Errno::PROTO))
    }

    /// Sends the offer once the kernel has connected. Returns true if it was sent.
    fn step_tcp(&mut self) -> Result<bool, ConnectFailure> {
        let State::Tcp(tcp) = &self.state else {
            return Ok(true);
        };
        match has_connected(tcp) {
            Ok(false) => return Ok(false),
            Ok(true) if is_own_peer(tcp) => return Err(ConnectFailure::Refused),
            Ok(true) => {}
            Err(Errno::CONNREFUSED) => return Err(ConnectFailure::Refused),
            Err(errno) => return Err(ConnectFailure::Failed(errno)),
        }
        if let State::Tcp(tcp) = std::mem::replace(&mut self.state, State::Over) {
            self.offer(tcp).map_err(ConnectFailure::Failed)?;
        }
        Ok(true)
    }

    /// Starts to connect the stream once the answer was received. Returns true if that was started.
    fn step_offered(&mut self) -> Result<bool, ConnectFailure> {
        let State::Offered(tcp, incoming) = &mut self.state else {
            return Ok(true);
        };
        let failed = |errno| match errno {
            Errno::CONNRESET => ConnectFailure::Refused,
            Errno::PROTONOSUPPORT => ConnectFailure::Version,
            errno => ConnectFailure::Failed(errno),
        };
        let Some(message) = incoming.receive(tcp.as_fd()).map_err(failed)? else {
            return Ok(false);
        };
        let answer = Answer::parse(message).map_err(|why| failed(why.into()))?;
        if let State::Offered(tcp, _) = std::mem::replace(&mut self.state, State::Over) {
            self.follow(tcp, answer)?;
        }
        Ok(true)
    }
}

/// Opens the adapters of the candidates, and drops those that cannot be opened.
fn opened(candidates: Vec<Candidate>, settings: Settings) -> Vec<Open> {
    let open = |Candidate { adapter, kind }| match adapter.stack_for(settings) {
        Ok(stack) => Some(Open {
            adapter,
            kind,
            stack,
        }),
        Err(error) => {
            tracing::warn!(%error, "an interface adapter is not used");
            None
        }
    };
    let mut opened: Vec<Open> = candidates.into_iter().filter_map(open).collect();
    // One Hello describes all devices, so all must have the same configuration.
    let first = opened.first().map(|it| it.stack.config());
    opened.retain(|it| it.kind == AdapterKind::Socket || Some(it.stack.config()) == first);
    opened
}

/// Returns the address of the peer's adapter, without a port, or `None` if the peer names an
/// address that cannot be an adapter of its host: no unicast address, or a loopback address
/// although the service has none. A link-local address has the scope of the service's address.
fn device_address(at: IpAddr, service: SocketAddr) -> Option<SocketAddr> {
    let at = at.to_canonical();
    let is_of_one_host = match at {
        IpAddr::V4(ip) => !ip.is_unspecified() && !ip.is_multicast() && !ip.is_broadcast(),
        IpAddr::V6(ip) => !ip.is_unspecified() && !ip.is_multicast(),
    };
    if !is_of_one_host || at.is_loopback() && !service.ip().to_canonical().is_loopback() {
        return None;
    }
    Some(match (at, service) {
        (IpAddr::V6(ip), SocketAddr::V6(service)) if ip.is_unicast_link_local() => {
            SocketAddrV6::new(ip, 0, 0, service.scope_id()).into()
        }
        _ => SocketAddr::new(at, 0),
    })
}

/// Returns true for a socket that is connected to itself. TCP does that if the kernel gives the
/// socket the very port to which it connects, and no service listens there any more.
fn is_own_peer(tcp: impl AsFd) -> bool {
    let own = rustix::net::getsockname(&tcp);
    let peer = rustix::net::getpeername(&tcp);
    matches!((own, peer), (Ok(own), Ok(Some(peer))) if own == peer)
}

/// Returns true if the kernel has connected the socket.
fn has_connected(tcp: &OwnDescriptor) -> Result<bool, Errno> {
    let mut set = [PollFd::new(tcp, PollFlags::OUT)];
    if poll(&mut set, Some(&Timespec::default()))? == 0 {
        return Ok(false);
    }
    sockopt::socket_error(tcp)?.map(|()| true)
}

impl OffloadConnecting for SdpConnecting {
    fn step(&mut self) -> Result<Option<Box<dyn OffloadStream>>, ConnectFailure> {
        if !self.step_tcp()? || !self.step_offered()? {
            return Ok(None);
        }
        let State::Connecting(stream, ..) = &self.state else {
            return Err(ConnectFailure::Failed(Errno::ISCONN));
        };
        self.wakeup.clear();
        // Read before the error, because an error that occurs in between makes the stream writable
        // too.
        let now = stream.readiness();
        if let Some(error) = stream.take_error() {
            return Err(match errno_of(&error) {
                Errno::CONNREFUSED => ConnectFailure::Refused,
                Errno::PROTONOSUPPORT => ConnectFailure::Version,
                errno => ConnectFailure::Failed(errno),
            });
        }
        if !now.writable {
            return Ok(None);
        }
        match std::mem::replace(&mut self.state, State::Over) {
            State::Connecting(stream, adapter) => {
                stream.commit();
                Ok(Some(Box::new(SdpOffload::new(stream, adapter))))
            }
            _ => Err(ConnectFailure::Failed(Errno::ISCONN)),
        }
    }
}

impl Drop for SdpConnecting {
    fn drop(&mut self) {
        if let State::Connecting(stream, ..) = &self.state {
            // A graceful close would send a message, which the peer would treat as the first
            // message.
            stream.abort();
        }
    }
}

impl AsFd for SdpConnecting {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_socket_may_be_connected_to_itself() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let other = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert!(!is_own_peer(&other));
        let tcp = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        rustix::net::bind(&tcp, &any).unwrap();
        assert!(!is_own_peer(&tcp));
        let own: SocketAddr = rustix::net::getsockname(&tcp).unwrap().try_into().unwrap();
        rustix::net::connect(&tcp, &own).unwrap();
        assert!(is_own_peer(&tcp));
    }

    #[test]
    fn only_an_address_of_one_host_can_be_that_of_the_peers_adapter() {
        let address = |at: &str, service: &str| {
            device_address(at.parse().unwrap(), service.parse().unwrap()).map(|it| it.to_string())
        };
        let far = "192.0.2.1:80";
        assert_eq!(address("192.0.2.9", far).as_deref(), Some("192.0.2.9:0"));
        assert_eq!(
            address("::ffff:192.0.2.9", far).as_deref(),
            Some("192.0.2.9:0")
        );
        for at in [
            "0.0.0.0",
            "::",
            "224.0.0.1",
            "ff02::1",
            "255.255.255.255",
            "127.0.0.1",
            "::1",
        ] {
            assert_eq!(address(at, far), None, "{at}");
        }
        assert_eq!(
            address("127.0.0.2", "127.0.0.1:80").as_deref(),
            Some("127.0.0.2:0")
        );
        let scoped = address("fe80::9", "[fe80::1%3]:80");
        assert_eq!(scoped.as_deref(), Some("[fe80::9%3]:0"));
    }
}
