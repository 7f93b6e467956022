//! Listening, connecting, accepting; connections over sockets that the consumer has connected.

use std::io::Write;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use super::network::{ArmedSocket, Attempt, Network, Service, WaitingSocket, is_unreachable};
use super::qp::{FakeQp, QpInner};
use super::{Node, lock};
use crate::rnic::{
    ConnectParams, ConnectionEvent, ListenToken, RequestInfo, RnicError, SocketFault,
};

/// A listening service.
#[derive(Debug)]
pub struct FakeListener {
    network: Arc<Network>,
    key: (IpAddr, u16),
}

/// An armed socket.
#[derive(Debug)]
pub struct FakeArmed {
    network: Arc<Network>,
    token: ListenToken,
}

/// A connection request.
#[derive(Debug)]
pub struct FakeRequest {
    attempt: Option<Attempt>,
    local: SocketAddr,
    remote: SocketAddr,
}

impl Node {
    pub(super) fn listen(
        self: &Arc<Self>,
        port: u16,
        token: ListenToken,
    ) -> Result<(FakeListener, u16), RnicError> {
        let ip = self.attr.address.ip();
        let mut services = lock(&self.network.services);
        let port = match port {
            0 => (40_000..=u16::MAX).find(|port| !services.contains_key(&(ip, *port))),
            port => (!services.contains_key(&(ip, port))).then_some(port),
        };
        let port = port.ok_or(RnicError::AddressInUse)?;
        services.insert(
            (ip, port),
            Service {
                token,
                node: Arc::downgrade(self),
            },
        );
        Ok((
            FakeListener {
                network: self.network.clone(),
                key: (ip, port),
            },
            port,
        ))
    }

    pub(super) fn connect(&self, qp: &FakeQp, params: &ConnectParams<'_>) -> Result<(), RnicError> {
        let attempt = self.begin(qp, params)?;
        let (remote, network) = (params.remote, self.network.clone());
        let local = SocketAddr::new(self.attr.address.ip(), ephemeral_port(attempt.number));
        self.engine.run(move || {
            if is_unreachable(remote) {
                return attempt.fail(ConnectionEvent::Unreachable);
            }
            let key = (remote.ip(), remote.port());
            let service = lock(&network.services).get(&key).cloned();
            match service {
                Some(service) => service.deliver_request(attempt, remote, local),
                None => attempt.fail(ConnectionEvent::NonPeerRejected),
            }
        });
        Ok(())
    }

    pub(super) fn connect_socket(
        &self,
        qp: &FakeQp,
        socket: RawFd,
        params: &ConnectParams<'_>,
    ) -> Result<(), SocketFault> {
        let (_, local, remote) = stream_of(socket)?;
        let attempt = self.begin(qp, params).map_err(|_| SocketFault::QpNotIdle)?;
        let network = self.network.clone();
        self.engine.run(move || {
            lock(&network.waiting).push(WaitingSocket {
                attempt,
                local,
                remote,
            });
            network.match_sockets();
        });
        Ok(())
    }

    fn begin(&self, qp: &FakeQp, params: &ConnectParams<'_>) -> Result<Attempt, RnicError> {
        let number = self.network.next_id();
        if !qp.0.begin_attempt(number) {
            return Err(RnicError::InvalidState("the queue pair is not idle"));
        }
        if let Some(timeout) = params.timeout {
            self.expire(&qp.0, number, timeout);
        }
        Ok(Attempt {
            qp: qp.0.clone(),
            number,
            private_data: params.private_data.to_vec(),
        })
    }

    fn expire(&self, qp: &Arc<QpInner>, number: u64, timeout: Duration) {
        let qp = Arc::downgrade(qp);
        self.engine.run_after(timeout, move || {
            if let Some(qp) = qp.upgrade() {
                qp.fail_attempt(number, |qp| qp.report(&ConnectionEvent::TimedOut));
            }
        });
    }

    pub(super) fn arm_socket(
        self: &Arc<Self>,
        socket: RawFd,
        final_message: &[u8],
        token: ListenToken,
    ) -> Result<FakeArmed, SocketFault> {
        let (mut stream, local, remote) = stream_of(socket)?;
        stream
            .write_all(final_message)
            .map_err(|_| SocketFault::FinalMessage)?;
        let service = Service {
            token,
            node: Arc::downgrade(self),
        };
        lock(&self.network.armed).push(ArmedSocket {
            service,
            local,
            remote,
        });
        let network = self.network.clone();
        self.engine.run(move || network.match_sockets());
        Ok(FakeArmed {
            network: self.network.clone(),
            token,
        })
    }

    pub(super) fn lose_armed(&self, token: ListenToken) {
        if self.network.take_armed(token).is_some() {
            let upcall = self.upcall.clone();
            self.engine.run(move || upcall.socket_down(token));
        }
    }
}

impl Network {
    /// Connects requests and armed sockets that are the two ends of one TCP connection.
    fn match_sockets(&self) {
        self.drop_ended();
        let mut armed = lock(&self.armed);
        let mut waiting = lock(&self.waiting);
        let mut pairs = Vec::new();
        armed.retain_mut(|socket| {
            let peer = waiting.iter().position(|waiting| {
                waiting.local == socket.remote && waiting.remote == socket.local
            });
            if let Some(index) = peer {
                pairs.push((socket.service.clone(), waiting.swap_remove(index)));
            }
            peer.is_none()
        });
        drop((armed, waiting));
        for (service, request) in pairs {
            service.deliver_request(request.attempt, request.remote, request.local);
        }
    }

    fn take_armed(&self, token: ListenToken) -> Option<ArmedSocket> {
        let mut armed = lock(&self.armed);
        let index = armed
            .iter()
            .position(|socket| socket.service.token == token)?;
        Some(armed.swap_remove(index))
    }
}

impl Service {
    /// Passes the request to the service's consumer. `local` is the address of the service.
    fn deliver_request(self, attempt: Attempt, local: SocketAddr, remote: SocketAddr) {
        let Some(node) = self.node.upgrade() else {
            return attempt.fail(ConnectionEvent::NonPeerRejected);
        };
        let (upcall, token) = (node.upcall.clone(), self.token);
        node.engine.run(move || {
            let private_data = attempt.private_data.clone();
            let info = RequestInfo {
                local,
                remote,
                private_data: &private_data,
                truncated: false,
            };
            let request = FakeRequest {
                attempt: Some(attempt),
                local,
                remote,
            };
            upcall.connection_request(token, request, &info);
        });
    }
}

impl Attempt {
    fn fail(self, event: ConnectionEvent) {
        self.qp
            .fail_attempt(self.number, move |qp| qp.report(&event));
    }
}

impl FakeRequest {
    pub(super) fn accept(mut self, qp: &FakeQp, private_data: &[u8]) -> Result<(), RnicError> {
        let attempt = self
            .attempt
            .take()
            .ok_or(RnicError::InvalidState("the request has been answered"))?;
        let passive = qp.0.clone();
        if !passive.join(&attempt.qp) {
            self.attempt = Some(attempt);
            return Err(RnicError::InvalidState("the queue pair is not idle"));
        }
        let active = attempt.qp;
        if !active.finish_attempt(attempt.number, &passive) {
            passive.end_one(ConnectionEvent::AcceptFailed);
            return Ok(());
        }
        let (local, remote) = (self.local, self.remote);
        let private_data = private_data.to_vec();
        let (qp, node) = (passive.clone(), passive.node.clone());
        node.engine.run(move || {
            qp.report(&ConnectionEvent::Established {
                local,
                remote,
                private_data: Vec::new(),
            });
        });
        let (qp, node) = (active.clone(), active.node.clone());
        node.engine.run(move || {
            qp.report(&ConnectionEvent::Established {
                local: remote,
                remote: local,
                private_data,
            });
        });
        Ok(())
    }

    pub(super) fn reject(mut self, private_data: &[u8]) {
        let private_data = private_data.to_vec();
        if let Some(attempt) = self.attempt.take() {
            attempt.qp.fail_attempt(attempt.number, move |qp| {
                qp.report(&ConnectionEvent::PeerRejected { private_data });
            });
        }
    }
}

impl Drop for FakeRequest {
    fn drop(&mut self) {
        if let Some(attempt) = self.attempt.take() {
            attempt.fail(ConnectionEvent::NonPeerRejected);
        }
    }
}

impl FakeArmed {
    pub(super) fn disarm(self) -> bool {
        self.network.take_armed(self.token).is_some()
    }
}

impl Drop for FakeArmed {
    fn drop(&mut self) {
        self.network.take_armed(self.token);
    }
}

impl Drop for FakeListener {
    fn drop(&mut self) {
        lock(&self.network.services).remove(&self.key);
    }
}

/// Returns a duplicate of the consumer's socket and the addresses of its ends.
fn stream_of(socket: RawFd) -> Result<(TcpStream, SocketAddr, SocketAddr), SocketFault> {
    if socket < 0 {
        return Err(SocketFault::NotASocket);
    }
    // SAFETY: the descriptor is not -1 and is used only during the call; if it is not open, the
    // duplication fails.
    let borrowed = unsafe { BorrowedFd::borrow_raw(socket) };
    let owned = borrowed
        .try_clone_to_owned()
        .map_err(|_| SocketFault::NotASocket)?;
    let stream = TcpStream::from(owned);
    let local = stream.local_addr().map_err(|_| SocketFault::NotASocket)?;
    let remote = stream.peer_addr().map_err(|_| SocketFault::NotTcp)?;
    Ok((stream, local, remote))
}

/// Returns a port in the range of clients' ports.
fn ephemeral_port(number: u64) -> u16 {
    u16::try_from(number % 10_000).unwrap_or(0) + 50_000
}
