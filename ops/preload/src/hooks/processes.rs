//! Calls that pass sockets out of the control of this library: to other programs, to the buffers of
//! the C library, or to the end of the process.

use std::convert::identity;
use std::ffi::{c_char, c_int, c_void};

use libc::{FILE, pid_t};

use crate::fd;
use crate::lifecycle::forking::{self, Forking};
use crate::lifecycle::{executing, exiting};
use crate::process::{errno, guard, last_thread, real};
use crate::setup::inheritance::{self, Words};
use crate::sharing::exposing;

/// Defines hooks that do work before and after the C library's function.
macro_rules! around {
    (
        before $before:path, after $after:path;
        $($(#[$doc:meta])* fn $name:ident($($arg:ident: $ty:ty),*);)*
    ) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> c_int {
            let begun = (!guard::is_inside()).then($before);
            // SAFETY: the caller's arguments, unchanged.
            let result = unsafe { real::$name($($arg),*) };
            if let Some(begun) = begun {
                $after(begun);
            }
            result
        }
    )*};
}

around! {
    before executing::prepare, after executing::on_failed;
    fn execv(path: *const c_char, arguments: Words);
    fn execvp(file: *const c_char, arguments: Words);
}

/// Defines hooks of calls with an environment, which shows whether the new program loads this
/// library. An argument after the environment follows a semicolon.
macro_rules! with_environment {
    (
        before $before:path, after $after:path;
        $($(#[$doc:meta])* fn $name:ident($($arg:ident: $ty:ty),* $(; $last:ident: $of:ty)?);)*
    ) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            $($arg: $ty,)* environment: Words $(, $last: $of)?
        ) -> c_int {
            let begun = (!guard::is_inside()).then(|| {
                // SAFETY: by the caller's contract the list is null or terminated by null.
                unsafe { inheritance::keep_over_exec_with(environment) };
                $before()
            });
            // SAFETY: the caller's arguments, unchanged.
            let result = unsafe { real::$name($($arg,)* environment $(, $last)?) };
            if let Some(begun) = begun {
                $after(begun);
            }
            result
        }
    )*};
}

with_environment! {
    before executing::prepare_own, after executing::on_failed;
    fn execve(path: *const c_char, arguments: Words);
    fn execvpe(file: *const c_char, arguments: Words);
    fn fexecve(fd: c_int, arguments: Words);
    fn execveat(directory: c_int, path: *const c_char, arguments: Words; flags: c_int);
}

/// Defines hooks of calls that fork. They fail if the child could not use a connection.
macro_rules! forks {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $ty:ty),*);)*) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> c_int {
            let forking = (!guard::is_inside()).then(forking::before_fork);
            if let Some(Err(error)) = forking.as_ref().map(Forking::check) {
                drop(forking);
                errno::set(error.raw_os_error());
                return -1;
            }
            // SAFETY: the caller's arguments, unchanged.
            let made = unsafe { real::$name($($arg),*) };
            if made == 0 {
                last_thread::begin();
            }
            made
        }
    )*};
}

forks! {
    /// Hook of `fork`.
    fn fork();
    /// Hook of `__fork`, another name of `fork`.
    fn __fork();
    /// Hook of `daemon`, which forks by an internal call.
    fn daemon(stay: c_int, keep: c_int);
    /// Hook of `forkpty`, which forks by an internal call.
    fn forkpty(
        main: *mut c_int, name: *mut c_char, terminal: *const c_void, window: *const c_void
    );
}

/// Prepares for a child that will call `exec`.
fn before_spawn() {
    fd::share_sets();
    exposing::expose_connections();
}

/// Prepares for a child that will call `exec` with the environment of this program.
fn expose_kept() {
    inheritance::keep_over_exec();
    before_spawn();
}

around! {
    before expose_kept, after identity;
    fn system(command: *const c_char);
}

with_environment! {
    before before_spawn, after identity;
    fn posix_spawn(
        child: *mut pid_t, path: *const c_char, actions: *const c_void,
        attributes: *const c_void, arguments: Words
    );
    fn posix_spawnp(
        child: *mut pid_t, file: *const c_char, actions: *const c_void,
        attributes: *const c_void, arguments: Words
    );
}

/// Hook of `posix_spawn_file_actions_adddup2`, which gives the child a descriptor under another
/// number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_spawn_file_actions_adddup2(
    actions: *mut c_void,
    fd: c_int,
    to: c_int,
) -> c_int {
    exposing::expose(fd);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::posix_spawn_file_actions_adddup2(actions, fd, to) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn popen(command: *const c_char, how: *const c_char) -> *mut FILE {
    expose_kept();
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::popen(command, how) }
}

/// Hook of `fdopen`. The C library reads and writes the stream with internal calls.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdopen(fd: c_int, how: *const c_char) -> *mut FILE {
    exposing::expose(fd);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::fdopen(fd, how) }
}

/// Hook of `fclose`, which closes the number with an internal call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fclose(stream: *mut FILE) -> c_int {
    if !stream.is_null() {
        // SAFETY: by the caller's contract the stream is valid.
        let fd = unsafe { libc::fileno(stream) };
        // `fclose` writes the buffered bytes by an internal call, which does not use the table.
        fd::on_closed(fd);
    }
    // SAFETY: the caller's argument, unchanged.
    unsafe { real::fclose(stream) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn _exit(status: c_int) -> ! {
    exiting::before_end();
    // SAFETY: the call takes a number and does not return.
    unsafe { libc::syscall(libc::SYS_exit_group, status) };
    // A process that cannot end by its own call is ended by a signal.
    std::process::abort()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn _Exit(status: c_int) -> ! {
    // SAFETY: `_Exit` is another name of `_exit`.
    unsafe { _exit(status) }
}
