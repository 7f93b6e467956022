//! Transfers past this library: io_uring, and Linux AIO (`io_submit`).
//!
//! A program with a ring or an AIO context reads and writes descriptors without a call that this
//! library replaces. So the socket pairs of its connections carry the bytes themselves from then
//! on. A ring or a context that was made by [`syscall`](crate::hooks) is noticed at once. Others
//! are noticed with the next connection, because the kernel maps their memory under a name, with
//! the first bytes that the program sends, or when the first bytes arrive on a connection.

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Mode, OFlags, open};

/// The names of the memory of rings and contexts in `/proc/self/maps`.
const NAMES: [&[u8]; 2] = [b"[io_uring]", b"/[aio]"];
/// The length of one read.
const CHUNK: usize = 16 * 1024;

static IS_USED: AtomicBool = AtomicBool::new(false);

/// Records that the program uses, or may use, descriptors past this library. Returns true if this
/// was recorded before.
pub(crate) fn set_used() -> bool {
    IS_USED.swap(true, Ordering::AcqRel)
}

/// Returns true if the program may use descriptors past this library. Reads the names of the
/// process's memory, which takes as long as it has mappings, so this is called for each new
/// connection, and for the first bytes of one that the program has not read from.
pub(crate) fn is_used_now() -> bool {
    if !IS_USED.load(Ordering::Acquire) && is_mapped() {
        set_used();
    }
    IS_USED.load(Ordering::Acquire)
}

/// Returns true if a ring or a context is mapped. Without `/proc` none is found.
fn is_mapped() -> bool {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let Ok(maps) = open("/proc/self/maps", flags, Mode::empty()) else {
        return false;
    };
    // The stack of the program's thread may be small.
    let mut text = vec![0; CHUNK];
    let mut kept = 0;
    loop {
        let count = match rustix::io::read(&maps, &mut text[kept..]) {
            Ok(0) | Err(_) => return false,
            Ok(count) => count,
        };
        let read = &text[..kept + count];
        if has_name(read) {
            return true;
        }
        // A name may continue in the next read.
        let longest = NAMES.iter().map(|name| name.len()).max().unwrap_or(0);
        let from = read.len().saturating_sub(longest);
        kept = read.len() - from;
        text.copy_within(from..from + kept, 0);
    }
}

fn has_name(text: &[u8]) -> bool {
    let is_there = |name: &[u8]| text.windows(name.len()).any(|at| at == name);
    NAMES.into_iter().any(is_there)
}

#[cfg(test)]
mod tests {
    use super::has_name;

    #[test]
    fn rings_and_contexts_are_found_by_their_names() {
        let ring = b"7f0a-7f0b rw-s 00000000 00:0f 1063 anon_inode:[io_uring]\n";
        let context = b"7f0a-7f0b rw-s 00000000 00:10 21 /[aio] (deleted)\n";
        let other = b"7f0a-7f0b rw-p 00000000 00:00 0 [heap]\n";
        assert!(has_name(ring));
        assert!(has_name(context));
        assert!(!has_name(other));
        assert!(!super::is_mapped());
    }
}
