//! A queue of events behind a descriptor that a program polls.

use std::collections::VecDeque;
use std::os::fd::{AsFd, IntoRawFd, RawFd};
use std::sync::Mutex;

use host::descriptors::{OwnDescriptor, out_of_the_way};
use host::locks::lock;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::Errno;

/// Events for the program. The descriptor is readable while the queue is not empty, so that the
/// program may poll it, add it to an epoll set, or make it non-blocking.
///
/// The program's number is in the structure of the C header alone. A program may move the
/// descriptor to another number and store that number there, as with rdma-core, so this library
/// uses a duplicate.
#[derive(Debug)]
pub(crate) struct EventQueue<T> {
    readable: OwnDescriptor,
    events: Mutex<VecDeque<T>>,
}

impl<T> EventQueue<T> {
    pub(crate) fn new() -> Result<Self, Errno> {
        Ok(Self {
            readable: out_of_the_way(eventfd(0, EventfdFlags::CLOEXEC)?),
            events: Mutex::default(),
        })
    }

    /// Creates the descriptor of the program, which is closed by its number in the structure of the
    /// C header.
    pub(crate) fn descriptor(&self) -> Result<RawFd, Errno> {
        let descriptor = rustix::io::fcntl_dupfd_cloexec(&self.readable, 0)?;
        Ok(descriptor.into_raw_fd())
    }

    pub(crate) fn push(&self, event: T) {
        let mut events = lock(&self.events);
        if events.is_empty() {
            // The count is zero, so that the write neither blocks nor fails.
            let _ = rustix::io::write(&self.readable, &1_u64.to_ne_bytes());
        }
        events.push_back(event);
    }

    /// Returns the next event. Blocks while there is none, unless the program has made the
    /// descriptor non-blocking.
    pub(crate) fn next(&self) -> Result<T, Errno> {
        loop {
            if let Some(event) = self.take() {
                return Ok(event);
            }
            if fcntl_getfl(&self.readable)?.contains(OFlags::NONBLOCK) {
                return Err(Errno::AGAIN);
            }
            let mut set = [PollFd::from_borrowed_fd(
                self.readable.as_fd(),
                PollFlags::IN,
            )];
            poll(&mut set, None)?;
        }
    }

    /// The number of events for which `is_counted` holds.
    pub(crate) fn count(&self, is_counted: impl Fn(&T) -> bool) -> usize {
        lock(&self.events)
            .iter()
            .filter(|event| is_counted(event))
            .count()
    }

    /// Removes the events for which `is_stale` holds, because their object is destroyed.
    pub(crate) fn remove(&self, is_stale: impl Fn(&T) -> bool) {
        // Dropped without the lock, because the drop of an event may end what it refers to.
        drop(self.extract(is_stale));
    }

    /// Removes and returns the events for which `is_wanted` holds.
    pub(crate) fn extract(&self, is_wanted: impl Fn(&T) -> bool) -> VecDeque<T> {
        let mut events = lock(&self.events);
        if events.is_empty() {
            return VecDeque::new();
        }
        let all = std::mem::take(&mut *events).into_iter();
        let (wanted, kept) = all.partition::<VecDeque<T>, _>(is_wanted);
        *events = kept;
        if events.is_empty() {
            self.clear();
        }
        wanted
    }

    /// Returns the next event, if there is one.
    pub(crate) fn take(&self) -> Option<T> {
        let mut events = lock(&self.events);
        let event = events.pop_front()?;
        if events.is_empty() {
            self.clear();
        }
        Some(event)
    }

    /// Makes the descriptor unreadable. The caller holds the lock and has emptied the queue, so the
    /// count is one and the read does not block.
    fn clear(&self) {
        let mut count = [0; size_of::<u64>()];
        let _ = rustix::io::read(&self.readable, &mut count);
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{FromRawFd, OwnedFd};

    use rustix::fs::fcntl_setfl;

    use super::*;

    fn is_readable(queue: &EventQueue<u8>) -> bool {
        let mut set = [PollFd::from_borrowed_fd(
            queue.readable.as_fd(),
            PollFlags::IN,
        )];
        let now = rustix::event::Timespec::default();
        poll(&mut set, Some(&now)).unwrap() > 0
    }

    #[test]
    fn the_descriptor_is_readable_while_there_are_events() {
        let queue = EventQueue::new().unwrap();
        assert!(!is_readable(&queue));
        queue.push(1);
        queue.push(2);
        assert_eq!(queue.next(), Ok(1));
        assert!(is_readable(&queue));
        assert_eq!(queue.next(), Ok(2));
        assert!(!is_readable(&queue));
    }

    #[test]
    fn a_program_may_move_the_descriptor() {
        let queue = EventQueue::new().unwrap();
        // SAFETY: the queue has just returned the number, and nothing else closes it.
        let number = unsafe { OwnedFd::from_raw_fd(queue.descriptor().unwrap()) };
        drop(number);
        queue.push(1);
        assert_eq!(queue.next(), Ok(1));
    }

    #[test]
    fn the_events_of_a_destroyed_object_are_removed() {
        let queue = EventQueue::new().unwrap();
        queue.push(1);
        queue.push(2);
        queue.remove(|event| *event == 1);
        assert!(is_readable(&queue));
        queue.remove(|event| *event == 2);
        assert!(!is_readable(&queue));
    }

    #[test]
    fn an_empty_queue_blocks_unless_the_descriptor_is_non_blocking() {
        let queue = EventQueue::<u8>::new().unwrap();
        fcntl_setfl(&queue.readable, OFlags::NONBLOCK).unwrap();
        assert_eq!(queue.next(), Err(Errno::AGAIN));
        fcntl_setfl(&queue.readable, OFlags::empty()).unwrap();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| queue.next());
            queue.push(7);
            assert_eq!(waiter.join().unwrap(), Ok(7));
        });
    }
}
