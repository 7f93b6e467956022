//! Reading and writing the memory of the peer's process (`process_vm_readv(2)`).
//!
//! The kernel's permission depends on users, capabilities, Yama, PID namespaces and seccomp, and
//! cannot be computed. So a probe reads a word of the peer's process and compares it with the value
//! that the peer announced ([`Witness`]). Each later pull reads the word again in the same call,
//! because the number of a dead process may belong to another process by then. A write passes the
//! page of the word first, which another process does not have at that address.

use std::io;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};
use rustix::rand::{GetRandomFlags, getrandom};

use super::record::{PIECES_MAX, Piece};
use super::rendezvous::Credentials;
use super::ring::KnownWord;

/// Maximum number of local pieces of one call; further pieces need further calls.
const LOCAL_MAX: usize = 64;
/// Bytes of the known word.
const WORD_LEN: usize = size_of::<u64>();

/// Bytes of the page of a witness.
const PAGE: usize = 4096;

/// A page of this process with a random word, by which the peer of one connection verifies that it
/// reads and writes the right process.
///
/// The kernel handles the ranges of one call in their order, and ends the call at a range that it
/// cannot access. Each call of the peer begins with this page, so the owner withdraws the peer's
/// access by withdrawing the page. The child of a fork does not inherit the page.
#[derive(Debug)]
pub(crate) struct Witness {
    page: NonNull<u64>,
    value: u64,
}

// SAFETY: only this value owns the mapping, which this process accesses in `new` only.
unsafe impl Send for Witness {}
// SAFETY: as for `Send`.
unsafe impl Sync for Witness {}

impl Witness {
    pub(crate) fn new() -> io::Result<Self> {
        let mut value = [0; WORD_LEN];
        // Requests of up to 256 bytes are filled completely (getrandom(2)).
        getrandom(&mut value, GetRandomFlags::empty())?;
        // 0 means that there is no word.
        let value = u64::from_ne_bytes(value).max(1);
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let near = std::ptr::null_mut();
        // SAFETY: a new mapping at an address that the kernel chooses.
        let page = unsafe { rustix::mm::mmap_anonymous(near, PAGE, access, MapFlags::PRIVATE) }?;
        let page = NonNull::new(page.cast()).ok_or(Errno::NOMEM)?;
        // From here on `Drop` removes the mapping, also if the next step fails.
        let witness = Self { page, value };
        // SAFETY: the range is the mapping that was just made; only forks are affected.
        unsafe { rustix::mm::madvise(page.as_ptr().cast(), PAGE, Advice::LinuxDontFork) }?;
        // SAFETY: the first bytes of the new page, which no other thread has yet.
        unsafe { page.write(value) };
        Ok(witness)
    }

    /// The address and the value, for the peer. Both are valid as long as `self` lives.
    pub(crate) fn known_word(&self) -> KnownWord {
        KnownWord {
            addr: self.page.as_ptr().expose_provenance() as u64,
            value: self.value,
        }
    }

    /// Makes all calls of the peer fail that have not passed the page yet.
    pub(crate) fn withdraw(&self) {
        let none = MprotectFlags::empty();
        // SAFETY: the complete mapping of `new`, which this process does not access any more.
        if let Err(error) = unsafe { rustix::mm::mprotect(self.page.as_ptr().cast(), PAGE, none) } {
            tracing::error!(%error, "the access of a peer is not withdrawn");
        }
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        // SAFETY: the complete mapping of `new`, to which no reference exists. A failure would only
        // keep the mapping, which is harmless.
        let _ = unsafe { rustix::mm::munmap(self.page.as_ptr().cast(), PAGE) };
    }
}

/// The direction of a copy, seen from this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Read,
    Write,
}

/// The reason why the memory of a peer cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PullRefusal {
    /// The peer has announced no word.
    NotOffered,
    /// The peer belongs to another user.
    OtherUser,
    /// The peer has no process number in this PID namespace.
    OtherNamespace,
    /// The word differs from the peer's announcement: the number belongs to another process.
    OtherProcess,
    /// The kernel refuses.
    Kernel(Errno),
}

/// Reads and writes the memory of one process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Puller {
    pid: libc::pid_t,
    known: KnownWord,
}

/// Memory of this process, writable if it is the target of a copy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target {
    pub(crate) ptr: *mut u8,
    pub(crate) len: usize,
}

impl Puller {
    /// Reads the known word of the peer, which decides whether the memory can be read.
    pub(crate) fn probe(peer: Credentials, known: KnownWord) -> Result<Self, PullRefusal> {
        if known.value == 0 {
            return Err(PullRefusal::NotOffered);
        }
        if peer.uid != rustix::process::geteuid().as_raw() {
            return Err(PullRefusal::OtherUser);
        }
        if peer.pid <= 0 {
            return Err(PullRefusal::OtherNamespace);
        }
        let puller = Self {
            pid: peer.pid,
            known,
        };
        let (mut from, mut to) = (Cursor::new(&[]), Cursor::new(&[]));
        // SAFETY: there is no target, so nothing is written.
        match unsafe { puller.step(Way::Read, &mut from, &mut to) } {
            Ok(_) => Ok(puller),
            Err(Errno::FAULT | Errno::STALE) => Err(PullRefusal::OtherProcess),
            Err(errno) => Err(PullRefusal::Kernel(errno)),
        }
    }

    /// Copies pieces of the peer's memory to as many bytes of this process. After an error some of
    /// the targets may have been written.
    ///
    /// `EFAULT`: memory of either side is not mapped, or lacks the right. `ESTALE`: the process is
    /// not the peer's. `EINVAL`: the lengths differ. `ESRCH`, `EPERM`: `process_vm_readv(2)`.
    ///
    /// # Safety
    ///
    /// The targets may be written: they belong to the caller, who holds no reference into them.
    pub(crate) unsafe fn pull(&self, remote: &[Piece], local: &[Target]) -> io::Result<()> {
        // SAFETY: as for the caller.
        unsafe { self.copy(Way::Read, remote, local) }
    }

    /// Copies memory of this process to pieces of the peer's memory, in the order of the pieces.
    /// After an error some of the pieces may have been written.
    ///
    /// `EFAULT`: memory of either side is not mapped, or lacks the right, or the peer has withdrawn
    /// its [`Witness`]. The other errors are those of [`Self::pull`], without `ESTALE`.
    pub(crate) fn push(&self, local: &[Target], remote: &[Piece]) -> io::Result<()> {
        // SAFETY: no memory of this process is written.
        unsafe { self.copy(Way::Write, remote, local) }
    }

    /// # Safety
    ///
    /// As for [`pull`](Self::pull), if `way` is [`Way::Read`].
    unsafe fn copy(&self, way: Way, remote: &[Piece], local: &[Target]) -> io::Result<()> {
        let total: u64 = remote.iter().map(|piece| u64::from(piece.len)).sum();
        let room = local
            .iter()
            .try_fold(0_u64, |sum, target| sum.checked_add(target.len as u64));
        if room != Some(total) || remote.len() > PIECES_MAX {
            return Err(Errno::INVAL.into());
        }
        let (mut there, mut here) = (Cursor::new(remote), Cursor::new(local));
        let mut left = total;
        while left > 0 {
            // SAFETY: as for the caller.
            match unsafe { self.step(way, &mut there, &mut here) } {
                Ok(0) => return Err(Errno::FAULT.into()),
                // The kernel never copies more than requested.
                Ok(count) => left = left.saturating_sub(count as u64),
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    /// Copies once, as many bytes as the kernel does, and moves both cursors. Returns the number of
    /// bytes.
    ///
    /// # Safety
    ///
    /// As for [`copy`](Self::copy).
    unsafe fn step(
        &self,
        way: Way,
        there: &mut Cursor<'_, Piece>,
        here: &mut Cursor<'_, Target>,
    ) -> Result<usize, Errno> {
        let mut word = 0_u64;
        let mut remote = [MaybeUninit::uninit(); PIECES_MAX + 1];
        let mut local = [MaybeUninit::uninit(); LOCAL_MAX + 1];
        // A write uses the word after the known one.
        let (call, skip): (Call, usize) = match way {
            Way::Read => (libc::process_vm_readv, 0),
            Way::Write => (libc::process_vm_writev, WORD_LEN),
        };
        let gate = (self.known.addr as usize).wrapping_add(skip);
        remote[0].write(iovec(gate, WORD_LEN));
        local[0].write(iovec((&raw mut word).expose_provenance(), WORD_LEN));
        let remote_count = 1 + there.fill(&mut remote[1..]);
        let local_count = 1 + here.fill(&mut local[1..]);
        // SAFETY: both arrays have this many initialised entries. The first local entry is the word
        // of this frame; the caller guarantees that the others may be written; the kernel checks
        // the remote ones. The wrappers of libc do nothing but the system call.
        let result = unsafe {
            call(
                self.pid,
                local.as_ptr().cast(),
                local_count as libc::c_ulong,
                remote.as_ptr().cast(),
                remote_count as libc::c_ulong,
                0,
            )
        };
        let Ok(count) = usize::try_from(result) else {
            let error = io::Error::last_os_error();
            return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO));
        };
        if count < WORD_LEN || way == Way::Read && word != self.known.value {
            return Err(Errno::STALE);
        }
        let count = count - WORD_LEN;
        there.move_by(count);
        here.move_by(count);
        Ok(count)
    }
}

/// `process_vm_readv(2)` or `process_vm_writev(2)`.
type Call = unsafe extern "C" fn(
    libc::pid_t,
    *const libc::iovec,
    libc::c_ulong,
    *const libc::iovec,
    libc::c_ulong,
    libc::c_ulong,
) -> isize;

fn iovec(addr: usize, len: usize) -> libc::iovec {
    libc::iovec {
        iov_base: std::ptr::with_exposed_provenance_mut(addr),
        iov_len: len,
    }
}

/// A range of memory of either process.
trait Range {
    fn addr(&self) -> usize;
    fn len(&self) -> usize;
}

impl Range for Piece {
    fn addr(&self) -> usize {
        self.addr as usize
    }

    fn len(&self) -> usize {
        self.len as usize
    }
}

impl Range for Target {
    fn addr(&self) -> usize {
        self.ptr.expose_provenance()
    }

    fn len(&self) -> usize {
        self.len
    }
}

/// A position in a list of ranges.
struct Cursor<'a, T> {
    rest: &'a [T],
    /// The number of bytes of the first range that are done.
    done: usize,
}

impl<'a, T: Range> Cursor<'a, T> {
    fn new(rest: &'a [T]) -> Self {
        Self { rest, done: 0 }
    }

    /// Writes the remaining ranges as far as there is room, and returns the number of entries.
    fn fill(&self, entries: &mut [MaybeUninit<libc::iovec>]) -> usize {
        let mut done = self.done;
        let mut count = 0;
        for (range, entry) in self.rest.iter().zip(entries) {
            // A peer may announce any address; the kernel refuses ranges that wrap.
            entry.write(iovec(range.addr().wrapping_add(done), range.len() - done));
            done = 0;
            count += 1;
        }
        count
    }

    fn move_by(&mut self, mut count: usize) {
        while let Some((first, rest)) = self.rest.split_first() {
            let left = first.len() - self.done;
            if count < left {
                self.done += count;
                return;
            }
            count -= left;
            (self.rest, self.done) = (rest, 0);
        }
    }
}

#[cfg(test)]
#[path = "pull/tests.rs"]
mod tests;
