//! Whose call is it: the program's, or that of the stack that we use to serve it?
//!
//! The DAT stack lies in the same process and opens sockets too; those must stay on TCP. Whatever
//! runs between [`enter`] and the drop of what it returns is the stack's, and so is every thread
//! that is started meanwhile.

use std::cell::Cell;
use std::marker::PhantomData;

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// The calling thread works for the stack while this lives.
#[derive(Debug)]
pub(crate) struct Inside {
    // The depth is the thread's, so this stays with it.
    _of_this_thread: PhantomData<*const ()>,
}

/// From here on the thread's calls are the stack's.
pub(crate) fn enter() -> Inside {
    // A thread that is being torn down has no depth any more; what it still calls is native.
    let _ = DEPTH.try_with(|depth| depth.set(depth.get() + 1));
    Inside {
        _of_this_thread: PhantomData,
    }
}

/// Whether the thread's calls are the stack's.
pub(crate) fn is_inside() -> bool {
    DEPTH.try_with(|depth| depth.get() > 0).unwrap_or(true)
}

impl Drop for Inside {
    fn drop(&mut self) {
        let _ = DEPTH.try_with(|depth| depth.set(depth.get().saturating_sub(1)));
    }
}
