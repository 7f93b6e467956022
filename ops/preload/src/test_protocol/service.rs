//! Listening.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::epoll::EventFlags;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with, bind, listen};

use super::stream::Fresh;
use super::wire::{MESSAGE_MAX, Message};
use super::{message_socket, name_of};
use crate::internal;
use crate::protocol::{Arrival, Listening};
use crate::steward::{Ward, steward};

/// Arrivals beyond this many wait in the kernel.
const BACKLOG: i32 = 128;
/// How long the first message of a peer may take; it sends it with its connect.
const HELLO_TIMEOUT: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

/// A listening service.
pub(super) struct Service {
    door: Arc<Door>,
}

struct Door {
    socket: OwnedFd,
    local: SocketAddr,
    pending: OwnedFd,
    arrivals: Mutex<VecDeque<Arrival>>,
}

impl Service {
    pub(super) fn begin(local: SocketAddr, pending: OwnedFd) -> Result<Self, Errno> {
        let socket = message_socket()?;
        bind(&socket, &name_of(local.port())?)?;
        listen(&socket, BACKLOG)?;
        let door = Arc::new(Door {
            socket,
            local,
            pending,
            arrivals: Mutex::new(VecDeque::new()),
        });
        steward()?.watch(&door.socket, EventFlags::IN, door.clone())?;
        Ok(Self { door })
    }
}

impl Listening for Service {
    fn accept(&self) -> Option<Arrival> {
        self.door.arrivals().pop_front()
    }

    fn descriptors(&self) -> Vec<RawFd> {
        vec![self.door.socket.as_raw_fd(), self.door.pending.as_raw_fd()]
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if let Ok(steward) = steward() {
            steward.leave(&self.door.socket);
        }
    }
}

impl Door {
    fn arrivals(&self) -> std::sync::MutexGuard<'_, VecDeque<Arrival>> {
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn admit(&self, socket: OwnedFd) -> Result<(), Errno> {
        let socket = internal::raise(socket)?;
        let mut set = [PollFd::new(&socket, PollFlags::IN)];
        if poll(&mut set, Some(&HELLO_TIMEOUT))? == 0 {
            return Err(Errno::TIMEDOUT);
        }
        let mut bytes = [0; MESSAGE_MAX];
        let (_, len) =
            rustix::net::recv(&socket, &mut bytes[..], rustix::net::RecvFlags::DONTWAIT)?;
        let Some(Message::Hello(peer)) = Message::parse(&bytes[..len]) else {
            return Err(Errno::PROTO);
        };
        self.arrivals().push_back(Arrival {
            stream: Box::new(Fresh::new(socket)),
            protocol: super::NAME,
            local: SocketAddr::new(peer.ip(), self.local.port()),
            peer,
        });
        rustix::io::write(&self.pending, &1_u64.to_ne_bytes()).map(|_| ())
    }
}

impl Ward for Door {
    fn ready(&self, _flags: EventFlags) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        while let Ok(socket) = accept_with(&self.socket, flags) {
            // A peer that says nothing sensible is closed, and sees it.
            let _ = self.admit(socket);
        }
    }
}
