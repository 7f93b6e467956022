//! Consumers that drive: polling, and blocked.
//!
//! A polling consumer reads the sockets of the queue pairs behind its queue itself: with up to
//! [`POLLED_AT_ONCE`] of them all in each call, with up to [`POLLED_IN_TURN`] some in each call.
//! With more, the engine's poller knows better which socket is worth a system call.
//!
//! A blocked consumer sleeps in `ppoll` on its waker and those sockets, so the thread that wants
//! the data is the one that the kernel wakes. When its last wait was short it spins for a moment
//! first: a wake-up across CPUs costs more than most answers take.
//!
//! One that looks after more than [`SLEPT_ON_MAX`] connections, through one queue or several, asks
//! a [`ReadySet`] which of them have something to read, and sleeps on that in their place.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use access_layer::rnic::Waker;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::cq::Cq;

use super::conn_socket::ConnSocket;
use super::ready_set::ReadySet;
use super::{Engine, deadline_after};

const POLLED_AT_ONCE: usize = 8;
const POLLED_IN_TURN: usize = 64;
/// Sockets that are asked one by one, and slept on so.
pub(super) const SLEPT_ON_MAX: usize = 16;

/// A wait that was longer than this makes the next one sleep at once.
const SPIN_WORTH_US: u32 = 100;
/// How long a wait spins before it sleeps.
const SPIN_TIME: Duration = Duration::from_micros(50);

/// Does what may fill `cq`, without blocking. `false`: it is empty.
pub(crate) fn progress(cq: &Cq) -> bool {
    cq.note_look();
    if !cq.is_empty() {
        return true;
    }
    // The consumer posts before more is received for it.
    if cq.take_empty_poll() {
        return false;
    }
    let sockets = cq.feeders();
    if sockets.len() <= POLLED_AT_ONCE {
        for socket in sockets.iter() {
            socket.qp.drive_by_consumer(socket);
        }
    } else if sockets.len() <= POLLED_IN_TURN {
        static TURN: AtomicUsize = AtomicUsize::new(0);
        let first = TURN.fetch_add(POLLED_AT_ONCE, Ordering::Relaxed);
        for step in 0..POLLED_AT_ONCE {
            let socket = &sockets[first.wrapping_add(step) % sockets.len()];
            socket.qp.drive_by_consumer(socket);
        }
    }
    !cq.is_empty()
}

/// Does what may fill the queues of one consumer, without blocking.
pub(crate) fn progress_all(cqs: &[&Arc<Cq>]) {
    let feeders: Vec<_> = cqs.iter().map(|cq| cq.feeders()).collect();
    let sockets: Vec<&Arc<ConnSocket>> = feeders.iter().flat_map(|all| all.iter()).collect();
    let Some((engine, set)) = set_of(&sockets) else {
        cqs.iter().for_each(|cq| {
            progress(cq);
        });
        return;
    };
    cqs.iter().for_each(|cq| cq.note_look());
    for socket in &sockets {
        // Those that have nothing are looked after as well.
        socket.note_drive();
        if socket.is_held() {
            socket.qp.drive_by_consumer(socket);
        }
    }
    engine.drive_ready(set);
}

/// The set by which so many connections are looked after. `None`: they are few, or the kernel takes
/// no more.
pub(super) fn set_of<'a>(sockets: &[&'a Arc<ConnSocket>]) -> Option<(&'a Engine, &'a ReadySet)> {
    if sockets.len() <= SLEPT_ON_MAX {
        return None;
    }
    let engine: &'a Engine = &sockets.first()?.engine;
    let set = engine.ready_set()?;
    let entered = sockets.iter().all(|socket| socket.enter(set));
    entered.then_some((engine, set))
}

/// Blocks until a queue may have completions, the waker was woken or the time is over. `true`:
/// until a signal handler ran.
pub(crate) fn wait(cqs: &[&Arc<Cq>], waker: &Waker, timeout: Option<Duration>) -> bool {
    let deadline = deadline_after(timeout);
    let start = Instant::now();
    let feeders: Vec<_> = cqs.iter().map(|cq| cq.feeders()).collect();
    let mut sockets: Vec<&Arc<ConnSocket>> = feeders.iter().flat_map(|all| all.iter()).collect();
    keep_each_once(&mut sockets);
    // What a burst left behind goes out before anybody sleeps. Where the kernel takes no more into
    // the set nothing else is done, so that the engine sees that it has to.
    let is_few = sockets.len() <= SLEPT_ON_MAX;
    let set = set_of(&sockets);
    for socket in sockets.iter().filter(|socket| is_few || socket.is_held()) {
        socket.qp.drive_by_consumer(socket);
    }
    if let Some((engine, set)) = set {
        engine.drive_ready(set);
    }
    if spin(cqs, &sockets, start, deadline) {
        note_wait(cqs, start);
        return false;
    }
    if !is_few && set.is_none() {
        sockets.clear();
    }
    park(&sockets, set.is_some());
    let interrupted = sleep(cqs, &sockets, set, waker, deadline);
    for socket in &sockets {
        socket.unpark();
    }
    note_wait(cqs, start);
    interrupted
}

/// A consumer is about to sleep on these connections, or on the set in which they are.
pub(super) fn park(sockets: &[&Arc<ConnSocket>], in_set: bool) {
    for socket in sockets {
        if in_set {
            socket.park_as_reader();
        } else {
            socket.park();
        }
    }
}

pub(super) fn keep_each_once(sockets: &mut Vec<&Arc<ConnSocket>>) {
    sockets.sort_unstable_by_key(|socket| Arc::as_ptr(socket));
    sockets.dedup_by_key(|socket| Arc::as_ptr(socket));
}

fn note_wait(cqs: &[&Arc<Cq>], start: Instant) {
    let lasted = u32::try_from(start.elapsed().as_micros()).unwrap_or(u32::MAX);
    for cq in cqs {
        cq.last_wait_us.store(lasted, Ordering::Relaxed);
    }
}

/// Drives for a moment, if that is likely to be enough. `true`: there are completions.
fn spin(
    cqs: &[&Arc<Cq>],
    sockets: &[&Arc<ConnSocket>],
    start: Instant,
    deadline: Option<Instant>,
) -> bool {
    let has_any = || cqs.iter().any(|cq| !cq.is_empty());
    if has_any() {
        return true;
    }
    let is_worth = cqs
        .iter()
        .any(|cq| cq.last_wait_us.load(Ordering::Relaxed) < SPIN_WORTH_US);
    let Some(spin) = cqs.first().map(|cq| &cq.adaptive_spin) else {
        return false;
    };
    if !is_worth || sockets.len() > POLLED_AT_ONCE || !spin.is_worth_it() {
        return false;
    }
    let until = deadline.map_or(start + SPIN_TIME, |at| at.min(start + SPIN_TIME));
    while Instant::now() < until {
        for socket in sockets {
            socket.qp.drive_by_consumer(socket);
        }
        if has_any() {
            spin.on_success();
            return true;
        }
    }
    spin.on_failure();
    false
}

/// Sleeps on the waker and the sockets, drives what is ready, until there are completions. `true`:
/// until a signal handler ran.
fn sleep(
    cqs: &[&Arc<Cq>],
    sockets: &[&Arc<ConnSocket>],
    ready_set: Option<(&Engine, &ReadySet)>,
    waker: &Waker,
    deadline: Option<Instant>,
) -> bool {
    let singly = if ready_set.is_some() { &[] } else { sockets };
    let mut set = Vec::with_capacity(singly.len() + 2);
    loop {
        if cqs.iter().any(|cq| !cq.is_empty()) {
            return false;
        }
        let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) || !waker.begin_sleep() {
            return false;
        }
        let timeout = left.map(|left| Timespec::try_from(left).unwrap_or_default());
        set.clear();
        set.push(PollFd::from_borrowed_fd(waker.as_fd(), PollFlags::IN));
        set.extend(ready_set.map(|(_, set)| PollFd::from_borrowed_fd(set.as_fd(), PollFlags::IN)));
        set.extend(
            singly
                .iter()
                .filter(|socket| !socket.is_closed())
                .map(|socket| {
                    let blocked = socket.is_tx_blocked();
                    let interest = if blocked {
                        PollFlags::IN | PollFlags::OUT
                    } else {
                        PollFlags::IN
                    };
                    PollFd::from_borrowed_fd(socket.as_fd(), interest)
                }),
        );
        let ready = poll(&mut set, timeout.as_ref());
        let woken = waker.end_sleep();
        if woken || ready.is_err() {
            return !woken && ready == Err(Errno::INTR);
        }
        for socket in singly {
            socket.qp.drive_by_consumer(socket);
        }
        if let Some((engine, set)) = ready_set {
            engine.drive_ready(set);
        }
    }
}
