//! The clients that are offered over TCP, until a process takes them.
//!
//! A client is a message in a queue of the kernel, to which the client's socket and the end of its
//! TCP connection are attached. Each process of the listener can take it, and the client outlives
//! the process that has offered it.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use host::descriptors::{OwnDescriptor, raise};
use ops::KernelConnection;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

use crate::listener::passing::{NAME_LEN, read_name, write_name};

/// A listener next to the TCP listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Beside {
    Kernel = 0,
    Service = 1,
}

impl Beside {
    pub(super) fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// The reason why no client is offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotOffered {
    /// No client is pending.
    NoClient,
    /// There is no descriptor or no memory for the client.
    NoDescriptor,
    /// No TCP socket listens at the address of the service.
    NoListener,
    /// The client is on another host, so no socket of this host can have its address.
    OtherHost,
    /// The listener accepts no more clients.
    Ended,
}

/// A client that is offered over TCP.
pub(crate) struct OfferedClient {
    /// The listener to which the client has connected.
    pub(crate) of: Beside,
    pub(crate) client: KernelConnection,
    /// The connecting end of the TCP connection; `None` while it could not be made.
    pub(crate) tcp: Option<OwnedFd>,
}

/// The length of a message: two names, the listener, and the number of descriptors.
const TEXT_LEN: usize = 2 * NAME_LEN + 2;

/// The queue.
pub(crate) struct Offers {
    into: OwnDescriptor,
    from: OwnDescriptor,
}

impl Offers {
    pub(super) fn new() -> Result<Self, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (into, from) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        Ok(Self::inherited([raise(into)?, raise(from)?]))
    }

    pub(super) fn inherited([into, from]: [OwnedFd; 2]) -> Self {
        Self {
            into: into.into(),
            from: from.into(),
        }
    }

    pub(super) fn numbers(&self) -> [RawFd; 2] {
        [&self.into, &self.from].map(AsRawFd::as_raw_fd)
    }

    /// Adds a client.
    pub(crate) fn add(&self, offered: &OfferedClient) -> Result<(), Errno> {
        let OfferedClient { of, client, tcp } = offered;
        let mut text = [0; TEXT_LEN];
        text[2 * NAME_LEN] = *of as u8;
        write_name(&mut text[..NAME_LEN], client.local);
        write_name(&mut text[NAME_LEN..2 * NAME_LEN], client.peer);
        let tcp = tcp.as_ref().map(AsFd::as_fd);
        let numbers: Vec<_> = std::iter::once(client.socket.as_fd()).chain(tcp).collect();
        text[2 * NAME_LEN + 1] = 1 + u8::from(tcp.is_some());
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !control.push(SendAncillaryMessage::ScmRights(&numbers)) {
            return Err(Errno::NOBUFS);
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        sendmsg(
            self.into.get()?,
            &[IoSlice::new(&text)],
            &mut control,
            flags,
        )
        .map(drop)
    }

    /// Takes the first client that `is_it` accepts. All others stay in the queue. `None`: there is
    /// none.
    pub(crate) fn take_if(
        &self,
        is_it: impl Fn(&OfferedClient) -> bool,
    ) -> Result<Option<OfferedClient>, Errno> {
        let mut others = Vec::new();
        let taken = loop {
            match self.take() {
                Ok(Some(client)) if !is_it(&client) => others.push(client),
                taken => break taken,
            }
        };
        for other in &others {
            // The queue has had room for this client.
            let _ = self.add(other);
        }
        taken
    }

    /// Takes the next client.
    fn take(&self) -> Result<Option<OfferedClient>, Errno> {
        let mut text = [0; TEXT_LEN];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let mut into = [IoSliceMut::new(&mut text)];
        match recvmsg(self.from.get()?, &mut into, &mut control, flags) {
            Ok(_) => {}
            Err(Errno::AGAIN) => return Ok(None),
            Err(error) => return Err(error),
        }
        let mut numbers = control.drain().flat_map(|message| match message {
            RecvAncillaryMessage::ScmRights(numbers) => numbers.collect::<Vec<_>>(),
            _ => Vec::new(),
        });
        let (socket, tcp) = (numbers.next().ok_or(Errno::MFILE)?, numbers.next());
        // The kernel attaches as many descriptors as the process has room for.
        if 1 + u8::from(tcp.is_some()) != text[2 * NAME_LEN + 1] {
            return Err(Errno::MFILE);
        }
        let names = read_name(&text[..NAME_LEN]).zip(read_name(&text[NAME_LEN..2 * NAME_LEN]));
        let (local, peer) = names.ok_or(Errno::PROTO)?;
        let client = KernelConnection {
            socket: raise(socket)?,
            local,
            peer,
        };
        let tcp = tcp.map(raise).transpose()?;
        let of = match text[2 * NAME_LEN] {
            0 => Beside::Kernel,
            _ => Beside::Service,
        };
        Ok(Some(OfferedClient { of, client, tcp }))
    }
}
