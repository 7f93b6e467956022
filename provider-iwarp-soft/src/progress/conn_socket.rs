//! A connection as the threads that make progress know it: its descriptors, and what to call.

use std::fmt::Debug;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crate::engine::{Key, Source};
use crate::socket::Socket;

use super::Progress;
use super::conn_set::Ready;
use super::place::{Place, SetChange};

/// The thread that makes progress on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Driver {
    /// A consumer's, in a call of the consumer.
    Consumer,
    /// The engine's.
    Engine,
}

/// The result of an attempt to arm a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arming {
    /// It is armed, or closed.
    Done,
    /// It has work, or another thread holds it: drive and try again.
    LookAgain,
}

/// The result of a look for the first frame of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FirstFrame {
    /// Its first frame is not there.
    Quiet,
    /// Another thread holds it, or its news is being told.
    Busy,
}

/// A look at a connection by threads that do not hold it.
pub(crate) trait MayHaveWork: Debug + Send + Sync {
    /// Returns false if the connection certainly has no work. Takes no lock, and no system call.
    fn may_have_work(&self) -> bool;

    /// Returns true if the peer has sent something. What this side has still to do does not count.
    fn has_record(&self) -> bool;
}

/// What the owner of a connection, its queue pair, does for the threads that make progress. Each
/// call tries the connection's lock and does nothing when another thread holds it.
pub(crate) trait Service: Debug + Send + Sync {
    /// Sends and receives what the carrier takes and has, without blocking. `ready`: the
    /// descriptor that has an event. Returns false if another thread holds the connection.
    fn drive(&self, socket: &Arc<ConnSocket>, driver: Driver, ready: Ready) -> bool;

    /// Moves an armed connection to the list of polled ones.
    fn start_polling(&self, socket: &Arc<ConnSocket>);

    /// Arms a polled connection, after all that its consumer posted is sent.
    fn arm(&self, socket: &Arc<ConnSocket>) -> Arming;

    /// The connection's deadline has passed.
    fn on_deadline(&self, socket: &Arc<ConnSocket>);

    /// Receives what may establish an accepted connection, and delivers the events that follow.
    fn look_for_first_frame(&self) -> FirstFrame;

    /// Delivers a disconnect that was deferred by the event order.
    fn tell_deferred(&self);
}

/// The socket of one connection, open as long as anybody refers to it.
#[derive(Debug)]
pub(crate) struct ConnSocket {
    pub(crate) service: Arc<dyn Service>,
    pub(crate) key: Key,
    pub(crate) progress: Arc<Progress>,
    socket: Socket,
    /// The connection is over; whoever still refers to the socket leaves it alone.
    closed: AtomicBool,
    /// Segments come through the socket no more, so that polling the connection costs no system
    /// call.
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

    /// Adds it to the engine and arms it. From now on it may be driven.
    pub(crate) fn open(self: &Arc<Self>) -> std::io::Result<Place> {
        let ended = |_| std::io::Error::other("the engine has ended");
        self.progress.start().map_err(ended)?;
        let engine = self.progress.engine();
        engine.enlist(self.key, self.clone()).map_err(ended)?;
        self.progress.enter(self);
        self.progress.set().add(self.as_fd(), self.key, false)?;
        Ok(Place::Armed { wants_room: false })
    }

    /// Removes it from the engine. The descriptor stays open; a consumer's number does not, or
    /// belongs to the consumer again.
    pub(crate) fn close(self: &Arc<Self>, place: &mut Place) {
        if self.closed.swap(true, Ordering::AcqRel) {
            return;
        }
        let change = place.on_close();
        self.apply(change, place);
        self.progress.leave(self);
        self.progress.engine().delist(self.key);
        self.socket.release();
    }

    /// Makes progress on the connection. `false`: another thread holds it.
    pub(crate) fn drive(self: &Arc<Self>, driver: Driver, ready: Ready) -> bool {
        self.service.drive(self, driver, ready)
    }

    /// Has every poll drive it from now on, if it is armed and consumers poll. `in_set`: the socket
    /// stays in the set. Returns true if it is polled now.
    pub(crate) fn start_polling(self: &Arc<Self>, place: &mut Place, in_set: bool) -> bool {
        let is_adopted = place.is_armed() && self.progress.adopt(self);
        if is_adopted {
            let change = place.on_poll(in_set);
            self.apply(change, place);
        }
        is_adopted
    }

    /// Segments come through the socket no more; the set still shows its end.
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

    /// Has the engine drive the connection soon.
    pub(crate) fn drive_soon(&self) {
        self.progress.engine().expire(self.key);
    }

    /// No thread polls it any more.
    pub(crate) fn arm(&self, place: &mut Place, wants_room: bool) {
        let change = place.on_arm(wants_room);
        self.apply(change, place);
    }

    /// Bytes begin or cease to wait for room in the socket.
    pub(crate) fn want_room(&self, place: &mut Place, wants_room: bool) {
        let change = place.on_room_wanted(wants_room);
        self.apply(change, place);
    }

    fn apply(&self, change: SetChange, place: &mut Place) {
        let set = self.progress.set();
        let result = match change {
            SetChange::None => Ok(()),
            SetChange::Add { wants_room } => set.add(self.as_fd(), self.key, wants_room),
            SetChange::Modify { wants_room } => set.modify(self.as_fd(), self.key, wants_room),
            SetChange::Delete => {
                set.delete(self.as_fd());
                Ok(())
            }
        };
        if let Err(error) = result {
            // ENOMEM, or ENOSPC by `max_user_watches` (epoll_ctl(2)). Nobody would notice events of
            // this connection, so the engine ends it, soon and on its own thread: the caller may
            // hold the connection.
            tracing::error!(%error, "a connection cannot be watched");
            place.on_refused();
            self.progress.engine().expire(self.key);
        }
    }

    /// The connection is established: its socket does not go back to the consumer it came from.
    pub(crate) fn keep_lent(&self) {
        self.socket.keep();
    }

    /// Whether the socket belongs to the consumer again, because no connection was established.
    pub(crate) fn goes_back(&self) -> bool {
        self.socket.goes_back()
    }

    /// Nothing of the connection goes over TCP any more: `watch` shows whether it may have work.
    pub(crate) fn watch_by(&self, watch: Arc<dyn MayHaveWork>) {
        let _ = self.watch.set(watch);
    }

    /// Returns false if the connection certainly has no work. Takes no lock.
    #[inline]
    pub(super) fn may_have_work(&self) -> bool {
        self.watch.get().is_none_or(|watch| watch.may_have_work())
    }

    /// Returns true if the peer has sent something, and a look at memory shows it.
    pub(super) fn has_record(&self) -> bool {
        self.watch.get().is_some_and(|watch| watch.has_record())
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
    /// Its events come through the set.
    fn on_ready(self: Arc<Self>, _key: Key, _readable: bool, _writable: bool) {}

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
        let (mut raw, _) = raw_peer(&client, &node);
        client.recv(1, &[]);
        match &mut *client.qp.qp.lock_link() {
            Link::Up(conn) => {
                let socket = conn.socket.clone();
                // Twice into one set is what the kernel refuses.
                conn.place = Place::Polled { in_set: false };
                socket.arm(&mut conn.place, false);
                assert_eq!(conn.place, Place::Unwatched);
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(client.event(), Event::Broken);
        let mut sent = Vec::new();
        raw.read_to_end(&mut sent).unwrap();
        // Behind MPA, DDP and the word of RDMAP: layer 0, type 0, code 0, a local catastrophic
        // error (RFC 5040 section 4.8).
        let terminate = &sent[sent.len() - (4 + 4)..];
        assert_eq!(terminate[..4], [0, 0, 0, 0], "{sent:x?}");
    }
}
