//! A connect without blocking, which continues on the event thread.
//!
//! ```text
//! Trying ── a protocol connects ──> Over
//!   │ └──── the switch chooses TCP ──> Tcp ── connected, or unwatched ──> Over
//!   └────── neither, TCP is not permitted ──> Failed ── the program connects again ──> Over
//! ```
//! A close of the descriptor leads from each state to `Over`.
//!
//! Meanwhile the program's descriptor is one end of a pair, which no poll reports ready. If the
//! switch chooses TCP, the TCP socket of the program gets its number back. A thread that waits for
//! the pair at that moment is woken when TCP has connected.

use std::ffi::c_int;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

use host::descriptors::{Identity, OwnDescriptor, raise};
use host::locks::IgnorePoison as _;
use host::stand_in::{self, Flags, LibraryEnd, Signals};
use ops::{Connecting, OffloadStream, Outcome, Reason, Switch};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, FdFlags, fcntl_getfd};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use tracing::info;

use crate::events::{EventHandler, event_thread};
use crate::process::signals_blocked::SignalsBlocked;
use crate::process::{self, guard};
use crate::registrations::Registrations;
use crate::sharing::exposing;
use crate::socket::room;
use crate::socket::undecided::Undecided;
use crate::table::{self, Entry};
use crate::tcp::names::Family;
use crate::tcp::options::Options;
use crate::{numbers, observing};

/// The time that a settling call waits after the last moment at which the attempt should have
/// ended, because the thread may have no processor.
const GRACE: Duration = Duration::from_secs(5);

/// The marks of the descriptors in the set of an attempt.
const STEP: u64 = 0;
const TIMER: u64 = 1;

/// The program's socket.
pub(super) struct Subject {
    pub(super) fd: c_int,
    pub(super) family: Family,
    pub(super) remote: SocketAddr,
    /// The program's TCP socket, which reserves the port.
    pub(super) tcp: Arc<OwnedFd>,
}

enum State {
    Trying(Box<Trying>),
    /// TCP connects the socket, which has its number again.
    Tcp(Pair, Arc<OwnedFd>),
    /// The attempt has failed with this error, which is 0 once the program has received it.
    Failed(i32, Arc<OwnedFd>),
    Over,
}

struct Trying {
    connecting: Connecting<'static>,
    pair: Pair,
    tcp: Arc<OwnedFd>,
}

/// The library's end of the pair, and what it shows.
struct Pair {
    end: LibraryEnd,
    signals: Signals,
    /// The program's end.
    identity: Identity,
}

/// A connect in progress.
pub(super) struct Background {
    me: Weak<Self>,
    switch: Arc<Switch>,
    fd: c_int,
    family: Family,
    remote: SocketAddr,
    /// The event thread sleeps on this set, which has the timer and the descriptor of the attempt.
    set: OwnDescriptor,
    timer: OwnDescriptor,
    state: Mutex<State>,
    has_changed: Condvar,
    /// The process that connects; a fork copies the value.
    maker: i32,
}

/// Continues an attempt on the event thread.
pub(super) fn begin(
    switch: &Arc<Switch>,
    connecting: Connecting<'static>,
    of: Subject,
    shown: Flags,
) -> Result<(), Errno> {
    let _signals_blocked = SignalsBlocked::begin();
    let thread = event_thread()?;
    let timer = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    let timer = raise(timerfd_create(TimerfdClockId::Monotonic, timer)?)?;
    let set = raise(epoll::create(CreateFlags::CLOEXEC)?)?;
    epoll::add(
        &set,
        &timer,
        EventData::new_u64(TIMER),
        EventFlags::IN | EventFlags::ET,
    )?;
    let (program, end) = stand_in::established(shown).map_err(|why| why.errno())?;
    let signals = Signals::new();
    stand_in::close_window(&program, &signals).map_err(|_| Errno::NOBUFS)?;
    let pair = Pair {
        end: end.moved(raise)?,
        signals,
        identity: Identity::of(&program)?,
    };
    let fd = of.fd;
    let trying = Trying {
        connecting,
        pair,
        tcp: of.tcp,
    };
    let background = Arc::new_cyclic(|me| Background {
        me: Weak::clone(me),
        switch: Arc::clone(switch),
        fd,
        family: of.family,
        remote: of.remote,
        set: set.into(),
        timer: timer.into(),
        state: Mutex::new(State::Trying(Box::new(trying))),
        has_changed: Condvar::new(),
        maker: process::id(),
    });
    // The event thread waits for the lock until the program's descriptor is the pair.
    let state = background.state();
    thread.watch(
        &background.set,
        EventFlags::IN,
        Arc::clone(&background) as _,
    )?;
    let insert = || numbers::insert(fd, Entry::Undecided(Arc::clone(&background) as _));
    if let Err(errno) = put_under_number(&program, fd, shown, insert) {
        thread.unwatch(&background.set);
        return Err(errno);
    }
    drop(state);
    thread.run_soon(background);
    Ok(())
}

/// Gives a descriptor of the program another kernel object, in its `epoll` sets too. `insert` makes
/// the entry of the object.
pub(super) fn put_under_number(
    with: &OwnedFd,
    fd: c_int,
    flags: Flags,
    insert: impl FnOnce(),
) -> Result<(), Errno> {
    // The former object is removed from the sets before the number is reused, because it may stay
    // open and could not be removed afterwards.
    let registrations = Registrations::of(fd);
    registrations.withdraw();
    let replaced = numbers::replace(with, fd, flags);
    if replaced.is_ok() {
        insert();
    }
    registrations.renew();
    replaced
}

/// Returns the program's TCP socket to its number after a failed attempt, and the error of the
/// call: a second `connect` of a TCP socket returns the error of the first. `None`: the attempt has
/// not failed.
pub(crate) fn take_failed(fd: c_int) -> Option<Errno> {
    let undecided = table::undecided(fd)?;
    let _signals_blocked = SignalsBlocked::begin();
    let error = undecided.take_error()?;
    undecided.with_tcp(&mut |tcp| {
        if let Ok(tcp) = rustix::io::fcntl_dupfd_cloexec(tcp, 0) {
            // SAFETY: the table has an entry for the number, so it is not negative.
            let flags = flags_of(unsafe { BorrowedFd::borrow_raw(fd) });
            let _ = put_under_number(&tcp, fd, flags, || ());
        }
    });
    numbers::forget(fd);
    Some(match error {
        0 => Errno::CONNABORTED,
        error => Errno::from_raw_os_error(error),
    })
}

/// Returns the flags of the program's descriptor.
pub(super) fn flags_of(fd: BorrowedFd<'_>) -> Flags {
    Flags {
        nonblocking: process::is_nonblocking(fd),
        close_on_exec: fcntl_getfd(fd).is_ok_and(|flags| flags.contains(FdFlags::CLOEXEC)),
    }
}

impl Background {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().ignore_poison()
    }

    /// Makes the set report the next event of the attempt.
    fn arm(&self, trying: &Trying) {
        if let Some(fd) = trying.connecting.descriptor() {
            let flags = EventFlags::IN | EventFlags::ONESHOT;
            self.add(fd, flags);
        }
        let left = trying.connecting.deadline();
        let left = left.saturating_duration_since(Instant::now());
        let once = Itimerspec {
            it_interval: Timespec::default(),
            // A time of zero would stop the timer.
            it_value: Timespec::try_from(left.max(Duration::from_nanos(1))).unwrap_or_default(),
        };
        // This call fails only for values out of range.
        let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once);
    }

    /// Adds a descriptor to the set, or arms it again. The set forgets closed descriptors.
    fn add(&self, fd: BorrowedFd<'_>, flags: EventFlags) {
        let mark = EventData::new_u64(STEP);
        if epoll::modify(&self.set, fd, mark, flags) == Err(Errno::NOENT) {
            // Without memory for it, the timer ends the attempt.
            let _ = epoll::add(&self.set, fd, mark, flags);
        }
    }

    /// Returns the state after the outcome of an attempt.
    fn decide(&self, outcome: Outcome, pair: Pair, tcp: Arc<OwnedFd>) -> State {
        let remote = self.remote;
        match outcome {
            Outcome::Offloaded { protocol, stream } => {
                let device = stream.device();
                info!(peer = %remote, protocol, device, "a connection is offloaded");
                self.establish(&protocol, stream, pair, tcp);
                State::Over
            }
            Outcome::Native(reason) => {
                info!(peer = %remote, %reason, "a connection uses TCP");
                self.switch.count_fall_back(&reason);
                self.connect_by_tcp(reason, pair, tcp)
            }
            Outcome::Impossible(reason) => {
                info!(peer = %remote, %reason, "a connection fails because TCP is not permitted");
                fail(reason.errno(), pair, tcp)
            }
        }
    }

    fn establish(
        &self,
        protocol: &str,
        stream: Box<dyn OffloadStream>,
        pair: Pair,
        tcp: Arc<OwnedFd>,
    ) {
        let Pair { end, signals, .. } = pair;
        // The attempt is over, so it has dropped its reference.
        let Ok(tcp) = Arc::try_unwrap(tcp) else {
            return;
        };
        let options = Options::of(tcp);
        // On an error the pair shows a reset, because its end is dropped.
        let Ok(socket) = room::socket(options, end, self.family, protocol, stream) else {
            return;
        };
        socket.add_number();
        let is_it = |entry: &Entry| self.is(entry);
        let mut is_made = false;
        table::exchange(self.fd, is_it, || {
            is_made = true;
            Entry::Socket(Arc::clone(&socket))
        });
        if !is_made {
            // The program has closed the descriptor.
            let _ = numbers::release(Entry::Socket(socket));
            return;
        }
        exposing::expose_standard(self.fd);
        // The program finds the connection when the pair shows that it is writable.
        let _ = socket.observer().with_end(|end| end.open_window(&signals));
    }

    /// Returns true for the entry of this attempt.
    fn is(&self, entry: &Entry) -> bool {
        let me = self.me.as_ptr().addr();
        matches!(entry, Entry::Undecided(found) if Arc::as_ptr(found).addr() == me)
    }

    /// Connects the program's TCP socket, and gives it its number.
    fn connect_by_tcp(&self, reason: Reason, pair: Pair, tcp: Arc<OwnedFd>) -> State {
        // The number may be that of another file, if the program has closed it without a hook.
        if Identity::of_number(self.fd) != Ok(pair.identity) {
            return State::Over;
        }
        // SAFETY: the number is that of the pair.
        let shown = flags_of(unsafe { BorrowedFd::borrow_raw(self.fd) });
        let connected = rustix::net::connect(&*tcp, &self.family.shown(self.remote));
        if let Err(errno) = connected
            && errno != Errno::INPROGRESS
        {
            return fail(errno, pair, tcp);
        }
        if !shown.nonblocking
            && let Ok(flags) = fcntl_getfl(&*tcp)
        {
            let _ = fcntl_setfl(&*tcp, flags - OFlags::NONBLOCK);
        }
        let insert = || {
            // Not released, because that would cancel the attempt.
            drop(table::remove(self.fd));
            if let Some(record) = observing::native(tcp.as_fd(), Some(self.remote), reason) {
                numbers::list(self.fd, record);
            }
        };
        if let Err(errno) = put_under_number(&tcp, self.fd, shown, insert) {
            return fail(errno, pair, tcp);
        }
        self.add(tcp.as_fd(), EventFlags::OUT);
        self.add(pair.end.as_fd(), EventFlags::HUP);
        State::Tcp(pair, tcp)
    }
}

/// Shows the failure of an attempt on the program's descriptor.
fn fail(errno: Errno, pair: Pair, tcp: Arc<OwnedFd>) -> State {
    pair.end.reset();
    State::Failed(errno.raw_os_error(), tcp)
}

/// Returns true if a descriptor has one of these events.
fn has(fd: BorrowedFd<'_>, events: PollFlags) -> bool {
    let mut set = [PollFd::from_borrowed_fd(fd, events)];
    poll(&mut set, Some(&Timespec::default())) != Ok(0)
}

impl EventHandler for Background {
    fn ready(&self, _seen: EventFlags) {
        let _inside = guard::enter();
        let mut state = self.state();
        *state = match mem::replace(&mut *state, State::Over) {
            State::Trying(mut trying) => match trying.connecting.step() {
                None => {
                    self.arm(&trying);
                    State::Trying(trying)
                }
                Some(outcome) => {
                    let Trying {
                        connecting,
                        pair,
                        tcp,
                    } = *trying;
                    drop(connecting);
                    self.decide(outcome, pair, tcp)
                }
            },
            State::Tcp(pair, tcp) if has(tcp.as_fd(), PollFlags::OUT) => {
                // Wakes the threads that have waited for the pair since before it was replaced.
                let _ = pair.end.open_window(&pair.signals);
                State::Over
            }
            State::Tcp(pair, tcp) if !has(pair.end.as_fd(), PollFlags::HUP) => {
                State::Tcp(pair, tcp)
            }
            // No thread waits for the pair. The socket is the program's alone, so that its close
            // ends the connect.
            State::Tcp(..) => State::Over,
            other => other,
        };
        if !matches!(*state, State::Trying(_) | State::Tcp(..))
            && let Ok(thread) = event_thread()
        {
            thread.unwatch(&self.set);
        }
        self.has_changed.notify_all();
    }
}

impl Undecided for Background {
    fn settle(&self) {
        let _inside = guard::enter();
        let mut state = self.state();
        while let State::Trying(trying) = &*state {
            let limit = trying.connecting.deadline() + GRACE;
            let left = limit.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.has_changed.wait_timeout(state, left);
            state = waited.ignore_poison().0;
        }
    }

    fn with_tcp(&self, work: &mut dyn FnMut(BorrowedFd<'_>)) -> bool {
        let _signals_blocked = SignalsBlocked::begin();
        let state = self.state();
        let tcp = match &*state {
            State::Trying(trying) => &trying.tcp,
            State::Failed(_, tcp) => tcp,
            State::Tcp(..) | State::Over => return false,
        };
        work(tcp.as_fd());
        true
    }

    fn take_error(&self) -> Option<i32> {
        let _signals_blocked = SignalsBlocked::begin();
        match &mut *self.state() {
            State::Failed(error, _) => Some(mem::take(error)),
            State::Trying(_) | State::Tcp(..) | State::Over => None,
        }
    }

    fn is_of_this_process(&self) -> bool {
        self.maker == process::id()
    }

    fn cancel(&self) {
        let _signals_blocked = SignalsBlocked::begin();
        let mut state = self.state();
        if matches!(*state, State::Trying(_) | State::Failed(..)) {
            let before = mem::replace(&mut *state, State::Over);
            if let Ok(thread) = event_thread() {
                thread.unwatch(&self.set);
            }
            drop(state);
            drop(before);
        }
        self.has_changed.notify_all();
    }
}
