use std::io::Write;
use std::sync::atomic::Ordering;

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::MemfdFlags;
use rustix::io::Errno;

use super::segment::*;

fn segment() -> (Arc<SharedSegment>, OwnedFd) {
    let (segment, fd) = SharedSegment::create(RING_LEN_MIN).unwrap();
    (Arc::new(segment), fd)
}

fn refusal(fd: OwnedFd, ring_len: usize) -> Option<i32> {
    SharedSegment::adopt(fd, ring_len)
        .unwrap_err()
        .raw_os_error()
}

#[test]
fn both_mappings_are_one_memory_and_the_halves_are_separate() {
    let (ours, fd) = segment();
    let theirs = Arc::new(SharedSegment::adopt(fd, RING_LEN_MIN).unwrap());
    let directions = [Direction::FromCreator, Direction::FromAdopter];
    for (number, direction) in (1..).zip(directions) {
        let half = ours.half(direction);
        half.control_word(0).store(number, Ordering::Relaxed);
        for at in (0..half.len()).step_by(8) {
            half.word(at)
                .store(number << 8 | at as u64, Ordering::Relaxed);
        }
    }
    for (number, direction) in (1..).zip(directions) {
        let half = theirs.half(direction);
        assert_eq!(half.control_word(0).load(Ordering::Relaxed), number);
        for at in (0..half.len()).step_by(8) {
            assert_eq!(
                half.word(at).load(Ordering::Relaxed),
                number << 8 | at as u64
            );
        }
    }
}

#[test]
fn the_creator_cannot_change_the_size_any_more() {
    let (_ours, fd) = segment();
    assert_eq!(rustix::fs::ftruncate(&fd, 0), Err(Errno::PERM));
    assert_eq!(rustix::fs::ftruncate(&fd, 1 << 20), Err(Errno::PERM));
}

#[test]
fn lengths_that_a_ring_cannot_have_are_refused() {
    for ring_len in [0, 1, 2048, 4097, RING_LEN - 1, 2 * RING_LEN_MAX, usize::MAX] {
        assert!(SharedSegment::create(ring_len).is_err(), "{ring_len}");
        let (_, fd) = segment();
        assert_eq!(refusal(fd, ring_len), Some(libc::EINVAL), "{ring_len}");
    }
}

#[test]
fn huge_pages_are_refused() {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB;
    let fd = match rustix::fs::memfd_create("test", flags) {
        Ok(fd) => fd,
        // Written directly to standard error: the test harness must not capture the line.
        Err(errno) => {
            let line = format!("\nNOT RUN: a memfd of huge pages: {errno}\n");
            std::io::stderr().write_all(line.as_bytes()).unwrap();
            return;
        }
    };
    rustix::fs::fcntl_add_seals(&fd, SEALS).unwrap();
    assert_eq!(refusal(fd, RING_LEN_MIN), Some(libc::EPERM));
}

#[test]
fn returned_pages_are_zero_and_usable() {
    let (ours, fd) = segment();
    let half = ours.half(Direction::FromAdopter);
    let other = ours.half(Direction::FromCreator);
    let blocks = || rustix::fs::fstat(&fd).unwrap().st_blocks;
    assert_eq!(blocks(), 0, "pages are allocated by their first use");
    half.word(64).store(1, Ordering::Relaxed);
    other.word(64).store(2, Ordering::Relaxed);
    let used = blocks();
    half.return_pages(0, RING_LEN_MIN as u64);
    assert!(blocks() < used);
    assert_eq!(half.word(64).load(Ordering::Relaxed), 0);
    assert_eq!(other.word(64).load(Ordering::Relaxed), 2);
    half.word(64).store(3, Ordering::Relaxed);
    assert_eq!(half.word(64).load(Ordering::Relaxed), 3);
}

fn is_mapped(addr: usize) -> bool {
    let page = std::ptr::with_exposed_provenance_mut(addr);
    let mut residency = [0_u8; 1];
    // SAFETY: one page, one byte; `mincore` fails where nothing is mapped.
    unsafe { libc::mincore(page, 1, residency.as_mut_ptr()) == 0 }
}

#[test]
fn the_child_of_a_fork_has_no_mapping() {
    let (ours, _fd) = segment();
    let addr = ours.base.as_ptr().addr();
    assert!(!crate::support::process::is_so_in_child(|| is_mapped(addr)));
}

#[test]
fn a_half_keeps_the_mapping_after_its_segment_is_dropped() {
    let (ours, _fd) = segment();
    let (addr, half) = (ours.base.as_ptr().addr(), ours.half(Direction::FromCreator));
    drop(ours);
    assert!(is_mapped(addr));
    half.word(0).store(1, Ordering::Relaxed);
}
