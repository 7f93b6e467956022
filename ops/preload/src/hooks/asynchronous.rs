//! `aio_read`, `aio_write`, `lio_listio`. Threads of the C library read and write later with
//! internal calls, so the descriptor must carry bytes from then on.

use std::ffi::{c_int, c_void};

use libc::aiocb;

use super::alias;
use crate::process::real;
use crate::sharing::exposing;

macro_rules! one {
    ($(fn $name:ident;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(block: *mut aiocb) -> c_int {
            // SAFETY: by the caller's contract the block is null or valid.
            if let Some(block) = unsafe { block.as_ref() } {
                exposing::expose(block.aio_fildes);
            }
            // SAFETY: the caller's argument, unchanged.
            unsafe { real::$name(block) }
        }
    )*};
}

one! {
    fn aio_read;
    fn aio_write;
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lio_listio(
    mode: c_int,
    list: *const *mut aiocb,
    count: c_int,
    event: *mut c_void,
) -> c_int {
    let blocks = if list.is_null() { 0 } else { count.max(0) };
    for index in 0..usize::try_from(blocks).unwrap_or(0) {
        // SAFETY: by the caller's contract the list has this many entries, each null or valid.
        if let Some(block) = unsafe { (*list.add(index)).as_ref() } {
            exposing::expose(block.aio_fildes);
        }
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::lio_listio(mode, list, count, event) }
}

alias! {
    aio_read64(block: *mut aiocb) -> c_int = aio_read(block);
    aio_write64(block: *mut aiocb) -> c_int = aio_write(block);
    lio_listio64(mode: c_int, list: *const *mut aiocb, count: c_int, event: *mut c_void) -> c_int =
        lio_listio(mode, list, count, event);
}
