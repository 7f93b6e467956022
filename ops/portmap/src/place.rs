//! Descriptors out of the way of the program into which this library was loaded.

use std::os::fd::OwnedFd;

/// Where they begin: programs expect the lowest numbers for theirs, and hand them to `select`.
const OUT_OF_THE_WAY: i32 = 600;

/// The same under a high number, where there is one.
pub(crate) fn out_of_the_way(fd: OwnedFd) -> OwnedFd {
    rustix::io::fcntl_dupfd_cloexec(&fd, OUT_OF_THE_WAY).unwrap_or(fd)
}
