use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

/// This process, as a peer sees it: the kernel always lets a process read itself.
fn this() -> Credentials {
    Credentials {
        pid: std::process::id().cast_signed(),
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
    }
}

fn puller() -> (Puller, Witness) {
    let witness = Witness::new().unwrap();
    let puller = Puller::probe(this(), witness.known_word()).unwrap();
    (puller, witness)
}

fn piece(bytes: &[u8]) -> Piece {
    Piece {
        addr: bytes.as_ptr().expose_provenance() as u64,
        len: u32::try_from(bytes.len()).unwrap(),
    }
}

/// Pulls into memory of the test, cut into targets of these lengths.
fn pull(puller: &Puller, remote: &[Piece], lens: &[usize]) -> (io::Result<()>, Vec<u8>) {
    let mut bytes = vec![0xEE; lens.iter().sum()];
    let mut targets = Vec::new();
    let mut rest = &mut bytes[..];
    for &len in lens {
        let (target, after) = rest.split_at_mut(len);
        targets.push(Target {
            ptr: target.as_mut_ptr(),
            len,
        });
        rest = after;
    }
    // SAFETY: the targets are parts of a vector of this frame.
    let result = unsafe { puller.pull(remote, &targets) };
    (result, bytes)
}

fn errno(result: io::Result<()>) -> Option<i32> {
    result.unwrap_err().raw_os_error()
}

/// Two pages, of which the second cannot be accessed.
struct Fence(*mut u8);

const PAGE: usize = 65536;

impl Fence {
    fn new() -> Self {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping, half of which loses its rights.
        unsafe {
            let base = libc::mmap(std::ptr::null_mut(), 2 * PAGE, access, flags, -1, 0);
            assert_ne!(base, libc::MAP_FAILED);
            assert_eq!(libc::mprotect(base.byte_add(PAGE), PAGE, 0), 0);
            Self(base.cast())
        }
    }

    /// A range from `before` bytes before the end of the first page to `after` bytes after it.
    fn across(&self, before: usize, after: usize) -> Target {
        Target {
            ptr: self.0.wrapping_add(PAGE - before),
            len: before + after,
        }
    }
}

impl Drop for Fence {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`.
        unsafe { libc::munmap(self.0.cast(), 2 * PAGE) };
    }
}

#[test]
fn pieces_arrive_in_order_however_both_sides_are_cut() {
    let (puller, _witness) = puller();
    let source: Vec<u8> = (0..100_000_u32).map(|i| (i * 7 + i / 251) as u8).collect();
    let halves = source.split_at(33_333);
    let many: Vec<Piece> = source
        .chunks(source.len().div_ceil(32))
        .map(piece)
        .collect();
    assert_eq!(many.len(), PIECES_MAX);
    for remote in [
        &[piece(&source)][..],
        &[piece(halves.0), piece(halves.1)],
        &many,
    ] {
        for lens in [
            &[100_000][..],
            &[1, 0, 99_999],
            &[50_000, 50_000, 0],
            &[100; 1000],
            &[10; 10_000],
        ] {
            let (result, bytes) = pull(&puller, remote, lens);
            result.unwrap();
            assert!(bytes == source);
        }
    }
    pull(&puller, &[], &[]).0.unwrap();
}

#[test]
fn lengths_that_differ_are_refused() {
    let (puller, _witness) = puller();
    let source = [1; 10];
    for lens in [&[9][..], &[11], &[], &[usize::MAX / 2 + 6; 0]] {
        assert_eq!(
            errno(pull(&puller, &[piece(&source)], lens).0),
            Some(libc::EINVAL)
        );
    }
    let far = Target {
        ptr: std::ptr::null_mut(),
        len: usize::MAX,
    };
    // SAFETY: the call is refused before anything is written.
    let result = unsafe { puller.pull(&[piece(&source)], &[far, far]) };
    assert_eq!(errno(result), Some(libc::EINVAL));
    let many = [piece(&source); PIECES_MAX + 1];
    let lens = [10; PIECES_MAX + 1];
    assert_eq!(errno(pull(&puller, &many, &lens).0), Some(libc::EINVAL));
}

#[test]
fn unmapped_memory_fails_on_either_side() {
    let (puller, _witness) = puller();
    let (fence, source) = (Fence::new(), [5; 200]);
    let range = fence.across(100, 100);
    let remote = Piece {
        addr: range.ptr.expose_provenance() as u64,
        len: 200,
    };
    for before in [&[][..], &source[..50]] {
        let pieces = [piece(before), remote];
        let pieces = if before.is_empty() {
            &pieces[1..]
        } else {
            &pieces
        };
        let (result, _) = pull(&puller, pieces, &[before.len() + 200]);
        assert_eq!(errno(result), Some(libc::EFAULT));
    }
    // SAFETY: the target is memory of this test, which holds nothing else.
    let result = unsafe { puller.pull(&[piece(&source)], &[range]) };
    assert_eq!(errno(result), Some(libc::EFAULT));
    for addr in [0, u64::MAX, u64::MAX - 10, 1 << 63] {
        let (result, _) = pull(&puller, &[Piece { addr, len: 64 }], &[64]);
        assert_eq!(errno(result), Some(libc::EFAULT), "{addr:#x}");
    }
}

#[test]
fn only_the_announced_process_is_accepted() {
    let (_, witness) = puller();
    let known = witness.known_word();
    let probe = |peer, known| Puller::probe(peer, known).map(drop).unwrap_err();
    let wrong = |addr, value| probe(this(), KnownWord { addr, value });
    assert_eq!(
        wrong(known.addr, known.value ^ 1),
        PullRefusal::OtherProcess
    );
    assert_eq!(wrong(8, known.value), PullRefusal::OtherProcess);
    assert_eq!(wrong(u64::MAX, known.value), PullRefusal::OtherProcess);
    assert_eq!(wrong(known.addr, 0), PullRefusal::NotOffered);
    let uid = this().uid ^ 1;
    let peer = Credentials { uid, ..this() };
    assert_eq!(probe(peer, known), PullRefusal::OtherUser);
    for pid in [0, -1] {
        let peer = Credentials { pid, ..this() };
        assert_eq!(probe(peer, known), PullRefusal::OtherNamespace);
    }
    // The highest process number is below this.
    let pid = libc::pid_t::MAX;
    let peer = Credentials { pid, ..this() };
    assert_eq!(probe(peer, known), PullRefusal::Kernel(Errno::SRCH));
}

#[test]
fn a_reused_process_number_is_detected() {
    let (puller, witness) = puller();
    let source = [1; 10];
    pull(&puller, &[piece(&source)], &[10]).0.unwrap();
    // SAFETY: the word of the page, to which no reference exists.
    unsafe { witness.page.write(witness.value.wrapping_add(1)) };
    let (result, _) = pull(&puller, &[piece(&source)], &[10]);
    assert_eq!(errno(result), Some(libc::ESTALE));
}

/// A parent may read its child under Yama too. If the kernel forbids even that, the test counts as
/// not run.
#[test]
fn another_process_is_read_if_the_kernel_allows_it() {
    // Not that of a witness, which the child does not inherit.
    let word = Box::new(AtomicU64::new(0));
    let known = KnownWord {
        value: 77,
        addr: word.as_ptr().expose_provenance() as u64,
    };
    let mut source = vec![0_u8; 4096];
    let remote = [piece(&source)];
    let (mut ready, ready_writer) = std::io::pipe().unwrap();
    // SAFETY: the child only calls the kernel, until it is killed.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // This changes the memory of the child only.
        word.store(known.value, Ordering::Relaxed);
        source.fill(9);
        // SAFETY: one byte of this frame, then numbers.
        unsafe {
            libc::write(ready_writer.as_raw_fd(), (&raw const source[0]).cast(), 1);
            libc::sleep(60);
            libc::_exit(0);
        }
    }
    ready.read_exact(&mut [0]).unwrap();
    let pid = child;
    let probed = Puller::probe(Credentials { pid, ..this() }, known);
    let pulled = probed.map(|puller| pull(&puller, &remote, &[4000, 96]));
    // SAFETY: the process is a child of this process.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, std::ptr::null_mut(), 0);
    }
    match pulled {
        // Written directly to standard error: the test harness must not capture the line.
        Err(PullRefusal::Kernel(errno)) => writeln!(
            std::io::stderr(),
            "\nNOT RUN: reading another process: {errno}"
        )
        .unwrap(),
        pulled => {
            let (result, bytes) = pulled.unwrap();
            result.unwrap();
            assert_eq!(bytes, [9; 4096]);
            assert_eq!(source, [0; 4096]);
        }
    }
}
