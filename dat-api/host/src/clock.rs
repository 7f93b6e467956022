//! The kernel's clocks.
//!
//! They are read through the C library. rustix finds the kernel's function for them by itself, at
//! an address that is not mapped in a program under valgrind.

use std::time::Duration;

/// A clock of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// Time since some point in the past. Does not run while the machine is suspended.
    Monotonic,
    /// Time since the machine started, including the time for which it was suspended.
    Boot,
    /// Time since 1970, which may be set.
    Real,
}

impl Clock {
    /// Returns the time of the clock.
    #[must_use]
    pub fn now(self) -> Duration {
        let clock = match self {
            Self::Monotonic => libc::CLOCK_MONOTONIC,
            Self::Boot => libc::CLOCK_BOOTTIME,
            Self::Real => libc::CLOCK_REALTIME,
        };
        let mut now = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: the structure is valid for writes. The call cannot fail, because Linux has had
        // these clocks since 2.6.39.
        unsafe { libc::clock_gettime(clock, &raw mut now) };
        let seconds = Duration::from_secs(u64::try_from(now.tv_sec).unwrap_or(0));
        seconds + Duration::from_nanos(u64::try_from(now.tv_nsec).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn the_clocks_tell_the_time() {
        let before = SystemTime::UNIX_EPOCH.elapsed().unwrap();
        let real = Clock::Real.now();
        assert!(before <= real && real <= SystemTime::UNIX_EPOCH.elapsed().unwrap());
        let monotonic = Clock::Monotonic.now();
        assert!(monotonic <= Clock::Monotonic.now());
        assert!(monotonic <= Clock::Boot.now() && !monotonic.is_zero());
    }
}
