//! The set of an adapter's armed connections: one `epoll` descriptor to sleep on for all of them.
//!
//! The interests are level-triggered and permanent, so that nothing has to be armed again after an
//! event. The engine's thread or a consumer sleeps on the set; a polling consumer polls it at
//! intervals.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use host::descriptors::{OwnDescriptor, out_of_the_way};
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventFlags};
use rustix::io::Errno;

use super::place::Wants;
use crate::engine::Key;

/// Maximum number of events that one call returns; the next call returns the others.
const EVENTS_MAX: usize = 64;

/// The descriptor of a connection that has an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ready {
    /// The descriptor is unknown, or there is none.
    None,
    /// The TCP socket.
    Socket,
    /// The doorbell of the local carrier.
    Bell,
}

/// The descriptors of armed connections.
#[derive(Debug)]
pub(crate) struct ConnSet {
    epoll: OwnDescriptor,
}

impl ConnSet {
    pub(super) fn new() -> Result<Self, Errno> {
        let epoll = out_of_the_way(epoll::create(CreateFlags::CLOEXEC)?);
        Ok(Self { epoll })
    }

    /// Adds a descriptor of the connection `key`.
    pub(super) fn add(&self, fd: BorrowedFd<'_>, key: Key, wants: Wants) -> Result<(), Errno> {
        epoll::add(&self.epoll, fd, key.as_event_data(), flags(wants))
    }

    /// Adds the doorbell of the connection `key`.
    pub(super) fn add_bell(&self, fd: BorrowedFd<'_>, key: Key) -> Result<(), Errno> {
        epoll::add(
            &self.epoll,
            fd,
            key.as_second_event_data(),
            flags(Wants::SEGMENTS),
        )
    }

    /// Changes the events that are reported.
    pub(super) fn modify(&self, fd: BorrowedFd<'_>, key: Key, wants: Wants) -> Result<(), Errno> {
        epoll::modify(&self.epoll, fd, key.as_event_data(), flags(wants))
    }

    /// Removes a descriptor.
    pub(super) fn delete(&self, fd: BorrowedFd<'_>) {
        // A descriptor whose removal fails is not in the set.
        let _ = epoll::delete(&self.epoll, fd);
    }

    /// Calls `call` with the key of each connection that has an event, and with the descriptor of
    /// the event. Returns the number of events.
    pub(super) fn for_each_ready(&self, mut call: impl FnMut(Key, Ready)) -> usize {
        let mut room = [const { std::mem::MaybeUninit::uninit() }; EVENTS_MAX];
        let now = Timespec::try_from(Duration::ZERO).unwrap_or_default();
        // A failure counts as "no event": the caller polls again.
        let Ok((ready, _)) = epoll::wait(&self.epoll, &mut room[..], Some(&now)) else {
            return 0;
        };
        for event in ready.iter() {
            // A packed field is copied out before it is used.
            let data = event.data;
            let (key, is_bell) = Key::of_either(data);
            call(key, if is_bell { Ready::Bell } else { Ready::Socket });
        }
        ready.len()
    }
}

impl AsFd for ConnSet {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

fn flags(wants: Wants) -> EventFlags {
    // A socket whose segments are not wanted still reports that the peer has closed.
    let input = match wants.segments {
        true => EventFlags::IN,
        false => EventFlags::RDHUP,
    };
    match wants.room {
        true => input | EventFlags::OUT,
        false => input,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    fn keys(set: &ConnSet) -> Vec<Key> {
        let mut keys = Vec::new();
        set.for_each_ready(|key, _| keys.push(key));
        keys
    }

    #[test]
    fn a_connection_is_ready_until_it_has_been_read_or_removed() {
        let set = ConnSet::new().unwrap();
        let (mut near, mut far) = UnixStream::pair().unwrap();
        let key = Key::for_test(7);
        set.add(far.as_fd(), key, Wants::SEGMENTS).unwrap();
        assert_eq!(keys(&set), []);
        near.write_all(b"x").unwrap();
        assert_eq!(keys(&set), [key]);
        assert_eq!(keys(&set), [key]);
        far.read_exact(&mut [0]).unwrap();
        assert_eq!(keys(&set), []);
        set.modify(far.as_fd(), key, Wants::with_room(true))
            .unwrap();
        assert_eq!(keys(&set), [key], "the socket has room");
        let neither = Wants {
            segments: false,
            room: false,
        };
        set.modify(far.as_fd(), key, neither).unwrap();
        near.write_all(b"x").unwrap();
        assert_eq!(keys(&set), []);
        drop(near);
        assert_eq!(keys(&set), [key], "the peer has closed");
        set.delete(far.as_fd());
        assert_eq!(keys(&set), []);
    }

    #[test]
    fn events_beyond_the_limit_are_returned_by_the_next_call() {
        let set = ConnSet::new().unwrap();
        let mut pairs: Vec<_> = (0..EVENTS_MAX + 6)
            .map(|_| UnixStream::pair().unwrap())
            .collect();
        for (number, (near, far)) in pairs.iter_mut().enumerate() {
            let key = Key::for_test(number);
            set.add(far.as_fd(), key, Wants::SEGMENTS).unwrap();
            near.write_all(b"x").unwrap();
        }
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..2 {
            set.for_each_ready(|key, _| {
                let number = (0..pairs.len()).find(|number| Key::for_test(*number) == key);
                pairs[number.unwrap()].1.read_exact(&mut [0]).unwrap();
                assert!(seen.insert(key));
            });
        }
        assert_eq!(seen.len(), pairs.len());
    }
}
