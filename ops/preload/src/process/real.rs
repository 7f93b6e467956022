//! The C library's functions that the hooks replace: the next definitions in the loader's order.
//!
//! The address of each function is looked up at its first call and stored; each later call costs
//! one load and one jump. A lookup waits while a thread loads a library, so all addresses are
//! looked up before this library may load one ([`find_all`]). The hooks call the C library and not
//! the kernel, because the C library's functions are cancellation points.

use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_void};
use std::mem::transmute;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, Ordering};

use libc::{
    FILE, aiocb, epoll_event, fd_set, iovec, mmsghdr, msghdr, nfds_t, off64_t, pid_t, pollfd,
    pthread_attr_t, pthread_t, rlimit, sigset_t, size_t, sockaddr, socklen_t, ssize_t, timespec,
    timeval,
};

use crate::process::errno;

/// The start function of a thread.
pub(crate) type StartRoutine = extern "C" fn(*mut c_void) -> *mut c_void;

/// The result of a call when the C library lacks the function.
trait Failed {
    const FAILED: Self;
}

impl Failed for c_int {
    const FAILED: Self = -1;
}

impl Failed for c_long {
    const FAILED: Self = -1;
}

impl Failed for ssize_t {
    const FAILED: Self = -1;
}

impl Failed for *mut libc::FILE {
    const FAILED: Self = ptr::null_mut();
}

unsafe extern "C" {
    /// Ends the program with the C library's message about a buffer overrun.
    pub(crate) fn __chk_fail() -> !;
}

fn find(name: &CStr) -> *mut c_void {
    // SAFETY: the name is a terminated constant; RTLD_NEXT searches the libraries after this one.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }
}

/// Returns the address of a function that Rust cannot call. Returns null and sets `ENOSYS` if the C
/// library lacks the function.
pub(crate) fn address(name: &CStr) -> *const c_void {
    let found = find(name);
    if found.is_null() {
        errno::set(libc::ENOSYS);
    }
    found
}

/// True if the process had one thread before this library started one, and the program has started
/// none since. The C library then no longer counts the threads that it starts itself.
static HAS_OWN_THREADS_ONLY: AtomicBool = AtomicBool::new(false);

/// Records that this library starts a thread.
pub(crate) fn on_own_thread() {
    if has_one_thread() {
        HAS_OWN_THREADS_ONLY.store(true, Ordering::Relaxed);
    }
}

/// Records that the program starts a thread.
pub(crate) fn on_thread_of_program() {
    HAS_OWN_THREADS_ONLY.store(false, Ordering::Relaxed);
}

/// Returns true if the program has had one thread since its start. Threads of this library do not
/// count.
pub(crate) fn is_single_threaded() -> bool {
    has_one_thread() || HAS_OWN_THREADS_ONLY.load(Ordering::Relaxed)
}

/// Returns true if the process has had one thread since its start. False if the C library does not
/// say so (before version 2.32). It counts the threads that it starts itself, such as those of
/// timers, as well.
fn has_one_thread() -> bool {
    /// The variable of a C library that has none: not single-threaded.
    static NONE: AtomicU8 = AtomicU8::new(0);
    // Null until it is found. Not a `OnceLock`: the child of a fork would wait for ever for a
    // thread that looks it up at that moment.
    static FOUND: AtomicPtr<AtomicU8> = AtomicPtr::new(ptr::null_mut());
    let mut flag = FOUND.load(Ordering::Relaxed);
    if flag.is_null() {
        // A program that uses the variable has the copy that is in use.
        let all = libc::RTLD_DEFAULT;
        // SAFETY: the name is a terminated constant.
        let found = unsafe { libc::dlsym(all, c"__libc_single_threaded".as_ptr()) };
        flag = if found.is_null() {
            (&raw const NONE).cast_mut()
        } else {
            found.cast()
        };
        FOUND.store(flag, Ordering::Relaxed);
    }
    // SAFETY: the pointer is to a `char` of a module that is never unloaded, or to `NONE`.
    unsafe { &*flag }.load(Ordering::Relaxed) != 0
}

/// Looks up a function and stores its address. Returns `None` if the C library lacks it.
fn look_up(name: &CStr, stored: &AtomicPtr<c_void>) -> Option<*mut c_void> {
    let found = find(name);
    if found.is_null() {
        return None;
    }
    stored.store(found, Ordering::Relaxed);
    Some(found)
}

/// Looks up all functions, unless this process or its parent has done so. The loader is locked
/// while a thread loads a library, which may take long, and a first call would wait for it.
pub(crate) fn find_all() {
    static IS_DONE: AtomicBool = AtomicBool::new(false);
    if IS_DONE.load(Ordering::Relaxed) {
        return;
    }
    for (name, stored) in ALL {
        look_up(name, stored);
    }
    has_one_thread();
    IS_DONE.store(true, Ordering::Relaxed);
}

/// The name of a function as C has it.
macro_rules! name {
    ($name:ident) => {
        match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
            Ok(name) => name,
            Err(_) => unreachable!(),
        }
    };
}

/// Defines functions that jump to the C library's functions of the same names.
///
/// An address is that of a function in `first` until the first call, so that no call has to compare
/// it.
macro_rules! real {
    ($(fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)?;)*) => {$(
        #[doc = concat!("`", stringify!($name), "` of the C library.")]
        ///
        /// # Safety
        /// As for the C function.
        #[inline]
        pub(crate) unsafe fn $name($($arg: $ty),*) $(-> $ret)? {
            // A cancellation in the call unwinds the caller's frames.
            type Real = unsafe extern "C-unwind" fn($($ty),*) $(-> $ret)?;
            let function = found::$name.load(Ordering::Relaxed);
            // SAFETY: the address is that of the function in `first` or of the C library's
            // function; see there.
            unsafe { transmute::<*mut c_void, Real>(function)($($arg),*) }
        }
    )*

        /// The addresses of the functions.
        #[allow(non_upper_case_globals, reason = "the names are those of the functions")]
        mod found {
            use super::{AtomicPtr, c_void};

            $(pub(super) static $name: AtomicPtr<c_void> =
                AtomicPtr::new(super::first::$name as *mut c_void);)*
        }

        /// The first calls of the functions, which look up the addresses.
        mod first {
            use super::*;

            $(#[cold]
            pub(super) unsafe extern "C-unwind" fn $name($($arg: $ty),*) $(-> $ret)? {
                type Real = unsafe extern "C-unwind" fn($($ty),*) $(-> $ret)?;
                let Some(address) = look_up(name!($name), &found::$name) else {
                    errno::set(libc::ENOSYS);
                    return real!(@failed $($ret)?);
                };
                // SAFETY: the C library's function of this name has this signature. The caller
                // guarantees the contract of the C function for the arguments.
                unsafe { transmute::<*mut c_void, Real>(address)($($arg),*) }
            })*
        }

        /// The names of the functions, and where their addresses are stored.
        static ALL: &[(&CStr, &AtomicPtr<c_void>)] = &[$((name!($name), &found::$name)),*];
    };
    (@failed $ret:ty) => { <$ret as Failed>::FAILED };
    (@failed) => { () };
}

real! {
    fn read(fd: c_int, buffer: *mut c_void, len: size_t) -> ssize_t;
    fn write(fd: c_int, buffer: *const c_void, len: size_t) -> ssize_t;
    fn readv(fd: c_int, vector: *const iovec, count: c_int) -> ssize_t;
    fn writev(fd: c_int, vector: *const iovec, count: c_int) -> ssize_t;
    fn preadv2(fd: c_int, vector: *const iovec, count: c_int, at: off64_t, flags: c_int) -> ssize_t;
    fn pwritev2(
        fd: c_int, vector: *const iovec, count: c_int, at: off64_t, flags: c_int,
    ) -> ssize_t;
    fn recv(fd: c_int, buffer: *mut c_void, len: size_t, flags: c_int) -> ssize_t;
    fn send(fd: c_int, buffer: *const c_void, len: size_t, flags: c_int) -> ssize_t;
    fn recvfrom(
        fd: c_int, buffer: *mut c_void, len: size_t, flags: c_int, from: *mut sockaddr,
        from_len: *mut socklen_t,
    ) -> ssize_t;
    fn sendto(
        fd: c_int, buffer: *const c_void, len: size_t, flags: c_int, to: *const sockaddr,
        to_len: socklen_t,
    ) -> ssize_t;
    fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t;
    fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
    fn recvmmsg(
        fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec,
    ) -> c_int;
    fn sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int;
    fn sendfile(out: c_int, from: c_int, at: *mut off64_t, count: size_t) -> ssize_t;
    fn splice(
        from: c_int, from_at: *mut off64_t, to: c_int, to_at: *mut off64_t, len: size_t,
        flags: c_uint,
    ) -> ssize_t;
    fn socket(family: c_int, kind: c_int, protocol: c_int) -> c_int;
    fn bind(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int;
    fn listen(fd: c_int, backlog: c_int) -> c_int;
    fn accept4(fd: c_int, address: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int;
    fn connect(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int;
    fn shutdown(fd: c_int, how: c_int) -> c_int;
    fn getsockname(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int;
    fn getpeername(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int;
    fn getsockopt(
        fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t,
    ) -> c_int;
    fn setsockopt(
        fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t,
    ) -> c_int;
    fn aio_read(block: *mut aiocb) -> c_int;
    fn aio_write(block: *mut aiocb) -> c_int;
    fn lio_listio(
        mode: c_int, list: *const *mut aiocb, count: c_int, event: *mut c_void,
    ) -> c_int;
    fn close(fd: c_int) -> c_int;
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int;
    fn closefrom(first: c_int);
    fn dup(fd: c_int) -> c_int;
    fn dup2(fd: c_int, to: c_int) -> c_int;
    fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int;
    fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int;
    fn eventfd(count: c_uint, flags: c_int) -> c_int;
    fn ioctl(fd: c_int, request: std::ffi::c_ulong, argument: usize) -> c_int;
    fn poll(set: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
    fn ppoll(
        set: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t,
    ) -> c_int;
    fn select(
        count: c_int, readable: *mut fd_set, writable: *mut fd_set, except: *mut fd_set,
        timeout: *mut timeval,
    ) -> c_int;
    fn pselect(
        count: c_int, readable: *mut fd_set, writable: *mut fd_set, except: *mut fd_set,
        timeout: *const timespec, mask: *const sigset_t,
    ) -> c_int;
    fn epoll_create(size: c_int) -> c_int;
    fn epoll_create1(flags: c_int) -> c_int;
    fn epoll_wait(set: c_int, events: *mut epoll_event, most: c_int, timeout: c_int) -> c_int;
    fn epoll_pwait(
        set: c_int, events: *mut epoll_event, most: c_int, timeout: c_int, mask: *const sigset_t,
    ) -> c_int;
    fn epoll_pwait2(
        set: c_int, events: *mut epoll_event, most: c_int, timeout: *const timespec,
        mask: *const sigset_t,
    ) -> c_int;
    fn epoll_ctl(set: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int;
    fn pthread_create(
        thread: *mut pthread_t, attributes: *const pthread_attr_t, start: StartRoutine,
        argument: *mut c_void,
    ) -> c_int;
    fn thrd_create(thread: *mut pthread_t, start: *const c_void, argument: *mut c_void) -> c_int;
    fn pthread_cancel(thread: pthread_t) -> c_int;
    fn execve(
        path: *const c_char, arguments: *const *const c_char, environment: *const *const c_char,
    ) -> c_int;
    fn execv(path: *const c_char, arguments: *const *const c_char) -> c_int;
    fn execvp(file: *const c_char, arguments: *const *const c_char) -> c_int;
    fn execvpe(
        file: *const c_char, arguments: *const *const c_char, environment: *const *const c_char,
    ) -> c_int;
    fn fexecve(
        fd: c_int, arguments: *const *const c_char, environment: *const *const c_char,
    ) -> c_int;
    fn execveat(
        directory: c_int, path: *const c_char, arguments: *const *const c_char,
        environment: *const *const c_char, flags: c_int,
    ) -> c_int;
    fn fork() -> pid_t;
    fn __fork() -> pid_t;
    fn daemon(stay: c_int, keep: c_int) -> c_int;
    fn forkpty(
        main: *mut c_int, name: *mut c_char, terminal: *const c_void, window: *const c_void,
    ) -> pid_t;
    fn system(command: *const c_char) -> c_int;
    fn posix_spawn(
        child: *mut pid_t, path: *const c_char, actions: *const c_void, attributes: *const c_void,
        arguments: *const *const c_char, environment: *const *const c_char,
    ) -> c_int;
    fn posix_spawnp(
        child: *mut pid_t, file: *const c_char, actions: *const c_void, attributes: *const c_void,
        arguments: *const *const c_char, environment: *const *const c_char,
    ) -> c_int;
    fn posix_spawn_file_actions_adddup2(actions: *mut c_void, fd: c_int, to: c_int) -> c_int;
    fn popen(command: *const c_char, how: *const c_char) -> *mut FILE;
    fn fclose(stream: *mut FILE) -> c_int;
    fn vdprintf(fd: c_int, format: *const c_char, list: *mut c_void) -> c_int;
    fn __vdprintf_chk(
        fd: c_int, flag: c_int, format: *const c_char, list: *mut c_void,
    ) -> c_int;
    fn fdopen(fd: c_int, how: *const c_char) -> *mut FILE;
    fn prlimit(
        process: pid_t, resource: c_uint, limit: *const rlimit, before: *mut rlimit,
    ) -> c_int;
    fn setns(fd: c_int, kind: c_int) -> c_int;
    fn unshare(flags: c_int) -> c_int;
    fn prctl(
        option: c_int, a: std::ffi::c_ulong, b: std::ffi::c_ulong, c: std::ffi::c_ulong,
        d: std::ffi::c_ulong,
    ) -> c_int;
    fn syscall(
        number: c_long, a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f: c_long,
    ) -> c_long;
}
