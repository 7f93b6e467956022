//! A connected pair of sockets, made with the usual calls.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use anyhow::{Context, Result, ensure};
use rustix::net::AddressFamily;

/// The `epoll` sets that watch one end, each in another mode.
struct Sets {
    level: Set,
    edge: Set,
    exclusive: Set,
    one_shot: Set,
}

impl Sets {
    fn watching(fd: RawFd) -> Result<Self> {
        let all = libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLPRI;
        let few = libc::EPOLLIN | libc::EPOLLOUT;
        Ok(Self {
            level: Set::watching(fd, all)?,
            edge: Set::watching(fd, all | libc::EPOLLET)?,
            // The kernel allows no other flags together with EPOLLEXCLUSIVE.
            exclusive: Set::watching(fd, few | libc::EPOLLEXCLUSIVE)?,
            one_shot: Set::watching(fd, all | libc::EPOLLONESHOT)?,
        })
    }
}

/// The two ends of a connection. End 0 is the client's, end 1 the server's.
pub(crate) struct Pair {
    ends: [Option<TcpStream>; 2],
    /// For each end, a set of each kind.
    sets: [Sets; 2],
}

impl Pair {
    /// Connects over an address. Checks that the kernel's sockets are Unix sockets if `offloaded`.
    pub(crate) fn over(address: &str, offloaded: bool) -> Result<Self> {
        let listener = TcpListener::bind((address, 0)).context("listening")?;
        let client = TcpStream::connect(listener.local_addr()?).context("connecting")?;
        let (server, peer) = listener.accept().context("accepting")?;
        ensure!(peer == client.local_addr()?, "the client has two names");
        for end in [&client, &server] {
            let domain = domain_in_the_kernel(end.as_fd())?;
            ensure!(
                offloaded == (domain == AddressFamily::UNIX),
                "{address}: the kernel sees family {domain:?}"
            );
        }
        let sets = |end: &TcpStream| Sets::watching(end.as_raw_fd());
        Ok(Self {
            sets: [sets(&client)?, sets(&server)?],
            ends: [Some(client), Some(server)],
        })
    }

    /// The events that the level-triggered set reports for an end.
    pub(crate) fn level(&self, end: usize) -> u32 {
        self.sets[end].level.poll()
    }

    /// The events that the edge-triggered set reports for an end since the last call.
    pub(crate) fn edge(&self, end: usize) -> u32 {
        self.sets[end].edge.poll()
    }

    /// The events that the exclusive set reports for an end.
    pub(crate) fn exclusive(&self, end: usize) -> u32 {
        self.sets[end].exclusive.poll()
    }

    /// The events that a one-shot set reports for an end, and those that it reports on the next
    /// poll.
    pub(crate) fn once(&self, end: usize) -> [u32; 2] {
        let set = &self.sets[end].one_shot;
        set.arm(self.fd(end));
        [set.poll(), set.poll()]
    }

    pub(crate) fn fd(&self, end: usize) -> RawFd {
        self.ends[end].as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }

    pub(crate) fn end(&self, end: usize) -> Option<&TcpStream> {
        self.ends[end].as_ref()
    }

    pub(crate) fn close(&mut self, end: usize) {
        self.ends[end] = None;
    }

    /// Replaces an end by a duplicate, and closes the original.
    pub(crate) fn duplicate(&mut self, end: usize) -> io::Result<()> {
        if let Some(stream) = &self.ends[end] {
            self.ends[end] = Some(stream.try_clone()?);
            // The kernel identifies a registration by its descriptor number, which is closed now.
            let one_shot = Set::watching(self.fd(end), self.sets[end].one_shot.interest);
            self.sets[end].one_shot = one_shot.map_err(io::Error::other)?;
        }
        Ok(())
    }
}

/// The address family of the socket in the kernel. rustix makes the system call without the C
/// library, so the preloaded library does not intercept the call.
fn domain_in_the_kernel(fd: BorrowedFd<'_>) -> Result<AddressFamily> {
    Ok(rustix::net::sockopt::socket_domain(fd)?)
}

/// An `epoll` set that watches one descriptor. The descriptor is duplicated and closed while it is
/// watched; the kernel keeps the registration as long as a duplicate is open.
struct Set {
    set: OwnedFd,
    interest: i32,
}

impl Set {
    fn watching(fd: RawFd, interest: i32) -> Result<Self> {
        // SAFETY: the call takes no pointers.
        let set = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        ensure!(set >= 0, io::Error::last_os_error());
        // SAFETY: the kernel has just returned the descriptor, and nothing else owns it.
        let set = unsafe { OwnedFd::from_raw_fd(set) };
        let mut event = libc::epoll_event {
            events: interest.cast_unsigned(),
            u64: 7,
        };
        // SAFETY: the event lives through the call.
        let added =
            unsafe { libc::epoll_ctl(set.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &raw mut event) };
        ensure!(added == 0, io::Error::last_os_error());
        Ok(Self { set, interest })
    }

    /// Arms a one-shot set again.
    fn arm(&self, fd: RawFd) {
        let mut event = libc::epoll_event {
            events: self.interest.cast_unsigned(),
            u64: 7,
        };
        let set = self.set.as_raw_fd();
        // SAFETY: the event lives through the call, which fails for an end that was closed.
        unsafe { libc::epoll_ctl(set, libc::EPOLL_CTL_MOD, fd, &raw mut event) };
    }

    fn poll(&self) -> u32 {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: room for one event.
        let count = unsafe { libc::epoll_wait(self.set.as_raw_fd(), &raw mut event, 1, 0) };
        if count > 0 { event.events } else { 0 }
    }
}
