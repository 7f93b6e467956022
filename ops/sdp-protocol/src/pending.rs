//! Connections of a service that the kernel has accepted and the program has not accepted yet.
//!
//! ```text
//!                    offer                    Hello (its own socket)
//!   MEETING ─────────────┬──> PENDING HELLO ───────────┬──> ANSWERED ──first message──> accepted
//!                        '──> EXPECTED ────────────────'
//!                                      token (device)
//! ```
//!
//! A connection that exceeds its time limit is closed, and its peer continues over TCP. Without the
//! limit, a stopped or hostile peer would occupy an entry of the backlog for ever.
//!
//! Connections of one host are accepted in the order in which the kernel has accepted them, as over
//! TCP. The set-up of a later connection may end first. It then waits for the earlier ones, each of
//! which delays others for [`ORDER_WITHIN`] at most.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use host::descriptors::OwnDescriptor;
use ops::RdmaPort;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown};
use sdp_over_dat::{Commitment, Rendezvous, SdpStream, Token};
use tracing::{debug, warn};

use crate::adapter::Adapter;
use crate::adapters::{Adapters, UsableDevices};
use crate::errno_of;
use crate::rendezvous::{self, AdapterKind, Answer, Incoming, NoChoice, Offer};
use crate::settings::Settings;
use crate::stream::WakeupFd;

/// The time for which a connection delays later ones of the same host.
const ORDER_WITHIN: Duration = Duration::from_millis(500);

/// The maximum number of connections whose peers have not sent their offers. Each event checks all
/// of these connections.
const MEETING_MAX: usize = 64;

/// Ends the TCP connection of a peer whose offer cannot be answered. The end is sent even if other
/// processes have copies of the descriptor.
fn refuse(tcp: &OwnDescriptor, why: Errno) {
    if why == Errno::PROTONOSUPPORT {
        let answer = Answer::Nothing(NoChoice::Version).emit();
        let _ = rendezvous::send(tcp.as_fd(), &answer);
    }
    let _ = rustix::net::shutdown(tcp, Shutdown::Both);
}

/// The adapters and settings that a service may use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Choice {
    pub(crate) settings: Settings,
    /// True if the software provider may be used.
    pub(crate) may_use_software: bool,
    pub(crate) devices: UsableDevices,
}

/// The parts of a service that its connections use.
#[derive(Debug)]
pub(crate) struct Service<'a> {
    pub(crate) port: u16,
    pub(crate) adapters: &'a Adapters,
    pub(crate) choice: Choice,
    /// The descriptor on which the service sleeps.
    pub(crate) poller: &'a OwnDescriptor,
    /// A descriptor in the poller that answered connections signal.
    pub(crate) wakeup: &'a Arc<WakeupFd>,
}

#[derive(Debug, Default)]
pub(crate) struct PendingConnections {
    meeting: Vec<Meeting>,
    /// Peers that are expected to connect to each adapter: with a token to a device, or with a
    /// Hello through the software provider.
    expected: Vec<(Rendezvous, Arc<Adapter>)>,
    /// The TCP connections of the peers that have such a token.
    invited: Vec<Invited>,
    answered: Vec<Answered>,
}

/// A connection whose peer has not sent its offer.
#[derive(Debug)]
struct Meeting {
    tcp: OwnDescriptor,
    incoming: Incoming,
    names: Names,
    /// The time at which the kernel has accepted the connection.
    since: Instant,
    until: Instant,
}

/// A peer that has a token, with the TCP connection on which the token was sent.
#[derive(Debug)]
struct Invited {
    tcp: OwnDescriptor,
    token: Token,
}

/// The addresses that both ends report to their programs.
#[derive(Debug, Clone, Copy)]
struct Names {
    local: SocketAddr,
    peer: SocketAddr,
}

/// A connection whose peer has not sent its first message.
#[derive(Debug)]
struct Answered {
    stream: SdpStream,
    adapter: Arc<Adapter>,
    /// The time at which the kernel has accepted the connection.
    since: Instant,
    until: Instant,
}

impl Drop for PendingConnections {
    fn drop(&mut self) {
        // TCP resets the connections of a closed listener. A graceful close would show an end.
        for answered in &self.answered {
            answered.stream.abort();
        }
    }
}

impl PendingConnections {
    /// Returns true if no more connections may be admitted. `room` is the limit of the service.
    pub(crate) fn is_full(&self, room: usize) -> bool {
        self.count() >= room || self.meeting.len() >= MEETING_MAX
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count() == 0
    }

    fn count(&self) -> usize {
        let expected: usize = self.expected.iter().map(|(it, _)| it.len()).sum();
        self.meeting.len() + expected + self.answered.len()
    }

    /// Closes connections that have exceeded their time limit.
    pub(crate) fn drop_expired(&mut self, service: &Service<'_>) {
        let now = Instant::now();
        self.meeting.retain(|meeting| {
            let stays = meeting.until > now;
            if !stays {
                let _ = epoll::delete(service.poller, &meeting.tcp);
                refuse(&meeting.tcp, Errno::TIMEDOUT);
            }
            stays
        });
        for (rendezvous, _) in &mut self.expected {
            rendezvous.forget_silent();
        }
        self.answered.retain(|answered| {
            let stays = answered.until > now || answered.stream.commitment() != Commitment::Open;
            if !stays {
                // A graceful close would wait for the peer's first message.
                answered.stream.abort();
            }
            stays
        });
    }

    /// Returns the time until which connections wait for earlier ones; `None` if none waits.
    pub(crate) fn held_until(&self) -> Option<Instant> {
        let made = (0..self.answered.len()).filter(|at| is_made(&self.answered[*at]));
        made.filter_map(|at| self.delay_of(at)).min()
    }

    /// Returns the time until which earlier connections of the same host delay an answered one.
    fn delay_of(&self, at: usize) -> Option<Instant> {
        let since = self.answered[at].since;
        let host = self.answered[at].stream.peer_addr().ip();
        // Both lists are in the order of the connections.
        let meeting = self.meeting.iter().take_while(|it| it.since < since);
        let meeting = meeting.map(|it| (it.since, it.names.peer.ip()));
        let open = self.answered[..at].iter().filter(|it| !is_made(it));
        let open = open.map(|it| (it.since, it.stream.peer_addr().ip()));
        let expected = self.expected.iter().flat_map(|(it, _)| it.peers());
        let others = meeting.chain(open).chain(expected);
        let earlier = others.filter(|(of, from)| *of < since && *from == host);
        let until = earlier.map(|(of, _)| of + ORDER_WITHIN).max();
        until.filter(|until| *until > Instant::now())
    }

    /// Returns the time at which the next connection exceeds its limit.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        let meeting = self.meeting.iter().map(|meeting| meeting.until);
        let expected = self.expected.iter().filter_map(|(it, _)| it.next_due());
        let answered = self.answered.iter().map(|answered| answered.until);
        meeting.chain(expected).chain(answered).min()
    }

    /// Adds a connection that the kernel has accepted.
    pub(crate) fn admit(&mut self, service: &Service<'_>, tcp: OwnedFd) -> io::Result<()> {
        let peer: SocketAddr = rustix::net::getpeername(&tcp)?
            .ok_or(Errno::NOTCONN)?
            .try_into()?;
        let own: SocketAddr = rustix::net::getsockname(&tcp)?.try_into()?;
        epoll::add(service.poller, &tcp, EventData::new_u64(4), EventFlags::IN)?;
        let now = Instant::now();
        self.meeting.push(Meeting {
            tcp: tcp.into(),
            incoming: Incoming::default(),
            names: Names {
                local: SocketAddr::new(own.ip().to_canonical(), service.port),
                peer: SocketAddr::new(peer.ip().to_canonical(), peer.port()),
            },
            since: now,
            until: now + Rendezvous::PATIENCE,
        });
        Ok(())
    }

    /// Answers the peers that have sent their offer.
    pub(crate) fn answer_offers(&mut self, service: &Service<'_>) {
        self.check_invited(service);
        let mut at = 0;
        while let Some(meeting) = self.meeting.get_mut(at) {
            let received = meeting.incoming.receive(meeting.tcp.as_fd());
            let offer = match received {
                Ok(None) => {
                    at += 1;
                    continue;
                }
                Ok(Some(message)) => Offer::parse(message).map_err(Errno::from),
                Err(errno) => Err(errno),
            };
            // The order is kept, because it is the order of the peers' programs.
            let meeting = self.meeting.remove(at);
            // Copies of the descriptor in other processes would keep it in the poller.
            let _ = epoll::delete(service.poller, &meeting.tcp);
            let answered = match offer {
                Ok(offer) => self.choose(service, meeting, &offer),
                Err(errno) => {
                    refuse(&meeting.tcp, errno);
                    Err(errno.into())
                }
            };
            // The peer continues over TCP.
            if let Err(error) = answered {
                debug!(%error, "a connection fails at its rendezvous");
            }
        }
    }

    fn choose(&mut self, service: &Service<'_>, meeting: Meeting, offer: &Offer) -> io::Result<()> {
        let at = meeting.names.local.ip();
        let ports = service.adapters.ports_at(at, service.choice.devices);
        let mut reason = NoChoice::NoAdapter;
        for (index, kind) in offer.adapters.iter().enumerate() {
            let Some(kind) = *kind else { continue };
            let tried = if kind == AdapterKind::Socket {
                if !service.choice.may_use_software {
                    continue;
                }
                return self.convert(service, meeting);
            } else {
                let is_of_kind = |port: &&RdmaPort| AdapterKind::of_device(port.is_iwarp) == kind;
                let Some(port) = ports.iter().find(is_of_kind) else {
                    continue;
                };
                self.expect(service, port, &meeting, &offer.hello)
            };
            match tried {
                Ok((service_point, token)) => {
                    let index = u8::try_from(index).unwrap_or(u8::MAX);
                    let answer = Answer::device(index, service_point, token);
                    return self.invite(service, meeting.tcp, answer, token);
                }
                Err(error) => {
                    warn!(%error, "a device cannot be offered");
                    reason = match errno_of(&error) {
                        Errno::PROTONOSUPPORT => NoChoice::Version,
                        _ => NoChoice::Failed,
                    };
                }
            }
        }
        let answer = Answer::Nothing(reason).emit();
        Ok(rendezvous::send(meeting.tcp.as_fd(), &answer)?)
    }

    /// Directs a peer to the service point of a device. The TCP connection is kept, because its end
    /// shows that the peer has aborted the attempt.
    fn invite(
        &mut self,
        service: &Service<'_>,
        tcp: OwnDescriptor,
        answer: Answer,
        token: Token,
    ) -> io::Result<()> {
        let sent = rendezvous::send(tcp.as_fd(), &answer.emit()).and_then(|()| {
            let data = EventData::new_u64(4);
            epoll::add(service.poller, &tcp, data, EventFlags::IN)
        });
        if let Err(errno) = sent {
            self.forget(&token);
            return Err(errno.into());
        }
        self.invited.push(Invited { tcp, token });
        Ok(())
    }

    fn forget(&mut self, token: &Token) {
        for (rendezvous, _) in &mut self.expected {
            rendezvous.forget(token);
        }
    }

    /// Drops the TCP connections of peers that have used their token, and the tokens of peers whose
    /// TCP connection has ended. A peer sends no more bytes on this connection.
    fn check_invited(&mut self, service: &Service<'_>) {
        let mut at = 0;
        while let Some(Invited { tcp, token }) = self.invited.get(at) {
            let is_expected = self.expected.iter().any(|(it, _)| it.expects(token));
            let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
            let seen = rustix::net::recv(tcp, &mut [0; 1][..], flags);
            if is_expected && seen.is_err_and(|errno| errno == Errno::AGAIN) {
                at += 1;
                continue;
            }
            let Invited { tcp, token } = self.invited.swap_remove(at);
            let _ = epoll::delete(service.poller, &tcp);
            self.forget(&token);
        }
    }

    /// Prepares the service point of a device for the peer, and returns its address and the token.
    fn expect(
        &mut self,
        service: &Service<'_>,
        port: &RdmaPort,
        Meeting { names, since, .. }: &Meeting,
        hello: &[u8],
    ) -> io::Result<((SocketAddr, u64), Token)> {
        let adapter = service.adapters.device(port).map_err(io::Error::other)?;
        let rendezvous = self.rendezvous_at(service, adapter)?;
        rendezvous.expect(hello, names.local, names.peer, *since)
    }

    /// Returns the rendezvous of an adapter, and makes it if necessary.
    fn rendezvous_at(
        &mut self,
        service: &Service<'_>,
        adapter: Arc<Adapter>,
    ) -> io::Result<&mut Rendezvous> {
        self.expected
            .retain(|(rendezvous, _)| !rendezvous.is_lost());
        let is_it = |(_, of): &(Rendezvous, Arc<Adapter>)| Arc::ptr_eq(of, &adapter);
        let at = match self.expected.iter().position(is_it) {
            Some(at) => at,
            None => {
                let rendezvous = Rendezvous::new(&adapter.stack_for(service.choice.settings)?)?;
                let data = EventData::new_u64(2);
                epoll::add(service.poller, &rendezvous, data, EventFlags::IN)?;
                self.expected.push((rendezvous, adapter));
                self.expected.len() - 1
            }
        };
        Ok(&mut self.expected[at].0)
    }

    /// Converts the TCP connection of the rendezvous to an RDMA connection.
    fn convert(&mut self, service: &Service<'_>, meeting: Meeting) -> io::Result<()> {
        let adapter = service.adapters.software().map_err(io::Error::other)?;
        let rendezvous = self.rendezvous_at(service, adapter)?;
        // The answer is sent first, because the peer sends Hello after it.
        rendezvous::send(meeting.tcp.as_fd(), &Answer::Convert.emit())?;
        let Names { local, peer } = meeting.names;
        rendezvous.admit(meeting.tcp.into_owned()?, local, peer, meeting.since)
    }

    /// Accepts connection requests that carry a Hello or a valid token.
    pub(crate) fn answer(&mut self, service: &Service<'_>) {
        let mut streams = Vec::new();
        for (rendezvous, adapter) in &mut self.expected {
            while let Some((stream, since)) = rendezvous.next_answered() {
                streams.push((stream, since, Arc::clone(adapter)));
            }
        }
        for (stream, since, adapter) in streams {
            stream.set_nonblocking(true);
            stream.watch(Arc::clone(service.wakeup) as _);
            let answered = Answered {
                stream,
                adapter,
                since,
                until: Instant::now() + Rendezvous::PATIENCE,
            };
            let at = self.answered.partition_point(|it| it.since <= since);
            self.answered.insert(at, answered);
        }
    }

    /// Returns the first connection whose peer has sent its first message and that waits for no
    /// earlier one, and drops connections that their peers have aborted.
    pub(crate) fn next_committed(
        &mut self,
        wakeup: &WakeupFd,
    ) -> Option<(SdpStream, Arc<Adapter>)> {
        self.drop_withdrawn();
        let mut first = self.next_in_order(self.answered.len())?;
        // The message of an earlier connection may have been received after the connection was
        // checked. That peer has connected first, so its connection is accepted first.
        while let Some(earlier) = self.next_in_order(first) {
            first = earlier;
        }
        let Answered {
            stream, adapter, ..
        } = self.answered.remove(first);
        if !self.answered.is_empty() {
            // The signal may have been for a connection that was not checked yet.
            wakeup.signal();
        }
        Some((stream, adapter))
    }

    /// Returns the place of the first connection before `end` that is committed and waits for no
    /// earlier one. Its bytes can be read, even if the peer has closed since.
    fn next_in_order(&self, end: usize) -> Option<usize> {
        (0..end).find(|at| is_made(&self.answered[*at]) && self.delay_of(*at).is_none())
    }

    /// Drops the connections that their peers have aborted.
    fn drop_withdrawn(&mut self) {
        self.answered.retain(|answered| {
            let stays = answered.stream.commitment() != Commitment::Withdrawn;
            if !stays {
                let error = answered.stream.take_error().map(|error| errno_of(&error));
                debug!(?error, "a peer has aborted its connection");
            }
            stays
        });
    }
}

fn is_made(answered: &Answered) -> bool {
    answered.stream.commitment() == Commitment::Made
}
