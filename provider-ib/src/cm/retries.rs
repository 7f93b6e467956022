//! The time during which a refused request is sent again.

use std::time::{Duration, Instant};

/// The time for new attempts, because the service may be about to listen.
const FOR: Duration = Duration::from_secs(3);
/// The pause before the next attempt.
pub(super) const PAUSE: Duration = Duration::from_millis(50);

/// The attempts of one connection. Their time counts from the first refusal, which is received late
/// when a thousand connections are made at once.
#[derive(Debug, Default)]
pub(super) struct Retries {
    until: Option<Instant>,
}

impl Retries {
    /// True if an attempt that is refused now is followed by another one. It must begin before the
    /// consumer's own deadline.
    pub(super) fn go_on(&mut self, now: Instant, deadline: Option<Instant>) -> bool {
        let next = now + PAUSE;
        let until = *self.until.get_or_insert(now + FOR);
        next < until && deadline.is_none_or(|deadline| next < deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_counts_from_the_first_refusal() {
        let begun = Instant::now();
        let mut retries = Retries::default();
        let first = begun + Duration::from_secs(3600);
        assert!(retries.go_on(first, None), "however late it comes");
        assert!(retries.go_on(first + FOR - PAUSE * 2, None));
        assert!(!retries.go_on(first + FOR - PAUSE, None));
        assert!(!retries.go_on(first + FOR * 2, None), "and only once");
    }

    #[test]
    fn the_consumers_deadline_is_kept() {
        let now = Instant::now();
        let mut retries = Retries::default();
        assert!(retries.go_on(now, Some(now + PAUSE * 2)));
        assert!(!retries.go_on(now, Some(now + PAUSE)));
        assert!(!retries.go_on(now + FOR, Some(now)));
    }
}
