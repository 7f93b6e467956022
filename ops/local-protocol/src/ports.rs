//! Chooses the local port of a connection whose program has chosen none.

use std::collections::hash_map::RandomState;
use std::fs;
use std::hash::{BuildHasher, Hasher};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// The range of ports if `/proc` cannot be read: the kernel's default.
const DEFAULT: (u16, u16) = (32768, 60999);

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
    static RANGE: OnceLock<(u16, u16)> = OnceLock::new();
    let (first, last) = *RANGE.get_or_init(|| {
        NEXT.store(
            RandomState::new().build_hasher().finish() as u32,
            Ordering::Relaxed,
        );
        range(&fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default())
    });
    let (first, last) = match last.checked_add(1) {
        Some(beyond) if taken < BEYOND_MAX => (beyond, u16::MAX),
        _ => (first, last),
    };
    let count = u32::from(last - first) + 1;
    let at = NEXT.fetch_add(1, Ordering::Relaxed) % count;
    first.saturating_add(u16::try_from(at).unwrap_or(0))
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
