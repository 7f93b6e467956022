//! The clock that both processes read. It is one clock for all processes of a host, so a time that
//! one process has taken can be subtracted from a time that the other has taken.

use nix::time::{ClockId, clock_gettime};

/// Nanoseconds of `CLOCK_MONOTONIC`.
pub(crate) fn now_ns() -> nix::Result<u64> {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC)?;
    // The clock begins at the start of the machine, so neither part is negative.
    Ok(now.tv_sec().unsigned_abs() * 1_000_000_000 + now.tv_nsec().unsigned_abs())
}

/// The seconds from one time to another; 0 if the second one is earlier.
pub(crate) fn seconds_between(from_ns: u64, to_ns: u64) -> f64 {
    to_ns.saturating_sub(from_ns) as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_subtracted_in_seconds() {
        let earlier = now_ns().unwrap();
        assert!(now_ns().unwrap() >= earlier);
        assert_eq!(seconds_between(1_000, 2_001_000), 0.002);
        assert_eq!(seconds_between(2, 1), 0.0);
    }
}
