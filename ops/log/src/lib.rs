//! Reports of a library within somebody else's program.
//!
//! The program did not ask for them and knows nothing of them. So they are off unless `DAT_LOG` or
//! a `log` line of the rule file says otherwise; nothing is held open for them, no lock is taken
//! that a fork could leave taken, nothing here panics, and no signal of a broken pipe reaches the
//! program. They go to its standard error only while that is what it was at first.
//!
//! | File | What |
//! |---|---|
//! | `filter.rs` | which events are reported |
//! | `line.rs` | an event as a line |
//! | `outlet.rs` | where lines go |

mod filter;
mod line;
mod outlet;

use ops_rules::Log;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::filter::Targets;

use crate::line::Line;
use crate::outlet::Outlet;

/// Begins to report what `DAT_LOG`, given as `directives`, or the rule file's `log` selects. Where
/// neither is there, or somebody reports already, it does nothing.
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

/// Says what the user has to know, whatever is selected, on standard error.
pub fn complain(text: &str) {
    Outlet::new(&ops_rules::Destination::Stderr).complain(text);
}

/// The subscriber. It knows no spans: none of our crates has any.
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
