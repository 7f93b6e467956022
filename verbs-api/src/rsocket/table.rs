//! The sockets of the process, by their descriptors.

use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::sync::{Arc, RwLock};

use host::locks::IgnorePoison as _;
use rustix::io::Errno;

use crate::fault::Fault;

use super::socket::Socket;

static SOCKETS: RwLock<BTreeMap<RawFd, Arc<Socket>>> = RwLock::new(BTreeMap::new());

/// Returns a socket, if the descriptor is one.
pub(super) fn find(fd: RawFd) -> Option<Arc<Socket>> {
    SOCKETS.read().ignore_poison().get(&fd).cloned()
}

/// Returns a socket.
pub(super) fn get(fd: RawFd) -> Result<Arc<Socket>, Fault> {
    find(fd).ok_or(Errno::BADF)
}

/// Adds a socket. Returns its descriptor.
pub(super) fn add(socket: Socket) -> RawFd {
    let fd = socket.descriptor();
    SOCKETS.write().ignore_poison().insert(fd, Arc::new(socket));
    fd
}

/// Removes a socket. It ends with the last call that uses it.
pub(super) fn remove(fd: RawFd) -> Result<Arc<Socket>, Fault> {
    let removed = SOCKETS.write().ignore_poison().remove(&fd);
    removed.ok_or(Errno::BADF)
}
