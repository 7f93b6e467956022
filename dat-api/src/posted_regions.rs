//! Keeps posted memory alive while a provider may access it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::region::Region;
use crate::segment::Segment;

/// Holds every region that was posted to one endpoint or shared receive queue, until that object is
/// freed.
///
/// Each holder has its own number, which is never reused. A region stores the number of the last
/// holder that kept it, so posting the same region again costs one relaxed load.
pub(crate) struct PostedRegions {
    number: u64,
    regions: Mutex<HashMap<usize, Region>>,
}

impl PostedRegions {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            regions: Mutex::new(HashMap::new()),
        }
    }

    /// Holds the regions of `segments`; must be called before they are posted.
    #[inline]
    pub(crate) fn keep(&self, segments: &[Segment<'_>]) {
        for region in segments.iter().filter_map(|segment| segment.region) {
            if region.inner.kept_by.load(Ordering::Relaxed) != self.number {
                self.keep_region(region);
            }
        }
    }

    pub(crate) fn keep_region(&self, region: &Region) {
        let mut regions = self.regions.lock().unwrap_or_else(PoisonError::into_inner);
        regions
            .entry(Arc::as_ptr(&region.inner).addr())
            .or_insert_with(|| region.clone());
        region.inner.kept_by.store(self.number, Ordering::Relaxed);
    }

    /// Leaks the regions, because the object that may access them could not be freed.
    pub(crate) fn leak(&self) {
        let mut regions = self.regions.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::forget(std::mem::take(&mut *regions));
    }
}

opaque_debug!(PostedRegions, |it| [number: it.number]);
