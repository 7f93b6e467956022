//! Bound addresses, and services.

use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Mutex;

use host::locks::IgnorePoison as _;
use ops::{Local, OffloadBound, OffloadListener, OffloadStream};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{SendFlags, SocketFlags};

use crate::unix_protocol::Behaviour;
use crate::unix_protocol::stream::UnixStream;
use crate::unix_protocol::wire::{
    self, COMMIT, HELLO_LEN, OTHER_VERSION, REFUSE, WELCOME, address_in, name, socket,
};

#[derive(Debug)]
pub(super) struct UnixBound {
    socket: OwnedFd,
    local: SocketAddr,
    behaviour: Behaviour,
}

impl UnixBound {
    pub(super) fn new(protocol: &str, local: Local, behaviour: Behaviour) -> Result<Self, Errno> {
        let socket = socket()?;
        rustix::net::bind(&socket, &name(protocol, local)?)?;
        Ok(Self {
            socket,
            local: local.address,
            behaviour,
        })
    }
}

impl OffloadBound for UnixBound {
    fn listen(self: Box<Self>, backlog: u32) -> Result<Box<dyn OffloadListener>, Errno> {
        rustix::net::listen(&self.socket, i32::try_from(backlog).unwrap_or(i32::MAX))?;
        let poller = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&poller, &self.socket, EventData::new_u64(0), EventFlags::IN)?;
        Ok(Box::new(UnixListener {
            socket: self.socket,
            local: self.local,
            behaviour: self.behaviour,
            poller,
            half_open: Mutex::default(),
        }))
    }
}

/// A service. Its descriptor is an `epoll` set, which contains the half-open connections too.
#[derive(Debug)]
struct UnixListener {
    socket: OwnedFd,
    local: SocketAddr,
    behaviour: Behaviour,
    poller: OwnedFd,
    half_open: Mutex<Vec<HalfOpen>>,
}

/// A connection during its handshake; `peer` is known after HELLO was received.
#[derive(Debug)]
struct HalfOpen {
    socket: OwnedFd,
    peer: Option<SocketAddr>,
}

/// The result of polling a half-open connection.
enum Handshake {
    Pending,
    Complete(SocketAddr),
    Aborted,
}

impl OffloadListener for UnixListener {
    fn descriptors(&self) -> Vec<RawFd> {
        let mut own = vec![self.socket.as_raw_fd(), self.poller.as_raw_fd()];
        let half_open = self.half_open.lock();
        let half_open = half_open.ignore_poison();
        own.extend(half_open.iter().map(|one| one.socket.as_raw_fd()));
        own
    }

    fn mapped(&self) -> SocketAddr {
        self.local
    }

    fn set_backlog(&self, backlog: u32) {
        let _ = rustix::net::listen(&self.socket, i32::try_from(backlog).unwrap_or(i32::MAX));
    }

    fn has_connecting(&self) -> bool {
        !self.half_open.lock().ignore_poison().is_empty()
    }

    fn withdraw(&self) {
        let _ = epoll::delete(&self.poller, &self.socket);
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }

    fn accept(&self) -> Result<Option<Box<dyn OffloadStream>>, Errno> {
        let mut half_open = self.half_open.lock().ignore_poison();
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        while let Ok(socket) = rustix::net::accept_with(&self.socket, flags) {
            epoll::add(&self.poller, &socket, EventData::new_u64(1), EventFlags::IN)?;
            half_open.push(HalfOpen { socket, peer: None });
        }
        let mut at = 0;
        while let Some(connection) = half_open.get_mut(at) {
            match connection.poll(self.behaviour) {
                Handshake::Pending => at += 1,
                Handshake::Aborted => drop(half_open.swap_remove(at)),
                Handshake::Complete(peer) => {
                    let socket = half_open.swap_remove(at).socket;
                    epoll::delete(&self.poller, &socket)?;
                    return Ok(Some(Box::new(UnixStream::new(socket, self.local, peer))));
                }
            }
        }
        Ok(None)
    }
}

impl HalfOpen {
    fn poll(&mut self, behaviour: Behaviour) -> Handshake {
        let Some(peer) = self.peer else {
            return self.receive_hello(behaviour);
        };
        let mut byte = [0];
        match wire::receive(&self.socket, &mut byte) {
            Ok(1) if byte[0] == COMMIT => Handshake::Complete(peer),
            Err(Errno::AGAIN | Errno::INTR) => Handshake::Pending,
            _ => Handshake::Aborted,
        }
    }

    fn receive_hello(&mut self, behaviour: Behaviour) -> Handshake {
        let mut hello = [0; HELLO_LEN];
        match wire::receive(&self.socket, &mut hello) {
            Ok(HELLO_LEN) => {}
            Err(Errno::AGAIN | Errno::INTR) => return Handshake::Pending,
            _ => return Handshake::Aborted,
        }
        let (answer, is_accepted) = match (behaviour, address_in(&hello)) {
            (Behaviour::Good, Some(peer)) => {
                self.peer = Some(peer);
                (WELCOME, true)
            }
            (Behaviour::Stall, _) => return Handshake::Pending,
            (Behaviour::BreakOff, _) => return Handshake::Aborted,
            (Behaviour::Refuse, _) => (REFUSE, false),
            (Behaviour::OtherVersion, _) | (Behaviour::Good, None) => (OTHER_VERSION, false),
        };
        match rustix::net::send(&self.socket, &[answer], SendFlags::NOSIGNAL) {
            Ok(_) if is_accepted => Handshake::Pending,
            _ => Handshake::Aborted,
        }
    }
}

impl AsFd for UnixListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }
}
