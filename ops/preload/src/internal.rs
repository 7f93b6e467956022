//! Descriptors and threads of ours that the program must not stumble over.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::process::{Resource, getrlimit};

/// Programs that close or reuse numbers by counting begin at the bottom.
const HIGH_AT_MOST: u64 = 1 << 16;

/// Moves a descriptor of ours up, out of the way of programs that expect the lowest free number.
pub(crate) fn raise(fd: OwnedFd) -> Result<OwnedFd, Errno> {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(HIGH_AT_MOST);
    let from = i32::try_from(limit.min(HIGH_AT_MOST) / 4 * 3).unwrap_or(0);
    match fcntl_dupfd_cloexec(&fd, from) {
        Ok(raised) => Ok(raised),
        // No room up there: a low number works as well.
        Err(Errno::MFILE | Errno::INVAL) => Ok(fd),
        Err(error) => Err(error),
    }
}

/// The program's signals are for its own threads.
pub(crate) fn block_signals() {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: a set of this frame, filled before it is used; a thread may mask its own signals.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), std::ptr::null_mut());
    }
}
