//! Asks the kernel whether an address can be read.

use std::sync::atomic::{AtomicBool, Ordering};
use std::{io, ptr};

/// Returns the word at an address of this process, or `None` if it cannot be read. Never faults.
pub(super) fn read_word(address: usize) -> Option<usize> {
    /// Set when `process_vm_readv` is forbidden, as in some containers.
    static READV_DENIED: AtomicBool = AtomicBool::new(false);

    if !READV_DENIED.load(Ordering::Relaxed) {
        match read_by_kernel(address) {
            Ok(word) => return Some(word),
            Err(error) if is_denied(&error) => READV_DENIED.store(true, Ordering::Relaxed),
            Err(_) => return None,
        }
    }
    is_readable(address).then(|| {
        // SAFETY: the kernel has just read these eight bytes. The word is aligned, because the
        // caller has checked the handle. The page stays mapped, unless another thread of the
        // consumer frees an object during a call on that object, which is the consumer's error.
        unsafe { ptr::read_volatile(ptr::with_exposed_provenance::<usize>(address)) }
    })
}

fn is_denied(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EPERM | libc::ENOSYS | libc::EACCES)
    )
}

/// Copies the word by a system call, so that check and read are one step.
fn read_by_kernel(address: usize) -> io::Result<usize> {
    let mut word = 0usize;
    let local = libc::iovec {
        iov_base: (&raw mut word).cast(),
        iov_len: size_of::<usize>(),
    };
    let remote = libc::iovec {
        iov_base: ptr::with_exposed_provenance_mut(address),
        iov_len: size_of::<usize>(),
    };
    // SAFETY: the local vector is one word on the stack; the kernel checks the remote vector, and a
    // process may always read itself. The number is that of this thread, because a main thread that
    // has ended has no memory (ESRCH).
    let copied = unsafe { libc::process_vm_readv(libc::gettid(), &local, 1, &remote, 1, 0) };
    match usize::try_from(copied) {
        Ok(copied) if copied == size_of::<usize>() => Ok(word),
        Ok(_) => Err(io::Error::from_raw_os_error(libc::EFAULT)),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// Checks with a system call that reads eight bytes and then fails: `rt_sigprocmask` copies the set
/// before it checks `how`. The call needs no descriptor and no permission.
fn is_readable(address: usize) -> bool {
    const NO_SUCH_HOW: libc::c_int = -1;
    const KERNEL_SIGSET_LEN: usize = 8;
    // SAFETY: with an unknown `how` the call changes nothing, whatever the address is.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            NO_SUCH_HOW,
            address,
            ptr::null_mut::<libc::c_void>(),
            KERNEL_SIGSET_LEN,
        );
    }
    io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unmapped_page() -> usize {
        // SAFETY: a new mapping without access rights that is never unmapped.
        let page = unsafe {
            libc::mmap(
                ptr::null_mut(),
                4096,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(page, libc::MAP_FAILED);
        page.expose_provenance()
    }

    #[test]
    fn both_system_calls_agree() {
        let word = 0x1234_5678_9abc_def0usize;
        let readable = (&raw const word).expose_provenance();
        assert_eq!(read_by_kernel(readable).expect("own stack"), word);
        assert!(is_readable(readable));
        assert_eq!(read_word(readable), Some(word));

        for address in [unmapped_page(), 8 << 44, usize::MAX - 7] {
            assert!(read_by_kernel(address).is_err());
            assert!(!is_readable(address));
            assert_eq!(read_word(address), None);
        }
    }
}
