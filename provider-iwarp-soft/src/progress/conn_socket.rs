//! A connection as the threads that make progress use it: its descriptors, and the calls to its
//! owner.

use std::fmt::Debug;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crate::engine::{Key, Source};
use crate::socket::Socket;

use super::conn_set::Ready;
use super::place::{Place, SetChange, Wants};
use super::{PolledList, Progress};

/// The thread that makes progress on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Driver {
    /// A thread of a consumer, in a call of the consumer.
    Consumer,
    /// The engine's thread.
    Engine,
}

/// The result of an attempt to arm a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arming {
    /// The connection is armed, or closed.
    Done,
    /// The connection has work, or another thread holds it: the caller drives and tries again.
    HasWork,
}

/// A check of a connection by threads that do not hold it.
pub(crate) trait MayHaveWork: Debug + Send + Sync {
    /// Returns false if the connection certainly has no work. Takes no lock, and makes no system
    /// call.
    fn may_have_work(&self) -> bool;
}

/// The calls of the threads that make progress to the owner of a connection, which is its queue
/// pair. Each call tries the connection's lock and does nothing if another thread holds it.
pub(crate) trait Service: Debug + Send + Sync {
    /// Sends as much as the carrier accepts and receives all that it has, without blocking. `ready`
    /// is the descriptor that has an event. Returns false if another thread holds the connection.
    fn drive(&self, socket: &Arc<ConnSocket>, driver: Driver, ready: Ready) -> bool;

    /// Moves an armed connection to the list of polled connections.
    fn start_polling(&self, socket: &Arc<ConnSocket>);

    /// Arms a polled connection, after everything that its consumer posted is sent.
    fn arm(&self, socket: &Arc<ConnSocket>) -> Arming;

    /// Wakes the peer of a connection in shared memory if the peer has stopped polling while a
    /// record waits.
    fn rouse_peer(&self, socket: &Arc<ConnSocket>);

    /// Called when the connection's deadline has passed.
    fn on_deadline(&self, socket: &Arc<ConnSocket>);
}

/// The socket of one connection, open while any reference to it exists.
#[derive(Debug)]
pub(crate) struct ConnSocket {
    pub(crate) service: Arc<dyn Service>,
    pub(crate) key: Key,
    pub(crate) progress: Arc<Progress>,
    socket: Socket,
    /// True if the connection is over; threads that still have a reference do not use the socket.
    closed: AtomicBool,
    /// True if the peer sends no more segments through the socket. Polling the connection then
    /// costs no system call.
    has_moved: AtomicBool,
    /// Shows whether the connection may have work, once it is not on TCP in either direction.
    watch: OnceLock<Arc<dyn MayHaveWork>>,
}

impl ConnSocket {
    pub(crate) fn new(
        service: Arc<dyn Service>,
        progress: Arc<Progress>,
        socket: Socket,
    ) -> Arc<Self> {
        Arc::new(Self {
            service,
            key: progress.engine().new_key(),
            progress,
            socket,
            closed: AtomicBool::new(false),
            has_moved: AtomicBool::new(false),
            watch: OnceLock::new(),
        })
    }

    /// Adds the connection to the engine and arms it. From now on the connection may be driven.
    pub(crate) fn open(self: &Arc<Self>) -> std::io::Result<Place> {
        let ended = |_| std::io::Error::other("the engine has ended");
        self.progress.start().map_err(ended)?;
        let engine = self.progress.engine();
        engine.enlist(self.key, self.clone()).map_err(ended)?;
        self.progress.add(self);
        self.progress
            .set()
            .add(self.as_fd(), self.key, Wants::SEGMENTS)?;
        Ok(Place::Armed {
            wants: Wants::SEGMENTS,
        })
    }

    /// Removes the connection from the engine. The descriptor stays open; a consumer's descriptor
    /// number is closed, or returns to the consumer. Returns a list that the caller must drop
    /// without a lock ([`Progress::remove_polled`]).
    pub(crate) fn close(self: &Arc<Self>, place: &mut Place) -> Option<PolledList> {
        if self.closed.swap(true, Ordering::AcqRel) {
            return None;
        }
        let change = place.on_close();
        self.apply(change, place);
        let former = self.progress.remove(self);
        self.progress.engine().delist(self.key);
        self.socket.release();
        former
    }

    /// Makes progress on the connection. Returns `false` if another thread holds it.
    pub(crate) fn drive(self: &Arc<Self>, driver: Driver, ready: Ready) -> bool {
        self.service.drive(self, driver, ready)
    }

    /// Makes every poll drive the connection from now on, if it is armed and consumers poll.
    /// `in_set`: the socket stays in the set. Returns true if the connection became a polled one.
    pub(crate) fn start_polling(self: &Arc<Self>, place: &mut Place, in_set: bool) -> bool {
        let is_adopted = place.is_armed() && self.progress.adopt(self);
        if is_adopted {
            let change = place.on_poll(in_set);
            self.apply(change, place);
        }
        is_adopted
    }

    /// Called when the peer sends no more segments through the socket. The set still reports the
    /// end of the socket.
    pub(crate) fn on_moved(&self, place: &mut Place) {
        self.has_moved.store(true, Ordering::Relaxed);
        let change = place.on_moved();
        self.apply(change, place);
    }

    /// Adds the doorbell of the connection to the set.
    pub(crate) fn watch_bell(&self, fd: BorrowedFd<'_>) -> std::io::Result<()> {
        Ok(self.progress.set().add_bell(fd, self.key)?)
    }

    /// Removes the doorbell.
    pub(crate) fn unwatch(&self, fd: BorrowedFd<'_>) {
        self.progress.set().delete(fd);
    }

    /// Makes the engine drive the connection soon.
    pub(crate) fn drive_soon(&self) {
        self.progress.engine().expire(self.key);
    }

    /// Arms the connection, because no thread polls it any more.
    pub(crate) fn arm(&self, place: &mut Place, wants_room: bool) {
        let change = place.on_arm(wants_room);
        self.apply(change, place);
    }

    /// Called when bytes start or stop waiting for room in the socket.
    pub(crate) fn want_room(&self, place: &mut Place, wants_room: bool) {
        let change = place.on_room_wanted(wants_room);
        self.apply(change, place);
    }

    /// Called when the next segment of the socket begins to wait for a receive, or no longer waits.
    pub(crate) fn want_segments(&self, place: &mut Place, wants_segments: bool) {
        let change = place.on_segments_wanted(wants_segments);
        self.apply(change, place);
    }

    fn apply(&self, change: SetChange, place: &mut Place) {
        let set = self.progress.set();
        let result = match change {
            SetChange::None => Ok(()),
            SetChange::Add { wants } => set.add(self.as_fd(), self.key, wants),
            SetChange::Modify { wants } => set.modify(self.as_fd(), self.key, wants),
            SetChange::Delete => {
                set.delete(self.as_fd());
                Ok(())
            }
        };
        if let Err(error) = result {
            // ENOMEM, or ENOSPC by `max_user_watches` (epoll_ctl(2)). No thread would receive
            // events of this connection, so the engine must end it. It does so later and on its own
            // thread, because the caller may hold the connection.
            tracing::error!(%error, "a connection cannot be watched");
            place.on_refused();
            self.progress.engine().expire(self.key);
        }
    }

    /// Called when the connection is established: its socket does not return to its consumer.
    pub(crate) fn keep_socket(&self) {
        self.socket.keep();
    }

    /// True if the program has closed the provider's descriptor.
    pub(crate) fn is_lost(&self) -> bool {
        self.socket.is_lost()
    }

    /// True if the socket returns to the consumer, because no connection was established.
    pub(crate) fn returns_to_consumer(&self) -> bool {
        self.socket.returns_to_consumer()
    }

    /// Called when neither direction uses TCP any more: `watch` then shows pending work.
    pub(crate) fn watch_by(&self, watch: Arc<dyn MayHaveWork>) {
        let _ = self.watch.set(watch);
    }

    /// Returns false if the connection certainly has no work. Takes no lock.
    #[inline]
    pub(super) fn may_have_work(&self) -> bool {
        self.watch.get().is_none_or(|watch| watch.may_have_work())
    }

    /// Returns true if polling the connection costs no system call.
    pub(super) fn has_moved(&self) -> bool {
        self.has_moved.load(Ordering::Relaxed)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }
}

impl Source for ConnSocket {
    fn on_deadline(self: Arc<Self>, _key: Key) {
        if !self.is_closed() {
            self.service.on_deadline(&self);
        }
    }
}

impl AsFd for ConnSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::qp::Link;
    use crate::support::{Event, Node, raw_peer};

    #[test]
    fn a_connection_that_the_kernel_does_not_watch_ends_with_a_terminate_message() {
        let node = Node::new("lo 0");
        let client = node.side(10);
        let (mut raw, _) = raw_peer(&client);
        client.recv(1, &[]);
        match &mut *client.qp.qp.lock_link() {
            Link::Up(conn) => {
                let socket = conn.socket.clone();
                // The kernel refuses to add a descriptor twice to one set.
                conn.place = Place::Polled { in_set: false };
                socket.arm(&mut conn.place, false);
                assert_eq!(conn.place, Place::Unwatched);
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(client.event(), Event::Broken);
        let mut sent = Vec::new();
        raw.read_to_end(&mut sent).unwrap();
        // After MPA, DDP and the word of RDMAP: layer 0, type 0, code 0, a local catastrophic error
        // (RFC 5040 section 4.8).
        let terminate = &sent[sent.len() - (4 + 4)..];
        assert_eq!(terminate[..4], [0, 0, 0, 0], "{sent:x?}");
    }
}
