//! Short time slices for the engine's thread, so that it runs soon after the kernel has woken it.

use std::mem;

/// The shortest slice that the kernel grants (`sched_setattr(2)`).
const SLICE_NS: u64 = 100_000;

/// Requests short slices for the calling thread, so that the kernel runs it sooner after a wake-up.
///
/// A consumer that polls plain memory for an RDMA Write never sleeps. If such consumers occupy all
/// processors, the engine, which executes the Write, would wait before each message for the end of
/// a slice of the usual 3 ms. With a shorter slice of its own the engine interrupts the consumers.
/// Kernels before 6.12 accept the request and ignore it.
pub(super) fn request_short_slices() {
    // SAFETY: an all-zero sched_attr is a valid value of this C structure.
    let mut attr: libc::sched_attr = unsafe { mem::zeroed() };
    let size = mem::size_of::<libc::sched_attr>() as u32;
    // SAFETY: the kernel writes at most `size` bytes to the structure; thread 0 is the caller.
    let got = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, size, 0) };
    if got != 0 || attr.sched_policy != libc::SCHED_OTHER as u32 {
        return;
    }
    attr.sched_runtime = SLICE_NS;
    // SAFETY: the kernel reads `attr.size` bytes of the structure that it has filled itself.
    let set = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) };
    if set != 0 {
        tracing::debug!(error = %std::io::Error::last_os_error(), "short slices refused");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// True if the kernel supports slices per thread, as Linux does since 6.12.
    fn grants_slices() -> bool {
        let system = rustix::system::uname();
        let release = system.release().to_string_lossy();
        let mut numbers = release
            .split(|c: char| !c.is_ascii_digit())
            .map(|digits| digits.parse().unwrap_or(0));
        let version: (u32, u32) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        version >= (6, 12)
    }

    #[test]
    fn only_the_requesting_thread_has_short_slices() {
        let slice = || {
            // SAFETY: an all-zero sched_attr is a valid value of this C structure.
            let mut attr: libc::sched_attr = unsafe { mem::zeroed() };
            let size = mem::size_of::<libc::sched_attr>() as u32;
            // SAFETY: the kernel writes at most `size` bytes; thread 0 is the caller.
            let got = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, size, 0) };
            assert_eq!(got, 0);
            attr.sched_runtime
        };
        let before = slice();
        let requested = std::thread::spawn(move || {
            request_short_slices();
            slice()
        });
        let requested = requested.join().expect("the thread ends");
        let expected = if grants_slices() { SLICE_NS } else { before };
        assert_eq!((requested, slice()), (expected, before));
    }
}
