//! A connect without blocking, which continues on the event thread.
//!
//! Meanwhile the program's descriptor is one end of a pair, which no poll reports ready. If the
//! switch chooses TCP, the TCP socket of the program gets its number back. A thread that waits for
//! the pair at that moment is woken when TCP has connected.

use std::ffi::c_int;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use host::descriptors::{Identity, OwnDescriptor, raise};
use host::locks::IgnorePoison as _;
use host::stand_in::{self, Flags, LibraryEnd, Signals};
use ops::observe::ReasonText;
use ops::{Connecting, OffloadStream, Outcome, Reason, Watch as _};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFlags, Timespec};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, FdFlags, fcntl_getfd};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use tracing::info;

use crate::events::{EventHandler, event_thread};
use crate::fd::{self, Answer, Entry};
use crate::observing;
use crate::process::signals_blocked::SignalsBlocked;
use crate::process::{self, guard};
use crate::setup::attempt::Attempt;
use crate::sharing::exposing;
use crate::socket::observer::Observer;
use crate::socket::room;
use crate::tcp::names::Family;
use crate::tcp::options::Options;

/// The time for which a call waits for an attempt beyond the attempt's deadline, because the event
/// thread may not be scheduled in time.
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
    pub(super) tcp: Arc<OwnDescriptor>,
}

struct State {
    attempt: Attempt,
    held: Held,
}

/// The objects of an attempt, until it is over.
#[derive(Default)]
struct Held {
    /// Present while a protocol tries to connect.
    connecting: Option<Connecting<'static>>,
    /// Present until the pair shows a failure.
    pair: Option<Pair>,
    tcp: Option<Arc<OwnDescriptor>>,
}

/// The library's end of the pair, and what it shows.
struct Pair {
    end: LibraryEnd,
    signals: Signals,
    /// The program's end.
    identity: Identity,
}

/// A connect in progress.
pub(crate) struct Background {
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
    let held = Held {
        connecting: Some(connecting),
        pair: Some(pair),
        tcp: Some(of.tcp),
    };
    let background = Arc::new(Background {
        fd,
        family: of.family,
        remote: of.remote,
        set: set.into(),
        timer: timer.into(),
        state: Mutex::new(State {
            attempt: Attempt::Trying,
            held,
        }),
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
    let insert = || fd::store(fd, Arc::clone(&background) as Entry);
    if let Err(errno) = fd::change_object(&program, fd, shown, insert) {
        thread.unwatch(&background.set);
        return Err(errno);
    }
    drop(state);
    thread.run_soon(background);
    Ok(())
}

/// Returns the program's TCP socket to its number after a failed attempt, and the error of the
/// call: a second `connect` of a TCP socket returns the error of the first. `None`: the attempt has
/// not failed.
pub(super) fn take_failed(fd: c_int) -> Option<Errno> {
    let attempt = Background::of(fd)?;
    let _signals_blocked = SignalsBlocked::begin();
    let error = attempt.take_error()?;
    attempt.with_tcp(|tcp| {
        if let Ok(tcp) = rustix::io::fcntl_dupfd_cloexec(tcp, 0) {
            // SAFETY: the table has an entry for the number, so it is not negative.
            let flags = flags_of(unsafe { BorrowedFd::borrow_raw(fd) });
            let _ = fd::change_object(&tcp, fd, flags, || ());
        }
    });
    fd::forget(fd);
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
    fn arm(&self, connecting: &Connecting<'_>) {
        if let Some(fd) = connecting.descriptor() {
            let flags = EventFlags::IN | EventFlags::ONESHOT;
            self.add(fd, flags);
        }
        let left = connecting.deadline();
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

    /// Does what the outcome of an attempt demands.
    fn decide(&self, outcome: Outcome, State { attempt, held }: &mut State) {
        let remote = self.remote;
        let begun = match outcome {
            Outcome::Offloaded { protocol, stream } => {
                let device = stream.device();
                info!(peer = %remote, protocol, device, "a connection is offloaded");
                self.establish(&protocol, stream, mem::take(held));
                return attempt.on_done();
            }
            Outcome::Native(reason) => {
                info!(peer = %remote, %reason, "a connection uses TCP");
                self.connect_by_tcp(reason, held)
            }
            Outcome::Impossible(reason) => {
                info!(peer = %remote, %reason, "a connection fails because TCP is not permitted");
                Err(reason.errno())
            }
        };
        match begun {
            Ok(true) => attempt.on_tcp(),
            Ok(false) => attempt.on_done(),
            Err(errno) => {
                attempt.on_failure(errno.raw_os_error());
                // The program's descriptor shows the failure.
                if let Some(pair) = held.pair.take() {
                    pair.end.reset();
                }
            }
        }
    }

    /// Gives the number its connection. On an error the pair shows a reset, because its end is
    /// dropped.
    fn establish(&self, protocol: &str, stream: Box<dyn OffloadStream>, held: Held) {
        let (Some(pair), Some(tcp)) = (held.pair, held.tcp) else {
            return;
        };
        // The attempt has ended, so it has dropped its reference.
        let tcp = Arc::into_inner(tcp).and_then(|tcp| tcp.into_owned().ok());
        let made = tcp.ok_or(Errno::BADF).and_then(|tcp| {
            let observer = Observer::new(pair.end, pair.signals);
            room::socket(Options::of(tcp), observer, self.family, protocol, stream)
        });
        let Ok(socket) = made else {
            return;
        };
        socket.add_number();
        socket.expect_connect();
        let mut is_made = false;
        fd::exchange(self.fd, self, || {
            is_made = true;
            Arc::clone(&socket) as Entry
        });
        if !is_made {
            // The program has closed the descriptor.
            let _ = fd::release(socket);
            return;
        }
        exposing::carry_new(&socket, self.fd);
        // The program finds the connection when the pair shows that it is writable.
        socket.observer().room();
    }

    /// Connects the program's TCP socket, and gives it its number. Returns false if the program has
    /// another file at the number, because it has closed the descriptor without a hook.
    fn connect_by_tcp(&self, reason: Reason, held: &Held) -> Result<bool, Errno> {
        let (Some(pair), Some(tcp)) = (&held.pair, &held.tcp) else {
            return Ok(false);
        };
        if Identity::of_number(self.fd) != Ok(pair.identity) {
            return Ok(false);
        }
        let tcp = tcp.get()?;
        // SAFETY: the number is that of the pair.
        let shown = flags_of(unsafe { BorrowedFd::borrow_raw(self.fd) });
        match rustix::net::connect(tcp, &self.family.shown(self.remote)) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(errno) => return Err(errno),
        }
        if !shown.nonblocking
            && let Ok(flags) = fcntl_getfl(tcp)
        {
            let _ = fcntl_setfl(tcp, flags - OFlags::NONBLOCK);
        }
        let insert = || {
            // Not released, because that would cancel the attempt.
            drop(fd::remove(self.fd));
            if let Some(record) = observing::native(self.remote, &ReasonText::of(reason)) {
                fd::list(self.fd, record);
            }
        };
        fd::change_object(tcp, self.fd, shown, insert)?;
        self.add(tcp, EventFlags::OUT);
        self.add(pair.end.as_fd(), EventFlags::HUP);
        Ok(true)
    }
}

/// Returns true if a descriptor has one of these events.
fn has(fd: BorrowedFd<'_>, events: PollFlags) -> bool {
    process::shown_events(fd, events) != Ok(PollFlags::empty())
}

impl EventHandler for Background {
    fn ready(&self, _seen: EventFlags) {
        let _inside = guard::enter();
        let mut state = self.state();
        let State { attempt, held } = &mut *state;
        match (*attempt, &mut held.connecting, &held.pair, &held.tcp) {
            (Attempt::Trying, Some(connecting), ..) => match connecting.step() {
                None => self.arm(connecting),
                Some(outcome) => {
                    held.connecting = None;
                    self.decide(outcome, &mut state);
                }
            },
            (Attempt::Tcp, _, Some(pair), Some(tcp)) if has(tcp.as_fd(), PollFlags::OUT) => {
                // Wakes the threads that have waited for the pair since before it was replaced.
                let _ = pair.end.open_window(&pair.signals);
                attempt.on_done();
            }
            // No thread waits for the pair. The socket is the program's alone, so that its close
            // ends the connect.
            (Attempt::Tcp, _, Some(pair), _) if has(pair.end.as_fd(), PollFlags::HUP) => {
                attempt.on_done();
            }
            _ => {}
        }
        if !state.attempt.is_served()
            && let Ok(thread) = event_thread()
        {
            thread.unwatch(&self.set);
        }
        if state.attempt == Attempt::Over {
            state.held = Held::default();
        }
        self.has_changed.notify_all();
    }
}

impl Background {
    /// Returns the attempt of a socket that connects without blocking.
    #[inline]
    pub(crate) fn of(fd: c_int) -> Option<Arc<Self>> {
        fd::is_connecting(fd).then(|| fd::find(fd)).flatten()
    }

    /// Returns false for a copy made by a fork.
    pub(super) fn is_own(&self) -> bool {
        self.maker == process::id()
    }

    /// Returns the answer to a call after the end of the attempt: that of the object that replaces
    /// the attempt. An attempt that made no connection is not replaced.
    pub(super) fn on_decided<T>(&self) -> Answer<T> {
        match fd::while_held(self.fd, self, || ()) {
            Some(()) => Answer::Native,
            None => Answer::Again,
        }
    }

    /// Waits for the end of the attempt, which has a time limit.
    pub(super) fn await_end(&self) {
        let _inside = guard::enter();
        let mut state = self.state();
        while let Some(connecting) = &state.held.connecting {
            let limit = connecting.deadline() + GRACE;
            let left = limit.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.has_changed.wait_timeout(state, left);
            state = waited.ignore_poison().0;
        }
    }

    /// Calls `work` with the TCP socket that keeps the options and reserves the port. The
    /// descriptor keeps its kernel object meanwhile. Returns false if the attempt has succeeded.
    /// Does not call `work` if the program has closed the number of the TCP socket.
    pub(crate) fn with_tcp(&self, work: impl FnOnce(BorrowedFd<'_>)) -> bool {
        let _signals_blocked = SignalsBlocked::begin();
        let state = self.state();
        let (Attempt::Trying | Attempt::Failed(_), Some(tcp)) = (state.attempt, &state.held.tcp)
        else {
            return false;
        };
        if let Ok(tcp) = tcp.get() {
            work(tcp);
        }
        true
    }

    /// Returns the error of an attempt that has failed, and clears it; 0 if the error was returned
    /// before. `None`: the attempt has not failed.
    pub(crate) fn take_error(&self) -> Option<i32> {
        let _signals_blocked = SignalsBlocked::begin();
        self.state().attempt.on_error_read()
    }

    /// Ends the attempt, because the program closes the descriptor.
    pub(super) fn cancel(&self) {
        let _signals_blocked = SignalsBlocked::begin();
        let mut state = self.state();
        let released = state.attempt.on_close();
        let held = released.then(|| mem::take(&mut state.held));
        drop(state);
        if released && let Ok(thread) = event_thread() {
            thread.unwatch(&self.set);
        }
        drop(held);
        self.has_changed.notify_all();
    }
}
