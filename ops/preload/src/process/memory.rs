//! Checks without a system call whether the calling process has made the table of descriptors, or
//! is a child of that process.
//!
//! A child has the parent's memory, either a copy of it or, after a `vfork`, the same. Comparing
//! process ids costs a system call at each `connect` and `close`. So a page holds a mark that the
//! kernel clears in each child that gets a copy (`MADV_WIPEONFORK`, Linux 4.14), also in one that
//! is made by a raw system call. Once the program has made a child that shares its memory, or
//! without such a page, ids are compared.
//!
//! [`is_readable`] and [`is_writable`] are about the program's own memory, which calls use without
//! a copy.

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// The mark; null while there is none. Its memory is never freed.
static MARK: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());

/// The value of the mark in the process that set it.
const SET: u32 = 1;

/// True if a child may share the memory.
static MAY_BE_SHARED: AtomicBool = AtomicBool::new(false);

/// Sets the mark for the calling process.
pub(super) fn set_mark() {
    if let Some(mark) = mark().or_else(make) {
        mark.store(SET, Ordering::Release);
    }
}

/// Records that the program makes a child that may share its memory.
pub(crate) fn will_be_shared() {
    MAY_BE_SHARED.store(true, Ordering::Relaxed);
}

/// Returns true if the calling process has set the mark. After `false`, process ids must be
/// compared.
#[inline]
pub(super) fn is_marked() -> bool {
    !MAY_BE_SHARED.load(Ordering::Relaxed)
        && mark().is_some_and(|mark| mark.load(Ordering::Acquire) == SET)
}

/// Returns true in a child that has a copy of the memory. False also in a process without a mark.
pub(crate) fn is_copied() -> bool {
    mark().is_some_and(|mark| mark.load(Ordering::Acquire) != SET)
}

fn page_size() -> usize {
    // SAFETY: the call has no preconditions, and this number is always known.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.cast_unsigned() as usize
}

/// Returns true if every page of `bytes` can be read now, and maps them. False for a page of a file
/// beyond its end, for memory that is not mapped, and on kernels before 5.14.
///
/// Makes one system call, which takes a few microseconds for 1 MiB whose pages are mapped.
pub(crate) fn is_readable(bytes: &[u8]) -> bool {
    populate(bytes, Advice::LinuxPopulateRead)
}

/// Returns true if every page of `bytes` can be written now, and maps them, as [`is_readable`]
/// does.
pub(crate) fn is_writable(bytes: &mut [u8]) -> bool {
    populate(bytes, Advice::LinuxPopulateWrite)
}

fn populate(bytes: &[u8], advice: Advice) -> bool {
    let before = bytes.as_ptr().addr() % page_size();
    let first = bytes.as_ptr().wrapping_sub(before);
    let len = before + bytes.len();
    // SAFETY: the advice changes no byte of this process.
    unsafe { madvise(first.cast_mut().cast(), len, advice) }.is_ok()
}

fn mark() -> Option<&'static AtomicU32> {
    // SAFETY: the pointer is null, or to a page that is never unmapped.
    unsafe { MARK.load(Ordering::Acquire).as_ref() }
}

/// Makes the page. Returns `None` if the kernel does not clear it in children.
fn make() -> Option<&'static AtomicU32> {
    const PAGE: usize = 4096;
    let rights = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the kernel chooses an unused address for the new mapping.
    let page = unsafe { mmap_anonymous(ptr::null_mut(), PAGE, rights, MapFlags::PRIVATE) }.ok()?;
    // SAFETY: the mapping was made above. The advice changes no byte in this process.
    let is_cleared = unsafe { madvise(page, PAGE, Advice::LinuxWipeOnFork) }.is_ok();
    let stored = is_cleared
        && MARK
            .compare_exchange(
                ptr::null_mut(),
                page.cast(),
                Ordering::AcqRel,
                Ordering::Acquire,
            )
            .is_ok();
    if !stored {
        // SAFETY: no other thread has seen the address of this page.
        let _ = unsafe { munmap(page, PAGE) };
    }
    mark()
}

#[cfg(test)]
mod tests {
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use rustix::mm::mmap;

    use super::*;

    #[test]
    fn pages_beyond_the_end_of_a_file_cannot_be_read() {
        let file = memfd_create(c"short", MemfdFlags::CLOEXEC).unwrap();
        let page = page_size();
        let (rights, flags) = (ProtFlags::READ, MapFlags::SHARED);
        let is_readable_with = |pages: usize| {
            ftruncate(&file, (pages * page) as u64).unwrap();
            // SAFETY: the kernel chooses an unused address for the new mapping.
            let at = unsafe { mmap(ptr::null_mut(), 4 * page, rights, flags, &file, 0) };
            let at = at.unwrap().cast::<u8>();
            // SAFETY: the mapping has this length. Its bytes are not accessed.
            let bytes = unsafe { std::slice::from_raw_parts(at.add(7), 3 * page) };
            let is_readable = is_readable(bytes);
            // SAFETY: the mapping was made above, and nothing refers to it any more.
            unsafe { munmap(at.cast(), 4 * page) }.unwrap();
            is_readable
        };
        assert!(is_readable_with(4));
        assert!(!is_readable_with(2));
    }

    #[test]
    fn pages_without_the_right_cannot_be_written() {
        let page = page_size();
        let flags = MapFlags::PRIVATE;
        for (rights, is_expected) in [
            (ProtFlags::READ | ProtFlags::WRITE, true),
            (ProtFlags::READ, false),
            (ProtFlags::empty(), false),
        ] {
            // SAFETY: the kernel chooses an unused address for the new mapping.
            let at = unsafe { mmap_anonymous(ptr::null_mut(), 2 * page, rights, flags) };
            let at = at.unwrap().cast::<u8>();
            // SAFETY: the mapping has this length. Its bytes are not accessed.
            let bytes = unsafe { std::slice::from_raw_parts_mut(at.add(7), page) };
            assert_eq!(is_writable(bytes), is_expected, "{rights:?}");
            // SAFETY: the mapping was made above, and nothing refers to it any more.
            unsafe { munmap(at.cast(), 2 * page) }.unwrap();
        }
    }

    #[test]
    fn a_child_has_no_mark() {
        set_mark();
        assert!(!is_copied());
        assert!(is_marked());
        // A raw call, because handlers of `fork` would set the mark in the child.
        // SAFETY: the child has copies of the memory and the stack, reads an atomic word and ends.
        let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
        let child = libc::pid_t::try_from(child).unwrap();
        if child == 0 {
            // SAFETY: the call takes a number and does not return.
            unsafe { libc::_exit(i32::from(is_marked() || !is_copied())) };
        }
        let mut status = -1;
        // SAFETY: the pointer is to a local variable.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "the copy has no mark");
        will_be_shared();
        assert!(
            !is_marked(),
            "a child that shares the memory would see the mark"
        );
    }
}
