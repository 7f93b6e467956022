//! Descriptors of ours that the program must not stumble over, and its handlers kept out of us.

use std::mem::MaybeUninit;

pub(crate) use host::descriptors::raise;

/// Does something in the midst of which no handler of the program may call us.
pub(crate) fn without_signals<R>(work: impl FnOnce() -> R) -> R {
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    block_signals(&mut before);
    let done = work();
    // SAFETY: `block_signals` has filled it; a thread may mask its own signals.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    done
}

/// Masks all signals of this thread, and tells which were masked before.
fn block_signals(before: &mut MaybeUninit<libc::sigset_t>) {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: a set of this frame, filled before it is used, and one of the caller's; a
    // thread may mask its own signals, which cannot fail with these arguments.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
}
