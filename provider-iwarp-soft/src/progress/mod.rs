//! Progress of an adapter's connections: the descriptors to sleep on, and which thread makes
//! progress.
//!
//! The layers above build every blocking call from three calls:
//!
//! | Call | What it does |
//! |---|---|
//! | [`Progress::descriptor`] | returns the descriptor to sleep on: the set of armed connections |
//! | [`Progress::arm`] | prepares a sleep; returns `HasWork` if there is work already |
//! | [`Progress::drive`] | makes progress on every connection that may have work, without blocking |
//!
//! | File | Contents |
//! |---|---|
//! | [`place`] | the state of one connection: armed, polled or closed |
//! | [`conn_set`] | the set of armed connections |
//! | [`conn_socket`] | a connection's descriptors, and the calls of the threads to its queue pair |
//! | [`event_order`] | delivers `Established` events before later disconnects |
//!
//! A thread that polls any EVD or CNO of an adapter makes progress on all its connections: it
//! drives the polled ones in every call, and finds the armed ones by polling the set. A connection
//! that pollers find in the set repeatedly becomes a polled one. If no thread has polled for a
//! tick, the engine arms all connections and serves the set. A tick is a quarter of the time for
//! which consumers have polled, between 50 us and 1 ms. The [`Arbiter`] selects the threads.
//!
//! A peer in shared memory does not wait for the tick: if it polls, it rings a consumer that has
//! stopped polling for 10 us while a record waits. So the engine waits for events of the set while
//! consumers poll, too, and serves the record.
//!
//! # Cost
//!
//! A poll of an adapter with one polled connection is one attempt to lock it and one check of its
//! carrier. One poll in [`SET_INTERVAL`] polls the set, which is a system call, and one in
//! [`DRIVES_PER_CLOCK`] reads the clock. An idle adapter costs nothing: no timer runs while no
//! thread polls.

pub(crate) mod conn_set;
pub(crate) mod conn_socket;
pub(crate) mod event_order;
mod place;

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use conn_set::{ConnSet, Ready};
use conn_socket::{Arming, ConnSocket, Driver};
use host::locks::lock;
use rnic::{Arbiter, Arm, Phase, RnicError, Todo};

use crate::engine::{Engine, Interest, Key, Source};
pub(crate) use place::{Place, Wants};

/// The connections that every poll drives, at one time.
pub(crate) type PolledList = Arc<Vec<Arc<ConnSocket>>>;

/// The longest time without a poll after which the engine takes over.
const TICK_MAX: Duration = Duration::from_millis(1);
/// The shortest such time. The engine wakes at each tick, which a short burst of polls does not
/// repeat.
const TICK_MIN: Duration = Duration::from_micros(50);
/// A tick has this part of the time for which consumers have polled: a program that polls for a
/// moment and then only reads its memory waits for a moment too, and a program that polls without
/// an end is seldom interrupted.
const TICK_PART: u32 = 4;
/// Maximum number of connections that every poll drives.
const POLLED_MAX: usize = 8;
/// The number of drives per poll of the set, while there are polled connections.
const SET_INTERVAL: u32 = 128;
/// The number of drives between two readings of the clock for [`ROUSE_INTERVAL`].
const DRIVES_PER_CLOCK: u32 = 16;
/// The time between two checks of the peers' polls.
const ROUSE_INTERVAL: Duration = Duration::from_micros(4);
/// The number of times that pollers find armed connections ready before one of them becomes a
/// polled one: two system calls are saved only if more messages follow.
const FINDS_MIN: u32 = 4;
/// Rounds of driving and arming before the engine serves its other sources.
const ARM_ROUNDS: usize = 8;
/// The pause of the engine if consumers hold all connections that are ready.
const BUSY_PAUSE: Duration = Duration::from_micros(50);

/// The state that the threads of one adapter share.
#[derive(Debug)]
pub(crate) struct Progress {
    engine: Arc<Engine>,
    key: Key,
    set: ConnSet,
    /// All connections, by the key that the set uses.
    sockets: Mutex<HashMap<Key, Weak<ConnSocket>>>,
    /// Connections that every poll drives. Replaced as a whole, so that a poll takes no lock.
    polled: ArcSwap<Vec<Arc<ConnSocket>>>,
    arbiter: Arbiter,
    /// The number of drives since the last poll of the set.
    since_set: AtomicU32,
    /// The number of armed connections that pollers found ready since a consumer slept last.
    finds: AtomicU32,
    /// The time of the last check of the peers' polls, in microseconds since `opened`, which wraps.
    roused_us: AtomicU32,
    opened: Instant,
    /// The time at which consumers began to poll, while they poll.
    polled_since: Mutex<Instant>,
}

impl Progress {
    pub(crate) fn new(engine: Arc<Engine>) -> Result<Arc<Self>, RnicError> {
        let set = ConnSet::new().map_err(crate::engine::no_descriptor)?;
        Ok(Arc::new(Self {
            key: engine.new_key(),
            engine,
            set,
            sockets: Mutex::default(),
            polled: ArcSwap::default(),
            // A consumer that wakes polls before it sleeps again.
            arbiter: Arbiter::new(Duration::ZERO),
            since_set: AtomicU32::new(0),
            finds: AtomicU32::new(0),
            roused_us: AtomicU32::new(0),
            opened: Instant::now(),
            polled_since: Mutex::new(Instant::now()),
        }))
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    fn set(&self) -> &ConnSet {
        &self.set
    }

    /// Makes the engine serve the set from now on. Called before the first connection is armed.
    fn start(self: &Arc<Self>) -> Result<(), RnicError> {
        if !self.arbiter.is(Phase::Closed) {
            return Ok(());
        }
        self.arbiter.begin(|| {
            self.engine.enlist(self.key, self.clone())?;
            let watched = self
                .engine
                .watch(self.key, self.set.as_fd(), Interest::Readable);
            watched.map_err(RnicError::Os)
        })
    }

    /// The descriptor to sleep on between [`Self::arm`] and [`Self::drive`].
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }

    /// The number of polls so far, which wraps.
    pub(crate) fn polls(&self) -> u32 {
        self.arbiter.polls()
    }

    /// Records a poll of a consumer that has taken completions and therefore need not make progress
    /// now. Progress is the engine's task if a consumer found none and does not drive.
    #[inline]
    pub(crate) fn note_poll(&self) {
        self.arbiter.on_poll(|todo| self.act(todo));
    }

    /// Makes progress on every connection that may have work, on the calling thread of a consumer.
    pub(crate) fn drive(&self) {
        // After the wake-up of a consumer that slept long, the engine waits for the set again only
        // once the event that woke the consumer is handled. Otherwise that event would also wake
        // the engine.
        let is_rare = self.arbiter.is(Phase::QuietSleeper);
        let has_slept = is_rare || self.arbiter.is(Phase::Sleeper);
        if !is_rare {
            self.note_poll();
        }
        let polled = self.polled.load();
        for socket in polled.iter() {
            if socket.may_have_work() {
                socket.drive(Driver::Consumer, Ready::None);
            }
        }
        if self.polls().is_multiple_of(DRIVES_PER_CLOCK) {
            self.rouse_peers();
        }
        let interval = match polled.len() {
            0 | POLLED_MAX.. => 1,
            _ => SET_INTERVAL,
        };
        drop(polled);
        let since = self.since_set.load(Ordering::Relaxed) + 1;
        if since < interval && !has_slept {
            return self.since_set.store(since, Ordering::Relaxed);
        }
        self.since_set.store(0, Ordering::Relaxed);
        self.set.for_each_ready(|key, ready| {
            if let Some(socket) = self.socket(key) {
                socket.drive(Driver::Consumer, ready);
                self.consider(&socket);
            }
        });
        if is_rare {
            self.note_poll();
        }
    }

    /// Wakes peers that have stopped polling while a record for them waits. Of an adapter with many
    /// connections, only the peers of polled connections.
    fn rouse_peers(&self) {
        let now = self.opened.elapsed().as_micros() as u32;
        let since = now.wrapping_sub(self.roused_us.load(Ordering::Relaxed));
        if u128::from(since) < ROUSE_INTERVAL.as_micros() {
            return;
        }
        self.roused_us.store(now, Ordering::Relaxed);
        let rouse = |socket: &Arc<ConnSocket>| {
            if socket.has_moved() && !socket.is_closed() {
                socket.service.rouse_peer(socket);
            }
        };
        let all = lock(&self.sockets);
        if all.len() > POLLED_MAX {
            drop(all);
            return self.polled.load().iter().for_each(rouse);
        }
        let mut sockets = [const { None }; POLLED_MAX];
        let upgraded = all.values().map(Weak::upgrade);
        sockets
            .iter_mut()
            .zip(upgraded)
            .for_each(|(to, it)| *to = it);
        drop(all);
        sockets.iter().flatten().for_each(rouse);
    }

    /// Adds a connection to those that the set may report.
    fn add(&self, socket: &Arc<ConnSocket>) {
        lock(&self.sockets).insert(socket.key, Arc::downgrade(socket));
    }

    /// Called when a connection is over. Returns the list of [`Self::remove_polled`].
    fn remove(&self, socket: &Arc<ConnSocket>) -> Option<PolledList> {
        lock(&self.sockets).remove(&socket.key);
        self.remove_polled(socket)
    }

    /// The connection with this key in the set.
    fn socket(&self, key: Key) -> Option<Arc<ConnSocket>> {
        let socket = lock(&self.sockets).get(&key).and_then(Weak::upgrade);
        socket.filter(|socket| !socket.is_closed())
    }

    /// Arms all connections for a sleep of the calling thread.
    pub(crate) fn arm(&self) -> Arm {
        self.finds.store(0, Ordering::Relaxed);
        if !self.arm_polled() {
            return Arm::HasWork;
        }
        self.begin_sleep()
    }

    /// Called by a consumer that has armed all connections and is about to sleep.
    fn begin_sleep(&self) -> Arm {
        let arm = self.arbiter.on_sleep(None, |todo| self.act(todo));
        // A poller may have adopted a connection after the first check of the list. From here on no
        // poller adopts one until a consumer polls again.
        if !self.polled.load().is_empty() && !self.arm_polled() {
            // The timer may have ended, so the engine arms the connections if no consumer does.
            self.engine.expire(self.key);
            return Arm::HasWork;
        }
        arm
    }

    /// Arms the polled connections. Returns `false` if one has work or is held by another thread.
    fn arm_polled(&self) -> bool {
        let polled = self.polled.load_full();
        let mut is_done = true;
        for socket in polled.iter() {
            match socket.service.arm(socket) {
                Arming::Done => {}
                Arming::HasWork => is_done = false,
            }
        }
        is_done
    }

    /// Called when a poller found an armed connection ready. The connection becomes a polled one if
    /// that is worthwhile.
    fn consider(&self, socket: &Arc<ConnSocket>) {
        let finds = self.finds.load(Ordering::Relaxed);
        self.finds.store(finds.saturating_add(1), Ordering::Relaxed);
        if (finds >= FINDS_MIN || socket.has_moved()) && self.can_adopt() {
            socket.service.start_polling(socket);
        }
    }

    /// Adds a connection to those that every poll drives. Returns `false` if no consumer polls any
    /// more; the connection then stays armed. Like [`Self::remove_polled`], called with the
    /// connection's lock held, so that the list agrees with the connection's [`Place`].
    fn adopt(&self, socket: &Arc<ConnSocket>) -> bool {
        self.arbiter.while_polled(|| {
            // The new list contains all connections of the former list, so this drop ends none.
            drop(self.change_polled(|all| all.push(socket.clone())));
        })
    }

    /// True while consumers poll.
    fn is_polled(&self) -> bool {
        self.arbiter.is(Phase::Pollers)
    }

    /// True if consumers poll and there is room for one more polled connection.
    pub(crate) fn can_adopt(&self) -> bool {
        self.is_polled() && self.polled.load().len() < POLLED_MAX
    }

    /// Removes a connection from the list of polled ones. Returns the former list, which may have
    /// the last reference to a queue pair, so the caller must drop it without a lock.
    pub(crate) fn remove_polled(&self, socket: &Arc<ConnSocket>) -> Option<PolledList> {
        let is_polled = self.polled.load().iter().any(|it| Arc::ptr_eq(it, socket));
        is_polled.then(|| self.change_polled(|all| all.retain(|it| !Arc::ptr_eq(it, socket))))
    }

    fn change_polled(&self, change: impl Fn(&mut Vec<Arc<ConnSocket>>)) -> PolledList {
        self.polled.rcu(|polled| {
            let mut all = Vec::clone(polled);
            change(&mut all);
            all
        })
    }

    fn act(&self, todo: Todo) {
        if let Some(listens) = todo.engine_listens {
            self.listen(listens);
        }
        if todo.tick {
            let now = Instant::now();
            let mut since = lock(&self.polled_since);
            if todo.engine_listens == Some(false) || !self.is_polled() {
                *since = now;
            }
            let tick = match self.is_polled() {
                true => tick_of(now - *since),
                false => TICK_MAX,
            };
            drop(since);
            self.engine.set_deadline(self.key, Some(now + tick));
        }
    }

    /// Sets whether the engine's thread waits for the set.
    fn listen(&self, listens: bool) {
        let interest = match listens {
            true => Interest::Readable,
            false => Interest::Nothing,
        };
        if self
            .engine
            .rearm(self.key, self.set.as_fd(), interest)
            .is_err()
        {
            // The entry exists already, so the kernel needs no memory for it.
            tracing::error!("the engine cannot wait for its connections");
        }
    }

    /// Serves the connections that are ready, on the engine's thread.
    fn serve(&self) {
        let served = self.serve_ready();
        let is_busy = served.ready > 0 && served.ready == served.busy;
        // The arbiter limits the number of events while consumers poll.
        if is_busy && !self.is_polled() {
            std::thread::sleep(BUSY_PAUSE);
        }
        if self.arbiter.on_event(is_busy, |todo| self.act(todo)) {
            self.arm_all();
        }
    }

    /// Arms the polled connections, on the engine's thread, which has taken over.
    fn arm_all(&self) {
        for _ in 0..ARM_ROUNDS {
            if self.arm_polled() {
                return;
            }
            for socket in self.polled.load_full().iter() {
                socket.drive(Driver::Engine, Ready::None);
            }
        }
        // A consumer holds a connection at the moment, or a peer sends without a pause.
        self.engine
            .set_deadline(self.key, Some(Instant::now() + TICK_MAX));
    }

    /// Drives the ready connections, once each.
    fn serve_ready(&self) -> Served {
        let mut served = Served::default();
        self.set.for_each_ready(|key, descriptor| {
            served.ready += 1;
            if let Some(socket) = self.socket(key) {
                served.busy += usize::from(!socket.drive(Driver::Engine, descriptor));
            }
        });
        served
    }
}

/// Connections that the engine found in the set.
#[derive(Debug, Default)]
struct Served {
    ready: usize,
    /// Connections that another thread holds.
    busy: usize,
}

impl Source for Progress {
    fn on_ready(self: Arc<Self>, _key: Key, _readable: bool, _writable: bool) {
        self.serve();
    }

    /// Called at the end of a tick.
    fn on_deadline(self: Arc<Self>, _key: Key) {
        // Connections beyond the limit would wake the engine for each message.
        let guards = self.polled.load().len() < POLLED_MAX;
        self.arbiter.on_tick(guards, |todo| self.act(todo));
        if self.arbiter.is(Phase::Engine) {
            self.arm_all();
        }
    }
}

/// Returns the length of a tick if consumers have polled for this time.
fn tick_of(polled: Duration) -> Duration {
    (polled / TICK_PART).clamp(TICK_MIN, TICK_MAX)
}

#[cfg(test)]
mod tests;
