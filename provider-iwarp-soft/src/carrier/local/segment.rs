//! The memory that two processes of one host share for one connection.
//!
//! ```text
//!   0      control page of Direction::FromCreator
//!   4096   control page of Direction::FromAdopter
//!   8192   data area of Direction::FromCreator, ring_len bytes
//!   ...    data area of Direction::FromAdopter, ring_len bytes
//! ```
//!
//! The memory is a memfd without a name, so nothing remains when both processes die. It is sealed,
//! so that a peer cannot shrink it and make an access fail with SIGBUS. Pages are allocated by
//! their first use.
//!
//! The peer may change every byte at any time. So no reference and no slice is ever created to this
//! memory: it is accessed through atomics ([`Half::word`]) and by copies from and to raw pointers.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// The default length of a data area in bytes. It holds three of the longest segments (64 KiB) at
/// once, and both areas fit the level-2 cache.
pub(crate) const RING_LEN: usize = 256 * 1024;
/// The shortest and the longest data area.
pub(crate) const RING_LEN_MIN: usize = 4096;
pub(crate) const RING_LEN_MAX: usize = 16 * 1024 * 1024;

/// The unit in which processors move memory between their caches.
pub(crate) const LINE: usize = 64;
/// The unit in which memory is returned to the kernel.
const PAGE: usize = 4096;
/// The number of bytes that a side uses before it returns memory to the kernel. An idle connection
/// keeps little more than that for each direction, and a connection that sleeps after every message
/// seldom pays for the return.
pub(crate) const RETURN_AFTER: u64 = 4 * PAGE as u64;
/// Bytes of a control page.
const CONTROL_LEN: usize = 4096;
/// The offset and the length of the supply area in a control page.
const SUPPLY_AT: usize = 2048;
pub(crate) const SUPPLY_LEN: usize = CONTROL_LEN - SUPPLY_AT;
/// The offset of the data areas.
const DATA_AT: usize = 2 * CONTROL_LEN;

/// The seals that the peer must have set: against changes of the size, and against unsealing.
pub(super) const SEALS: SealFlags = SealFlags::SHRINK
    .union(SealFlags::GROW)
    .union(SealFlags::SEAL);
/// The type of the file system of memfds with ordinary pages (`statfs(2)`, TMPFS_MAGIC).
const TMPFS: i128 = 0x0102_1994;

/// The direction of data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From the process that created the segment.
    FromCreator,
    /// From the process that received it.
    FromAdopter,
}

/// Shared memory, mapped into this process.
///
/// The child of a fork does not inherit the mapping (`MADV_DONTFORK`), nor the sockets.
#[derive(Debug)]
pub(crate) struct SharedSegment {
    pub(super) base: NonNull<u8>,
    ring_len: usize,
}

// SAFETY: only this value owns the mapping. The memory is accessed as memory that another process
// changes at any time, so concurrent threads are no different.
unsafe impl Send for SharedSegment {}
// SAFETY: as for `Send`.
unsafe impl Sync for SharedSegment {}

impl SharedSegment {
    /// Creates a segment and returns its descriptor, for the peer.
    pub(crate) fn create(ring_len: usize) -> io::Result<(Self, OwnedFd)> {
        let len = total_len(ring_len).ok_or(Errno::INVAL)?;
        if !may_have_files_of(len as u64) {
            return Err(Errno::FBIG.into());
        }
        let fd = memfd()?;
        rustix::fs::ftruncate(&fd, len as u64)?;
        rustix::fs::fcntl_add_seals(&fd, SEALS)?;
        Ok((Self::map(fd.as_fd(), ring_len, len)?, fd))
    }

    /// Maps the segment of a descriptor that an untrusted peer has sent.
    ///
    /// The descriptor is refused with `EPERM` unless its size is sealed and its pages are ordinary
    /// ones: a page of a hugetlb file may be missing at its first use, which raises SIGBUS. A size
    /// that does not match `ring_len` is refused with `EINVAL`.
    pub(crate) fn adopt(fd: OwnedFd, ring_len: usize) -> io::Result<Self> {
        let len = total_len(ring_len).ok_or(Errno::INVAL)?;
        let seals = rustix::fs::fcntl_get_seals(&fd).map_err(|_| Errno::PERM)?;
        let is_tmpfs = i128::from(rustix::fs::fstatfs(&fd)?.f_type) == TMPFS;
        if !seals.contains(SEALS) || !is_tmpfs {
            return Err(Errno::PERM.into());
        }
        // The size is sealed, so it cannot change after this check.
        if u64::try_from(rustix::fs::fstat(&fd)?.st_size) != Ok(len as u64) {
            return Err(Errno::INVAL.into());
        }
        Self::map(fd.as_fd(), ring_len, len)
    }

    fn map(fd: BorrowedFd<'_>, ring_len: usize, len: usize) -> io::Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let base = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), len, access, MapFlags::SHARED, fd, 0)
        }?;
        let base = NonNull::new(base.cast()).ok_or(Errno::NOMEM)?;
        // From here on `Drop` removes the mapping, also if the next step fails.
        let segment = Self { base, ring_len };
        // SAFETY: the range is the mapping that was just made; only forks are affected.
        unsafe { rustix::mm::madvise(base.as_ptr().cast(), len, Advice::LinuxDontFork) }?;
        Ok(segment)
    }

    /// The part of the segment that one direction uses.
    pub(crate) fn half(self: &Arc<Self>, direction: Direction) -> Half {
        let (control, data) = match direction {
            Direction::FromCreator => (0, DATA_AT),
            Direction::FromAdopter => (CONTROL_LEN, DATA_AT + self.ring_len),
        };
        Half {
            // SAFETY: both offsets are within the mapping, whose layout they are.
            control: unsafe { self.base.add(control) },
            // SAFETY: both offsets are within the mapping, whose layout they are.
            data: unsafe { self.base.add(data) },
            data_len: self.ring_len,
            _segment: Arc::clone(self),
        }
    }
}

impl Drop for SharedSegment {
    fn drop(&mut self) {
        let len = DATA_AT + 2 * self.ring_len;
        // SAFETY: the complete mapping of `map`. Each `Half` keeps the segment alive, so no pointer
        // into it exists any more. A failure would only keep the mapping, which is harmless.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), len) };
    }
}

/// The control page and the data area of one direction.
#[derive(Debug, Clone)]
pub(crate) struct Half {
    control: NonNull<u8>,
    data: NonNull<u8>,
    data_len: usize,
    /// Keeps the mapping alive.
    _segment: Arc<SharedSegment>,
}

// SAFETY: the pointers are into the segment, which this value keeps and which is `Send`.
unsafe impl Send for Half {}
// SAFETY: the pointers are into the segment, which this value keeps and which is `Sync`.
unsafe impl Sync for Half {}

impl Half {
    /// Bytes of the data area: a power of two.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.data_len
    }

    /// A word of the control page, by its offset.
    #[inline]
    pub(crate) fn control_word(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at < SUPPLY_AT);
        // SAFETY: mapped as long as `self` lives, and aligned (assertion, pages). This process
        // accesses control words with atomics only.
        unsafe { AtomicU64::from_ptr(self.control.as_ptr().add(at).cast()) }
    }

    /// The supply area: [`SUPPLY_LEN`] bytes, which are only copied from and to.
    pub(crate) fn supply(&self) -> *mut u8 {
        // SAFETY: the offset is within the control page, which is within the mapping.
        unsafe { self.control.as_ptr().add(SUPPLY_AT) }
    }

    /// The eight bytes of the data area at an offset that is a multiple of eight.
    #[inline]
    pub(crate) fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at < self.data_len);
        // SAFETY: mapped as long as `self` lives, and aligned: the area is at a multiple of a page
        // and its length is a multiple of eight (assertion, `total_len`).
        unsafe { AtomicU64::from_ptr(self.data.as_ptr().add(at).cast()) }
    }

    /// The four bytes of the data area at an offset that is a multiple of four.
    #[inline]
    pub(crate) fn half_word(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(4) && at < self.data_len);
        // SAFETY: mapped and aligned for the same reasons as in `word`.
        unsafe { AtomicU32::from_ptr(self.data.as_ptr().add(at).cast()) }
    }

    /// The address of `len` bytes of the data area.
    #[inline]
    pub(crate) fn bytes(&self, at: usize, len: usize) -> *mut u8 {
        assert!(at <= self.data_len && len <= self.data_len - at);
        // SAFETY: the offset is within the data area (assertion), which is within the mapping.
        unsafe { self.data.as_ptr().add(at) }
    }

    /// Returns the complete pages between two positions of the sequence of all bytes to the kernel.
    /// Their bytes are zero afterwards, and the next use of a page allocates it again.
    ///
    /// A side calls this for bytes that it alone may use: the producer for free room, the consumer
    /// for records that it has taken and not released. They never include a word that is polled.
    pub(crate) fn return_pages(&self, from: u64, to: u64) {
        let from = from.next_multiple_of(PAGE as u64);
        let len = (to - to % PAGE as u64).saturating_sub(from) as usize;
        let at = from as usize & (self.data_len - 1);
        let first = len.min(self.data_len - at);
        for (at, len) in [(at, first), (0, len - first)] {
            if len > 0 && len <= self.data_len {
                let start = self.bytes(at, len).cast();
                // SAFETY: the range is in the data area of a mapping that `self` keeps. The peer
                // may change these bytes at any time, so zero bytes are valid. If the call fails,
                // as with larger pages, the memory stays in use.
                let _ = unsafe { rustix::mm::madvise(start, len, Advice::LinuxRemove) };
            }
        }
    }
}

/// The length of a segment in bytes; `None` for a length that a data area cannot have.
pub(super) fn total_len(ring_len: usize) -> Option<usize> {
    let valid = ring_len.is_power_of_two() && (RING_LEN_MIN..=RING_LEN_MAX).contains(&ring_len);
    valid.then(|| DATA_AT + 2 * ring_len)
}

/// Returns false if the kernel would end this process with SIGXFSZ for a file of that length
/// (`setrlimit(2)`, RLIMIT_FSIZE).
fn may_have_files_of(len: u64) -> bool {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize);
    limit.current.is_none_or(|limit| len <= limit)
}

/// Creates a memfd whose file cannot be executed. Some hosts require that, and old kernels do not
/// support it.
fn memfd() -> Result<OwnedFd, Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    match rustix::fs::memfd_create("dat-rs-ring", flags | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => rustix::fs::memfd_create("dat-rs-ring", flags),
        result => result,
    }
}
