//! The set of pages known to be readable: a small lossy cache that is read without locks.
//!
//! A lost entry costs one system call. So the cache needs no lock and no list: it has a fixed
//! number of buckets with four entries each, which are overwritten in turn.

use std::sync::atomic::{AtomicUsize, Ordering};

const PAGE_SHIFT: u32 = 12;
const BUCKETS: usize = 1024;
const WAYS: usize = 4;

/// One bucket fills half a cache line, so that a look-up touches one line.
#[repr(align(32))]
struct Bucket([AtomicUsize; WAYS]);

/// Page numbers. Zero marks a free entry, because handles are never in page zero.
static PAGES: [Bucket; BUCKETS] =
    [const { Bucket([const { AtomicUsize::new(0) }; WAYS]) }; BUCKETS];

#[inline]
pub(super) fn contains(address: usize) -> bool {
    let page = address >> PAGE_SHIFT;
    bucket(page)
        .0
        .iter()
        .any(|way| way.load(Ordering::Relaxed) == page)
}

pub(super) fn insert(address: usize) {
    // Distributes replacement over the entries of a bucket; the order between threads does not
    // matter.
    static TURN: AtomicUsize = AtomicUsize::new(0);

    let page = address >> PAGE_SHIFT;
    let ways = &bucket(page).0;
    let free = ways.iter().position(|way| way.load(Ordering::Relaxed) == 0);
    let place = free.unwrap_or_else(|| TURN.fetch_add(1, Ordering::Relaxed) % WAYS);
    ways[place].store(page, Ordering::Relaxed);
}

pub(super) fn clear() {
    for way in PAGES.iter().flat_map(|bucket| &bucket.0) {
        way.store(0, Ordering::Relaxed);
    }
}

#[inline]
fn bucket(page: usize) -> &'static Bucket {
    // Multiplication by the golden ratio distributes neighbouring pages as well as aligned arenas.
    const GOLDEN: usize = 0x9E37_79B9_7F4A_7C15;
    &PAGES[page.wrapping_mul(GOLDEN) >> (usize::BITS - BUCKETS.trailing_zeros())]
}
