//! What a `fork` does to our sockets: the child closes its copies.
//!
//! A TCP connection ends with the last descriptor of it, so a child that kept one would keep a
//! connection alive whose process is gone. The child only closes: it shuts nothing down and says
//! nothing, because the connection is its parent's.

use std::cell::Cell;
use std::collections::HashMap;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use crate::socket::Identity;

/// Every socket of this library, and what else is to be closed with it: a consumer's number, if it
/// means that socket still.
type Open = HashMap<RawFd, Option<(RawFd, Identity)>>;

static OPEN: Mutex<Option<Open>> = Mutex::new(None);

thread_local! {
    /// Held from before a fork to after it, so that nothing changes meanwhile.
    static HELD: Cell<Option<ManuallyDrop<MutexGuard<'static, Option<Open>>>>> =
        const { Cell::new(None) };
}

/// Makes the children of forks close. Called when an adapter is opened and not with the first
/// socket: that comes in a thread of ours, which would wait in here for a fork to be over, and
/// leave the child with a `Once` that nobody finishes.
pub(crate) fn prepare() {
    static HANDLERS: Once = Once::new();
    HANDLERS.call_once(|| {
        // SAFETY: the handlers are made to run around a fork. They go with this library.
        unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
    });
}

fn open() -> MutexGuard<'static, Option<Open>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A socket that the child of a fork does not keep.
#[derive(Debug)]
pub(crate) struct NotInherited(ManuallyDrop<OwnedFd>);

impl NotInherited {
    /// From now on, once [`prepare`] has run.
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self::enter(fd, None)
    }

    /// The child does not keep `number` either, if it means `identity`, as long as the result is
    /// there.
    pub(crate) fn along_with(fd: OwnedFd, number: RawFd, identity: Identity) -> Self {
        Self::enter(fd, Some((number, identity)))
    }

    fn enter(fd: OwnedFd, along: Option<(RawFd, Identity)>) -> Self {
        open()
            .get_or_insert_with(HashMap::new)
            .insert(fd.as_raw_fd(), along);
        Self(ManuallyDrop::new(fd))
    }
}

impl AsFd for NotInherited {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for NotInherited {
    fn drop(&mut self) {
        // Closed under the lock: a fork in between would leave the child a copy, or make it close
        // what has the number by then.
        let mut open = open();
        if let Some(open) = &mut *open {
            open.remove(&self.0.as_raw_fd());
        }
        // SAFETY: dropped once, here.
        unsafe { ManuallyDrop::drop(&mut self.0) };
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
    for (fd, along) in held.take().into_iter().flatten() {
        if let Some((number, identity)) = along
            && Identity::of_number(number) == Some(identity)
        {
            close(number);
        }
        close(fd);
    }
}

fn close(fd: RawFd) {
    // SAFETY: a copy that came over the fork. What owns the number in the parent is never dropped
    // in the child, where an adapter of the parent's cannot be used.
    drop(unsafe { OwnedFd::from_raw_fd(fd) });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn the_peer_of_a_forked_process_sees_its_end() {
        prepare();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        let number = client.as_raw_fd();
        let identity = Identity::of(client.as_fd()).unwrap();
        let ours = OwnedFd::from(client.try_clone().unwrap());
        let ours = NotInherited::along_with(ours, number, identity);
        let (mut told, tell) = std::io::pipe().unwrap();
        // SAFETY: the child calls the kernel only, until it is killed.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: numbers; it does not return.
            unsafe {
                libc::close(peer.as_raw_fd());
                libc::close(tell.as_raw_fd());
                libc::sleep(60);
                libc::_exit(0);
            }
        }
        drop(tell);
        assert_eq!(told.read(&mut [0]).unwrap(), 0, "the child is there");
        drop((ours, client));
        peer.set_read_timeout(Some(std::time::Duration::from_secs(20)))
            .unwrap();
        assert_eq!(peer.read(&mut [0]).unwrap(), 0, "the child has a copy");
        // SAFETY: our own child.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
    }
}
