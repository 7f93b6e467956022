//! A foreign protocol as the switch uses it: listeners, connection attempts, and changes of the
//! network.

use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, RawFd};
use std::sync::{Arc, OnceLock};

use host::descriptors::OwnDescriptor;
use ops::netlink::{Change, NetStack};
use ops::{
    Capabilities, ConnectFailure, Local, OffloadBound, OffloadConnecting, OffloadListener,
    OffloadProtocol, OffloadStream, Reason, Sockets, StreamSockets, Target, Terms, Way,
};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;

use super::stream::ForeignStream;
use super::table::{Handle, Table};
use crate::events::{EventHandler, event_thread};

const REMOTE: u32 = 1;
const NEEDS_RULE: u32 = 2;
const NEEDS_RULE_HERE: u32 = 4;
const ASKS_PEER: u32 = 8;

const ROUTES: u32 = 1;
const ADDRESSES: u32 = 2;
const DEVICES: u32 = 4;
const MTU: u32 = 8;

/// The protocol of a shared object.
#[derive(Debug)]
pub(crate) struct Foreign {
    table: Table,
    /// Reports changes of the network, from the first socket on.
    reports: OnceLock<()>,
}

impl Foreign {
    pub(super) fn new(table: Table) -> Self {
        Self {
            table,
            reports: OnceLock::new(),
        }
    }

    /// Begins to report changes, if the protocol is interested. A process that may not use netlink
    /// has no reports.
    fn begin_reports(&self) {
        if !self.table.changed(0) {
            return;
        }
        self.reports.get_or_init(|| {
            let begun = Reports::begin(self.table);
            if let Err(errno) = begun {
                let protocol = self.table.name();
                tracing::info!(protocol, %errno, "changes of the network are not reported");
            }
        });
    }
}

impl OffloadProtocol for Foreign {
    fn name(&self) -> &'static str {
        self.table.name()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            remote: self.table.can(REMOTE),
            needs_rule: self.table.can(NEEDS_RULE),
            needs_rule_within_host: self.table.can(NEEDS_RULE_HERE),
            asks_peer: self.table.can(ASKS_PEER),
        }
    }

    /// An attempt shows whether the peer can be reached.
    fn reaches(&self, _: &Way<'_>) -> Result<(), Reason> {
        Ok(())
    }

    fn sockets(&self) -> Sockets<'_> {
        Sockets::Streams(self)
    }
}

impl StreamSockets for Foreign {
    fn bind(&self, local: Local, _: Terms<'_>) -> Result<Box<dyn OffloadBound>, Errno> {
        self.begin_reports();
        Ok(Box::new(Bound {
            table: self.table,
            address: local.address,
        }))
    }

    fn connect(&self, target: &Target<'_>) -> Result<Box<dyn OffloadConnecting>, ConnectFailure> {
        self.begin_reports();
        let (handle, fd) = self.table.connect(target).map_err(failure)?;
        let watched = host::descriptors::copy(&fd).map_err(|errno| {
            self.table.close(handle, true);
            ConnectFailure::Failed(errno)
        })?;
        Ok(Box::new(Connecting {
            table: self.table,
            object: Some((handle, fd)),
            watched: watched.into(),
            local: target.local,
            peer: target.service,
        }))
    }
}

fn failure(errno: Errno) -> ConnectFailure {
    match errno {
        Errno::CONNREFUSED => ConnectFailure::Refused,
        Errno::PROTONOSUPPORT => ConnectFailure::Version,
        errno => ConnectFailure::Failed(errno),
    }
}

/// An address of the kernel's TCP socket. The object gets it with the call of `listen`.
#[derive(Debug)]
struct Bound {
    table: Table,
    address: SocketAddr,
}

impl OffloadBound for Bound {
    fn listen(self: Box<Self>, backlog: u32) -> Result<Box<dyn OffloadListener>, Errno> {
        let (handle, fd) = self.table.listen(self.address, backlog)?;
        Ok(Box::new(Listener {
            table: self.table,
            handle,
            fd,
            address: self.address,
        }))
    }
}

#[derive(Debug)]
struct Listener {
    table: Table,
    handle: Handle,
    fd: OwnDescriptor,
    address: SocketAddr,
}

impl OffloadListener for Listener {
    fn mapped(&self) -> SocketAddr {
        self.address
    }

    fn accept(&self) -> Result<Option<Box<dyn OffloadStream>>, Errno> {
        let accepted = self.table.accept(self.handle)?;
        Ok(accepted.map(|(handle, fd, local, peer)| {
            let stream = ForeignStream::new(self.table, (handle, fd), local, peer);
            Box::new(stream) as Box<dyn OffloadStream>
        }))
    }

    /// The object keeps the backlog of its `listen`.
    fn set_backlog(&self, _: u32) {}

    fn has_connecting(&self) -> bool {
        false
    }

    /// Peers are accepted until the listener is dropped.
    fn withdraw(&self) {}

    fn descriptors(&self) -> Vec<RawFd> {
        vec![self.fd.as_raw_fd()]
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.table.unlisten(self.handle);
    }
}

#[derive(Debug)]
struct Connecting {
    table: Table,
    /// Moves to the stream.
    object: Option<(Handle, OwnDescriptor)>,
    watched: OwnDescriptor,
    local: SocketAddr,
    peer: SocketAddr,
}

impl OffloadConnecting for Connecting {
    fn step(&mut self) -> Result<Option<Box<dyn OffloadStream>>, ConnectFailure> {
        let Some((handle, _)) = &self.object else {
            return Err(ConnectFailure::Failed(Errno::ISCONN));
        };
        if !self.table.connected(*handle).map_err(failure)? {
            return Ok(None);
        }
        let object = self.object.take();
        Ok(object.map(|object| {
            let stream = ForeignStream::new(self.table, object, self.local, self.peer);
            Box::new(stream) as Box<dyn OffloadStream>
        }))
    }
}

impl AsFd for Connecting {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.watched.as_fd()
    }
}

impl Drop for Connecting {
    fn drop(&mut self) {
        if let Some((handle, _)) = self.object.take() {
            self.table.close(handle, true);
        }
    }
}

/// Reports changes of the network on the event thread, for the life of the process.
struct Reports {
    table: Table,
    stack: NetStack,
    fd: OwnDescriptor,
}

impl Reports {
    fn begin(table: Table) -> Result<(), Errno> {
        let refused = |error: host::netlink::Error| error.errno();
        let stack = NetStack::open().map_err(refused)?;
        let reports = Arc::new(Self {
            table,
            fd: stack.watch().map_err(refused)?.into(),
            stack,
        });
        let handler = Arc::clone(&reports) as Arc<dyn EventHandler>;
        event_thread()?.watch(reports.fd.as_fd(), EventFlags::IN, handler)
    }
}

/// The bit of a change.
fn bit_of(change: &Change) -> u32 {
    match change {
        Change::Mtu { .. } => MTU,
        Change::Device { .. } | Change::DeviceGone { .. } => DEVICES,
        Change::Address { .. } => ADDRESSES,
        Change::Routing => ROUTES,
        Change::Lost => ROUTES | ADDRESSES | DEVICES | MTU,
    }
}

impl EventHandler for Reports {
    fn ready(&self, _: EventFlags) {
        let changes = self.stack.changes().unwrap_or_default();
        let what = changes.iter().map(bit_of).fold(0, |all, bit| all | bit);
        self.table.changed(what);
    }
}
