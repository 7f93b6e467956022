//! Local segments in the device's format.

use rnic::{RnicError, Sge};
use verbs_dl::types::ibv_sge;

/// The largest number of segments of one request, even if the device supports more.
pub(crate) const SGE_MAX: usize = 32;

const _: () = assert!(size_of::<Sge>() == size_of::<ibv_sge>());
const _: () = assert!(std::mem::offset_of!(Sge, len) == std::mem::offset_of!(ibv_sge, length));
const _: () = assert!(std::mem::offset_of!(Sge, lkey) == std::mem::offset_of!(ibv_sge, lkey));

/// The segment list of one request: the consumer's own, or a copy without its empty segments.
///
/// Devices read a length of 0 as 2^31 (InfiniBand's own format), so an empty segment must not reach
/// the device. The exception is a receive without bytes, see [`of_receive`](Self::of_receive).
#[derive(Debug)]
pub(crate) struct Segments<'a> {
    list: List<'a>,
    total: u32,
}

const EMPTY: Sge = Sge {
    addr: 0,
    len: 0,
    lkey: 0,
};

#[derive(Debug)]
enum List<'a> {
    Given(&'a [Sge]),
    Copied(Box<[Sge]>),
}

impl<'a> Segments<'a> {
    #[inline]
    pub(crate) fn of(sgl: &'a [Sge], max: u32) -> Result<Self, RnicError> {
        if sgl.len() > (max as usize).min(SGE_MAX) {
            return Err(RnicError::Length("more segments than the queue supports"));
        }
        let mut total: u32 = 0;
        let mut empty = false;
        for segment in sgl {
            empty |= segment.len == 0;
            total = total.checked_add(segment.len).ok_or(RnicError::Length(
                "the segments are longer than the longest message",
            ))?;
        }
        let list = if empty { copied(sgl) } else { List::Given(sgl) };
        Ok(Self { list, total })
    }

    /// Calls [`of`](Self::of) for a receive. If the device `needs_one`, a receive without bytes
    /// gets one empty segment, which is equivalent to none.
    #[inline]
    pub(crate) fn of_receive(sgl: &'a [Sge], max: u32, needs_one: bool) -> Result<Self, RnicError> {
        let mut segments = Self::of(sgl, max)?;
        if needs_one && segments.as_slice().is_empty() {
            segments.list = List::Given(&[EMPTY]);
        }
        Ok(segments)
    }

    pub(crate) fn total(&self) -> u32 {
        self.total
    }

    /// The list, for a work request. The device does not change it.
    pub(crate) fn as_mut_ptr(&mut self) -> *mut ibv_sge {
        self.as_slice().as_ptr().cast_mut().cast()
    }

    /// The number of segments.
    pub(crate) fn count(&self) -> i32 {
        self.as_slice().len() as i32
    }

    pub(crate) fn as_slice(&self) -> &[Sge] {
        match &self.list {
            List::Given(list) => list,
            List::Copied(list) => list,
        }
    }
}

#[cold]
fn copied<'a>(sgl: &[Sge]) -> List<'a> {
    List::Copied(
        sgl.iter()
            .copied()
            .filter(|segment| segment.len > 0)
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(len: u32) -> Sge {
        Sge {
            addr: 1000,
            len,
            lkey: 7,
        }
    }

    #[test]
    fn a_plain_list_is_used_in_place() {
        let list = [segment(1), segment(2)];
        let mut segments = Segments::of(&list, 2).unwrap();
        assert_eq!((segments.total(), segments.count()), (3, 2));
        assert_eq!(segments.as_mut_ptr().cast_const().cast(), list.as_ptr());
    }

    #[test]
    fn empty_segments_are_removed() {
        let list = [segment(0), segment(5), segment(0)];
        let segments = Segments::of(&list, 3).unwrap();
        assert_eq!(
            (segments.total(), segments.as_slice()),
            (5, &[segment(5)][..])
        );
        let none = Segments::of(&list[..1], 3).unwrap();
        assert_eq!((none.total(), none.count()), (0, 0));
    }

    #[test]
    fn a_receive_of_nothing_has_a_segment_where_the_device_needs_one() {
        for list in [&[][..], &[segment(0)][..]] {
            let without = Segments::of_receive(list, 3, false).unwrap();
            assert_eq!((without.total(), without.count()), (0, 0));
            let with = Segments::of_receive(list, 3, true).unwrap();
            assert_eq!((with.total(), with.as_slice()), (0, &[EMPTY][..]));
        }
        let list = [segment(5)];
        let some = Segments::of_receive(&list, 3, true).unwrap();
        assert_eq!(some.as_slice(), &list[..]);
    }

    #[test]
    fn too_many_or_too_long_segments_are_refused() {
        let too_long = [segment(u32::MAX), segment(1)];
        assert!(matches!(
            Segments::of(&too_long, 2),
            Err(RnicError::Length(_))
        ));
        assert!(matches!(
            Segments::of(&too_long, 1),
            Err(RnicError::Length(_))
        ));
        let many = [segment(1); SGE_MAX + 1];
        assert!(matches!(
            Segments::of(&many, 1000),
            Err(RnicError::Length(_))
        ));
    }
}
