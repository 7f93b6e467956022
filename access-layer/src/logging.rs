//! The log of a provider library.

use std::sync::Once;

use host::log::{Destination, Outlet};

/// Writes the events that `DAT_LOG` selects to standard error. Without the variable no subscriber
/// is set up and logging costs nothing.
///
/// Has no effect on a second call, or if the program has its own subscriber.
pub fn init_logging() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let destination = Destination::Descriptor(libc::STDERR_FILENO);
        host::log::begin(Outlet::new("libdapl", destination), None);
    });
}
