//! The log of a provider library.

use std::sync::atomic::{AtomicBool, Ordering};

use host::forks::HeldLock;
use host::log::{Destination, Outlet};

/// Writes the events that `DAT_LOG` selects to standard error. Without the variable no subscriber
/// is set up and logging costs nothing.
///
/// Has no effect on a second call, or if the program has its own subscriber.
pub fn init_logging() {
    static HAS_BEGUN: AtomicBool = AtomicBool::new(false);
    if HAS_BEGUN.load(Ordering::Acquire) {
        return;
    }
    let _beginning = BEGINNING.lock();
    if !HAS_BEGUN.load(Ordering::Relaxed) {
        let destination = Destination::Descriptor(libc::STDERR_FILENO);
        host::log::begin(Outlet::new("libdapl", destination), None);
        HAS_BEGUN.store(true, Ordering::Release);
    }
}

/// Held while the log begins.
pub(crate) static BEGINNING: HeldLock<()> = HeldLock::new(());
