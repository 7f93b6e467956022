//! The reports of a library that is loaded into another program.
//!
//! The program did not ask for reports and does not expect them. So they are off unless `DAT_LOG`
//! or a `log` line of the rule file enables them. No descriptor is held open for them, no lock is
//! taken that a fork could leave locked, and nothing here panics. No SIGPIPE reaches the program.
//! Standard error is used only while descriptor 2 is still the file that it was at first.
//!
//! | File | Contents |
//! |---|---|
//! | `filter.rs` | the selection of the events |
//! | `line.rs` | the text of an event |
//! | `outlet.rs` | the destinations of lines |

mod filter;
mod line;
mod outlet;

use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::filter::Targets;

use crate::log::line::Line;
use crate::log::outlet::Outlet;
use crate::rules::Log;

/// Begins to report the events that `DAT_LOG`, passed as `directives`, or the rule file's `log`
/// selects. Does nothing if neither is set, or if the process has a subscriber already.
pub fn begin(log: Option<&Log>, directives: Option<&str>) {
    let (targets, complaint) = filter::chosen(log, directives);
    let outlet = Outlet::new(&log.cloned().unwrap_or_default().destination);
    if let Some(complaint) = complaint {
        outlet.complain(&complaint);
    }
    if let Some(targets) = targets {
        let _ = tracing::subscriber::set_global_default(Reports { targets, outlet });
    }
}

/// Writes a message for the user to standard error, whatever events are selected.
pub fn complain(text: &str) {
    Outlet::new(&crate::rules::Destination::Stderr).complain(text);
}

/// The subscriber. It ignores spans: none of our crates has any.
#[derive(Debug)]
struct Reports {
    targets: Targets,
    outlet: Outlet,
}

impl Subscriber for Reports {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event()
            && self
                .targets
                .would_enable(metadata.target(), metadata.level())
    }

    fn max_level_hint(&self) -> Option<tracing::level_filters::LevelFilter> {
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
