//! Counters of an IA, whose families can be stopped.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use dat_abi::*;

use super::Counters;

/// The counters of an IA.
///
/// The counters of a stopped family do not change, so that they can be read together. A start sets
/// them to 0. Counters without a family always count.
#[derive(Debug)]
pub(crate) struct IaCounters {
    all: Counters<{ DCNT_IA_ALL_COUNTERS as usize }>,
    /// One bit for each family that is stopped.
    stopped: AtomicU32,
}

impl IaCounters {
    /// Creates the counters; all are zero and count.
    pub(crate) fn new() -> Self {
        Self {
            all: Counters::new(),
            stopped: AtomicU32::new(0),
        }
    }

    /// Increments a counter, unless its family is stopped.
    pub(crate) fn bump(&self, index: u32) {
        let stopped = self.stopped.load(Ordering::Relaxed);
        if stopped == 0 || family_of(index).is_none_or(|family| stopped & 1 << family == 0) {
            self.all.bump(index);
        }
    }

    /// The underlying array.
    pub(crate) fn all(&self) -> &Counters<{ DCNT_IA_ALL_COUNTERS as usize }> {
        &self.all
    }

    /// Implements `dat_ib_start_counter`. Returns `None` if there is no such family.
    pub(crate) fn on_start(&self, family: DatIaCounterType) -> Option<()> {
        for index in range_of(family)? {
            self.all.read(index as usize, true);
        }
        self.stopped.fetch_and(!(1 << family), Ordering::Relaxed);
        Some(())
    }

    /// Implements `dat_ib_stop_counter`. Returns `None` if there is no such family.
    pub(crate) fn on_stop(&self, family: DatIaCounterType) -> Option<()> {
        range_of(family)?;
        self.stopped.fetch_or(1 << family, Ordering::Relaxed);
        Some(())
    }
}

fn range_of(family: DatIaCounterType) -> Option<Range<u32>> {
    match family {
        DCNT_IA_CM => Some(DCNT_IA_CM_LISTEN..DCNT_IA_LNK_ERR_RCV),
        DCNT_IA_LNK => Some(DCNT_IA_LNK_ERR_RCV..DCNT_IA_DIAG_ERR_RQ_RAE),
        DCNT_IA_DIAG => Some(DCNT_IA_DIAG_ERR_RQ_RAE..DCNT_IA_ALL_COUNTERS),
        _ => None,
    }
}

fn family_of(index: u32) -> Option<DatIaCounterType> {
    [DCNT_IA_CM, DCNT_IA_LNK, DCNT_IA_DIAG]
        .into_iter()
        .find(|family| range_of(*family).is_some_and(|range| range.contains(&index)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const INSIDE: [(DatIaCounterType, u32); 3] = [
        (DCNT_IA_CM, DCNT_IA_CM_REQ_TX),
        (DCNT_IA_LNK, DCNT_IA_LNK_WARN_XMT_WAIT),
        (DCNT_IA_DIAG, DCNT_IA_DIAG_ERR_RQ_RAE),
    ];

    #[test]
    fn a_stopped_family_does_not_change_and_restarts_at_0() {
        for (family, index) in INSIDE {
            let counters = IaCounters::new();
            let read = |index: u32| counters.all().read(index as usize, false);
            counters.bump(index);
            counters.on_stop(family).unwrap();
            for (_, any) in INSIDE {
                counters.bump(any);
            }
            counters.bump(DCNT_IA_PZ_CREATE);
            for (other, any) in INSIDE {
                assert_eq!(read(any), 1, "family {other} while {family} is stopped");
            }
            assert_eq!(read(DCNT_IA_PZ_CREATE), 1);
            counters.on_start(family).unwrap();
            assert_eq!(read(index), 0);
            counters.bump(index);
            assert_eq!((read(index), read(DCNT_IA_PZ_CREATE)), (1, 1));
        }
    }

    #[test]
    fn other_families_do_not_exist() {
        let counters = IaCounters::new();
        for family in [3, 32, u32::MAX] {
            assert!(counters.on_start(family).is_none());
            assert!(counters.on_stop(family).is_none());
        }
    }
}
