//! Counters of the IB extension (`dat_ib_extensions.h`, `dat_ib_query_counters`).
//!
//! Every IA, EP and EVD has its array, indexed by the numbers of the header, so that a query copies
//! the array unchanged. Counters of events that this layer does not see stay 0: datagrams,
//! InfiniBand links, and messages of connection management that iWARP does not have.
//!
//! # Cost
//!
//! Counting is a load and a store. No locked instruction is used, because such instructions would
//! be measurable in the latency of a small Send. If several threads use one object at the same
//! moment, a count may be lost, as with OFA's providers; no decision depends on a counter. A
//! received message is counted when its event is taken.

mod family;
mod traffic;

use std::sync::atomic::{AtomicU64, Ordering};

use dat_abi::*;

pub(crate) use self::family::IaCounters;
pub(crate) use self::traffic::{COUNT as TRAFFIC_COUNT, TrafficCounters};

pub(crate) type EpCounters = Counters<{ DCNT_EP_ALL_COUNTERS as usize }>;
pub(crate) type EvdCounters = Counters<{ DCNT_EVD_ALL_COUNTERS as usize }>;

#[derive(Debug)]
pub(crate) struct Counters<const N: usize>([AtomicU64; N]);

impl<const N: usize> Counters<N> {
    pub(crate) fn new() -> Self {
        Self([const { AtomicU64::new(0) }; N])
    }

    /// Increments a counter by one.
    #[inline]
    pub(crate) fn bump(&self, index: u32) {
        self.add(index, 1);
    }

    /// Increments a counter by `amount`.
    #[inline]
    pub(crate) fn add(&self, index: u32, amount: u64) {
        let counter = &self.0[index as usize];
        counter.store(
            counter.load(Ordering::Relaxed).wrapping_add(amount),
            Ordering::Relaxed,
        );
    }

    /// Counts one transfer, and its bytes in the next counter.
    #[inline]
    pub(crate) fn transfer(&self, index: u32, bytes: u64) {
        self.bump(index);
        self.add(index + 1, bytes);
    }

    /// Returns the value, and sets it to 0 if `reset`.
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
