//! Threads of this project's libraries, within the program that loads them.
//!
//! The libraries start no thread with the standard library, and do not ask it for the current
//! thread: both allocate past the allocator of the library ([`crate::reserve`]), and end the
//! process when there is no memory.

use std::ffi::{CString, c_int, c_void};
use std::io;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::panic::{AssertUnwindSafe, catch_unwind};

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

/// The stack of a thread in bytes, as in the standard library.
const STACK_LEN: usize = 2 << 20;

/// A thread of the library. If it is dropped, the thread runs on.
#[derive(Debug)]
pub struct Thread(libc::pthread_t);

impl Thread {
    /// Returns true if the calling thread is this one.
    #[must_use]
    pub fn is_current(&self) -> bool {
        // SAFETY: the function has no preconditions.
        self.0 == unsafe { libc::pthread_self() }
    }

    /// Waits until the thread has ended.
    pub fn join(self) {
        let this = ManuallyDrop::new(self);
        // SAFETY: the thread was made joinable, and is neither joined nor detached before, because
        // both consume this value.
        unsafe { libc::pthread_join(this.0, std::ptr::null_mut()) };
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        // SAFETY: as in `join`.
        unsafe { libc::pthread_detach(self.0) };
    }
}

struct Start {
    name: CString,
    job: Box<dyn FnOnce() + Send>,
}

/// Starts a thread that receives none of the program's signals, because handlers and interrupted
/// system calls belong to the program's own threads.
///
/// The signals are blocked in the calling thread during this call. The new thread inherits the
/// mask, so no signal of the program can reach it before the signals are blocked.
///
/// # Errors
/// The C library's, for example when there is no memory for a stack. The job is then dropped.
pub fn spawn_quiet(name: &str, job: impl FnOnce() + Send + 'static) -> io::Result<Thread> {
    let start = Box::into_raw(Box::new(Start {
        name: CString::new(name)?,
        job: Box::new(job),
    }));
    let before = block_signals();
    let made = create(start);
    restore_signals(&before);
    made.map_err(|error| {
        // SAFETY: no thread has received the box.
        drop(unsafe { Box::from_raw(start) });
        io::Error::from_raw_os_error(error)
    })
}

/// Creates a thread that runs `start`.
fn create(start: *mut Start) -> Result<Thread, c_int> {
    let check = |error: c_int| if error == 0 { Ok(()) } else { Err(error) };
    let mut attr = MaybeUninit::uninit();
    let mut thread = MaybeUninit::uninit();
    // SAFETY: the attributes are initialised before they are used, and destroyed once. The new
    // thread owns the box. The thread's id is read only after the call has stored it.
    unsafe {
        check(libc::pthread_attr_init(attr.as_mut_ptr()))?;
        let made = check(libc::pthread_attr_setstacksize(
            attr.as_mut_ptr(),
            STACK_LEN,
        ))
        .and_then(|()| {
            let (thread, attr) = (thread.as_mut_ptr(), attr.as_ptr());
            check(libc::pthread_create(thread, attr, run, start.cast()))
        });
        libc::pthread_attr_destroy(attr.as_mut_ptr());
        made.map(|()| Thread(thread.assume_init()))
    }
}

extern "C" fn run(start: *mut c_void) -> *mut c_void {
    // SAFETY: `spawn_quiet` passes a box, which this thread owns.
    let start = unsafe { Box::from_raw(start.cast::<Start>()) };
    let Start { name, job } = *start;
    // SAFETY: the call reads a string of this frame. The kernel uses its first 15 bytes.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
    // The panic hook has reported a panic.
    let _ = catch_unwind(AssertUnwindSafe(job));
    std::ptr::null_mut()
}

/// The identity of a thread, which differs from those of all threads that exist at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadId(usize);

impl ThreadId {
    /// The calling thread's. Makes no system call.
    #[must_use]
    pub fn current() -> Self {
        // SAFETY: the function has no preconditions.
        Self(unsafe { libc::pthread_self() } as usize)
    }
}

/// Runs a part of a thread's work that must not end the thread. A panic, in an upcall for example,
/// would otherwise stop the service for every object that the thread serves.
pub fn catch_panic(work: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(work)).is_err() {
        tracing::error!(thread = name(), "a panic was caught");
    }
}

/// The kernel's name of the calling thread.
fn name() -> String {
    let mut name = [0_u8; 16];
    // SAFETY: the kernel stores at most 16 bytes, the last of which is zero.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    let len = name.iter().position(|byte| *byte == 0).unwrap_or(0);
    String::from_utf8_lossy(&name[..len]).into_owned()
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
        let (sender, results) = std::sync::mpsc::channel();
        let thread = spawn_quiet("quiet", move || {
            let _ = sender.send((name(), PROGRAMS.map(blocks), FAULTS.map(blocks)));
        });
        let thread = thread.unwrap();
        assert!(!thread.is_current());
        thread.join();
        let (name, programs, faults) = results.recv().unwrap();
        assert_eq!(name, "quiet");
        assert_eq!(programs, [true; 6]);
        assert_eq!(faults, [false; 6]);
        assert_eq!(PROGRAMS.map(blocks), before, "the caller's own");
    }

    #[test]
    fn a_panic_ends_only_its_thread() {
        spawn_quiet("panics", || panic!("of a test"))
            .unwrap()
            .join();
    }
}
