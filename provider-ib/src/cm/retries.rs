//! The time during which a refused request is sent again.

use std::time::{Duration, Instant};

/// The time during which refused attempts are repeated, because the service may be about to listen.
const RETRY_TIME: Duration = Duration::from_secs(3);
/// The pause before the next attempt.
pub(super) const PAUSE: Duration = Duration::from_millis(50);

/// The attempts of one connection. [`RETRY_TIME`] counts from the first refusal and not from the
/// first attempt: if a thousand connections are opened at once, the refusals are received late.
#[derive(Debug, Default)]
pub(super) struct Retries {
    until: Option<Instant>,
}

impl Retries {
    /// Returns true if an attempt that is refused now is followed by another one, which must begin
    /// before the consumer's own deadline.
    pub(super) fn may_retry(&mut self, now: Instant, deadline: Option<Instant>) -> bool {
        let next = now + PAUSE;
        let until = *self.until.get_or_insert(now + RETRY_TIME);
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
        assert!(
            retries.may_retry(first, None),
            "however late it is received"
        );
        assert!(retries.may_retry(first + RETRY_TIME - PAUSE * 2, None));
        assert!(!retries.may_retry(first + RETRY_TIME - PAUSE, None));
        assert!(
            !retries.may_retry(first + RETRY_TIME * 2, None),
            "counted once"
        );
    }

    #[test]
    fn the_consumers_deadline_is_kept() {
        let now = Instant::now();
        let mut retries = Retries::default();
        assert!(retries.may_retry(now, Some(now + PAUSE * 2)));
        assert!(!retries.may_retry(now, Some(now + PAUSE)));
        assert!(!retries.may_retry(now + RETRY_TIME, Some(now)));
    }
}
