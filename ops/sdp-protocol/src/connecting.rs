//! A connection in the making.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use ops::{ConnectFailure, OffloadConnecting, OffloadStream, Target};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, sockopt};
use sdp_over_dat::SdpStream;

use crate::adapter::Adapter;
use crate::errno_of;
use crate::settings::Settings;
use crate::stream::{SdpOffload, WakeupFd};

/// How far it is.
#[derive(Debug)]
enum State {
    /// The kernel connects.
    Tcp(OwnedFd),
    /// Hello has left.
    Hello(SdpStream),
    /// It is over, in one way or the other.
    Over,
}

/// The connecting end's side of the set-up.
#[derive(Debug)]
pub(crate) struct SdpConnecting {
    adapter: Arc<Adapter>,
    settings: Settings,
    state: State,
    poller: OwnedFd,
    wakeup: Arc<WakeupFd>,
    local: SocketAddr,
    peer: SocketAddr,
}

impl SdpConnecting {
    pub(crate) fn begin(adapter: &Arc<Adapter>, target: &Target<'_>) -> Result<Self, Errno> {
        let family = if target.mapped.is_ipv4() {
            AddressFamily::INET
        } else {
            AddressFamily::INET6
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let tcp = rustix::net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
        let tcp = (adapter.place())(tcp)?;
        // The peer believes the kernel alone who connects.
        let mut source = target.local;
        source.set_port(0);
        rustix::net::bind(&tcp, &source)?;
        match rustix::net::connect(&tcp, &target.mapped) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(errno) => return Err(errno),
        }
        let poller = (adapter.place())(epoll::create(CreateFlags::CLOEXEC)?)?;
        let wakeup = Arc::new(WakeupFd::new(adapter.place())?);
        epoll::add(&poller, &tcp, EventData::new_u64(0), EventFlags::OUT)?;
        epoll::add(&poller, &*wakeup, EventData::new_u64(1), EventFlags::IN)?;
        Ok(Self {
            adapter: Arc::clone(adapter),
            settings: Settings::of(target.settings),
            state: State::Tcp(tcp),
            poller,
            wakeup,
            local: target.local,
            peer: target.service,
        })
    }

    /// `true`: the kernel has connected.
    fn has_connected(tcp: &OwnedFd) -> Result<bool, Errno> {
        let mut set = [PollFd::new(tcp, PollFlags::OUT)];
        if poll(&mut set, Some(&Timespec::default()))? == 0 {
            return Ok(false);
        }
        sockopt::socket_error(tcp)?.map(|()| true)
    }

    fn say_hello(&mut self, tcp: OwnedFd) -> Result<(), Errno> {
        let stack = self.adapter.stack_for(self.settings).map_err(|error| {
            tracing::warn!(%error, "no interface adapter; sockets stay on TCP");
            Errno::NODEV
        })?;
        epoll::delete(&self.poller, &tcp)?;
        let stream = SdpStream::start_connect_over(&stack, tcp, self.local, self.peer)
            .map_err(|error| errno_of(&error))?;
        stream.set_nonblocking(true);
        stream.watch(Arc::clone(&self.wakeup) as _);
        self.state = State::Hello(stream);
        Ok(())
    }
}

impl OffloadConnecting for SdpConnecting {
    fn step(&mut self) -> Result<Option<Box<dyn OffloadStream>>, ConnectFailure> {
        if let State::Tcp(tcp) = &self.state {
            match Self::has_connected(tcp) {
                Ok(false) => return Ok(None),
                Ok(true) => {}
                Err(Errno::CONNREFUSED) => return Err(ConnectFailure::Refused),
                Err(errno) => return Err(ConnectFailure::Failed(errno)),
            }
            if let State::Tcp(tcp) = std::mem::replace(&mut self.state, State::Over) {
                self.say_hello(tcp).map_err(ConnectFailure::Failed)?;
            }
        }
        let State::Hello(stream) = &self.state else {
            return Err(ConnectFailure::Failed(Errno::ISCONN));
        };
        self.wakeup.clear();
        // Looked at before the error is: one that comes in between makes a stream writable too.
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
            State::Hello(stream) => {
                stream.commit();
                Ok(Some(Box::new(SdpOffload::new(stream, &self.adapter))))
            }
            _ => Err(ConnectFailure::Failed(Errno::ISCONN)),
        }
    }
}

impl Drop for SdpConnecting {
    fn drop(&mut self) {
        if let State::Hello(stream) = &self.state {
            // A last word would look like a first one.
            stream.abort();
        }
    }
}

impl AsFd for SdpConnecting {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }
}
