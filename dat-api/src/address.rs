//! Conversion of socket addresses from DAT, and of durations to DAT timeouts.

use std::net::SocketAddr;
use std::time::Duration;

use dat_abi::{DAT_TIMEOUT_INFINITE, DatIaAddressPtr, DatTimeout, read_socket_addr};

use crate::error::Result;

/// Reads an address that a library returned; `None` for null and for unknown families.
///
/// # Safety
///
/// `address` is null or points at a `sockaddr` that is as long as its family requires and is not
/// written during the call.
pub(crate) unsafe fn read_address(address: DatIaAddressPtr) -> Option<SocketAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: guaranteed by the caller.
    unsafe { read_socket_addr(address) }.ok()
}

/// Calls a function that waits, until it returns a result or `timeout` has expired. A time that is
/// longer than DAT can express, which is 71.6 minutes, is divided into several waits.
pub(crate) fn wait_for<T>(
    timeout: Option<Duration>,
    mut wait: impl FnMut(DatTimeout) -> Result<Option<T>>,
) -> Result<Option<T>> {
    let Some(mut left) = timeout else {
        return wait(DAT_TIMEOUT_INFINITE);
    };
    loop {
        let part = timeout_us(Some(left));
        let found = wait(part)?;
        left = left.saturating_sub(Duration::from_micros(part.into()));
        if found.is_some() || left.is_zero() {
            return Ok(found);
        }
    }
}

/// Converts a timeout: microseconds rounded up, `None` for no limit. A finite time is never
/// converted to "no limit".
pub(crate) fn timeout_us(timeout: Option<Duration>) -> DatTimeout {
    match timeout {
        None => DAT_TIMEOUT_INFINITE,
        Some(timeout) => {
            let us = timeout.as_nanos().div_ceil(1000);
            DatTimeout::try_from(us)
                .unwrap_or(DatTimeout::MAX)
                .min(DAT_TIMEOUT_INFINITE - 1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dat_abi::DatSockAddr;

    #[test]
    fn null_and_an_unknown_family_are_no_address() {
        let mut unspecified = DatSockAddr::zeroed();
        // SAFETY: null is allowed, and so is an address of no family.
        unsafe {
            assert_eq!(read_address(std::ptr::null_mut()), None);
            assert_eq!(read_address(&raw mut unspecified), None);
        }
    }

    #[test]
    fn a_time_that_dat_cannot_express_is_waited_for_in_parts() {
        let waited = |timeout| {
            let mut parts = Vec::new();
            let found = wait_for::<()>(timeout, |part| {
                parts.push(part);
                Ok(None)
            });
            assert!(found.unwrap().is_none());
            parts
        };
        let longest = DAT_TIMEOUT_INFINITE - 1;
        assert_eq!(waited(None), [DAT_TIMEOUT_INFINITE]);
        assert_eq!(waited(Some(Duration::ZERO)), [0]);
        assert_eq!(waited(Some(Duration::from_nanos(1))), [1]);
        let us = 2 * u64::from(longest) + 7;
        let parts = waited(Some(Duration::from_micros(us)));
        assert_eq!(parts, [longest, longest, 7]);
        let mut count = 0;
        let found = wait_for(Some(Duration::MAX), |_| {
            count += 1;
            Ok((count == 3).then_some(count))
        });
        assert_eq!(found.unwrap(), Some(3));
    }

    #[test]
    fn timeouts_round_up_and_stay_finite() {
        assert_eq!(timeout_us(None), DAT_TIMEOUT_INFINITE);
        assert_eq!(timeout_us(Some(Duration::ZERO)), 0);
        assert_eq!(timeout_us(Some(Duration::from_nanos(1))), 1);
        assert_eq!(timeout_us(Some(Duration::from_micros(25))), 25);
        assert_eq!(
            timeout_us(Some(Duration::from_secs(1 << 40))),
            DAT_TIMEOUT_INFINITE - 1
        );
    }
}
