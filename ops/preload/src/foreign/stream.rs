//! An established connection of a foreign protocol.
//!
//! A send and a receive are one call of the object, without a lock, a copy or an allocation of this
//! library. The readiness is that of the descriptor, one `ppoll`.

use std::ffi::c_int;
use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicI32, AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

use host::descriptors::OwnDescriptor;
use host::locks::lock;
use ops::{Half, OffloadStream, Readiness, Watch};
use rustix::event::epoll::EventFlags;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::table::{Handle, Table};
use crate::events::{EventHandler, event_thread};

const READ: u8 = 1;
const WRITE: u8 = 2;

/// The connection as the program's socket holds it.
#[derive(Debug)]
pub(super) struct ForeignStream(Arc<Inner>);

/// The object, until neither the socket nor the event thread uses it.
struct Inner {
    table: Table,
    handle: Handle,
    fd: OwnDescriptor,
    local: SocketAddr,
    peer: SocketAddr,
    /// The directions that were shut down.
    shut: AtomicU8,
    /// The error of a connection that was aborted; 0: none.
    failed: AtomicI32,
    watch: Mutex<Option<Arc<dyn Watch>>>,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner")
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}

impl ForeignStream {
    pub(super) fn new(
        table: Table,
        (handle, fd): (Handle, OwnDescriptor),
        local: SocketAddr,
        peer: SocketAddr,
    ) -> Self {
        Self(Arc::new(Inner {
            table,
            handle,
            fd,
            local,
            peer,
            shut: AtomicU8::new(0),
            failed: AtomicI32::new(0),
            watch: Mutex::new(None),
        }))
    }
}

impl Inner {
    /// Returns the result of a transfer. Nonsense of the object aborts the connection.
    fn checked(&self, result: Result<usize, Errno>) -> Result<usize, Errno> {
        if result == Err(Errno::PROTO) {
            self.fail(Errno::PROTO);
        }
        result
    }

    fn fail(&self, errno: Errno) {
        let why = errno.raw_os_error();
        let first = self
            .failed
            .compare_exchange(0, why, Ordering::AcqRel, Ordering::Acquire);
        if first.is_ok() {
            tracing::warn!(protocol = self.table.name(), %errno, "a connection is aborted");
        }
    }

    fn error(&self) -> Option<Errno> {
        let failed = self.failed.load(Ordering::Acquire);
        (failed != 0).then(|| Errno::from_raw_os_error(failed))
    }

    fn has_shut(&self, half: u8) -> bool {
        self.shut.load(Ordering::Acquire) & half != 0
    }

    fn readiness(&self) -> Readiness {
        let interest = PollFlags::IN | PollFlags::OUT | PollFlags::RDHUP;
        let mut set = [PollFd::new(&self.fd, interest)];
        let found = poll(&mut set, Some(&Timespec::default()));
        let shown = set[0].revents();
        let has = |flags: PollFlags| found.is_ok() && shown.intersects(flags);
        let error = self.error();
        let is_lost = has(PollFlags::ERR | PollFlags::NVAL) || error.is_some();
        let has_ended = has(PollFlags::RDHUP | PollFlags::HUP);
        let write_closed = self.has_shut(WRITE);
        Readiness {
            readable: has(PollFlags::IN) || has_ended || is_lost || self.has_shut(READ),
            writable: has(PollFlags::OUT) || is_lost || write_closed,
            urgent: false,
            read_closed: has_ended || self.has_shut(READ),
            peer_ended: has_ended,
            write_closed,
            all_sent: write_closed,
            failed: is_lost,
            errno: error.map(Errno::raw_os_error),
        }
    }
}

impl EventHandler for Inner {
    fn ready(&self, _: EventFlags) {
        let Some(watch) = lock(&self.watch).clone() else {
            return;
        };
        let now = self.readiness();
        if now.failed {
            watch.broken(self.error().unwrap_or(Errno::CONNRESET));
            return;
        }
        if now.readable {
            watch.arrived();
        }
        if now.writable {
            watch.room();
        }
        if now.peer_ended {
            watch.peer_ended();
        }
    }
}

impl OffloadStream for ForeignStream {
    fn local(&self) -> SocketAddr {
        self.0.local
    }

    fn peer(&self) -> SocketAddr {
        self.0.peer
    }

    fn send(&self, parts: &[IoSlice<'_>]) -> Result<usize, Errno> {
        match self.0.error() {
            Some(errno) => Err(errno),
            None if self.0.has_shut(WRITE) => Err(Errno::PIPE),
            None => self.0.checked(self.0.table.send(self.0.handle, parts)),
        }
    }

    fn send_urgent(&self, _: u8) -> Result<(), Errno> {
        Err(Errno::OPNOTSUPP)
    }

    fn receive(&self, parts: &mut [IoSliceMut<'_>], peek: bool) -> Result<usize, Errno> {
        match self.0.error() {
            Some(errno) => Err(errno),
            None => self
                .0
                .checked(self.0.table.receive(self.0.handle, parts, peek)),
        }
    }

    fn receive_urgent(&self, _: bool) -> Result<u8, Errno> {
        Err(Errno::INVAL)
    }

    fn set_urgent_inline(&self, _: bool) {}

    fn set_send_bound(&self, _: usize) {}

    fn set_receive_low(&self, _: usize) {}

    fn shutdown(&self, half: Half) -> Result<(), Errno> {
        let (how, bits): (c_int, u8) = match half {
            Half::Read => (libc::SHUT_RD, READ),
            Half::Write => (libc::SHUT_WR, WRITE),
            Half::Both => (libc::SHUT_RDWR, READ | WRITE),
        };
        let inner = &self.0;
        inner.table.shutdown(inner.handle, how)?;
        inner.shut.fetch_or(bits, Ordering::AcqRel);
        if bits & WRITE != 0
            && let Some(watch) = lock(&inner.watch).clone()
        {
            watch.all_sent();
        }
        Ok(())
    }

    fn abort(&self) {
        self.0.fail(Errno::CONNABORTED);
    }

    fn readiness(&self) -> Readiness {
        self.0.readiness()
    }

    fn unread(&self) -> usize {
        // A descriptor that is no socket has no count; the stream is readable then or not.
        let unread = rustix::io::ioctl_fionread(&self.0.fd);
        unread.map_or(0, |unread| usize::try_from(unread).unwrap_or(usize::MAX))
    }

    fn unread_before_mark(&self) -> usize {
        self.unread()
    }

    fn unsent(&self) -> usize {
        0
    }

    fn is_at_mark(&self) -> bool {
        false
    }

    fn watch(&self, watch: Arc<dyn Watch>) {
        *lock(&self.0.watch) = Some(watch);
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP;
        let handler = Arc::clone(&self.0) as Arc<dyn EventHandler>;
        // Without a thread no change would be seen, so the connection ends.
        let watched = event_thread().and_then(|thread| {
            thread.unwatch(self.0.fd.as_fd());
            thread.watch(self.0.fd.as_fd(), flags, Arc::clone(&handler))
        });
        if let Err(errno) = watched {
            self.0.fail(errno);
        }
        // Events that preceded the watch.
        handler.ready(EventFlags::empty());
    }
}

impl Drop for ForeignStream {
    fn drop(&mut self) {
        *lock(&self.0.watch) = None;
        if let Ok(thread) = event_thread() {
            thread.unwatch(self.0.fd.as_fd());
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.table.close(self.handle, self.error().is_some());
    }
}
