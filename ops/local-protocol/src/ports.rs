//! Chooses the local port of a connection whose program has chosen none, and finds the ports that
//! programs without privileges may bind.

use std::collections::hash_map::RandomState;
use std::fs;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU32, Ordering};

/// The range of ports if `/proc` cannot be read: the kernel's default.
const DEFAULT: (u16, u16) = (32768, 60999);

/// The lowest port of programs without privileges if `/proc` cannot be read: the kernel's default.
const DEFAULT_UNPRIVILEGED: u16 = 1024;

/// The number of ports returned so far, plus a random start value, so that processes seldom choose
/// the same port.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// The number of tries with ports that the kernel never assigns itself. After that, ports of the
/// kernel's range are tried.
const BEYOND_MAX: u32 = 16;

/// Returns a port for the connection; `taken` ports of earlier calls were in use.
///
/// Ports above the kernel's range come first, because the kernel could assign a port of its range
/// to a TCP connection to the same service.
pub(crate) fn next(taken: u32) -> u16 {
    let (first, last) = kernel_range();
    let (first, last) = match last.checked_add(1) {
        Some(beyond) if taken < BEYOND_MAX => (beyond, u16::MAX),
        _ => (first, last),
    };
    let count = u32::from(last - first) + 1;
    let at = NEXT.fetch_add(1, Ordering::Relaxed) % count;
    first.saturating_add(u16::try_from(at).unwrap_or(0))
}

/// Returns the lowest port that a program without privileges may bind, at least if that is above
/// `port`. The kernel keeps it below its range of ports, so for a port above that range nothing is
/// read.
pub(crate) fn first_unprivileged(port: u16) -> u16 {
    const START: &str = "/proc/sys/net/ipv4/ip_unprivileged_port_start";
    if port > kernel_range().1 {
        return DEFAULT_UNPRIVILEGED;
    }
    let text = fs::read_to_string(START).unwrap_or_default();
    text.trim().parse().unwrap_or(DEFAULT_UNPRIVILEGED)
}

/// The range from which the kernel assigns ports, with its first port in the upper half; 0 until it
/// is read. Not a `OnceLock`: the child of a fork would wait for ever for a thread that reads the
/// range at that moment.
static KERNEL_RANGE: AtomicU32 = AtomicU32::new(0);

/// Returns the range from which the kernel assigns ports.
fn kernel_range() -> (u16, u16) {
    let known = KERNEL_RANGE.load(Ordering::Relaxed);
    if known != 0 {
        return ((known >> 16) as u16, known as u16);
    }
    NEXT.store(
        RandomState::new().build_hasher().finish() as u32,
        Ordering::Relaxed,
    );
    let text = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let (first, last) = range(&text);
    let both = u32::from(first) << 16 | u32::from(last);
    KERNEL_RANGE.store(both, Ordering::Relaxed);
    (first, last)
}

fn range(text: &str) -> (u16, u16) {
    let mut words = text.split_whitespace().map(str::parse);
    match (words.next(), words.next()) {
        (Some(Ok(first)), Some(Ok(last))) if first <= last => (first, last),
        _ => DEFAULT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_two_numbers_in_order() {
        assert_eq!(range("1024\t65535\n"), (1024, 65535));
        for text in ["", "7", "9 8", "1 70000", "a b"] {
            assert_eq!(range(text), DEFAULT, "{text}");
        }
    }

    #[test]
    fn ports_differ_and_few_are_of_the_range() {
        let mut ports: Vec<u16> = (0..100).map(|_| next(0)).collect();
        ports.extend((0..100).map(|_| next(BEYOND_MAX)));
        let within = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap();
        let (first, last) = range(&within);
        let is_within = |port: &&u16| (first..=last).contains(port);
        let beyond = if last == u16::MAX { 0 } else { 100 };
        assert_eq!(ports.iter().filter(is_within).count(), 200 - beyond);
        for half in ports.chunks_mut(100) {
            half.sort_unstable();
            assert!(half.windows(2).all(|pair| pair[0] != pair[1]), "{half:?}");
        }
    }
}
