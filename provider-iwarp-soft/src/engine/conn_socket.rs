//! A connection's socket, and the question who drives it.
//!
//! Who that is, is a [`DriverState`]; here it meets the poller, the ticks and the blocked
//! consumers.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::engine::{Engine, Interest, Key, Source};
use crate::qp::{Effects, Qp};
use crate::socket::Socket;

use super::driver_state::DriverState;
use super::ready_set::ReadySet;

/// What the engine does with a socket after a tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AfterTick {
    /// A consumer drives it.
    Keep,
    /// A consumer drives it and leaves posts to be sent with later ones.
    KeepForHeld,
    /// It is armed again, owned by a blocked consumer, or gone.
    Drop,
}

/// The socket of one connection. It stays open as long as somebody sleeps on it.
#[derive(Debug)]
pub(crate) struct ConnSocket {
    pub(crate) qp: Arc<Qp>,
    pub(crate) key: Key,
    pub(crate) engine: Arc<Engine>,
    socket: Socket,
    driver: DriverState,
    /// Consumers blocked on the socket.
    parked: AtomicU32,
    /// Counts drives by consumers.
    drives: AtomicU32,
    /// `drives` at the engine's last look.
    seen: AtomicU32,
    /// Bytes wait for room in the socket.
    tx_blocked: AtomicBool,
    /// Posted requests are held back for more to come.
    held: AtomicBool,
    /// Some were since the engine's last look.
    held_lately: AtomicBool,
    /// The kernel does not watch it and nobody drives it: the engine ends the connection.
    unwatched: AtomicBool,
    /// The connection is over; whoever still holds the socket leaves it alone. Under this lock the
    /// poller's entry is made and taken away: a closed socket has none.
    closed: AtomicBool,
    entry: Mutex<()>,
    /// It is in the engine's set of connections; under the same lock.
    in_ready_set: AtomicBool,
}

impl ConnSocket {
    pub(crate) fn new(qp: Arc<Qp>, key: Key, engine: Arc<Engine>, socket: Socket) -> Arc<Self> {
        Arc::new(Self {
            qp,
            key,
            engine,
            socket,
            driver: DriverState::default(),
            parked: AtomicU32::new(0),
            drives: AtomicU32::new(0),
            seen: AtomicU32::new(0),
            tx_blocked: AtomicBool::new(false),
            held: AtomicBool::new(false),
            held_lately: AtomicBool::new(false),
            unwatched: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            entry: Mutex::new(()),
            in_ready_set: AtomicBool::new(false),
        })
    }

    /// Puts it under the engine's care. From now on it may be driven.
    pub(crate) fn open(self: &Arc<Self>) -> std::io::Result<()> {
        self.engine
            .enlist(self.key, self.clone())
            .map_err(|_| std::io::Error::other("the engine has ended"))?;
        self.engine
            .watch(self.key, self.as_fd(), Interest::Readable)
    }

    /// Takes it out of the engine; the descriptor stays open, a consumer's number does not.
    pub(crate) fn close(&self) {
        let entry = self.lock_entry();
        if !self.closed.swap(true, Ordering::AcqRel) {
            self.engine.unwatch(self.as_fd());
            if self.in_ready_set.load(Ordering::Relaxed)
                && let Some(set) = self.engine.made_ready_set()
            {
                set.delete(self.as_fd());
            }
            drop(entry);
            self.engine.delist(self.key);
            self.socket.close_number();
        }
    }

    /// Puts it into the set by which consumers look after many connections. `false`: the kernel
    /// does not take it.
    pub(super) fn enter(&self, set: &ReadySet) -> bool {
        if self.in_ready_set.load(Ordering::Relaxed) {
            return true;
        }
        let _entry = self.lock_entry();
        if self.is_closed() || self.in_ready_set.load(Ordering::Relaxed) {
            return true;
        }
        let entered = set.add(self.as_fd(), self.key).is_ok();
        self.in_ready_set.store(entered, Ordering::Relaxed);
        entered
    }

    /// Takes the socket out of the poller while the engine looks at it at every tick: even an entry
    /// that is not armed costs every arrival a call and two locks in the kernel.
    pub(super) fn leave_poller(&self) {
        let _entry = self.lock_entry();
        if self.is_watched() && !self.is_closed() {
            self.engine.unwatch(self.as_fd());
        }
    }

    /// Has the poller tell of what is waited for now. That is found out under the lock: of two that
    /// arm at the same time, the later one knows what the earlier one knew.
    fn rearm(self: &Arc<Self>) {
        let entry = self.lock_entry();
        if self.is_closed() {
            return;
        }
        let interest = match (self.driver.is_engines(), self.is_tx_blocked()) {
            (true, true) => Interest::Both,
            (true, false) => Interest::Readable,
            // A consumer blocked before there was anything to wait for does not see the room.
            (false, true) if self.driver.is_owned() || self.is_parked() => Interest::Writable,
            (false, _) => return,
        };
        let armed = self.engine.rearm(self.key, self.as_fd(), interest);
        drop(entry);
        if armed.is_err() {
            self.on_unwatched();
        }
    }

    /// The kernel has no room for the socket, so nobody would hear of it: the engine ends the
    /// connection, soon and in its own thread, because the caller may hold it.
    fn on_unwatched(self: &Arc<Self>) {
        self.unwatched.store(true, Ordering::Release);
        self.engine.look_after(self);
    }

    fn lock_entry(&self) -> MutexGuard<'_, ()> {
        self.entry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection is established: its socket does not go back to a consumer who lent it.
    pub(crate) fn keep_lent(&self) {
        self.socket.keep();
    }

    /// No connection was established: it is its consumer's again.
    pub(crate) fn goes_back(&self) -> bool {
        self.socket.goes_back()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Notes that a consumer drives this socket.
    pub(crate) fn note_drive(&self) {
        // A lost count between two consumers does not matter: the number still changes.
        let drives = self.drives.load(Ordering::Relaxed);
        self.drives.store(drives.wrapping_add(1), Ordering::Relaxed);
    }

    /// Whether the engine looks at this socket at every tick.
    pub(crate) fn is_watched(&self) -> bool {
        self.driver.is_watched()
    }

    /// Makes the engine look at this socket at every tick, unless a blocked consumer owns it.
    pub(crate) fn watch_unless_owned(self: &Arc<Self>) {
        if self.driver.is_engines() {
            self.watch();
        }
    }

    /// Holds posted requests back, if the engine will send them should nobody else do so. Pairs
    /// with [`Self::release_held`]: the holder of the connection stores and then looks at who
    /// drives, the engine changes that and then looks here.
    pub(crate) fn hold(&self) -> bool {
        self.held_lately.store(true, Ordering::Relaxed);
        self.held.store(true, Ordering::SeqCst);
        self.driver.is_watched()
    }

    pub(crate) fn is_held(&self) -> bool {
        self.held.load(Ordering::SeqCst)
    }

    /// What was held back goes out now.
    pub(crate) fn clear_held(&self) {
        if self.held.load(Ordering::Relaxed) {
            self.held.store(false, Ordering::Relaxed);
        }
    }

    /// Notes whether bytes wait for room, and makes somebody wait for it.
    pub(crate) fn set_tx_blocked(self: &Arc<Self>, blocked: bool) {
        if self.tx_blocked.load(Ordering::Relaxed) == blocked {
            return;
        }
        self.tx_blocked.store(blocked, Ordering::SeqCst);
        if blocked && (!self.driver.is_watched() || self.is_parked()) {
            self.rearm();
        }
    }

    pub(crate) fn is_tx_blocked(&self) -> bool {
        self.tx_blocked.load(Ordering::SeqCst)
    }

    /// Whether a consumer is blocked on the socket.
    fn is_parked(&self) -> bool {
        self.parked.load(Ordering::SeqCst) > 0
    }

    /// A consumer is about to sleep on the socket.
    pub(crate) fn park(&self) {
        self.parked.fetch_add(1, Ordering::SeqCst);
    }

    /// The same where the sleep notices what arrives, but not that there is room for what waits to
    /// be sent: the engine does, and sends it.
    pub(super) fn park_as_reader(self: &Arc<Self>) {
        self.park();
        if self.is_tx_blocked() {
            self.rearm();
        }
    }

    /// It has woken. The engine looks after the socket until it is clear whether the consumer comes
    /// back.
    pub(crate) fn unpark(self: &Arc<Self>) {
        self.note_drive();
        if self.parked.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.disown();
        }
    }

    fn disown(self: &Arc<Self>) {
        if self.driver.on_left() && !self.is_closed() {
            self.engine.look_after(self);
        }
    }

    /// The engine looks at the socket at every tick, once however often this is said.
    fn watch(self: &Arc<Self>) {
        if self.driver.on_driven() {
            self.engine.look_after(self);
        }
    }

    fn own(self: &Arc<Self>) {
        self.driver.on_blocked();
        // The consumer may have gone to sleep before there was anything that waits for room; then
        // the room wakes nobody but the engine. Pairs with the order of store and load in
        // `set_tx_blocked`: one of the two sees the other's store and arms.
        if self.is_tx_blocked() {
            self.rearm();
        }
        // The consumer may have left between the engine's look and the store.
        if !self.is_parked() {
            self.disown();
        }
        self.release_held();
    }

    /// Sends what a consumer held back in the belief that the engine goes on looking.
    fn release_held(self: &Arc<Self>) {
        if self.is_held() {
            match self.qp.drive_by_engine(self) {
                Some(effects) => self.qp.after(&effects),
                None => self.watch(),
            }
        }
    }

    fn arm(self: &Arc<Self>) {
        self.driver.on_idle();
        self.rearm();
        self.release_held();
    }

    /// Whether consumers drove since the engine looked last.
    fn was_driven(&self) -> bool {
        let drives = self.drives.load(Ordering::Relaxed);
        self.seen.swap(drives, Ordering::Relaxed) != drives
    }

    /// The engine's look at a socket that a consumer drove. `rarely`: the next look is as far away
    /// as looks ever are.
    pub(super) fn on_tick(self: Arc<Self>, rarely: bool) -> AfterTick {
        if self.is_closed() {
            return AfterTick::Drop;
        }
        if self.unwatched.load(Ordering::Acquire) {
            let effects = self.qp.fail(&self);
            self.leave(&effects);
            return AfterTick::Drop;
        }
        if !self.is_watched() {
            return AfterTick::Drop;
        }
        let was_driven = self.was_driven();
        if self.is_parked() {
            // A consumer that blocks time and again is looked at rarely: told of the end of each
            // wait, the engine would wake for each message and take the processor from the peer.
            let waits_long = rarely && !was_driven;
            if !(waits_long || self.is_tx_blocked() || self.is_held()) {
                return AfterTick::Keep;
            }
            self.own();
            return AfterTick::Drop;
        }
        if was_driven {
            return self.keep();
        }
        let Some(effects) = self.qp.drive_by_engine(&self) else {
            // A drive in the middle of a bulk transfer takes longer than the first ticks.
            return self.keep();
        };
        if !self.is_closed() {
            self.arm();
        }
        self.leave(&effects);
        AfterTick::Drop
    }

    /// A consumer drives it, or does so in this moment.
    fn keep(&self) -> AfterTick {
        match self.held_lately.swap(false, Ordering::Relaxed) {
            true => AfterTick::KeepForHeld,
            false => AfterTick::Keep,
        }
    }

    /// Lets go of it, then tells what driving it brought: a socket that was lent is closed by
    /// the time its owner hears of the end.
    fn leave(self: Arc<Self>, effects: &Effects) {
        let qp = self.qp.clone();
        drop(self);
        qp.after(effects);
    }
}

impl Source for ConnSocket {
    fn on_ready(self: Arc<Self>, _key: Key, _readable: bool, writable: bool) {
        if self.is_closed() {
            return;
        }
        let parked = self.is_parked();
        if parked && !(writable && self.is_tx_blocked()) {
            self.own();
        } else if !parked && self.was_driven() {
            self.watch();
        } else if let Some(effects) = self.qp.drive_by_engine(&self) {
            match (self.is_closed(), parked) {
                (true, _) => {}
                (false, true) => self.own(),
                (false, false) => self.arm(),
            }
            self.leave(&effects);
        } else {
            // Another thread holds the connection: a consumer, or who accepts it.
            self.watch();
        }
    }

    fn on_deadline(self: Arc<Self>, _key: Key) {
        if !self.is_closed() {
            self.qp.on_socket_deadline(&self);
        }
    }

    fn on_readable(self: Arc<Self>) {
        if !self.is_closed() {
            self.qp.drive_by_consumer(&self);
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
    use std::io::{Read, Write};

    use access_layer::rnic::{SendOp, WcStatus};

    use super::*;
    use crate::qp::Link;
    use crate::support::{Event, Node, hex, raw_peer, read_exact};

    /// A Send number 1, "hello".
    const HELLO: &str = "00174143 00000000 00000000 00000001 00000000 68656c6c 6f000000 b990b10c";

    #[test]
    fn a_connection_that_the_kernel_does_not_watch_ends_with_a_terminate_message() {
        let node = Node::new("lo 0");
        let client = node.side(10);
        let (mut raw, _) = raw_peer(&client, &node);
        client.recv(1, &[]);
        let socket = match &*client.qp.qp.lock_link() {
            Link::Up(conn) => conn.socket.clone(),
            other => panic!("{other:?}"),
        };
        socket.on_unwatched();
        assert_eq!(client.event(), Event::Broken);
        let mut sent = Vec::new();
        raw.read_to_end(&mut sent).unwrap();
        // Behind MPA, DDP and the word of RDMAP: layer 0, type 0, code 0, a local catastrophic
        // error (RFC 5040 section 4.8).
        let terminate = &sent[sent.len() - (4 + 4)..];
        assert_eq!(terminate[..4], [0, 0, 0, 0], "{sent:x?}");
    }

    #[test]
    fn bytes_that_get_stuck_while_the_engine_arms_leave_when_there_is_room() {
        let node = Node::new("lo 0");
        let client = node.side(10);
        let memory = node.memory(16 << 20);
        let (mut raw, _) = raw_peer(&client, &node);
        // A peer that was heard is not spoken to again and again.
        client.recv(1, &[memory.sge(0, 100)]);
        raw.write_all(&hex(HELLO)).unwrap();
        while client.resting(&client.recv_cq).is_empty() {}
        let qp = &client.qp.qp;
        while matches!(&*qp.lock_link(), Link::Up(conn) if conn.deadline.is_some()) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        // A Write into the peer's memory, of which it takes nothing.
        let to = memory.remote(0, 16 << 20);
        client.post(1, SendOp::Write(to), &[memory.sge(0, 16 << 20)]);
        let socket = match &*qp.lock_link() {
            Link::Up(conn) => conn.socket.clone(),
            other => panic!("{other:?}"),
        };
        assert!(socket.is_tx_blocked() && socket.driver.is_engines());
        std::thread::scope(|scope| {
            // The engine has found nothing stuck and arms; before it is through, bytes get stuck.
            socket.tx_blocked.store(false, Ordering::SeqCst);
            let entry = socket.lock_entry();
            scope.spawn(|| socket.arm());
            std::thread::sleep(std::time::Duration::from_millis(50));
            socket.tx_blocked.store(true, Ordering::SeqCst);
            drop(entry);
        });
        for _ in 0..16 {
            read_exact(&mut raw, 1 << 20);
        }
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(5);
        let mut done = Vec::new();
        while done.is_empty() && std::time::Instant::now() < deadline {
            std::thread::sleep(std::time::Duration::from_millis(1));
            done = client.resting(&client.send_cq);
        }
        assert_eq!(
            done.first().map(|done| done.status),
            Some(WcStatus::Success)
        );
    }
}
