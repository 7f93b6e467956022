//! The engine: one thread that handles deadlines, and those events of connections, queues and the
//! device for which no consumer waits.
//!
//! The thread ([`thread`](crate::thread)) starts when the device is opened. It sleeps until a
//! descriptor is readable, a thread calls [`Engine::wake`], or the next deadline passes (of the
//! connection manager, or the tick of the reader of the completion channel).

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use host::descriptors::{OwnDescriptor, out_of_the_way};
use host::locks::lock;
use host::threads::{Thread, spawn_quiet};
use rnic::{AsyncEvent, QpToken};

const BATCH: usize = 32;

/// The time between two rounds of the thread if its descriptor is lost.
const PAUSE: Duration = Duration::from_millis(10);

/// The sources of events but sockets, indexed by their numbers. The number of a socket is its key
/// and the length of this array.
const SOURCES: [Source; 4] = [Source::Wake, Source::Cm, Source::Device, Source::Channel];

/// The source of the events of a watched descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// A call of [`Engine::wake`].
    Wake,
    /// The connection manager's event channel.
    Cm,
    /// Asynchronous events of the device.
    Device,
    /// The completion channel.
    Channel,
    /// The consumer's socket of this key.
    Socket(usize),
}

impl Source {
    fn number(self) -> u64 {
        match self {
            Self::Wake => 0,
            Self::Cm => 1,
            Self::Device => 2,
            Self::Channel => 3,
            Self::Socket(key) => (key + SOURCES.len()) as u64,
        }
    }

    fn of_number(number: u64) -> Self {
        let number = number as usize;
        match SOURCES.get(number) {
            Some(source) => *source,
            None => Self::Socket(number - SOURCES.len()),
        }
    }
}

/// The engine's thread, and the work that other threads have queued for it.
#[derive(Debug)]
pub(crate) struct Engine {
    epoll: OwnDescriptor,
    wake: OwnDescriptor,
    stopping: AtomicBool,
    thread: Mutex<Option<Thread>>,
    tasks: Mutex<Vec<Task>>,
}

/// The work that other threads queue for the engine's thread.
#[derive(Debug)]
pub(crate) enum Task {
    /// A work request of a queue pair failed, so the connection manager breaks its connection.
    BreakConnection(QpToken),
    /// The completion queue of this number may have a completion for which it is armed.
    CheckCq(u32),
    Report(AsyncEvent),
}

impl Engine {
    /// Creates an engine whose thread does not run yet.
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: the call takes no pointers; the result is checked before it is owned.
        let epoll = owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // A program that closes all descriptors above some number would otherwise close both.
        let epoll = out_of_the_way(epoll);
        // SAFETY: the call takes no pointers; the result is checked before it is owned.
        let wake = owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        let wake = out_of_the_way(wake);
        let engine = Self {
            epoll,
            wake,
            stopping: AtomicBool::new(false),
            thread: Mutex::new(None),
            tasks: Mutex::default(),
        };
        engine.watch(engine.wake.as_raw_fd(), Source::Wake)?;
        Ok(engine)
    }

    /// Starts the thread, which runs until [`is_stopping`](Self::is_stopping). Called once.
    pub(crate) fn start(&self, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let started = spawn_quiet("dat-ib", run)?;
        *lock(&self.thread) = Some(started);
        Ok(())
    }

    /// Watches a descriptor until it is closed or removed. Edge-triggered: the thread must take all
    /// events of the descriptor.
    pub(crate) fn watch(&self, fd: RawFd, source: Source) -> io::Result<()> {
        self.add(fd, source, libc::EPOLLIN)
    }

    /// Watches a consumer's socket for bytes, room and its end, until
    /// [`unwatch_socket`](Self::unwatch_socket). Edge-triggered.
    pub(crate) fn watch_socket(&self, socket: impl AsFd, key: usize) -> io::Result<()> {
        let events = libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP;
        self.add(socket.as_fd().as_raw_fd(), Source::Socket(key), events)
    }

    /// Ends the watch of a consumer's socket. Its consumer has the socket open, so the watch would
    /// not end with the duplicate.
    pub(crate) fn unwatch_socket(&self, socket: impl AsFd) {
        self.unwatch(socket.as_fd().as_raw_fd());
    }

    fn add(&self, fd: RawFd, source: Source, events: i32) -> io::Result<()> {
        let mut event = libc::epoll_event {
            events: (events | libc::EPOLLET) as u32,
            u64: source.number(),
        };
        let (epoll, add) = (self.epoll.as_raw_fd(), libc::EPOLL_CTL_ADD);
        // SAFETY: the event is of this frame.
        match unsafe { libc::epoll_ctl(epoll, add, fd, &raw mut event) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    pub(crate) fn unwatch(&self, fd: RawFd) {
        let (epoll, del) = (self.epoll.as_raw_fd(), libc::EPOLL_CTL_DEL);
        // SAFETY: the call takes no event. An error, for an unwatched descriptor, does not matter.
        unsafe { libc::epoll_ctl(epoll, del, fd, std::ptr::null_mut()) };
    }

    /// Makes the thread check all its tasks, including deadlines.
    pub(crate) fn wake(&self) {
        self.wake.count_up();
    }

    /// Queues work for the thread.
    pub(crate) fn submit(&self, task: Task) {
        lock(&self.tasks).push(task);
        self.wake();
    }

    /// Ends the thread and waits for its end, after which no event is reported. A call on the
    /// thread itself does not wait.
    pub(crate) fn shutdown(&self) {
        self.stopping.store(true, Ordering::Release);
        self.wake();
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread
            && !thread.is_current()
        {
            thread.join();
        }
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Sleeps until the deadline, or until a descriptor is ready, and returns the ready sources.
    ///
    /// If the program has closed the descriptor of the sleep, the thread only serves deadlines and
    /// the work that other threads have queued, after a pause. The numbers of the other descriptors
    /// may be those of files of the program then, so no source is returned.
    pub(crate) fn sleep(&self, deadline: Option<Instant>) -> impl Iterator<Item = Source> {
        let timeout = deadline.map_or(-1, millis_until);
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; BATCH];
        let (epoll, room) = (self.epoll.as_raw_fd(), BATCH as i32);
        // SAFETY: the array has room for `room` events. An interruption is a round without events.
        let count = unsafe { libc::epoll_wait(epoll, events.as_mut_ptr(), room, timeout) };
        if count < 0 && io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            thread::sleep(PAUSE);
        }
        let ready = events.into_iter().take(usize::try_from(count).unwrap_or(0));
        ready.map(|event| Source::of_number(event.u64))
    }

    /// Makes the descriptor of [`wake`](Self::wake) unreadable again.
    pub(crate) fn drain_wake(&self) {
        if self.wake.is_lost() {
            return;
        }
        let mut count: u64 = 0;
        let fd = self.wake.as_raw_fd();
        // SAFETY: eight bytes of this frame; the descriptor does not block.
        unsafe { libc::read(fd, (&raw mut count).cast(), size_of::<u64>()) };
    }

    pub(crate) fn take_tasks(&self) -> Vec<Task> {
        std::mem::take(&mut *lock(&self.tasks))
    }
}

/// Returns the time until a deadline, rounded up, so that the deadline has passed after the sleep.
fn millis_until(deadline: Instant) -> i32 {
    let left = deadline.saturating_duration_since(Instant::now());
    let left = left + Duration::from_micros(999);
    i32::try_from(left.as_millis()).unwrap_or(i32::MAX)
}

fn owned(fd: RawFd) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the system just returned this descriptor, and no other code has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_decoded_as_encoded() {
        assert!(SOURCES.map(Source::number).into_iter().eq(0..4));
        for source in SOURCES
            .into_iter()
            .chain([0, 1, 4, 70_000].map(Source::Socket))
        {
            assert_eq!(Source::of_number(source.number()), source);
        }
    }

    #[test]
    fn the_descriptors_of_the_engine_are_not_among_those_of_the_program() {
        let engine = Engine::new().unwrap();
        for number in [engine.epoll.as_raw_fd(), engine.wake.as_raw_fd()] {
            assert!(number >= host::descriptors::lowest(), "{number}");
        }
    }

    #[test]
    fn the_thread_pauses_in_each_round_if_the_descriptor_of_the_sleep_is_lost() {
        let engine = Engine {
            epoll: OwnedFd::from(std::fs::File::open("/dev/null").unwrap()).into(),
            ..Engine::new().unwrap()
        };
        let start = Instant::now();
        for _ in 0..5 {
            assert_eq!(engine.sleep(None).count(), 0);
        }
        assert!(start.elapsed() >= 5 * PAUSE, "a busy loop");
    }

    #[test]
    fn deadlines_are_rounded_up() {
        let soon = Instant::now() + Duration::from_micros(10);
        assert!(millis_until(soon) <= 1);
        assert_eq!(millis_until(Instant::now() - Duration::from_secs(1)), 0);
        // Time passes during the computation, and much of it on a busy machine.
        let far = millis_until(Instant::now() + Duration::from_secs(3600));
        assert!((1_800_000..=3_600_000).contains(&far), "{far}");
    }
}
