//! The numbers of this project's descriptors in one process.
//!
//! A program that closes every number one by one, as many daemons and the children of servers do,
//! would close the descriptors of the libraries in it. `libops-preload.so` replaces `close`, and
//! refuses the numbers in this table. Each shared library has its own copy of this crate, so all of
//! them use the table that `libops-preload.so` exports. Without that library nothing is recorded.

use std::os::fd::RawFd;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU16, AtomicU32, Ordering};

use super::identity::Identity;

/// The name under which `libops-preload.so` exports the table.
const SYMBOL: &std::ffi::CStr = c"OPS_OWN_NUMBERS";

/// The length of the table. Higher numbers are not recorded.
pub(super) const COUNT: usize = 1 << 16;

/// The table. The memory of numbers that are not used is never touched.
#[repr(C)]
#[expect(missing_debug_implementations, reason = "nobody prints the table")]
pub struct OwnNumbers {
    /// The number of forks between the program's start and this process.
    generation: AtomicU16,
    /// A tag for each number; 0: not a descriptor of a library.
    tags: [AtomicU32; COUNT],
}

impl OwnNumbers {
    /// Returns an empty table.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "it is made once, in a static")]
    pub const fn new() -> Self {
        Self {
            generation: AtomicU16::new(0),
            tags: [const { AtomicU32::new(0) }; COUNT],
        }
    }

    /// Returns true for a number that a library's descriptor has now. The program may have put
    /// another file there by a call that no hook sees. Costs one load for any other number.
    #[inline]
    pub fn has(&self, number: RawFd) -> bool {
        let tag = self.at(number).map(|it| it.load(Ordering::Relaxed));
        tag.is_some_and(|tag| tag != 0 && self.is_of_file(number, tag))
    }

    #[inline(never)]
    fn is_of_file(&self, number: RawFd, tag: u32) -> bool {
        Identity::of_number(number).is_ok_and(|identity| self.tag_of(identity) == tag)
    }

    fn at(&self, number: RawFd) -> Option<&AtomicU32> {
        self.tags.get(usize::try_from(number).ok()?)
    }

    /// Returns the tag of a file in this process, which is not 0.
    fn tag_of(&self, identity: Identity) -> u32 {
        let generation = self.generation.load(Ordering::Relaxed);
        u32::from(generation) << 16 | u32::from(identity.digest() | 1)
    }

    fn add(&self, number: RawFd, identity: Identity) {
        if let Some(tag) = self.at(number) {
            tag.store(self.tag_of(identity), Ordering::Relaxed);
        }
    }

    fn remove(&self, number: RawFd) {
        if let Some(tag) = self.at(number) {
            tag.store(0, Ordering::Relaxed);
        }
    }

    fn remove_all(&self) {
        self.generation.fetch_add(1, Ordering::Relaxed);
    }
}

/// Records a descriptor of a library.
pub(super) fn add(number: RawFd, identity: Option<Identity>) {
    if let Some((table, identity)) = table().zip(identity) {
        table.add(number, identity);
    }
}

/// Removes a descriptor, before the library closes it or passes it on.
pub(super) fn remove(number: RawFd) {
    if let Some(table) = table() {
        table.remove(number);
    }
}

/// Removes all descriptors, in the child of a fork: the libraries record there the descriptors that
/// they use in the child, and close some of the others.
pub fn remove_all() {
    if let Some(table) = table() {
        table.remove_all();
    }
}

/// Returns the table of this process, if there is one.
fn table() -> Option<&'static OwnNumbers> {
    static FOUND: AtomicPtr<OwnNumbers> = AtomicPtr::new(ptr::null_mut());
    static IS_FOUND: AtomicBool = AtomicBool::new(false);
    // Threads that search at the same time find the same table. A lock could stay held in the child
    // of a fork.
    if !IS_FOUND.load(Ordering::Acquire) {
        // SAFETY: the name is a terminated string.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, SYMBOL.as_ptr()) };
        FOUND.store(found.cast(), Ordering::Relaxed);
        IS_FOUND.store(true, Ordering::Release);
    }
    // SAFETY: the pointer is null, or to the static of this type in a library that is never
    // unloaded, because the loader loaded it with the program.
    unsafe { FOUND.load(Ordering::Relaxed).as_ref() }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::{AsFd, AsRawFd, OwnedFd};

    use super::*;

    static TABLE: OwnNumbers = OwnNumbers::new();

    fn add(file: impl AsFd) -> RawFd {
        let number = file.as_fd().as_raw_fd();
        TABLE.add(number, Identity::of(file).unwrap());
        number
    }

    #[test]
    fn a_number_is_known_by_its_file_until_it_is_removed_or_the_process_forks() {
        let (one, other) = (File::open("/dev/null").unwrap(), File::open("/").unwrap());
        let number = add(&one);
        assert!(TABLE.has(number) && !TABLE.has(other.as_raw_fd()));
        let copy = OwnedFd::from(one.try_clone().unwrap());
        // SAFETY: both numbers are open, and the test owns them.
        unsafe { libc::dup2(other.as_raw_fd(), number) };
        assert!(!TABLE.has(number), "another file has the number");
        // SAFETY: as above.
        unsafe { libc::dup2(copy.as_raw_fd(), number) };
        assert!(TABLE.has(number));
        TABLE.remove(number);
        assert!(!TABLE.has(number));
        add(&one);
        TABLE.remove_all();
        assert!(!TABLE.has(number));
        add(&one);
        assert!(TABLE.has(number));
    }

    #[test]
    fn numbers_beyond_the_table_are_not_known() {
        let identity = Identity::of(File::open("/").unwrap()).unwrap();
        for number in [-1, RawFd::MIN, RawFd::MAX, COUNT as RawFd] {
            TABLE.add(number, identity);
            assert!(!TABLE.has(number));
            TABLE.remove(number);
        }
    }
}
