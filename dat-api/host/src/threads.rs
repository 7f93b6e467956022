//! Threads of this project's libraries, within the program that loads them.

use std::io;
use std::mem::MaybeUninit;
use std::thread::{Builder, JoinHandle};

/// Signals that a fault of the thread itself raises. They are not blocked: if a thread blocks such
/// a signal, the kernel ends the process without calling the program's handler, which would have
/// reported the crash.
const FAULTS: [libc::c_int; 6] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGSYS,
];

/// Starts a thread that receives none of the program's signals, because handlers and interrupted
/// system calls belong to the program's own threads.
///
/// The signals are blocked in the calling thread during this call. The new thread inherits the
/// mask, so no signal of the program can reach it before the signals are blocked.
pub fn spawn_quiet<T: Send + 'static>(
    name: &str,
    job: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let before = block_signals();
    let thread = Builder::new().name(name.to_owned()).spawn(job);
    restore_signals(&before);
    thread
}

/// Runs a part of a thread's work that must not end the thread. A panic, in an upcall for example,
/// would otherwise stop the service for every object that the thread serves.
pub fn catch_panic(work: impl FnOnce()) {
    if std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_err() {
        let thread = std::thread::current();
        tracing::error!(thread = thread.name(), "a panic was caught");
    }
}

/// Blocks all signals in the calling thread except those of its own faults, and returns the
/// previous signal mask.
#[must_use]
pub fn block_signals() -> libc::sigset_t {
    let (mut quiet, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: both sets are in this frame and are filled before they are used, the second by
    // `pthread_sigmask`, which cannot fail with these arguments. A thread may mask its own signals.
    unsafe {
        libc::sigfillset(quiet.as_mut_ptr());
        for fault in FAULTS {
            libc::sigdelset(quiet.as_mut_ptr(), fault);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, quiet.as_ptr(), before.as_mut_ptr());
        before.assume_init()
    }
}

/// Restores the signal mask that [`block_signals`] returned.
pub fn restore_signals(before: &libc::sigset_t) {
    // SAFETY: `block_signals` returned the set; a thread may mask its own signals.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, std::ptr::null_mut()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_ends_no_more_than_the_work() {
        let mut done = Vec::new();
        catch_panic(|| {
            done.push(1);
            panic!("of a test");
        });
        catch_panic(|| done.push(2));
        assert_eq!(done, [1, 2]);
    }

    fn blocks(signal: libc::c_int) -> bool {
        let mut now = MaybeUninit::uninit();
        // SAFETY: the call changes nothing, and it fills the set, which is in this frame, before
        // the set is read.
        unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), now.as_mut_ptr());
            libc::sigismember(now.as_ptr(), signal) == 1
        }
    }

    #[test]
    fn a_thread_of_the_library_receives_only_signals_of_its_own_faults() {
        const PROGRAMS: [libc::c_int; 6] = [
            libc::SIGINT,
            libc::SIGTERM,
            libc::SIGALRM,
            libc::SIGCHLD,
            libc::SIGUSR1,
            libc::SIGPROF,
        ];
        let before = PROGRAMS.map(blocks);
        let thread = spawn_quiet("quiet", || {
            let name = std::thread::current().name().map(str::to_owned);
            (name, PROGRAMS.map(blocks), FAULTS.map(blocks))
        });
        let (name, programs, faults) = thread.unwrap().join().unwrap();
        assert_eq!(name.as_deref(), Some("quiet"));
        assert_eq!(programs, [true; 6]);
        assert_eq!(faults, [false; 6]);
        assert_eq!(PROGRAMS.map(blocks), before, "the caller's own");
    }
}
