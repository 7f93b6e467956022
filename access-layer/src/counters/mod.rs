//! Counters of the IB extension (`dat_ib_extensions.h`, `dat_ib_query_counters`).
//!
//! Every IA, EP and EVD has its array, indexed by the numbers of the header, so that a query copies
//! it out as it is. What this layer cannot see stays 0: datagrams, InfiniBand links, and messages
//! of connection management that iWARP does not have.
//!
//! # Cost
//!
//! A load and a store for each counter, no locked instruction: those of a small Send alone would
//! show in its latency. Where several threads use one object at the same moment a count may
//! be lost, as it may with OFA's; no decision hangs on a counter. A received message is added when
//! its event is taken.

mod family;
mod traffic;

use std::sync::atomic::{AtomicU64, Ordering};

use dat_abi::*;

pub(crate) use self::family::IaCounters;
pub(crate) use self::traffic::{COUNT as TRAFFIC_COUNT, TrafficCounters};

/// Counters of an EP.
pub(crate) type EpCounters = Counters<{ DCNT_EP_ALL_COUNTERS as usize }>;
/// Counters of an EVD.
pub(crate) type EvdCounters = Counters<{ DCNT_EVD_ALL_COUNTERS as usize }>;

/// The counters of one object.
#[derive(Debug)]
pub(crate) struct Counters<const N: usize>([AtomicU64; N]);

impl<const N: usize> Counters<N> {
    /// All zero.
    pub(crate) fn new() -> Self {
        Self([const { AtomicU64::new(0) }; N])
    }

    /// One more.
    #[inline]
    pub(crate) fn bump(&self, index: u32) {
        self.add(index, 1);
    }

    /// `amount` more.
    #[inline]
    pub(crate) fn add(&self, index: u32, amount: u64) {
        let counter = &self.0[index as usize];
        counter.store(
            counter.load(Ordering::Relaxed).wrapping_add(amount),
            Ordering::Relaxed,
        );
    }

    /// One transfer more of so many bytes, which the next counter has.
    #[inline]
    pub(crate) fn transfer(&self, index: u32, bytes: u64) {
        self.bump(index);
        self.add(index + 1, bytes);
    }

    /// The value, which begins at 0 again if `reset`.
    pub(crate) fn read(&self, index: usize, reset: bool) -> u64 {
        if reset {
            self.0[index].swap(0, Ordering::Relaxed)
        } else {
            self.0[index].load(Ordering::Relaxed)
        }
    }
}

#[cfg(test)]
mod tests;
