//! The end of a process in which only threads of this library are left.
//!
//! The kernel ends a process with its last thread, and the C library exits with it. The threads of
//! this library would keep a process whose only thread was killed, by a filter of `seccomp` for
//! example, or has called `pthread_exit`. Its parent would wait for it for ever.
//!
//! A thread of this library waits for the end of the process's first thread: it sleeps on a robust
//! lock that the first thread holds, which the kernel releases with that thread. Then it waits
//! until no other thread of the program is left, and ends the process as the first thread has
//! ended. The first thread takes the lock when the library is loaded or the process is forked,
//! which makes no system call but `getpid`. A child that a program makes by a call of its own has
//! the waiting thread only if its first thread makes an offloaded socket.

use std::cell::UnsafeCell;
use std::fs;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use crate::process;

/// The beginnings of the names of the threads of this project's libraries.
const NAMES: [&str; 5] = ["ops-", "sdp-", "iwarp-engine", "dat-agent", "dat-ib"];

/// The time between two checks for threads of the program, once the first thread has ended.
const PAUSE: Duration = Duration::from_millis(50);

/// A lock that the first thread of a process holds for the rest of its life.
struct Lock {
    mutex: UnsafeCell<MaybeUninit<libc::pthread_mutex_t>>,
    /// The process whose first thread holds the lock; 0 if no process has made it.
    process: AtomicI32,
}

static LOCK: Lock = Lock {
    mutex: UnsafeCell::new(MaybeUninit::uninit()),
    process: AtomicI32::new(0),
};

/// Makes the first thread hold the lock. Called by that thread: when the library is loaded, and in
/// the child of a `fork`.
pub(crate) fn begin() {
    LOCK.hold(process::id());
}

/// Watches the first thread. Called once in each process, with the start of the library's first
/// thread.
pub(crate) fn watch() {
    let process = process::id();
    if rustix::thread::gettid().as_raw_nonzero().get() == process {
        LOCK.hold(process);
    }
    if LOCK.process.load(Ordering::Acquire) != process {
        return;
    }
    // Without the thread, a process whose first thread is killed stays.
    let _ = host::threads::spawn_quiet("ops-first", || {
        if LOCK.await_end_of_holder() {
            end_with_last();
        }
    });
}

impl Lock {
    /// Makes the lock, which the calling thread then holds, unless this process has made it. The
    /// calling thread is the first of the process.
    fn hold(&self, process: i32) {
        if self.process.load(Ordering::Acquire) == process {
            return;
        }
        let lock = self.mutex.get().cast::<libc::pthread_mutex_t>();
        let mut attributes = MaybeUninit::uninit();
        // SAFETY: the attributes are initialized before their use, and the lock by them. Only the
        // first thread comes here, and other threads use the lock after the store below; the copy
        // that a fork has made of the parent's lock is used by no thread.
        let is_held = unsafe {
            libc::pthread_mutexattr_init(attributes.as_mut_ptr());
            let robust = libc::PTHREAD_MUTEX_ROBUST;
            libc::pthread_mutexattr_setrobust(attributes.as_mut_ptr(), robust);
            libc::pthread_mutex_init(lock, attributes.as_ptr()) == 0
                && libc::pthread_mutex_lock(lock) == 0
        };
        if is_held {
            self.process.store(process, Ordering::Release);
        }
    }

    /// Returns true once the holder has ended.
    fn await_end_of_holder(&self) -> bool {
        // SAFETY: the lock was initialized before its process was stored, and is a static.
        unsafe { libc::pthread_mutex_lock(self.mutex.get().cast()) == libc::EOWNERDEAD }
    }
}

// SAFETY: threads use the lock by functions that are made for this, and `hold` initializes it
// before other threads use it.
unsafe impl Sync for Lock {}

fn end_with_last() {
    while has_threads_of_program() {
        std::thread::sleep(PAUSE);
    }
    let status = status_of_first().unwrap_or(0);
    let signal = status & 0x7f;
    if signal == 0 {
        // As the C library does in the last thread.
        // SAFETY: no thread of the program runs, so none uses what the handlers free.
        unsafe { libc::exit(status >> 8) };
    }
    // SAFETY: the calls have no preconditions. The action is that of the thread's own signal, which
    // has ended it already.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        let mut only = MaybeUninit::uninit();
        libc::sigemptyset(only.as_mut_ptr());
        libc::sigaddset(only.as_mut_ptr(), signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, only.as_ptr(), std::ptr::null_mut());
        libc::raise(signal);
        libc::_exit(128 + signal);
    }
}

/// Returns true if a thread other than the first, which has ended, is none of this library.
fn has_threads_of_program() -> bool {
    let first = process::id().to_string();
    let Ok(tasks) = fs::read_dir("/proc/self/task") else {
        return true;
    };
    tasks
        .flatten()
        .filter(|task| task.file_name().to_str() != Some(&first))
        .filter_map(|task| fs::read_to_string(task.path().join("comm")).ok())
        .any(|name| !NAMES.iter().any(|of_library| name.starts_with(of_library)))
}

/// Returns the wait status with which the first thread has ended.
fn status_of_first() -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/self/task/{}/stat", process::id())).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().last()?.parse().ok()
}
