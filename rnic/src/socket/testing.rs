//! A check in the child of a fork.

/// Returns what a child of a fork finds. The check may only call the kernel.
pub(super) fn is_so_in_child(check: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child only calls the kernel, as each check does, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let is_so = check();
        // SAFETY: the call takes a number and does not return.
        unsafe { libc::_exit(i32::from(is_so)) };
    }
    let mut status = 0;
    // SAFETY: this process's child, and the out-pointer is of this frame.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    libc::WEXITSTATUS(status) == 1
}
