//! Checks whether memory is mapped.
//!
//! A peer that reads a region over unmapped addresses would end this process. The check is made
//! once, at registration. A check at each access would cost a system call, more than the access
//! itself, and a library must not install a handler of SIGSEGV.

/// Number of pages that one call checks.
const PAGES_AT_ONCE: usize = 4096;

/// Returns true if every page of the range belongs to a mapping. No page is touched. Rights are not
/// checked, because they may be granted later.
///
/// The check uses `mincore`. `msync` would check the whole range at once, but memory checkers treat
/// it as a use of the bytes and report a consumer's buffer that is not filled yet.
pub(crate) fn is_mapped(addr: u64, len: u64) -> bool {
    let page = page_size();
    let start = addr & !(page as u64 - 1);
    let (Some(end), true) = (addr.checked_add(len), len > 0) else {
        return len == 0;
    };
    let (Ok(mut at), Ok(end)) = (usize::try_from(start), usize::try_from(end)) else {
        return false;
    };
    let mut residency = [0_u8; PAGES_AT_ONCE];
    while at < end {
        let bytes = (end - at).min(PAGES_AT_ONCE.saturating_mul(page));
        let first = std::ptr::with_exposed_provenance_mut(at);
        // SAFETY: the call writes one byte a page, for which there is room, and fails with ENOMEM
        // where a page of the range is not mapped (mincore(2)).
        if unsafe { libc::mincore(first, bytes, residency.as_mut_ptr()) } != 0 {
            return false;
        }
        at = at.saturating_add(bytes);
    }
    true
}

fn page_size() -> usize {
    // SAFETY: the call has no pointer arguments, and the constant is valid.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_completely_mapped_ranges_are_accepted() {
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
