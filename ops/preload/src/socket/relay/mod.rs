//! A shared connection in the process that owns it: the change of its pair from signals to bytes,
//! and its end.

mod flow;

use std::collections::HashMap;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::{Duration, Instant};

use host::locks::IgnorePoison as _;
use host::stand_in::{Carrier, LibraryEnd, Move, Stage};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::thread::futex;

use self::flow::{Flow, State};
use crate::events::{EventHandler, event_thread};
use crate::process;
use crate::socket::Socket;
use crate::socket::shared_state::{FreeStates, SharedStateRef};

/// The time limit for a user to remove the signals from the pair, and for a thread of this process
/// to end its call. Each takes microseconds, unless the process is stopped or killed meanwhile.
const PATIENCE: Duration = Duration::from_secs(1);
/// The interval at which the owner checks that an awaited user is alive.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// The events for which the library's end is watched. `OUT` is added when the pair carries bytes.
const INTEREST: EventFlags = EventFlags::IN
    .union(EventFlags::RDHUP)
    .union(EventFlags::PRI);

/// Watches the library's end of a new connection, so that other processes can request the
/// connection. No event occurs as long as only this process uses it.
pub(crate) fn watch(socket: &Arc<Socket>) -> Result<(), Errno> {
    let thread = event_thread()?;
    let handler = Arc::new(AskHandler(Arc::downgrade(socket)));
    socket.observer().on_watched(Arc::downgrade(socket));
    let watched = socket
        .observer()
        .with_end(|end| thread.watch(end, INTEREST, handler));
    // A connection that has broken needs no watch.
    watched.unwrap_or(Ok(()))
}

/// Makes the event thread let the pair of a connection carry bytes, because the program may receive
/// past the library. Returns false if there is no event thread.
pub(crate) fn carry_soon(socket: &Weak<Socket>) -> bool {
    let thread = event_thread();
    let work = || Arc::new(CarryFirst(socket.clone()));
    thread.map(|thread| thread.run_soon(work())).is_ok()
}

/// Makes a pair carry bytes in place of its first signal byte.
struct CarryFirst(Weak<Socket>);

impl EventHandler for CarryFirst {
    fn ready(&self, _seen: EventFlags) {
        let Some(socket) = self.0.upgrade() else {
            return;
        };
        if let Some(carry) = ON_BYTES.get() {
            carry(&socket);
        }
        socket.observer().on_carry_tried();
    }
}

/// The function that makes a connection carry bytes because the program uses it past the library.
static ON_BYTES: OnceLock<fn(&Arc<Socket>)> = OnceLock::new();

/// Sets the function that is called on the event thread when bytes of the program are found in a
/// pair that carries signals. Called when the library is loaded.
pub(crate) fn on_bytes(carry: fn(&Arc<Socket>)) {
    let _ = ON_BYTES.set(carry);
}

/// Receives the requests of other processes for a connection, and finds bytes that were sent past
/// the library.
struct AskHandler(Weak<Socket>);

impl EventHandler for AskHandler {
    fn ready(&self, seen: EventFlags) {
        let Some(socket) = self.0.upgrade() else {
            return;
        };
        if let Some(relay) = socket.observer().relay() {
            relay.ready(seen);
        }
        if socket.observer().has_bytes()
            && !is_awake(&socket)
            && let Some(carry) = ON_BYTES.get()
        {
            carry(&socket);
        }
    }
}

/// Returns true if a user has asked for the bytes of a connection: those in the pair are its
/// wake-up bytes, which a user sends after it has changed the stage.
fn is_awake(socket: &Socket) -> bool {
    let relay = socket.observer().relay();
    relay.is_some_and(|relay| relay.shared_state().stage() != Stage::Steered)
}

/// A reference that the event thread drops, because it holds no lock of the stream.
struct DeferredDrop(#[expect(dead_code, reason = "it is there to be dropped")] Arc<Relay>);

impl EventHandler for DeferredDrop {
    fn ready(&self, _seen: EventFlags) {}
}

/// The reason for which a pair begins to carry bytes.
enum Cause {
    /// Another process has requested the bytes.
    Request,
    /// Bytes were sent past the library to this descriptor of the program's end.
    Bytes(OwnedFd),
}

/// A connection of this process that other processes may use.
pub(crate) struct Relay {
    socket: Arc<Socket>,
    shared_state: SharedStateRef,
    /// Called when the pair begins to carry bytes, to replace the table entries of the connection.
    on_carrying: fn(&Arc<Socket>, SharedStateRef),
    /// The descriptor number of the library's end.
    end: RawFd,
    flow: Mutex<Option<Flow>>,
    is_nudged: AtomicBool,
    /// True once this process has closed all its descriptors of the connection.
    is_closed_here: AtomicBool,
    myself: Weak<Relay>,
    /// The last field, so that the connection is dropped before the count is decremented.
    _counted: CountedRelay,
}

/// A count of the relays, for which the end of the process waits. A relay is counted for longer
/// than it is listed, so that its connection is closed before the process ends.
struct CountedRelay(&'static Shared);

impl CountedRelay {
    fn among(shared: &'static Shared) -> Self {
        shared.count.fetch_add(1, Ordering::AcqRel);
        Self(shared)
    }
}

impl Drop for CountedRelay {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::AcqRel);
        let _ = futex::wake(&self.0.count, futex::Flags::PRIVATE, u32::MAX >> 1);
    }
}

/// The connections that this process owns and shares.
#[derive(Default)]
struct Shared {
    all: Mutex<All>,
    /// The number of relays; a futex word.
    count: AtomicU32,
}

#[derive(Default)]
struct All {
    /// The relays, by the descriptor numbers of the library's ends.
    relays: HashMap<RawFd, Arc<Relay>>,
    free_states: FreeStates,
}

static SHARED: AtomicPtr<Shared> = AtomicPtr::new(ptr::null_mut());

fn made() -> Option<&'static Shared> {
    // SAFETY: the pointer is null, or to a box that is never freed.
    unsafe { SHARED.load(Ordering::Acquire).as_ref() }
}

fn shared() -> &'static Shared {
    if let Some(found) = made() {
        return found;
    }
    let fresh = Box::into_raw(Box::default());
    let null = ptr::null_mut();
    match SHARED.compare_exchange(null, fresh, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: the box was made above and is never freed.
        Ok(_) => unsafe { &*fresh },
        Err(found) => {
            // SAFETY: no other thread has seen our box; the other thread's box is never freed.
            unsafe {
                drop(Box::from_raw(fresh));
                &*found
            }
        }
    }
}

/// Removes the relays from the child of a fork, which owns none. The parent's map is leaked,
/// because its lock may be held.
pub(crate) fn reset_after_fork() {
    SHARED.store(ptr::null_mut(), Ordering::Release);
}

/// A lock of the shared connections of this process. While it is held, no connection ends, so the
/// descriptors stay open.
pub(crate) struct SharedLock(Option<MutexGuard<'static, All>>);

pub(crate) fn lock() -> SharedLock {
    SharedLock(made().map(Shared::all))
}

impl SharedLock {
    /// Returns the descriptors that the child of a fork must not keep.
    pub(crate) fn withheld(&self) -> Vec<RawFd> {
        let relays = self.0.iter().flat_map(|all| all.relays.values());
        relays.map(|relay| relay.end).collect()
    }
}

/// Returns true if this process carries a connection of other processes.
pub(crate) fn is_needed() -> bool {
    made().is_some_and(|shared| shared.count.load(Ordering::Acquire) > 0)
}

/// Sleeps until no other process holds a connection of this process.
pub(crate) fn await_last() {
    let Some(shared) = made() else {
        return;
    };
    loop {
        let count = shared.count.load(Ordering::Acquire);
        if count == 0 {
            return;
        }
        // A signal interrupts the sleep, and the count is read again.
        let _ = futex::wait(&shared.count, futex::Flags::PRIVATE, count, None);
    }
}

impl Shared {
    fn all(&self) -> MutexGuard<'_, All> {
        self.all.lock().ignore_poison()
    }
}

impl Relay {
    /// Makes a connection available to other processes. From now on it ends when no process holds
    /// the program's end, and not when this process has closed it.
    ///
    /// The caller must have called `begin_sharing` of the observer, and must hold no lock of the
    /// stream.
    pub(crate) fn of(
        socket: &Arc<Socket>,
        on_carrying: fn(&Arc<Socket>, SharedStateRef),
    ) -> Result<Arc<Self>, Errno> {
        let shared = shared();
        let counted = CountedRelay::among(shared);
        let mut all = shared.all();
        if let Some(relay) = socket.observer().relay() {
            return Ok(relay);
        }
        let end = socket.observer().number().ok_or(Errno::CONNRESET)?;
        let shared_state = all.free_states.take()?;
        let relay = Arc::new_cyclic(|myself| Self {
            socket: socket.clone(),
            shared_state,
            on_carrying,
            end,
            flow: Mutex::new(None),
            is_nudged: AtomicBool::new(false),
            is_closed_here: AtomicBool::new(false),
            myself: myself.clone(),
            _counted: counted,
        });
        socket.observer().set_relay(&relay);
        all.relays.insert(end, relay.clone());
        drop(all);
        // Makes the relay show an end of the peer that was held back meanwhile.
        relay.nudge();
        Ok(relay)
    }

    /// Carries the bytes of a new connection that another process will accept. The caller must have
    /// called `begin_sharing` of the observer before its first event.
    pub(crate) fn carry_for_others(socket: &Arc<Socket>, program: &OwnedFd) -> Result<(), Errno> {
        let observer = socket.observer();
        // The connection has no descriptor in the table yet, so there is no entry to replace.
        let relay = Self::of(socket, |_, _| {})?;
        let end = observer.hand_over().ok_or(Errno::CONNRESET)?;
        let carrier = Carrier::of(end)?;
        host::stand_in::surrender(program).map_err(|_| Errno::CONNRESET)?;
        for made in [
            Move::Ask,
            Move::Wake,
            Move::StopSignals,
            Move::Drain,
            Move::FinishDraining,
            Move::Carry,
        ] {
            relay.shared_state.make(made);
        }
        if let Ok(thread) = event_thread() {
            thread.modify(&carrier, INTEREST | EventFlags::OUT);
        }
        *relay.flow() = Some(Flow::new(carrier, false, false));
        relay.nudge();
        Ok(())
    }

    /// The state that the processes of the connection share.
    pub(crate) fn shared_state(&self) -> SharedStateRef {
        self.shared_state
    }

    /// Makes the event thread run the relay soon.
    pub(crate) fn nudge(&self) {
        if self.is_nudged.swap(true, Ordering::AcqRel) {
            return;
        }
        if let (Ok(thread), Some(relay)) = (event_thread(), self.myself.upgrade()) {
            thread.run_soon(relay);
        }
    }

    /// Records that this process has closed its last descriptor of the connection.
    pub(crate) fn on_owner_closed(&self) {
        self.is_closed_here.store(true, Ordering::SeqCst);
        if self.flow().is_none() && self.is_unneeded() {
            self.end_unheld();
        }
    }

    /// Returns true if this process has closed the connection and the pair shows the end of both
    /// directions. Other processes can only read that end, and the pair cannot show when they close
    /// it.
    fn is_unneeded(&self) -> bool {
        self.socket.observer().state().shows_hang_up() && self.is_closed_here.load(Ordering::SeqCst)
    }

    fn flow(&self) -> MutexGuard<'_, Option<Flow>> {
        self.flow.lock().ignore_poison()
    }

    /// Begins to carry bytes because some were sent past the library. `program` is a descriptor of
    /// the program's end. Must be called on the event thread.
    ///
    /// Does nothing if the pair carries bytes already, or a user has requested them.
    pub(crate) fn begin_past_library(&self, program: OwnedFd) {
        if self.shared_state.make(Move::Claim) {
            self.begin(Cause::Bytes(program));
        }
    }

    /// Stops the signals and begins to carry bytes.
    fn begin(&self, cause: Cause) {
        let observer = self.socket.observer();
        if !self.socket.stop_calls(PATIENCE) {
            self.abort_hand_over();
            return;
        }
        let Some(end) = observer.hand_over() else {
            // The connection broke before, and the pair shows the reset.
            self.shared_state.make(Move::End);
            self.socket.allow_calls();
            return;
        };
        let (is_drained, carrier) = match cause {
            // The pair contains only wake-up bytes of users. A user sends no data before the pair
            // carries bytes.
            Cause::Request => (self.stop_signals() && self.await_user(), Carrier::of(end)),
            Cause::Bytes(program) => (
                self.stop_signals() && self.drain(&program),
                observer.with_signals(|signals| Carrier::with_bytes(end, signals)),
            ),
        };
        let Ok(carrier) = carrier else {
            self.end_broken(None);
            self.socket.allow_calls();
            return;
        };
        if !is_drained {
            observer.take_back(carrier.steer());
            self.abort_hand_over();
            return;
        }
        if let Ok(thread) = event_thread() {
            thread.modify(&carrier, INTEREST | EventFlags::OUT);
        }
        (self.on_carrying)(&self.socket, self.shared_state);
        let state = observer.state();
        let flow = Flow::new(
            carrier,
            state.has_writing_ended(),
            state.has_reading_ended(),
        );
        *self.flow() = Some(flow);
        // Bytes that were received already are put into the pair before the user is notified.
        self.run(EventFlags::empty());
        self.shared_state.make(Move::Carry);
    }

    /// Notifies the users that no more signals are sent. Returns false if a user has not finished
    /// its wake-up in time.
    fn stop_signals(&self) -> bool {
        let deadline = Instant::now() + PATIENCE;
        while !self.shared_state.make(Move::StopSignals) {
            if self.shared_state.stage() != Stage::Waking || Instant::now() > deadline {
                return false;
            }
            self.shared_state.wait(Stage::Waking, CHECK_INTERVAL);
        }
        true
    }

    /// Removes the signals from the program's end, unless a user does. Returns false if that user
    /// does not finish in time.
    fn drain(&self, program: &OwnedFd) -> bool {
        if !self.shared_state.make(Move::Drain) {
            return self.await_user();
        }
        // An error means that the pair can no longer be read, and has no signals to remove.
        let _ = host::stand_in::surrender(program);
        self.shared_state.make(Move::FinishDraining)
    }

    /// Waits until a user has removed the signals from the pair. Returns false if no user does so
    /// in time, because the users have ended or closed the pair.
    fn await_user(&self) -> bool {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let stage = self.shared_state.stage();
            match stage {
                Stage::SignalsStopped | Stage::Draining => {}
                Stage::Drained => return true,
                _ => return false,
            }
            let in_time = self.shared_state.wait(stage, CHECK_INTERVAL);
            let gone = Instant::now() > deadline || (!in_time && self.is_unheld());
            if gone && self.shared_state.make(Move::Revoke) {
                return false;
            }
        }
    }

    fn is_unheld(&self) -> bool {
        // SAFETY: the socket or the carrier of this relay keeps the number open.
        process::has_hung_up(unsafe { BorrowedFd::borrow_raw(self.end) })
    }

    fn abort_hand_over(&self) {
        self.shared_state.make(Move::Revoke);
        self.socket.allow_calls();
        self.socket.show_all();
    }

    fn run(&self, seen: EventFlags) {
        self.is_nudged.store(false, Ordering::Release);
        let mut current = self.flow();
        let Some(flow) = &mut *current else {
            return;
        };
        let broken = self.socket.observer().pending_error().is_some();
        flow.set_reset(self.shared_state.resets_on_close());
        let state = flow.run(self.socket.stream(), seen, broken);
        if matches!(state, State::Waiting | State::Busy) {
            drop(current);
            if state == State::Busy {
                self.nudge();
            }
            return;
        }
        let flow = current.take();
        drop(current);
        match (state, flow) {
            (State::Finished, Some(flow)) => {
                self.end_sharing();
                flow.finish();
            }
            (State::Unheld, Some(flow)) if !flow.has_unread() => self.end_unheld(),
            (State::Unheld | State::Discarded, _) => {
                self.end_sharing();
                self.socket.stream().abort();
            }
            (_, flow) => self.end_broken(flow),
        }
    }

    /// Ends the connection, because no process holds the program's end or can use it.
    fn end_unheld(&self) {
        let reset = self.shared_state.resets_on_close();
        let observer = self.socket.observer();
        if observer.state().shows_hang_up() {
            // A process that still holds the pair must read the end and no reset.
            observer.with_end(LibraryEnd::discard_unread);
        }
        if self.end_sharing() {
            self.socket.end_by_last_close(reset);
        }
    }

    fn end_broken(&self, flow: Option<Flow>) {
        self.end_sharing();
        if let Some(flow) = flow {
            flow.reset();
        }
    }

    /// Ends the sharing. Must be called before the library's end is closed, because the relay is
    /// listed under that number. Returns false if the sharing had ended before.
    pub(crate) fn end_sharing(&self) -> bool {
        let shared = shared();
        // Held to the end of the function, because a second caller may close descriptors that the
        // first caller has not yet removed from the event thread.
        let mut all = shared.all();
        let is_listed = all
            .relays
            .get(&self.end)
            .is_some_and(|listed| ptr::eq(&**listed, self));
        if !is_listed {
            return false;
        }
        if let Ok(thread) = event_thread() {
            // SAFETY: the relay is listed and `all` is locked, so no caller has closed the end: the
            // socket or the carrier of this relay keeps the number open.
            thread.unwatch(unsafe { BorrowedFd::borrow_raw(self.end) });
        }
        self.shared_state.make(Move::End);
        self.socket.observer().on_relay_ended();
        // The caller has another reference, so the relay is not dropped with the lock held.
        all.relays.remove(&self.end);
        all.free_states.release(self.shared_state);
        true
    }

    /// Passes a reference to the event thread, which drops it.
    pub(crate) fn drop_later(self: Arc<Self>) {
        if let Ok(thread) = event_thread() {
            thread.run_soon(Arc::new(DeferredDrop(self)));
        }
    }
}

impl EventHandler for Relay {
    fn ready(&self, seen: EventFlags) {
        if self.flow().is_some() {
            self.run(seen);
            return;
        }
        self.is_nudged.store(false, Ordering::Release);
        self.socket.show_end_if_read();
        // The event may belong to an earlier pair, so the hang-up is checked. This process may
        // cause a hang-up at any time, so `shows_hang_up` is read after that check.
        let hung_up = seen.contains(EventFlags::HUP) && self.is_unheld();
        let unheld = match self.socket.observer().state().shows_hang_up() {
            true => self.is_unneeded(),
            false => hung_up,
        };
        if self.shared_state.stage() == Stage::Waking && !unheld {
            // A short wait. A user that needs longer sends its request again.
            self.shared_state.wait(Stage::Waking, CHECK_INTERVAL);
        }
        match self.shared_state.stage() {
            Stage::Ended | Stage::Dropped => {}
            _ if unheld => self.end_unheld(),
            Stage::Asked => self.begin(Cause::Request),
            _ => {}
        }
    }
}
