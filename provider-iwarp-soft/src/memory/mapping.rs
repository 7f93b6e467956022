//! Whether memory is there at all.
//!
//! A region over addresses that nobody mapped would let a peer end this process by reading it. The
//! question is asked once, at registration: asking at each access costs a system call, more than
//! the access itself, and a handler of SIGSEGV is not a library's to install.

use rustix::mm::{MsyncFlags, msync};

/// Whether every page of the range belongs to a mapping. Nothing is touched; rights are not looked
/// at, because they may be given later.
pub(crate) fn is_mapped(addr: u64, len: u64) -> bool {
    let start = addr & !(page_size() as u64 - 1);
    let (Some(end), true) = (addr.checked_add(len), len > 0) else {
        return len == 0;
    };
    let (Ok(first), Ok(bytes)) = (usize::try_from(start), usize::try_from(end - start)) else {
        return false;
    };
    let first = std::ptr::with_exposed_provenance_mut(first);
    // SAFETY: an asynchronous `msync` writes nothing here or elsewhere; of the range it only looks
    // whether it is mapped, and fails with ENOMEM where it is not (msync(2)).
    unsafe { msync(first, bytes, MsyncFlags::ASYNC) }.is_ok()
}

fn page_size() -> usize {
    // SAFETY: a question without arguments that could be wrong.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_mapped_as_a_whole_counts() {
        let bytes = vec![0_u8; 3 * page_size()];
        let addr = bytes.as_ptr().addr() as u64;
        assert!(is_mapped(addr, bytes.len() as u64));
        assert!(is_mapped(addr + 5, 1));
        assert!(is_mapped(0, 0) && is_mapped(u64::MAX, 0));
        for (addr, len) in [
            (0, 1),
            (addr, 1 << 46),
            (addr, u64::MAX),
            (u64::MAX, 1),
            (8, 16),
        ] {
            assert!(!is_mapped(addr, len), "{len} bytes at {addr:#x}");
        }
    }
}
