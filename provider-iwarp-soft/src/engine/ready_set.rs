//! Which of many connections have something to read: one system call asks for all of them, and one
//! descriptor is slept on for all of them.
//!
//! An `epoll` set beside the engine's own ([`super::poller`]): its interests are level-triggered
//! and stay, so nothing has to be armed again, and consumers ask it, not the engine's thread. It is
//! made when the first consumer looks after more connections than are worth a system call each; a
//! connection stays in it from then until it is closed.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use descriptors::out_of_the_way;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;

use super::Key;

/// Connections that one question brings; the others are brought by the next one.
const EVENTS_MAX: usize = 64;

/// Sockets of connections that consumers look after.
#[derive(Debug)]
pub(crate) struct ReadySet {
    epoll: OwnedFd,
}

impl ReadySet {
    pub(super) fn new() -> Result<Self, Errno> {
        let epoll = out_of_the_way(epoll::create(CreateFlags::CLOEXEC)?);
        Ok(Self { epoll })
    }

    /// Adds a socket for as long as it is open, or until it is taken out.
    pub(super) fn add(&self, socket: BorrowedFd<'_>, Key(key): Key) -> Result<(), Errno> {
        let data = EventData::new_u64(key as u64);
        epoll::add(&self.epoll, socket, data, EventFlags::IN)
    }

    /// Takes a socket out.
    pub(super) fn delete(&self, socket: BorrowedFd<'_>) {
        // Whatever is wrong with it, it is not in the set then.
        let _ = epoll::delete(&self.epoll, socket);
    }

    /// Calls with the key of each connection that has something to read, or is gone.
    pub(super) fn for_each(&self, mut call: impl FnMut(Key)) {
        let mut room = [const { std::mem::MaybeUninit::uninit() }; EVENTS_MAX];
        let now = Timespec::try_from(Duration::ZERO).unwrap_or_default();
        // A failure is as good as nothing: the caller sleeps on the set, and asks again.
        let Ok((ready, _)) = epoll::wait(&self.epoll, &mut room[..], Some(&now)) else {
            return;
        };
        for event in ready {
            // A packed field is copied out before it is looked at.
            let data = event.data;
            call(Key(data.u64() as usize));
        }
    }
}

impl AsFd for ReadySet {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    fn keys(set: &ReadySet) -> Vec<usize> {
        let mut keys = Vec::new();
        set.for_each(|Key(key)| keys.push(key));
        keys
    }

    #[test]
    fn a_socket_is_told_until_it_has_been_read_or_taken_out() {
        let set = ReadySet::new().unwrap();
        let (mut near, mut far) = UnixStream::pair().unwrap();
        set.add(far.as_fd(), Key(7)).unwrap();
        assert_eq!(keys(&set), []);
        near.write_all(b"x").unwrap();
        assert_eq!(keys(&set), [7]);
        assert_eq!(keys(&set), [7]);
        far.read_exact(&mut [0]).unwrap();
        assert_eq!(keys(&set), []);
        drop(near);
        assert_eq!(keys(&set), [7], "it is gone");
        set.delete(far.as_fd());
        assert_eq!(keys(&set), []);
    }

    #[test]
    fn more_than_one_question_brings_are_brought_by_the_next() {
        let set = ReadySet::new().unwrap();
        let mut pairs: Vec<_> = (0..EVENTS_MAX + 6)
            .map(|_| UnixStream::pair().unwrap())
            .collect();
        for (key, (near, far)) in pairs.iter_mut().enumerate() {
            set.add(far.as_fd(), Key(key)).unwrap();
            near.write_all(b"x").unwrap();
        }
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..2 {
            set.for_each(|Key(key)| {
                pairs[key].1.read_exact(&mut [0]).unwrap();
                assert!(seen.insert(key));
            });
        }
        assert_eq!(seen.len(), pairs.len());
    }
}
