//! Segments of registered memory, and the lists that posts pass to the C interface.

use std::marker::PhantomData;

use dat_abi::{DatCount, DatLmrTriplet, DatReturn};

use crate::error::{Result, to_count};
use crate::lmr::Lmr;
use crate::region::Region;

/// A part of registered local memory, in the form that the posts take.
#[derive(Debug, Clone, Copy)]
pub struct Segment<'a> {
    pub(crate) triplet: DatLmrTriplet,
    /// The region to keep alive while the work is outstanding; `None` for memory that the crate
    /// does not own.
    pub(crate) region: Option<&'a Region>,
    borrow: PhantomData<&'a Lmr>,
}

impl<'a> Segment<'a> {
    pub(crate) fn new(triplet: DatLmrTriplet, region: Option<&'a Region>) -> Self {
        Self {
            triplet,
            region,
            borrow: PhantomData,
        }
    }

    /// Returns the C form for posts through [`Library`](crate::Library). Such posts do not keep the
    /// region alive.
    #[must_use]
    pub fn to_raw(self) -> DatLmrTriplet {
        self.triplet
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.triplet.segment_length
    }

    /// Returns true if the length is zero.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Lmr {
    /// Returns a part of the memory, for posts.
    ///
    /// # Errors
    /// [`OutOfBounds`](crate::Error::OutOfBounds) outside the memory,
    /// [`Unrepresentable`](crate::Error::Unrepresentable) for 4 GiB or more.
    pub fn segment(&self, offset: usize, len: usize) -> Result<Segment<'_>> {
        Ok(Segment::new(self.triplet(offset, len)?, None))
    }
}

impl Region {
    /// Returns a part of the region, for posts.
    ///
    /// # Errors
    /// [`OutOfBounds`](crate::Error::OutOfBounds) outside the region,
    /// [`Unrepresentable`](crate::Error::Unrepresentable) for 4 GiB or more.
    pub fn segment(&self, offset: usize, len: usize) -> Result<Segment<'_>> {
        Ok(Segment::new(self.lmr().triplet(offset, len)?, Some(self)))
    }
}

/// Maximum number of segments that are passed without allocating.
const INLINE_SEGMENTS: usize = 8;

/// Calls `post` with the segments as a C list. The list need not outlive the call, because
/// providers copy it (`DAT_IOV_CONSUMER`).
#[inline]
pub(crate) fn with_iov(
    segments: &[Segment<'_>],
    post: impl FnOnce(DatCount, *mut DatLmrTriplet) -> DatReturn,
) -> Result<DatReturn> {
    let count = to_count(segments.len(), "a number of segments")?;
    if segments.len() <= INLINE_SEGMENTS {
        let mut list = [DatLmrTriplet::zeroed(); INLINE_SEGMENTS];
        for (slot, segment) in list.iter_mut().zip(segments) {
            *slot = segment.triplet;
        }
        Ok(post(count, list.as_mut_ptr()))
    } else {
        let mut list: Vec<_> = segments.iter().map(|segment| segment.triplet).collect();
        Ok(post(count, list.as_mut_ptr()))
    }
}
