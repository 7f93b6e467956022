//! Common code of all thunks: the unwind guard and the checks of pointers and handles.

use std::ffi::c_void;
use std::net::SocketAddr;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use dat_abi::*;

use crate::addr;
use crate::error::{DatError, DatResult, to_return};
use crate::handle::{self, Object, Pinned};
use crate::ia::Ia;
use crate::rnic::{Rnic, Sge};

/// Runs the body of an entry. A panic in it is an error of this library: it is logged and converted
/// to `DAT_INTERNAL_ERROR`, and never unwinds into C.
#[inline]
pub(crate) fn guard(entry: &'static str, body: impl FnOnce() -> DatResult) -> DatReturn {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(result) => to_return(result),
        Err(_) => panicked(entry),
    }
}

/// Runs a body like [`guard`], for entries that return nothing.
pub(crate) fn guard_unit(entry: &'static str, body: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(body)).is_err() {
        let _ = panicked(entry);
    }
}

#[cold]
fn panicked(entry: &'static str) -> DatReturn {
    // The subscriber is foreign code as well; a second panic would end the process.
    let _ = catch_unwind(|| tracing::error!(entry, "panicked"));
    DatError::internal().code()
}

/// Returns the object of a handle, or `DAT_INVALID_HANDLE` with this subtype.
#[inline]
pub(crate) fn pin<T: Object>(handle: DatHandle, subtype: DatReturnSubtype) -> DatResult<Pinned<T>> {
    handle::pin(handle).ok_or(DatError::invalid_handle(subtype))
}

/// Returns the object of a handle that may be null.
pub(crate) fn pin_or_null<T: Object>(
    handle: DatHandle,
    subtype: DatReturnSubtype,
) -> DatResult<Option<Pinned<T>>> {
    if handle.is_null() {
        Ok(None)
    } else {
        pin(handle, subtype).map(Some)
    }
}

/// Returns a reference to the object of a handle that may be null.
pub(crate) fn share_or_null<T: Object>(
    handle: DatHandle,
    subtype: DatReturnSubtype,
) -> DatResult<Option<Arc<T>>> {
    Ok(pin_or_null::<T>(handle, subtype)?.map(|object| object.to_arc()))
}

/// Returns the IA of a handle.
pub(crate) fn pin_ia<R: Rnic>(handle: DatIaHandle) -> DatResult<Pinned<Ia<R>>> {
    pin(handle, DAT_INVALID_HANDLE_IA)
}

/// Refuses a mask, argument `n`, that has bits other than `all`.
pub(crate) fn known_bits(mask: impl Into<u64>, all: impl Into<u64>, n: u32) -> DatResult {
    if mask.into() & !all.into() == 0 {
        Ok(())
    } else {
        Err(DatError::invalid_arg(n))
    }
}

/// An out-pointer. A thunk checks it first and writes it last, and only on success, except for the
/// results that consumers also read after a failure.
#[derive(Debug)]
pub(crate) struct Out<T>(*mut T);

impl<T> Out<T> {
    /// Wraps an out-pointer that must not be null; otherwise argument `n` is invalid.
    #[inline]
    pub(crate) fn required(pointer: *mut T, n: u32) -> DatResult<Self> {
        if pointer.is_null() {
            Err(DatError::invalid_arg(n))
        } else {
            Ok(Self(pointer))
        }
    }

    /// Wraps an out-pointer that may be null.
    pub(crate) fn optional(pointer: *mut T) -> Self {
        Self(pointer)
    }

    #[inline]
    pub(crate) fn write(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: the pointer is not null, so by the contract of all thunks it points at space
            // for a T of the C type; no alignment is assumed.
            unsafe { self.0.write_unaligned(value) }
        }
    }
}

/// Copies a structure of the consumer; if the pointer is null, argument `n` is invalid.
///
/// # Safety
/// By the contract of all thunks: null, or points at a `T`.
pub(crate) unsafe fn read<T: Copy>(pointer: *const T, n: u32) -> DatResult<T> {
    if pointer.is_null() {
        return Err(DatError::invalid_arg(n));
    }
    // SAFETY: the pointer is not null, so it points at a T; no alignment is assumed.
    Ok(unsafe { pointer.read_unaligned() })
}

/// The segment list of a post call.
#[derive(Debug)]
pub(crate) enum Segments<'a> {
    /// The consumer's list.
    InPlace(&'a [Sge]),
    /// A copy of a list that is not aligned.
    Copied(Vec<Sge>),
}

impl Deref for Segments<'_> {
    type Target = [Sge];

    #[inline]
    fn deref(&self) -> &[Sge] {
        match self {
            Self::InPlace(list) => list,
            Self::Copied(list) => list,
        }
    }
}

/// The most segments of a list that is copied. No endpoint accepts as many.
const COPIED_MAX: usize = 1024;

/// Returns a segment list: arguments 2 (count) and 3 (list) of every post call. An aligned list is
/// used in place. Consumers written for OFA's providers may pass a list with any alignment, because
/// these read each member by itself; such a list is copied.
///
/// # Safety
/// By the contract of all thunks: null, or points at `count` triplets that stay unchanged for `'a`.
#[inline]
pub(crate) unsafe fn segments<'a>(
    count: DatCount,
    list: *const DatLmrTriplet,
) -> DatResult<Segments<'a>> {
    let count = usize::try_from(count).map_err(|_| DatError::invalid_arg(2))?;
    if count == 0 {
        return Ok(Segments::InPlace(&[]));
    }
    let list = list.cast::<Sge>();
    if list.is_null() {
        return Err(DatError::invalid_arg(3));
    }
    if !list.is_aligned() {
        // SAFETY: by the contract of this function.
        return unsafe { copied(count, list) }.map(Segments::Copied);
    }
    // SAFETY: the pointer is aligned and not null, so it points at `count` triplets, whose layout
    // `Sge` has (asserted below). With a count that no memory could hold the consumer breaks the
    // contract.
    Ok(Segments::InPlace(unsafe {
        std::slice::from_raw_parts(list, count)
    }))
}

/// # Safety
/// As for [`segments`], and `list` is not null.
#[cold]
unsafe fn copied(count: usize, list: *const Sge) -> DatResult<Vec<Sge>> {
    let mut copy = Vec::new();
    if count > COPIED_MAX {
        return Err(DatError::invalid_arg(2));
    }
    copy.try_reserve_exact(count)
        .map_err(|_| DatError::no_resources(DAT_RESOURCE_MEMORY))?;
    // SAFETY: the list has `count` triplets; no alignment is assumed.
    copy.extend((0..count).map(|index| unsafe { list.add(index).read_unaligned() }));
    Ok(copy)
}

const _: () = {
    assert!(size_of::<Sge>() == size_of::<DatLmrTriplet>());
    assert!(align_of::<Sge>() == align_of::<DatLmrTriplet>());
    assert!(std::mem::offset_of!(Sge, len) == std::mem::offset_of!(DatLmrTriplet, segment_length));
    assert!(std::mem::offset_of!(Sge, lkey) == std::mem::offset_of!(DatLmrTriplet, lmr_context));
};

/// Returns private data: arguments `n` (size) and `n + 1` (pointer).
///
/// # Safety
/// By the contract of all thunks: null, or points at `size` bytes that stay unchanged for `'a`.
pub(crate) unsafe fn private_data<'a>(
    size: DatCount,
    bytes: *const c_void,
    n: u32,
) -> DatResult<&'a [u8]> {
    let size = usize::try_from(size).map_err(|_| DatError::invalid_arg(n))?;
    if size == 0 {
        return Ok(&[]);
    }
    if bytes.is_null() {
        return Err(DatError::invalid_arg(n + 1));
    }
    // SAFETY: the pointer is not null, so it points at `size` bytes.
    Ok(unsafe { std::slice::from_raw_parts(bytes.cast(), size) })
}

/// Reads the arguments of an extension operation.
///
/// # Safety
/// `T` is a structure of integers and raw pointers with the same layout in C, where `read` fills it
/// from the `va_list` of its operation, and `va_list` is one of that operation.
pub(crate) unsafe fn arguments<T>(
    read: unsafe extern "C" fn(DatVaList, *mut T),
    va_list: DatVaList,
) -> T {
    // SAFETY: zero bytes are a value of a structure of integers and raw pointers.
    let mut arguments = unsafe { std::mem::zeroed() };
    // SAFETY: by the contract of this function.
    unsafe { read(va_list, &raw mut arguments) };
    arguments
}

/// Returns a remote address, argument `n`.
///
/// # Safety
/// By the contract of all thunks: null, or points at a socket address as long as its family
/// requires.
pub(crate) unsafe fn socket_address(address: DatIaAddressPtr, n: u32) -> DatResult<SocketAddr> {
    if address.is_null() {
        return Err(DatError::invalid_arg(n));
    }
    // SAFETY: the pointer is not null, so the contract is that of `read`.
    unsafe { addr::read(address) }.map_err(|subtype| DatError::new(DAT_INVALID_ADDRESS, subtype))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_internal_error() {
        assert_eq!(guard("test", || panic!("on purpose")).0, 0x8004_0000);
    }

    #[test]
    fn segment_lists_are_checked_before_use() {
        let triplet = DatLmrTriplet::zeroed();
        let code = |count, list: *const DatLmrTriplet| {
            // SAFETY: the pointers are null, refused for their count, or point to one triplet.
            unsafe { segments(count, list) }
                .map(|list| list.len())
                .map_err(|error| error.code().0)
        };
        assert_eq!(code(-1, &raw const triplet), Err(0x8006_0026));
        assert_eq!(code(1, std::ptr::null()), Err(0x8006_0027));
        assert_eq!(code(0, std::ptr::null()), Ok(0));
        assert_eq!(code(1, &raw const triplet), Ok(1));
        let misaligned = (&raw const triplet).cast::<u8>().wrapping_add(1).cast();
        assert_eq!(code(i32::MAX, misaligned), Err(0x8006_0026));
    }

    #[test]
    fn a_segment_list_may_have_any_alignment() {
        let list: Vec<Sge> = (0..3)
            .map(|n| Sge {
                addr: 0x0123_4567_89AB_0000 + n,
                len: 7,
                lkey: 9,
            })
            .collect();
        let mut memory = [0_u64; 8];
        for shift in 0..8 {
            let at = memory.as_mut_ptr().cast::<u8>().wrapping_add(shift);
            let from = list.as_ptr().cast::<u8>();
            // SAFETY: three triplets are 48 bytes, and at most 7 bytes of the 64 precede them.
            unsafe { std::ptr::copy_nonoverlapping(from, at, size_of_val(&list[..])) };
            // SAFETY: the triplets were written there.
            let found = unsafe { segments(3, at.cast()) }.unwrap();
            assert_eq!(*found, list[..], "shifted by {shift}");
            assert_eq!(matches!(found, Segments::InPlace(_)), shift == 0);
        }
    }

    #[test]
    fn private_data_is_checked_before_use() {
        let code = |size, bytes: &[u8], null: bool| {
            let bytes = if null {
                std::ptr::null()
            } else {
                bytes.as_ptr().cast()
            };
            // SAFETY: the pointer is null or points to as many bytes as given.
            unsafe { private_data(size, bytes, 5) }.map_err(|error| error.code().0)
        };
        assert_eq!(code(-1, b"x", false), Err(0x8006_0029));
        assert_eq!(code(1, b"x", true), Err(0x8006_002A));
        assert_eq!(code(0, b"", true), Ok(&b""[..]));
        assert_eq!(code(1, b"x", false), Ok(&b"x"[..]));
    }
}
