//! The sockets of this library in this process, and the borrowed ones among them.
//!
//! A consumer's socket has one user at a time. A second descriptor refers to the same socket, so
//! the table identifies borrowed sockets by their [`Identity`].
//!
//! The child of a `fork` closes its copies of all sockets in the table.
//!
//! A TCP connection ends with its last descriptor, so a child that kept a descriptor would keep a
//! connection alive after the end of the parent. The child only closes: it does not shut the
//! connection down and sends nothing, because the connection is its parent's.
//!
//! A program may close a descriptor of this library, and the kernel may then assign its number to
//! another file. Neither the library nor its copy in a child closes that file.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, MutexGuard, Once, TryLockError};

use host::descriptors::{Identity, OwnDescriptor, out_of_the_way};
use host::forks;
use host::locks::IgnorePoison as _;

use super::io;

/// The table. The child of a fork starts with an empty table.
#[derive(Debug, Default)]
struct Open {
    /// Every socket of this library. The child of a fork also closes the consumer's number of a
    /// borrowed socket.
    sockets: HashMap<(RawFd, Identity), Option<RawFd>>,
    /// The identities of the borrowed sockets among `sockets`.
    borrowed: HashSet<Identity>,
}

impl Open {
    /// Ends the borrowing of a socket, which stays open.
    fn end_borrowing(&mut self, socket: (RawFd, Identity)) {
        if self
            .sockets
            .get_mut(&socket)
            .and_then(Option::take)
            .is_some()
        {
            self.borrowed.remove(&socket.1);
        }
    }
}

/// The error for a socket that is borrowed already, or is one of the provider's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InUse;

static OPEN: Mutex<Option<Open>> = Mutex::new(None);

thread_local! {
    /// Held from before a fork until after it, so that the table does not change meanwhile.
    static HELD: Cell<Option<ManuallyDrop<MutexGuard<'static, Option<Open>>>>> =
        const { Cell::new(None) };
}

/// Makes the children of forks close the sockets. Called when an adapter is opened, and not with
/// the first socket, which a thread of this library opens. That thread could wait here for the end
/// of a fork, and the child would have a `Once` that no thread completes.
pub fn prepare() {
    static HANDLERS: Once = Once::new();
    HANDLERS.call_once(|| {
        forks::around(Some(before), Some(in_parent), Some(in_child));
    });
}

fn open() -> MutexGuard<'static, Option<Open>> {
    OPEN.lock().ignore_poison()
}

/// Returns true if a TCP connection of the table has bytes that its peer has not acknowledged, or
/// if another thread changes the table at the moment.
pub fn has_unacknowledged() -> bool {
    let open = match OPEN.try_lock() {
        Ok(open) => open,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => return true,
    };
    let mut sockets = open.iter().flat_map(|open| open.sockets.keys());
    sockets.any(|&(fd, identity)| {
        if Identity::of_number(fd) != Ok(identity) {
            return false;
        }
        // SAFETY: the number is open, and its owner cannot close it while the table is locked.
        let socket = unsafe { BorrowedFd::borrow_raw(fd) };
        io::is_tcp(socket) && !io::is_hung_up(socket) && io::unacknowledged(socket) > 0
    })
}

/// A socket that the child of a fork does not keep.
#[derive(Debug)]
pub struct NotInherited {
    fd: ManuallyDrop<OwnDescriptor>,
    /// The key of the table; `None` if the kernel has reported no identity.
    key: Option<(RawFd, Identity)>,
}

impl NotInherited {
    /// Moves a socket away from the program's numbers and adds it to the table. [`prepare`] must
    /// have run.
    pub fn new(fd: OwnedFd) -> Self {
        let fd = out_of_the_way(fd);
        let key = fd.identity().map(|it| (fd.as_raw_fd(), it));
        open()
            .get_or_insert_default()
            .sockets
            .extend(key.zip(Some(None)));
        Self::keep(fd, key)
    }

    /// Borrows a consumer's socket: `fd` is a duplicate of its `number`. The child does not keep
    /// that number either, if it refers to `identity`. The borrowing ends with
    /// [`end_borrowing`](Self::end_borrowing) or when the result is dropped.
    pub fn borrow(fd: OwnedFd, number: RawFd, identity: Identity) -> Result<Self, InUse> {
        let mut open = open();
        let table = open.get_or_insert_default();
        if table.sockets.contains_key(&(number, identity)) || !table.borrowed.insert(identity) {
            return Err(InUse);
        }
        let key = (fd.as_raw_fd(), identity);
        table.sockets.insert(key, Some(number));
        Ok(Self::keep(fd.into(), Some(key)))
    }

    fn keep(fd: OwnDescriptor, key: Option<(RawFd, Identity)>) -> Self {
        Self {
            fd: ManuallyDrop::new(fd),
            key,
        }
    }

    /// True if the program has closed the number, which may be that of a file of the program.
    pub fn is_lost(&self) -> bool {
        self.fd.is_lost()
    }

    /// Returns the socket to its consumer. It may then be borrowed again, though this duplicate is
    /// still open.
    pub fn end_borrowing(&self) {
        if let (Some(open), Some(key)) = (&mut *open(), self.key) {
            open.end_borrowing(key);
        }
    }
}

impl AsFd for NotInherited {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for NotInherited {
    fn drop(&mut self) {
        // Closed under the lock. A fork in between would leave the child a copy, or make it close
        // another descriptor that received the number by then.
        let mut open = open();
        if let (Some(open), Some(key)) = (&mut *open, self.key) {
            open.end_borrowing(key);
            open.sockets.remove(&key);
        }
        // SAFETY: dropped once, here.
        unsafe { ManuallyDrop::drop(&mut self.fd) };
    }
}

extern "C" fn before() {
    HELD.set(Some(ManuallyDrop::new(open())));
}

extern "C" fn in_parent() {
    if let Some(held) = HELD.take() {
        drop(ManuallyDrop::into_inner(held));
    }
}

extern "C" fn in_child() {
    let Some(held) = HELD.take() else {
        return;
    };
    let mut held = ManuallyDrop::into_inner(held);
    let sockets = held.take().unwrap_or_default().sockets;
    for ((fd, identity), borrowed) in sockets {
        for number in [Some(fd), borrowed].into_iter().flatten() {
            if Identity::of_number(number) == Ok(identity) {
                close(number);
            }
        }
    }
}

fn close(fd: RawFd) {
    // SAFETY: a copy that the child inherited. The owner of the number in the parent is never
    // dropped in the child, where an adapter of the parent cannot be used.
    drop(unsafe { OwnedFd::from_raw_fd(fd) });
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{TcpListener, TcpStream, UdpSocket};

    use super::*;
    use crate::socket::testing::is_so_in_child;

    #[test]
    fn a_process_without_free_descriptors_can_identify_a_number() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let number = socket.as_raw_fd();
        let identity = Identity::of(&socket);
        let is_known = is_so_in_child(|| {
            let limit = libc::rlimit {
                rlim_cur: 0,
                rlim_max: 0,
            };
            // SAFETY: the pointer is to a limit of this frame.
            unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
            Identity::of_number(number) == identity
        });
        assert!(is_known);
    }

    /// Replaces a socket by another file, as happens in a program that closes all descriptors.
    fn replace(number: RawFd, by: &impl AsRawFd) {
        // SAFETY: both numbers are open, and the test closes the duplicate.
        assert_eq!(unsafe { libc::dup2(by.as_raw_fd(), number) }, number);
    }

    #[test]
    fn a_number_that_the_program_uses_again_stays_open_here_and_in_a_child() {
        prepare();
        let root = std::fs::File::open("/").unwrap();
        let lost = NotInherited::new(UdpSocket::bind("127.0.0.1:0").unwrap().into());
        let number = lost.as_fd().as_raw_fd();
        assert!(number >= host::descriptors::lowest());
        replace(number, &root);
        assert!(lost.is_lost());
        // SAFETY: the call takes numbers.
        let is_open = || unsafe { libc::fcntl(number, libc::F_GETFD) } >= 0;
        assert!(is_so_in_child(is_open), "the program's file");
        drop(lost);
        assert_eq!(Identity::of_number(number), Identity::of(&root));
        close(number);
    }

    /// The kernel may assign the number of a lost descriptor to the next socket of this library.
    #[test]
    fn a_lost_socket_does_not_end_the_next_one_at_its_number() {
        prepare();
        let socket = || OwnedFd::from(UdpSocket::bind("127.0.0.1:0").unwrap());
        let lost = NotInherited::new(socket());
        let number = lost.as_fd().as_raw_fd();
        let other = socket();
        replace(number, &other);
        // SAFETY: the number is that of the duplicate, which nothing else owns.
        let next = unsafe { OwnedFd::from_raw_fd(number) };
        let identity = Identity::of(&next).unwrap();
        let next = NotInherited::borrow(next, other.as_raw_fd(), identity).unwrap();
        drop(lost);
        assert!(!next.is_lost());
        let again = NotInherited::borrow(socket(), other.as_raw_fd(), identity);
        assert_eq!(again.unwrap_err(), InUse);
    }

    #[test]
    fn the_peer_of_a_process_that_has_forked_receives_the_end() {
        prepare();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        let number = client.as_raw_fd();
        let identity = Identity::of(&client).unwrap();
        let ours = OwnedFd::from(client.try_clone().unwrap());
        let ours = NotInherited::borrow(ours, number, identity).unwrap();
        let (mut pipe, own_end) = std::io::pipe().unwrap();
        // SAFETY: the child only calls the kernel, until it is killed.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: the calls take numbers; the last one does not return.
            unsafe {
                libc::close(peer.as_raw_fd());
                libc::close(own_end.as_raw_fd());
                libc::sleep(60);
                libc::_exit(0);
            }
        }
        drop(own_end);
        assert_eq!(pipe.read(&mut [0]).unwrap(), 0, "the child runs");
        drop((ours, client));
        peer.set_read_timeout(Some(std::time::Duration::from_secs(20)))
            .unwrap();
        assert_eq!(peer.read(&mut [0]).unwrap(), 0, "the child has a copy");
        // SAFETY: this process's child.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
    }
}
