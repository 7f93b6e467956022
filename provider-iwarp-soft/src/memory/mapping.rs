//! Checks how memory is mapped.
//!
//! A peer that reads a region over unmapped addresses, or writes to one that is mapped for reading
//! only, would end this process. The check is made once, at registration. A check at each access
//! would cost a system call, more than the access itself, and a library must not install a handler
//! of SIGSEGV.
//!
//! A device pins the pages of a region, and the kernel refuses to pin pages without the right. The
//! rule here is the kernel's (`check_vma_flags` of Linux): each mapping of the range permits
//! writing if the region grants any right to write, and reading otherwise.

use std::ops::ControlFlow;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rnic::RnicError;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::engine::no_descriptor;
use rnic::socket::NotInherited;

/// Number of pages that one call of `mincore` checks.
const PAGES_AT_ONCE: usize = 4096;
/// `_IOWR(PROCFS_IOCTL_MAGIC, 17, struct procmap_query)`.
const PROCMAP_QUERY: libc::Ioctl = 0xC068_6611_u32 as libc::Ioctl;
/// `PROCMAP_QUERY_VMA_READABLE`.
const READABLE: u64 = 1;
/// `PROCMAP_QUERY_VMA_WRITABLE`.
const WRITABLE: u64 = 2;

/// `struct procmap_query` of `linux/fs.h`. The last fields describe the file.
#[repr(C)]
#[derive(Debug, Default)]
struct Query {
    size: u64,
    query_flags: u64,
    query_addr: u64,
    vma_start: u64,
    vma_end: u64,
    vma_flags: u64,
    page_size: u64,
    offset: u64,
    inode: u64,
    _others: [u64; 4],
}

const QUERY_LEN: usize = 104;
const _: () = assert!(size_of::<Query>() == QUERY_LEN);

/// One mapping of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mapping {
    start: u64,
    end: u64,
    is_readable: bool,
    is_writable: bool,
    /// The bytes are those of a file, which may be truncated.
    has_file: bool,
}

impl Mapping {
    fn permits(&self, write: bool) -> bool {
        if write {
            self.is_writable
        } else {
            self.is_readable
        }
    }
}

/// The content of a range of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Backing {
    /// Pages that exist as long as they are mapped.
    Anonymous,
    /// At least one byte is a file's. The kernel raises SIGBUS for an access beyond the file's end.
    File,
}

/// The mappings of this process, from `/proc`.
///
/// One system call describes one mapping (`PROCMAP_QUERY`, Linux 6.11). An older kernel lists all
/// mappings in about 100 us; where the list cannot be read, only unmapped memory is refused. The
/// descriptor is opened with the adapter. The child of a fork does not inherit it, because it shows
/// the memory of the parent.
#[derive(Debug)]
pub(super) struct Mappings(Option<NotInherited>);

impl Mappings {
    pub(super) fn open() -> Result<Self, RnicError> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        // The calling thread's file, because a main thread that has ended has no mappings.
        match rustix::fs::open(c"/proc/thread-self/maps", flags, Mode::empty()) {
            Ok(maps) => Ok(Self(Some(NotInherited::new(maps)))),
            Err(error @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM)) => Err(no_descriptor(error)),
            // There is no `/proc`, or the process may not open it.
            Err(_) => Ok(Self(None)),
        }
    }

    /// Returns the backing of a range. Refuses a range of which a byte is not mapped, or of which a
    /// mapping does not permit the access: writing, or else reading. No page is touched.
    pub(super) fn check(&self, addr: u64, len: u64, write: bool) -> Result<Backing, RnicError> {
        let end = addr.checked_add(len).ok_or(NOT_MAPPED)?;
        let range = Range { addr, end, write };
        let maps = self.0.as_ref().filter(|maps| !maps.is_lost());
        let Some(maps) = maps.map(AsFd::as_fd) else {
            return range.check_residency();
        };
        match range.check_each(maps) {
            Err(Unknown) => range
                .check_listed(maps)
                .unwrap_or_else(|Unknown| range.check_residency()),
            Ok(checked) => checked,
        }
    }
}

const NOT_MAPPED: RnicError = RnicError::InvalidArgument("memory that is not mapped");
const NO_RIGHT: RnicError = RnicError::InvalidArgument("memory without the right that is granted");

/// The error of a way to describe mappings that the kernel does not offer.
#[derive(Debug)]
struct Unknown;

/// A range that is being checked.
#[derive(Debug, Clone, Copy)]
struct Range {
    addr: u64,
    end: u64,
    write: bool,
}

/// The state of a walk over the mappings in ascending order.
struct Walk {
    range: Range,
    /// The first byte that is not checked yet.
    at: u64,
    backing: Backing,
}

impl Range {
    fn walk(self) -> Walk {
        Walk {
            range: self,
            at: self.addr,
            backing: Backing::Anonymous,
        }
    }

    /// Asks the kernel for each mapping of the range.
    fn check_each(self, maps: BorrowedFd<'_>) -> Result<Result<Backing, RnicError>, Unknown> {
        let mut walk = self.walk();
        while walk.at < self.end {
            let Some(mapping) = query(maps, walk.at)? else {
                return Ok(Err(NOT_MAPPED));
            };
            if let ControlFlow::Break(checked) = walk.on_mapping(mapping) {
                return Ok(checked);
            }
        }
        Ok(Ok(walk.backing))
    }

    /// Reads the list of all mappings.
    fn check_listed(self, maps: BorrowedFd<'_>) -> Result<Result<Backing, RnicError>, Unknown> {
        let mut walk = self.walk();
        if self.addr == self.end {
            return Ok(Ok(walk.backing));
        }
        let mut checked = None;
        each_line(maps, |line| match parse(line) {
            None => ControlFlow::Continue(()),
            Some(mapping) => walk.on_mapping(mapping).map_break(|it| checked = Some(it)),
        })?;
        Ok(checked.unwrap_or(Err(NOT_MAPPED)))
    }

    /// Checks only that each page is mapped. If the process may not make the call (seccomp), the
    /// memory counts as mapped.
    fn check_residency(self) -> Result<Backing, RnicError> {
        let page = page_size();
        let start = self.addr & !(page as u64 - 1);
        let (Ok(mut at), Ok(end)) = (usize::try_from(start), usize::try_from(self.end)) else {
            return Err(NOT_MAPPED);
        };
        if self.addr == self.end {
            return Ok(Backing::Anonymous);
        }
        let mut residency = [0_u8; PAGES_AT_ONCE];
        while at < end {
            let bytes = (end - at).min(PAGES_AT_ONCE.saturating_mul(page));
            let first = std::ptr::with_exposed_provenance_mut(at);
            // SAFETY: the call writes one byte a page, for which there is room, and fails with
            // ENOMEM where a page of the range is not mapped (mincore(2)).
            if unsafe { libc::mincore(first, bytes, residency.as_mut_ptr()) } != 0 {
                match std::io::Error::last_os_error().raw_os_error() {
                    Some(libc::ENOMEM | libc::EINVAL | libc::EFAULT) => return Err(NOT_MAPPED),
                    _ => break,
                }
            }
            at = at.saturating_add(bytes);
        }
        Ok(Backing::File)
    }
}

impl Walk {
    /// Accounts for the next mapping. Breaks with the result once it is certain.
    fn on_mapping(&mut self, mapping: Mapping) -> ControlFlow<Result<Backing, RnicError>> {
        if mapping.end <= self.at {
            return ControlFlow::Continue(());
        }
        if mapping.start > self.at {
            return ControlFlow::Break(Err(NOT_MAPPED));
        }
        if !mapping.permits(self.range.write) {
            return ControlFlow::Break(Err(NO_RIGHT));
        }
        if mapping.has_file {
            self.backing = Backing::File;
        }
        self.at = mapping.end;
        if self.at >= self.range.end {
            return ControlFlow::Break(Ok(self.backing));
        }
        ControlFlow::Continue(())
    }
}

/// Returns the mapping that contains an address; `None` if there is none.
fn query(maps: BorrowedFd<'_>, addr: u64) -> Result<Option<Mapping>, Unknown> {
    let mut query = Query {
        size: QUERY_LEN as u64,
        query_addr: addr,
        ..Query::default()
    };
    // SAFETY: the kernel reads and writes at most `size` bytes of the structure, which is of this
    // frame.
    let failed = unsafe { libc::ioctl(maps.as_raw_fd(), PROCMAP_QUERY, &raw mut query) } != 0;
    if failed {
        return match std::io::Error::last_os_error().raw_os_error() {
            Some(libc::ENOENT) => Ok(None),
            _ => Err(Unknown),
        };
    }
    if query.vma_end <= addr {
        return Err(Unknown);
    }
    Ok(Some(Mapping {
        start: query.vma_start,
        end: query.vma_end,
        is_readable: query.vma_flags & READABLE != 0,
        is_writable: query.vma_flags & WRITABLE != 0,
        has_file: query.inode != 0,
    }))
}

/// Calls `on_line` with the beginning of each line of a file, which may have long lines.
fn each_line(
    file: BorrowedFd<'_>,
    mut on_line: impl FnMut(&[u8]) -> ControlFlow<()>,
) -> Result<(), Unknown> {
    const LINE_MAX: usize = 128;
    let mut line = ([0_u8; LINE_MAX], 0);
    let mut offset = 0;
    let mut bytes = [0_u8; 4096];
    loop {
        let count = match rustix::io::pread(file, &mut bytes, offset) {
            Ok(0) if offset > 0 => return Ok(()),
            Ok(0) | Err(_) => return Err(Unknown),
            Ok(count) => count,
        };
        offset += count as u64;
        for &byte in &bytes[..count] {
            if byte == b'\n' {
                if on_line(&line.0[..line.1]).is_break() {
                    return Ok(());
                }
                line.1 = 0;
            } else if line.1 < LINE_MAX {
                line.0[line.1] = byte;
                line.1 += 1;
            }
        }
    }
}

/// Parses a line of `maps`: `start-end rights offset device inode path` (proc_pid_maps(5)).
fn parse(line: &[u8]) -> Option<Mapping> {
    let line = line
        .iter()
        .position(|byte| !byte.is_ascii())
        .map_or(line, |at| &line[..at]);
    let mut words = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let rights = words.next()?.as_bytes();
    let inode = words.nth(2)?;
    Some(Mapping {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        is_readable: rights.first() == Some(&b'r'),
        is_writable: rights.get(1) == Some(&b'w'),
        has_file: inode != "0",
    })
}

/// Returns true if every byte of the range can be read. Each page is touched.
///
/// The system call reads eight bytes and then fails: `rt_sigprocmask` copies the set before it
/// checks `how`. The call needs no descriptor and no permission.
pub(crate) fn is_readable(addr: u64, len: usize) -> bool {
    const NO_SUCH_HOW: libc::c_int = -1;
    const SET_LEN: usize = 8;
    let page = page_size();
    let Some(end) = (addr as usize).checked_add(len) else {
        return false;
    };
    let start = addr as usize & !(page - 1);
    (start..end).step_by(page).all(|at| {
        // SAFETY: with an unknown `how` the call changes nothing, whatever the address is.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigprocmask,
                NO_SUCH_HOW,
                at,
                std::ptr::null_mut::<libc::c_void>(),
                SET_LEN,
            );
        }
        std::io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL)
    })
}

fn page_size() -> usize {
    // SAFETY: the call has no pointer arguments, and the constant is valid.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}

#[cfg(test)]
#[path = "mapping/tests.rs"]
mod tests;
