//! `exec` by a process that owns offloaded connections.
//!
//! The threads and sockets that carry a connection end with the old program, so the connection
//! breaks. Bytes written before are delivered first. The new program reads a reset: it must find
//! neither signals, which it would take for data, nor an end of file, which it would take for the
//! peer's.
//!
//! A server that starts other programs keeps its connections by forking first, as inetd does: the
//! parent then carries them.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use host::descriptors::raise;
use ops::WITHIN;
use rustix::event::Timespec;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use crate::events::{EventHandler, event_thread};
use crate::fd::{self, Operations as _};
use crate::process::{self, errno, guard};
use crate::setup::inheritance;
use crate::sharing::exposing;
use crate::socket::Socket;
use crate::switch;

/// The time after which an `exec` whose return no hook sees counts as failed, so that the old
/// program's connections resume. Under load, an `exec` may need most of this time.
const FAILED_AFTER: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

/// The connections whose descriptors show no events during an `exec`, until it fails.
pub(crate) struct PendingExec(Vec<(i32, Arc<Socket>)>);

/// Prepares an `exec` that passes on this program's environment, and so this library.
pub(crate) fn prepare() -> PendingExec {
    inheritance::keep_over_exec();
    prepare_own()
}

/// Prepares the connections for an `exec`.
pub(crate) fn prepare_own() -> PendingExec {
    fd::share_sets();
    if !process::owns_table() {
        // The child of a `vfork`: the parent continues, and carries the connections that the child
        // keeps.
        exposing::expose_connections();
        return PendingExec(Vec::new());
    }
    if !fd::has_connections() {
        return PendingExec(Vec::new());
    }
    let _inside = guard::enter();
    fd::all().for_each(fd::settle);
    let own: Vec<_> = own().collect();
    fd::all()
        .filter(|fd| !own.iter().any(|(one, _)| one == fd))
        .for_each(exposing::expose_if_kept);
    for (fd, socket) in &own {
        // SAFETY: the table has an entry for the number, so it is open.
        socket.stop_steering(unsafe { BorrowedFd::borrow_raw(*fd) });
    }
    if !own.is_empty() {
        for protocol in switch::made()
            .iter()
            .flat_map(|switch| switch.registry().protocols())
        {
            protocol.settle(WITHIN);
        }
    }
    PendingExec(own)
}

/// Resumes the connections after an `exec` that has failed.
pub(crate) fn on_failed(PendingExec(own): PendingExec) {
    if own.is_empty() {
        return;
    }
    let _inside = guard::enter();
    let why = errno::get();
    for (_, socket) in own {
        socket.resume_steering();
    }
    errno::set(why);
}

/// Prepares an `exec` whose return no hook sees.
pub(crate) fn prepare_unseen() {
    let pending = prepare();
    if pending.0.is_empty() {
        return;
    }
    let _inside = guard::enter();
    match ExecFailedTimer::timer() {
        // Armed only now: `prepare` may wait long for a slow peer, and no signal may be sent
        // meanwhile.
        Ok(back) => back.arm(),
        // Without a descriptor for the timer, the connections resume at once, because after a
        // failed `exec` nothing else would resume them. The new program may then find a signal
        // before the reset.
        Err(_) => on_failed(pending),
    }
}

/// Returns the connections that this process carries, and not those that its parent carried when it
/// forked.
fn own() -> impl Iterator<Item = (i32, Arc<Socket>)> {
    fd::all().filter_map(|fd| {
        let socket = fd::find::<Socket>(fd)?;
        socket.is_of_this_process().then_some((fd, socket))
    })
}

/// Resumes the old program's connections when an `exec` has failed whose return no hook sees.
struct ExecFailedTimer {
    timer: OwnedFd,
}

impl ExecFailedTimer {
    /// Makes a timer that is watched and not armed.
    fn timer() -> Result<Arc<Self>, Errno> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = raise(timerfd_create(TimerfdClockId::Monotonic, flags)?)?;
        let handler = Arc::new(Self { timer });
        event_thread()?.watch(&handler.timer, EventFlags::IN, Arc::clone(&handler) as _)?;
        Ok(handler)
    }

    fn arm(&self) {
        let once = Itimerspec {
            it_interval: Timespec::default(),
            it_value: FAILED_AFTER,
        };
        // This call fails only for values out of range.
        let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once);
    }
}

impl EventHandler for ExecFailedTimer {
    fn ready(&self, _seen: EventFlags) {
        for (_, socket) in own() {
            socket.resume_steering();
        }
        if let Ok(thread) = event_thread() {
            thread.unwatch(&self.timer);
        }
    }
}
