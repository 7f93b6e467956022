//! The owner's side of a connection that other processes may use: from signals to bytes, and the
//! end.

mod flow;

use std::collections::HashMap;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use host::stand_in::{Carrier, LibraryEnd, Move, Stage};
use rustix::event::epoll::EventFlags;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::thread::futex;

use self::flow::{Flow, State};
use crate::events::{EventHandler, event_thread};
use crate::socket::Socket;
use crate::socket::shared_state::{FreeStates, Place};

/// The most time that a user may need to take the signals out of the pair, and a thread of ours to
/// leave a call. Both need microseconds, unless the process is stopped or killed meanwhile.
const PATIENCE: Duration = Duration::from_secs(1);
/// The interval at which is checked that an awaited user lives.
const LOOK: Duration = Duration::from_millis(10);

/// The events for which the library's end is watched. Room is added when bytes go through it.
const INTEREST: EventFlags = EventFlags::IN
    .union(EventFlags::RDHUP)
    .union(EventFlags::PRI);

/// Watches a connection from its beginning, so that other processes can ask for it. No event comes
/// as long as only this process uses the connection.
pub(crate) fn watch(socket: &Arc<Socket>) -> Result<(), Errno> {
    let thread = event_thread()?;
    let handler = Arc::new(AskHandler(Arc::downgrade(socket)));
    let watched = socket
        .observer()
        .with_end(|end| thread.watch(end, INTEREST, handler));
    // A connection that broke meanwhile needs no watch.
    watched.unwrap_or(Ok(()))
}

/// Receives the requests of other processes for a connection.
struct AskHandler(Weak<Socket>);

impl EventHandler for AskHandler {
    fn ready(&self, seen: EventFlags) {
        let socket = self.0.upgrade();
        if let Some(relay) = socket.and_then(|socket| socket.observer().relay()) {
            relay.ready(seen);
        }
    }
}

/// A reference that is dropped by the event thread, which holds no lock of the stream.
struct DeferredDrop(#[expect(dead_code, reason = "it is there to be dropped")] Arc<Relay>);

impl EventHandler for DeferredDrop {
    fn ready(&self, _seen: EventFlags) {}
}

/// A connection of this process that other processes may use.
pub(crate) struct Relay {
    socket: Arc<Socket>,
    place: Place,
    /// Called when the pair begins to carry bytes: the table then has another entry for the numbers
    /// of the connection.
    on_carrying: fn(&Arc<Socket>, Place),
    /// The number of the library's end.
    end: RawFd,
    flow: Mutex<Option<Flow>>,
    nudged: AtomicBool,
    /// True once no descriptor of this process names the connection.
    left: AtomicBool,
    myself: Weak<Relay>,
    /// The last field, so that the connection is dropped before it is counted off.
    _counted: CountedRelay,
}

/// A relay that the end of the process waits for. It is counted for longer than it is listed among
/// the shared ones: all that is done to its connection is done before the process ends.
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
    /// The relays, by the numbers of the library's ends.
    relays: HashMap<RawFd, Arc<Relay>>,
    free_states: FreeStates,
}

static SHARED: AtomicPtr<Shared> = AtomicPtr::new(ptr::null_mut());

fn shared() -> &'static Shared {
    let found = SHARED.load(Ordering::Acquire);
    // SAFETY: null, or made below and never dropped.
    if let Some(found) = unsafe { found.as_ref() } {
        return found;
    }
    let fresh = Box::into_raw(Box::default());
    let null = ptr::null_mut();
    match SHARED.compare_exchange(null, fresh, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: just made, and never dropped.
        Ok(_) => unsafe { &*fresh },
        Err(found) => {
            // SAFETY: nobody has seen ours; the other one is never dropped.
            unsafe {
                drop(Box::from_raw(fresh));
                &*found
            }
        }
    }
}

/// Forgets all relays in the child of a fork, which owns none. The parent's map stays as it is,
/// because its lock may have been held.
pub(crate) fn reset_after_fork() {
    SHARED.store(ptr::null_mut(), Ordering::Release);
}

/// A lock of the shared connections of this process. While it lives, none of them ends, so their
/// numbers stay open.
pub(crate) struct SharedLock(Option<MutexGuard<'static, All>>);

pub(crate) fn lock() -> SharedLock {
    // SAFETY: null, or never dropped.
    let shared = unsafe { SHARED.load(Ordering::Acquire).as_ref() };
    SharedLock(shared.map(Shared::all))
}

impl SharedLock {
    /// Returns the descriptors that the child of a fork must not keep.
    pub(crate) fn withheld(&self) -> Vec<RawFd> {
        let relays = self.0.iter().flat_map(|all| all.relays.values());
        let each = relays.flat_map(|relay| {
            let end = std::iter::once(relay.end);
            let descriptor = relay.socket.stream().descriptor();
            end.chain(descriptor.map(|fd| fd.as_raw_fd()))
        });
        each.collect()
    }
}

/// Sleeps until no process holds a connection of ours any more.
pub(crate) fn await_last() {
    let found = SHARED.load(Ordering::Acquire);
    // SAFETY: null, or never dropped.
    let Some(shared) = (unsafe { found.as_ref() }) else {
        return;
    };
    loop {
        let count = shared.count.load(Ordering::Acquire);
        if count == 0 {
            return;
        }
        // A signal ends the sleep, and the count is read again; one that ends the process ends it
        // here.
        let _ = futex::wait(&shared.count, futex::Flags::PRIVATE, count, None);
    }
}

impl Shared {
    fn all(&self) -> MutexGuard<'_, All> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Relay {
    /// Makes a connection ready for other processes. From now on it ends when no process holds the
    /// program's end, and not when this process has closed it.
    ///
    /// The caller has called `will_be_shared` of the observer, and no lock of the stream is held.
    pub(crate) fn of(
        socket: &Arc<Socket>,
        on_carrying: fn(&Arc<Socket>, Place),
    ) -> Result<Arc<Self>, Errno> {
        let shared = shared();
        // Before the lock: the stack may find a break there, by which the relay leaves.
        let counted = CountedRelay::among(shared);
        let mut all = shared.all();
        if let Some(relay) = socket.observer().relay() {
            return Ok(relay);
        }
        let end = socket.observer().number().ok_or(Errno::CONNRESET)?;
        let place = all.free_states.take()?;
        let relay = Arc::new_cyclic(|myself| Self {
            socket: socket.clone(),
            place,
            on_carrying,
            end,
            flow: Mutex::new(None),
            nudged: AtomicBool::new(false),
            left: AtomicBool::new(false),
            myself: myself.clone(),
            _counted: counted,
        });
        socket.observer().is_shared_by(&relay);
        all.relays.insert(end, relay.clone());
        drop(all);
        // For an end that was held back meanwhile.
        relay.nudge();
        Ok(relay)
    }

    /// Carries a connection that no program has used yet, and that another process will accept.
    pub(crate) fn carry_for_others(socket: &Arc<Socket>, program: &OwnedFd) -> Result<(), Errno> {
        let observer = socket.observer();
        observer.will_be_shared();
        // No number names it, so the table has no entry to exchange.
        let relay = Self::of(socket, |_, _| {})?;
        let end = observer.hand_over().ok_or(Errno::CONNRESET)?;
        let carrier = Carrier::of(end)?;
        host::stand_in::surrender(program).map_err(|_| Errno::CONNRESET)?;
        for made in [
            Move::Ask,
            Move::Wake,
            Move::Rest,
            Move::Drain,
            Move::FinishDraining,
            Move::Carry,
        ] {
            relay.place.make(made);
        }
        if let Ok(thread) = event_thread() {
            thread.modify(&carrier, INTEREST | EventFlags::OUT);
        }
        *relay.flow() = Some(Flow::new(carrier, false, false));
        relay.nudge();
        Ok(())
    }

    /// The state that the users of the connection share.
    pub(crate) fn place(&self) -> Place {
        self.place
    }

    /// Has the event thread run the relay: there is an event of the connection.
    pub(crate) fn nudge(&self) {
        if self.nudged.swap(true, Ordering::AcqRel) {
            return;
        }
        if let (Ok(thread), Some(relay)) = (event_thread(), self.myself.upgrade()) {
            thread.run_soon(relay);
        }
    }

    /// Notes that no descriptor of this process names the connection any more.
    pub(crate) fn left_by_owner(&self) {
        self.left.store(true, Ordering::SeqCst);
        if self.flow().is_none() && self.is_needed_no_more() {
            self.end_unheld();
        }
    }

    /// Returns true if the pair cannot show that all processes have closed it, because it shows the
    /// end of both sides, and no process can do more than read that end.
    fn is_needed_no_more(&self) -> bool {
        self.socket.observer().state().shows_hang_up() && self.left.load(Ordering::SeqCst)
    }

    fn flow(&self) -> MutexGuard<'_, Option<Flow>> {
        self.flow.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Brings the pair to rest and begins to carry bytes, as a user has asked.
    fn begin(&self) {
        let observer = self.socket.observer();
        if !self.socket.stop_calls(PATIENCE) {
            self.go_on_steering();
            return;
        }
        let Some(end) = observer.hand_over() else {
            // The connection broke before, and the pair shows that.
            self.place.make(Move::End);
            self.socket.allow_calls();
            return;
        };
        let drained = self.rest() && self.await_user();
        // The bytes that users sent as a wake-up are in the pair. They send nothing else until it
        // carries bytes.
        let Ok(carrier) = Carrier::of(end) else {
            self.end_broken(None);
            self.socket.allow_calls();
            return;
        };
        if !drained {
            observer.take_back(carrier.steer());
            self.go_on_steering();
            return;
        }
        if let Ok(thread) = event_thread() {
            thread.modify(&carrier, INTEREST | EventFlags::OUT);
        }
        (self.on_carrying)(&self.socket, self.place);
        let state = observer.state();
        let flow = Flow::new(
            carrier,
            state.writing_has_ended(),
            state.reading_has_ended(),
        );
        *self.flow() = Some(flow);
        // The bytes that are there already are in the pair before the user is notified.
        self.run(EventFlags::empty());
        self.place.make(Move::Carry);
    }

    /// Tells the users that no more signals come. Returns false if a user has not finished its
    /// wake-up in time.
    fn rest(&self) -> bool {
        let deadline = Instant::now() + PATIENCE;
        while !self.place.make(Move::Rest) {
            if self.place.stage() != Stage::Waking || Instant::now() > deadline {
                return false;
            }
            self.place.wait(Stage::Waking, LOOK);
        }
        true
    }

    /// Waits until a user has taken the signals out. Returns false if the user is gone.
    fn await_user(&self) -> bool {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let stage = self.place.stage();
            match stage {
                Stage::AtRest | Stage::Draining => {}
                Stage::Drained => return true,
                _ => return false,
            }
            let in_time = self.place.wait(stage, LOOK);
            let gone = Instant::now() > deadline || (!in_time && self.is_unheld());
            if gone && self.place.make(Move::Revoke) {
                return false;
            }
        }
    }

    fn is_unheld(&self) -> bool {
        // SAFETY: the number of an end that this relay's socket or carrier holds.
        let end = unsafe { BorrowedFd::borrow_raw(self.end) };
        let mut set = [PollFd::from_borrowed_fd(end, PollFlags::empty())];
        poll(&mut set, Some(&Timespec::default())).is_ok()
            && set[0].revents().contains(PollFlags::HUP)
    }

    fn go_on_steering(&self) {
        self.place.make(Move::Revoke);
        self.socket.allow_calls();
        self.socket.show_all();
    }

    fn run(&self, seen: EventFlags) {
        self.nudged.store(false, Ordering::Release);
        let mut place = self.flow();
        let Some(flow) = &mut *place else {
            return;
        };
        let broken = self.socket.observer().pending_error().is_some();
        flow.resets(self.place.is_to_be_reset());
        let state = flow.run(self.socket.stream(), seen, broken);
        if matches!(state, State::Waiting | State::Busy) {
            drop(place);
            if state == State::Busy {
                self.nudge();
            }
            return;
        }
        let flow = place.take();
        drop(place);
        match (state, flow) {
            (State::Finished, Some(flow)) => {
                self.leave();
                flow.finish();
            }
            (State::Unheld, Some(flow)) if !flow.has_unread() => self.end_unheld(),
            (State::Unheld | State::Discarded, _) => {
                self.leave();
                self.socket.stream().abort();
            }
            (_, flow) => self.end_broken(flow),
        }
    }

    /// Ends the connection: no process holds the program's end any more, or can use it.
    fn end_unheld(&self) {
        let reset = self.place.is_to_be_reset();
        let observer = self.socket.observer();
        if observer.state().shows_hang_up() {
            // A process that still holds it is to read an end there, and no reset.
            observer.with_end(LibraryEnd::discard_unread);
        }
        if self.leave() {
            self.socket.end_by_last_close(reset);
        }
    }

    fn end_broken(&self, flow: Option<Flow>) {
        self.leave();
        if let Some(flow) = flow {
            flow.reset();
        }
    }

    /// Ends the sharing. Called before the library's end is closed, so that its number cannot name
    /// another descriptor yet. Returns false if the relay has left before.
    pub(crate) fn leave(&self) -> bool {
        let shared = shared();
        // Held to the end: the second caller may close descriptors that the first one has still to
        // remove.
        let mut all = shared.all();
        let is_listed = all
            .relays
            .get(&self.end)
            .is_some_and(|listed| ptr::eq(&**listed, self));
        if !is_listed {
            return false;
        }
        if let Ok(thread) = event_thread() {
            thread.unwatch_number(self.end);
        }
        self.place.make(Move::End);
        self.socket.observer().has_left();
        // The caller has another reference, so nothing is dropped with the lock held.
        all.relays.remove(&self.end);
        all.free_states.give_back(self.place);
        true
    }

    /// Leaves a reference to the event thread, which drops it.
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
        self.nudged.store(false, Ordering::Release);
        self.socket.show_end_if_read();
        // The event may be one of the pair before this one. Whether this process caused the hang-up
        // is asked afterwards, because that may happen at any time.
        let hung_up = seen.contains(EventFlags::HUP) && self.is_unheld();
        let unheld = match self.socket.observer().state().shows_hang_up() {
            true => self.is_needed_no_more(),
            false => hung_up,
        };
        if self.place.stage() == Stage::Waking && !unheld {
            // A short wait. If the user needs longer, it asks again.
            self.place.wait(Stage::Waking, LOOK);
        }
        match self.place.stage() {
            Stage::Ended | Stage::Dropped => {}
            _ if unheld => self.end_unheld(),
            Stage::Asked => self.begin(),
            _ => {}
        }
    }
}
