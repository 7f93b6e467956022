//! Handlers that run around a `fork`.
//!
//! The child of a `fork` has the thread that forked and no other. A lock that another thread holds
//! at that moment is never released in the child, so the thread that forks takes the lock before
//! and releases it after, in both processes.

/// A handler. It runs in the thread that forks.
pub type Handler = extern "C" fn();

/// Installs handlers that run around each `fork` from now on: before it, after it in the parent,
/// and after it in the child. Does nothing if there is no memory for them.
///
/// Those that run before a fork run in the reverse order of their installation.
pub fn around(before: Option<Handler>, in_parent: Option<Handler>, in_child: Option<Handler>) {
    let raw = |handler: Option<Handler>| handler.map(|handler| handler as unsafe extern "C" fn());
    // SAFETY: the handlers are safe functions of the library that contains this copy of the code.
    // The C library removes them when that library is unloaded.
    unsafe { libc::pthread_atfork(raw(before), raw(in_parent), raw(in_child)) };
}
