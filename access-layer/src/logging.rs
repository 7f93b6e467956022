//! The log of a provider library.
//!
//! Each shared library has its own `tracing` statics, so each sets up its own subscriber.

use std::sync::Once;

use tracing_subscriber::EnvFilter;

/// Name of the environment variable with the filter, for example `warn` or `access_layer=debug`.
pub const DAT_LOG: &str = "DAT_LOG";

/// Writes the events that `DAT_LOG` selects to standard error. Without the variable no subscriber
/// is set up and logging costs nothing.
///
/// Has no effect on a second call, or if the program has its own subscriber.
pub fn init_logging() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let Some(directives) = host::environment::text(DAT_LOG) else {
            return;
        };
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter(EnvFilter::new(directives))
            .with_writer(std::io::stderr)
            .finish();
        // Fails if there is a subscriber already, which then receives the events.
        let _ = tracing::subscriber::set_global_default(subscriber);
    });
}
