//! Connections in the making, of programs that do not wait for them.
//!
//! Until it is known who carries such a connection, the program's number names one end of a pair
//! that shows nothing, as a TCP socket does that connects. The steward asks the peer and tries the
//! protocols. Then the pair shows that there is room to write, or the TCP socket comes back behind
//! the number and the kernel connects it.
//!
//! A call that cannot be answered before that waits for it, no longer than the switch's bound.

use std::ffi::c_int;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use ops::{Connecting, Outcome, Watch};
use rustix::event::Timespec;
use rustix::event::epoll::EventFlags;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, FdFlags, fcntl_getfd};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use stand_in::{Flags, LibraryEnd, Signals};

use crate::connecting::{Place, replace};
use crate::registrations::Registrations;
use crate::sharing::relay;
use crate::socket::Socket;
use crate::socket::names::Family;
use crate::socket::options::Options;
use crate::socket::parking::Parking;
use crate::steward::{self, Ward, steward};
use crate::table::{self, Entry};
use crate::{guard, internal, observing, switch};

/// A connection of which nobody knows yet who carries it.
pub(crate) struct Underway {
    own: Weak<Self>,
    /// The program's number.
    fd: c_int,
    names: Names,
    timer: OwnedFd,
    state: Mutex<State>,
    is_decided: AtomicBool,
    decided: Parking,
}

/// What it is called.
#[derive(Clone, Copy)]
pub(crate) struct Names {
    pub(crate) family: Family,
    pub(crate) local: SocketAddr,
    /// As the program said it.
    pub(crate) remote: SocketAddr,
}

/// How far it is. Whoever takes it out of `Trying` is the one who ends it.
enum State {
    Trying(Box<Trying>),
    /// The table tells by whom it is carried.
    Decided,
    /// The program has closed it.
    Closed,
}

struct Trying {
    attempt: Connecting,
    native: OwnedFd,
    end: LibraryEnd,
    signals: Signals,
    /// Of the pair's end that the program's number names, as long as it does.
    inode: u64,
}

/// Goes on connecting while the program does something else. `Err`: nothing has changed.
pub(crate) fn begin(
    fd: c_int,
    names: Names,
    place: Place,
    attempt: Connecting,
) -> Result<(), Errno> {
    let steward = steward()?;
    let timer = timerfd_create(
        TimerfdClockId::Monotonic,
        TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
    )?;
    let timer = internal::raise(timer)?;
    let signals = Signals::new();
    stand_in::close_window(&place.program, &signals).map_err(|_| Errno::NOBUFS)?;
    let inode = rustix::fs::fstat(&place.program)?.st_ino;
    put(&place.program, fd, place.flags)?;
    let trying = Trying {
        attempt,
        native: place.native,
        end: place.end,
        signals,
        inode,
    };
    let underway = Arc::new_cyclic(|own| Underway {
        own: own.clone(),
        fd,
        names,
        timer,
        state: Mutex::new(State::Trying(Box::new(trying))),
        is_decided: AtomicBool::new(false),
        decided: Parking::default(),
    });
    crate::hooks::numbers::place(fd, Entry::Underway(Arc::clone(&underway)));
    // The first step is the steward's too: it may open an adapter.
    steward.soon(underway);
    Ok(())
}

/// Puts `with` behind a number, and into the sets that watch it. They are told before the number
/// changes, because what it names lives on and could not be taken out of them any more.
fn put(with: &OwnedFd, fd: c_int, flags: Flags) -> Result<(), Errno> {
    let registrations = Registrations::of(fd);
    registrations.withdraw();
    let put = replace(with, fd, flags);
    registrations.renew();
    put
}

/// Waits until it is known who carries what a number names, if that is open.
#[inline]
pub(crate) fn settle(fd: c_int) {
    if table::has_underways() && !steward::is_here() {
        while let Some(underway) = table::underway(fd) {
            underway.await_decision();
        }
    }
}

/// The same for all numbers of the process.
pub(crate) fn settle_all() {
    if table::has_underways() {
        table::within(0, usize::MAX).for_each(settle);
    }
}

/// Answers from the TCP socket that the program made, while it is not connected. `None`: it is, or
/// something else carries the connection.
pub(crate) fn with_native<R>(fd: c_int, work: impl FnOnce(RawFd) -> R) -> Option<R> {
    use std::os::fd::AsRawFd;
    let underway = table::underway(fd)?;
    let answered = match &*underway.state() {
        State::Trying(trying) => Some(work(trying.native.as_raw_fd())),
        State::Decided | State::Closed => None,
    };
    if answered.is_none() {
        underway.await_decision();
    }
    answered
}

/// Does something with a number that must not change meanwhile.
pub(crate) fn undisturbed<R>(fd: c_int, work: impl FnOnce() -> R) -> R {
    let underway = table::has_underways()
        .then(|| table::underway(fd))
        .flatten();
    let _state = underway.as_ref().map(|underway| underway.state());
    work()
}

impl Underway {
    /// What it is called.
    pub(crate) fn names(&self) -> Names {
        self.names
    }

    /// The program's number.
    pub(crate) fn number(&self) -> c_int {
        self.fd
    }

    /// Whether nobody knows yet who carries it. While that is being decided, it waits.
    pub(crate) fn is_trying(&self) -> bool {
        matches!(*self.state(), State::Trying(_))
    }

    /// The program closes it. `false`: it has just been decided, and the table tells more.
    pub(crate) fn close(&self) -> bool {
        let _inside = guard::enter();
        let mut state = self.state();
        let State::Trying(trying) = &*state else {
            return matches!(*state, State::Closed);
        };
        self.leave_steward(&trying.attempt);
        *state = State::Closed;
        self.tell();
        true
    }

    fn await_decision(&self) {
        loop {
            let seen = self.decided.news();
            if self.is_decided.load(Ordering::Acquire) {
                return;
            }
            // It takes no longer than the bound, so no signal needs to end it.
            let _ = self.decided.sleep(seen, None);
        }
    }

    fn tell(&self) {
        self.is_decided.store(true, Ordering::Release);
        self.decided.wake();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn leave_steward(&self, attempt: &Connecting) {
        if let Ok(steward) = steward() {
            steward.leave(&self.timer);
            if let Some(descriptor) = attempt.descriptor() {
                steward.leave(descriptor);
            }
        }
    }

    /// The steward looks again when there is news, and at the deadline.
    fn watch(&self, attempt: &Connecting) -> Result<(), Errno> {
        let own: Arc<dyn Ward> = self.own.upgrade().ok_or(Errno::BADF)?;
        let left = attempt.deadline().saturating_duration_since(Instant::now());
        // A timer of no time never rings.
        let value = Timespec::try_from(left.max(Duration::from_micros(1)));
        let once = Itimerspec {
            it_interval: Timespec::default(),
            it_value: value.map_err(|_| Errno::INVAL)?,
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once)?;
        let steward = steward()?;
        steward.watch(&self.timer, EventFlags::IN, Arc::clone(&own))?;
        match attempt.descriptor() {
            Some(descriptor) => steward.watch(descriptor, EventFlags::IN, own),
            None => Ok(()),
        }
    }

    /// It is known who carries it.
    fn decide(&self, trying: Trying, outcome: Outcome) {
        if !self.is_named(trying.inode) {
            // The number was closed by a call that we did not see.
            if table::entry_now(self.fd).is_some_and(|it| self.is_entry(&it)) {
                table::remove(self.fd);
            }
            return;
        }
        match outcome {
            Outcome::Offloaded { protocol, stream } => {
                let Trying {
                    native,
                    end,
                    signals,
                    ..
                } = trying;
                let stream = observing::connection(stream, &protocol);
                let options = Options::of(native);
                let socket = Socket::new(stream, end, signals, self.names.family, options);
                if let Err(why) = socket.and_then(|socket| self.carry(socket)) {
                    // Its end is gone, which shows as a reset.
                    self.enter(Entry::Refused(why));
                }
            }
            Outcome::Native(reason) => {
                if let Some(switch) = switch::made() {
                    switch.count_fall_back(&reason);
                }
                let connected = connect_natively(&trying.native, self.names.remote);
                self.give_back(trying, connected, reason.to_string());
            }
            Outcome::Impossible(reason) => {
                self.give_back(trying, Err(reason.errno()), String::new());
            }
        }
    }

    fn carry(&self, socket: Socket) -> Result<(), Errno> {
        socket.connects_unasked();
        let socket = Arc::new(socket);
        relay::watch(&socket)?;
        socket.named();
        self.enter(Entry::Socket(Arc::clone(&socket)));
        // If the stream has not told of it. Whoever sees it before that waits in `is_trying`.
        socket.observer().room();
        Ok(())
    }

    /// The number names the TCP socket again, which connects or cannot be connected.
    fn give_back(&self, trying: Trying, connected: Result<(), Errno>, reason: String) {
        let flags = self.flags();
        let mut status = OFlags::RDWR;
        status.set(OFlags::NONBLOCK, flags.nonblocking);
        // It takes any flags that a description can have.
        let _ = fcntl_setfl(&trying.native, status);
        let put = put(&trying.native, self.fd, flags);
        match connected.and(put) {
            // In one step: once the number is plain, the program may close it and connect another
            // socket under it.
            Ok(()) => match observing::of_native(self.fd, Some(self.names.remote), reason) {
                Some(listed) => table::exchange(self.fd, |it| self.is_entry(it), || listed),
                None => drop(table::remove(self.fd)),
            },
            Err(why) => self.enter(Entry::Refused(why)),
        }
        // With the library's end the pair hangs up, and whoever polls it looks again at the number.
    }

    fn enter(&self, entry: Entry) {
        // What stood there is this, which is not closed by it.
        drop(table::insert(self.fd, entry));
    }

    fn is_entry(&self, entry: &Entry) -> bool {
        matches!(entry, Entry::Underway(it) if std::ptr::eq(Arc::as_ptr(it), self))
    }

    /// Whether the program's number still names what it did.
    fn is_named(&self, inode: u64) -> bool {
        rustix::fs::fstat(self.borrow()).is_ok_and(|now| now.st_ino == inode)
    }

    fn borrow(&self) -> BorrowedFd<'_> {
        // SAFETY: a number from 0 up; the kernel says EBADF when it names nothing.
        unsafe { BorrowedFd::borrow_raw(self.fd) }
    }

    /// As the program has set them meanwhile.
    fn flags(&self) -> Flags {
        let status = fcntl_getfl(self.borrow());
        let number = fcntl_getfd(self.borrow());
        Flags {
            nonblocking: status.is_ok_and(|flags| flags.contains(OFlags::NONBLOCK)),
            close_on_exec: number.is_ok_and(|flags| flags.contains(FdFlags::CLOEXEC)),
        }
    }
}

/// The kernel connects, and nobody waits for it.
fn connect_natively(native: impl AsFd, remote: SocketAddr) -> Result<(), Errno> {
    fcntl_setfl(&native, OFlags::RDWR | OFlags::NONBLOCK)?;
    match rustix::net::connect(&native, &remote) {
        Err(Errno::INPROGRESS) => Ok(()),
        done => done,
    }
}

impl Ward for Underway {
    fn ready(&self, _seen: EventFlags) {
        let mut state = self.state();
        let State::Trying(trying) = &mut *state else {
            return;
        };
        self.leave_steward(&trying.attempt);
        let stepped = trying.attempt.step();
        let outcome = match stepped {
            Some(outcome) => outcome,
            None if self.watch(&trying.attempt).is_ok() => return,
            // Without a descriptor for it, waiting is what is left.
            None => {
                self.leave_steward(&trying.attempt);
                trying.attempt.wait()
            }
        };
        if let State::Trying(trying) = std::mem::replace(&mut *state, State::Decided) {
            self.decide(*trying, outcome);
        }
        drop(state);
        self.tell();
    }
}
