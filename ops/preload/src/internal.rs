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
    mask_signals(None);
}

/// Does something in the midst of which no handler of the program may call us.
pub(crate) fn without_signals<R>(work: impl FnOnce() -> R) -> R {
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    mask_signals(Some(&mut before));
    let done = work();
    // SAFETY: `mask_signals` has filled it; a thread may mask its own signals.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    done
}

/// Masks all signals of this thread, and tells which were masked before.
fn mask_signals(before: Option<&mut MaybeUninit<libc::sigset_t>>) {
    let before = before.map_or(std::ptr::null_mut(), MaybeUninit::as_mut_ptr);
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: a set of this frame, filled before it is used, and null or one of the caller's; a
    // thread may mask its own signals, which cannot fail with these arguments.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before);
    }
}
