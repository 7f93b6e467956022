//! Handling of `fork`: the child continues to use the table, and its parent's handles are invalid.
//!
//! An adapter of the parent does not work in the child, which has neither its threads nor its
//! sockets nor its shared memory. A call that used them would fail at random or end the child, so
//! each call with a handle of the parent is refused as one with a freed handle.
//!
//! Another thread of the parent may hold the lock at that moment. The child has no such thread and
//! would wait for the lock for ever. So the thread that forks, which exists in both processes,
//! holds the lock during the fork.

use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::sync::MutexGuard;

use super::Free;

type Guard = MutexGuard<'static, Free>;

thread_local! {
    /// The lock, and the process that forks, during a fork. `ManuallyDrop` has no destructor, so
    /// the thread-local needs no memory.
    static HELD: Cell<Option<(ManuallyDrop<Guard>, u32)>> = const { Cell::new(None) };
}

/// The locks of the table during a fork.
pub(crate) struct Locks;

impl Locks {
    pub(crate) fn hold(&self) {
        if self.are_held() {
            return;
        }
        super::MAKING.hold();
        HELD.set(super::lock().map(|guard| (ManuallyDrop::new(guard), std::process::id())));
    }

    /// Returns true if this thread holds the locks.
    pub(crate) fn are_held(&self) -> bool {
        super::MAKING.is_held()
    }

    /// In the child, the handles of the parent are abandoned first.
    pub(crate) fn release(&self) {
        if let Some((held, process)) = HELD.take() {
            let free = ManuallyDrop::into_inner(held);
            if process != std::process::id() {
                super::abandon(&free);
            }
        }
        super::MAKING.release();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Another thread, which the child does not have, holds the lock most of the time.
    #[test]
    fn a_child_finds_the_lock_free() {
        let is_over = AtomicBool::new(false);
        let ends_well = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    super::super::pass_lock();
                }
            });
            super::super::pass_lock();
            let ends_well = (0..200).all(|_| child_passes_lock());
            is_over.store(true, Ordering::Relaxed);
            ends_well
        });
        assert!(ends_well, "a child hung");
    }

    fn child_passes_lock() -> bool {
        // SAFETY: the child uses only the table and exits.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: the call takes a number. The alarm ends a child that hangs.
            unsafe { libc::alarm(20) };
            super::super::pass_lock();
            // SAFETY: the call takes a number.
            unsafe { libc::_exit(0) };
        }
        let mut status = -1;
        // SAFETY: the process is a child of this process, and the pointer is to a local.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        status == 0
    }
}
