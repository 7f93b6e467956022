//! The registered regions of an RNIC.
//!
//! A device accesses a segment by its key and refuses memory that the key does not cover. The
//! library copies an inline message into its work request instead, on the posting thread and
//! without a check of the key: a wild pointer there would crash the process. So a message is sent
//! inline only if this table confirms that its segments are registered.

use std::collections::HashMap;
use std::sync::RwLock;

use host::locks::IgnorePoison as _;
use rnic::Sge;

/// The first byte and the length that are registered under each local key.
#[derive(Debug, Default)]
pub(crate) struct Regions(RwLock<HashMap<u32, (u64, u64)>>);

impl Regions {
    /// Adds a registered region whose segments are named by address.
    pub(crate) fn insert(&self, lkey: u32, first: u64, len: u64) {
        let mut table = self.0.write().ignore_poison();
        table.insert(lkey, (first, len));
    }

    /// Removes a region that is about to be deregistered.
    pub(crate) fn remove(&self, lkey: u32) {
        let mut table = self.0.write().ignore_poison();
        table.remove(&lkey);
    }

    /// True if every byte of the segments is registered under their keys.
    #[inline]
    pub(crate) fn cover(&self, segments: &[Sge]) -> bool {
        let table = self.0.read().ignore_poison();
        segments.iter().all(|segment| {
            let Some((first, len)) = table.get(&segment.lkey) else {
                return false;
            };
            let offset = segment.addr.wrapping_sub(*first);
            offset <= *len && u64::from(segment.len) <= len - offset
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_covered_to_the_last_byte() {
        let regions = Regions::default();
        regions.insert(7, 1000, 100);
        let covers = |addr, len, lkey| regions.cover(&[Sge { addr, len, lkey }]);
        assert!(covers(1000, 100, 7) && covers(1099, 1, 7) && covers(1100, 0, 7));
        for (addr, len, lkey) in [
            (999, 1, 7),
            (1000, 101, 7),
            (1100, 1, 7),
            (u64::MAX, 2, 7),
            (1000, 1, 8),
        ] {
            assert!(!covers(addr, len, lkey), "{addr} {len} {lkey}");
        }
        regions.remove(7);
        assert!(!covers(1000, 1, 7));
        assert!(regions.cover(&[]));
    }
}
