//! The log of a library that is loaded into another program.
//!
//! The code of the libraries reports events with the macros of `tracing`, and each shared library
//! begins its log here, because each has `tracing` statics of its own. No descriptor is held open
//! for the log, no lock is taken that a fork could leave locked, and nothing here panics. No
//! SIGPIPE reaches the program.
//!
//! | File | Contents |
//! |---|---|
//! | `filter.rs` | the selection of the events |
//! | `line.rs` | the text of an event |
//! | `outlet.rs` | the destinations of lines |

mod filter;
mod line;
mod outlet;

pub use outlet::{Destination, Outlet};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::filter::Targets;

use crate::log::line::Line;

/// The environment variable with the levels by target, such as `info` or `libdat2=trace,warn`.
pub const DAT_LOG: &str = "DAT_LOG";

/// Begins to log the events that `DAT_LOG` selects, or without the variable those up to the level
/// `fallback`. Does nothing if neither is set, or if the process has a subscriber already.
pub fn begin(outlet: Outlet, fallback: Option<LevelFilter>) {
    let directives = crate::environment::text(DAT_LOG);
    let (targets, complaint) = filter::chosen(fallback, directives.as_deref());
    if let Some(complaint) = complaint {
        outlet.print_error(&complaint);
    }
    if let Some(targets) = targets {
        let _ = tracing::subscriber::set_global_default(Log { targets, outlet });
    }
}

/// The subscriber. It ignores spans: none of our crates has any.
#[derive(Debug)]
struct Log {
    targets: Targets,
    outlet: Outlet,
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event()
            && self
                .targets
                .would_enable(metadata.target(), metadata.level())
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        filter::highest(&self.targets)
    }

    fn event(&self, event: &Event<'_>) {
        self.outlet.write(&Line::of(event));
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
