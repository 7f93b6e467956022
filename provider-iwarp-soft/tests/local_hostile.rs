//! A peer that owns half of the shared memory and may write any value to each word of it. After
//! each attack the connection has ended as the specification says, or continues as if nothing had
//! happened. Another connection of the same adapter keeps working. No mapping and no descriptor is
//! left.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod support;

use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rnic::*;
use support::scripted::{
    ASLEEP, CAN_PULL, Half, INLINE, KNOWN_ADDR, KNOWN_VALUE, Moved, REFERENCE, RELEASED, RING_LEN,
    SKIP, SUPPLIED, WAITING, send_with, word,
};
use support::testbed::{Testbed, descriptors, wait_until, with_testbed};
use support::*;

type Attack<'a> = (&'a str, Box<dyn Fn(&mut Moved)>);

/// The address of bytes that a reference may name.
fn target(bytes: &[u8; 64]) -> u64 {
    bytes.as_ptr().expose_provenance() as u64
}

fn store(moved: &Moved, value: u64) {
    let at = moved.tail;
    moved
        .shared
        .ring_word(Half::Creator, at)
        .store(value, Ordering::Release);
    moved.wake();
}

/// Words that no correct producer writes, by their fault.
fn bad_words() -> Vec<Attack<'static>> {
    let mut attacks: Vec<Attack<'static>> = Vec::new();
    let mut add = |name, make: fn(u64) -> u64| {
        let attack = move |moved: &mut Moved| store(moved, make(moved.tail));
        attacks.push((name, Box::new(attack)));
    };
    add("kind", |at| word(4, 18, at, 0));
    add("no kind", |at| word(0, 18, at, 0));
    add("all bits", |_| u64::MAX);
    add("tag", |at| word(INLINE, 18, at + 64, 0));
    add("header of 73", |at| word(INLINE, 73, at, 0));
    add("header of 255", |at| word(INLINE, 255, at, 0));
    add("payload past the end", |at| word(INLINE, 18, at, 1 << 18));
    add("longest payload", |at| word(INLINE, 18, at, 0xFFFF_FFFF));
    add("payload that wraps", |at| word(INLINE, 18, at, 0xFFFF_FFC0));
    add("skip of nothing", |at| word(SKIP, 0, at, 0));
    add("skip past the end", |at| word(SKIP, 0, at, 0xFFFF_FFFF));
    add("short skip", |at| word(SKIP, 0, at, 64));
    add("empty reference", |at| word(REFERENCE, 18, at, 0));
    attacks
}

/// References that no correct producer writes. The header is that of a Send.
fn bad_references() -> Vec<Attack<'static>> {
    static TARGET: [u8; 64] = [7; 64];
    let target = target(&TARGET);
    let mut attacks: Vec<Attack<'static>> = Vec::new();
    let mut add = |name, count: u32, total: u64, pieces: Vec<(u64, u64)>| {
        let attack = move |moved: &mut Moved| {
            moved.push_reference((count, total), &pieces);
            moved.wake();
        };
        attacks.push((name, Box::new(attack)));
    };
    add("no pieces", 0, 64, vec![(target, 64)]);
    add("33 pieces", 33, 64, vec![(target, 64); 33]);
    add("many pieces", u32::MAX, 64, vec![(target, 64)]);
    add("a piece of nothing", 2, 64, vec![(target, 64), (target, 0)]);
    add("a long piece", 1, 64, vec![(target, 1 << 32 | 64)]);
    add("too few bytes", 1, 65, vec![(target, 64)]);
    add("too many bytes", 2, 64, vec![(target, 64); 2]);
    add(
        "sums that wrap",
        2,
        62,
        vec![(target, 0xFFFF_FFFF), (target, 63)],
    );
    add("longer than its receive", 1, 4096, vec![(target, 4096)]);
    attacks
}

/// Addresses of references that cannot be read: 0, of the kernel, one that wraps, and none.
const UNREADABLE: [u64; 4] = [0, 1 << 63, u64::MAX - 31, 0x5000];
/// The state of a reference that the victim has declined.
const DECLINED: u64 = 6;

#[test]
fn a_reference_that_cannot_be_read_is_declined_and_used_only_when_it_is_supplied() {
    with_testbed(|testbed| {
        for address in UNREADABLE {
            for supplies in [true, false] {
                let victim = testbed.victim();
                let memory = testbed.node().memory(128);
                let mut moved = Moved::with_known_word(&victim);
                victim.recv(1, &[memory.sge(0, 64)]);
                let at = moved.tail;
                moved.push_reference((1, 64), &[(address, 64)]);
                moved.wake();
                let shared = &moved.shared;
                wait_until("the reference is not declined", || {
                    let state = shared.ring_word(Half::Creator, at + 8);
                    state.load(Ordering::Acquire) & 0xFFFF_FFFF == DECLINED
                });
                testbed.exchange(3);
                assert!(victim.poll_all(&victim.recv_cq).is_empty());
                if supplies {
                    // The supply area is empty, so the payload is zero.
                    let count = shared.control(Half::Creator, SUPPLIED);
                    count.store(1, Ordering::Release);
                    moved.wake();
                    let done = victim.received();
                    assert_eq!((done.status, done.byte_len), (WcStatus::Success, 64));
                }
                drop(moved);
                victim.expect_end("unreadable");
                if !supplies {
                    assert_eq!(victim.received().status, WcStatus::Flushed);
                }
                assert_eq!(memory.copy(0, 128), [0; 128]);
                drop(victim);
                testbed.check("unreadable");
            }
        }
    });
}

/// Attacks a victim after it has received `before` messages through the ring.
fn attack_moved(testbed: &Testbed<'_>, before: u64, (name, attack): &Attack<'_>) {
    let name = format!("{name} after {before}");
    let victim = testbed.victim();
    let memory = testbed.node().memory(4096);
    let mut moved = Moved::with_known_word(&victim);
    for round in 0..before {
        victim.recv(round, &[memory.sge(0, 64)]);
        moved.send(b"good");
        assert_eq!(victim.received().byte_len, 4, "{name}");
    }
    victim.recv(before, &[memory.sge(0, 64)]);
    attack(&mut moved);
    assert_eq!(victim.event(), Event::Broken, "{name}");
    let failed = victim.received();
    assert_eq!(failed.wr_id, before, "{name}");
    assert_ne!(failed.status, WcStatus::Success, "{name}");
    assert_eq!(memory.copy(64, 64), [0; 64], "{name}");
    drop((moved, victim));
    testbed.check(&name);
}

#[test]
fn a_word_that_no_producer_writes_ends_its_connection_only() {
    with_testbed(|testbed| {
        for attack in bad_words() {
            for before in [0, 1, 40] {
                attack_moved(testbed, before, &attack);
            }
        }
    });
}

#[test]
fn a_reference_that_no_producer_writes_ends_its_connection_only() {
    with_testbed(|testbed| {
        for attack in bad_references() {
            for before in [0, 3] {
                attack_moved(testbed, before, &attack);
            }
        }
    });
}

#[test]
fn a_reference_in_a_state_that_it_cannot_have_ends_its_connection_only() {
    static TARGET: [u8; 64] = [7; 64];
    with_testbed(|testbed| {
        for state in [0_u64, 2, 3, 4, 5, 6, 0xFFFF_FFFF] {
            let attack = move |moved: &mut Moved| {
                // Published by the store of its word after the state.
                moved.push_reference((1, 64), &[(target(&TARGET), 64)]);
                let (shared, at) = (&moved.shared, moved.tail);
                let published = shared
                    .ring_word(Half::Creator, at)
                    .swap(0, Ordering::Relaxed);
                let bits = state | 1 << 32;
                shared
                    .ring_word(Half::Creator, at + 8)
                    .store(bits, Ordering::Relaxed);
                shared
                    .ring_word(Half::Creator, at)
                    .store(published, Ordering::Release);
                moved.wake();
            };
            // The victim sleeps until the doorbell and finds the final state of the record. A
            // victim that polls may find it earlier, as a message like others.
            let victim = testbed.victim();
            let memory = testbed.node().memory(64);
            victim.recv(1, &[memory.sge(0, 64)]);
            let mut moved = Moved::new(&victim, |_| ());
            attack(&mut moved);
            assert_eq!(victim.event(), Event::Broken, "{state}");
            drop((moved, victim));
            testbed.check("state of a reference");
        }
    });
}

#[test]
fn a_reference_of_a_peer_to_an_invalid_word_is_not_followed() {
    static TARGET: [u8; 64] = [7; 64];
    with_testbed(|testbed| {
        for known in [
            (0, 0),
            (0x5000, 1),
            (u64::MAX, 1),
            (TARGET.as_ptr().addr() as u64, 1),
        ] {
            let victim = testbed.victim();
            let memory = testbed.node().memory(64);
            let mut moved = Moved::new(&victim, |shared| {
                let word = |at| shared.control(Half::Creator, at);
                word(KNOWN_ADDR).store(known.0, Ordering::Relaxed);
                word(KNOWN_VALUE).store(known.1, Ordering::Relaxed);
            });
            let can_pull = moved.shared.control(Half::Creator, CAN_PULL);
            assert_eq!(can_pull.load(Ordering::Relaxed), 0, "{known:x?}");
            victim.recv(1, &[memory.sge(0, 64)]);
            moved.push_reference((1, 64), &[(target(&TARGET), 64)]);
            moved.wake();
            assert_eq!(victim.event(), Event::Broken, "{known:x?}");
            assert_eq!(memory.copy(0, 64), [0; 64]);
            drop((moved, victim));
            testbed.check("a reference without a word");
        }
    });
}

#[test]
fn garbage_where_a_header_should_be_ends_its_connection_with_a_terminate_message() {
    with_testbed(|testbed| {
        let mut seed = 1_u64;
        let mut random = || {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as u8
        };
        for round in 0..60 {
            let len = usize::from(random()) % 73;
            let header: Vec<u8> = (0..len).map(|_| random()).collect();
            let victim = testbed.victim();
            let mut moved = Moved::new(&victim, |_| ());
            moved.tail = moved.shared.push(Half::Creator, 0, &header, &[5; 100]);
            moved.wake();
            assert_eq!(victim.event(), Event::Broken, "{round}: {header:x?}");
            drop((moved, victim));
        }
        testbed.check("garbage");
    });
}

#[test]
fn a_consumer_that_releases_unproduced_bytes_ends_its_connection_only() {
    with_testbed(|testbed| {
        for released in [1, 63, 64 * 100_000, u64::MAX, u64::MAX - 63, 1 << 63] {
            let victim = testbed.victim();
            let moved = Moved::new(&victim, |_| ());
            for round in 0..3 {
                victim.send(round, &[]);
                assert_eq!(victim.sent().status, WcStatus::Success);
            }
            let word = moved.shared.control(Half::Adopter, RELEASED);
            word.store(released, Ordering::Release);
            // The index is loaded when the ring looks full.
            let mut round = 3;
            while !testbed.node().recorder.has_connection_event(victim.token) && round < 8000 {
                // A queue pair without a connection takes requests and flushes them.
                let _ = victim.try_post(round, SEND, &[]);
                round += 1;
                testbed.node().rnic.drive();
                victim.poll_all(&victim.send_cq);
            }
            assert_eq!(victim.event(), Event::Broken, "{released:x}");
            drop((moved, victim));
            testbed.check(&format!("released {released:x}"));
        }
    });
}

#[test]
fn a_peer_that_never_reads_delays_only_itself() {
    with_testbed(|testbed| {
        for way in ["abrupt", "peer closes", "peer resets"] {
            let victim = testbed.victim();
            let moved = Moved::new(&victim, |_| ());
            let memory = testbed.node().memory(8192);
            for round in 0..200 {
                victim.send(round, &[memory.sge(0, 8192)]);
            }
            testbed.exchange(50);
            match way {
                "abrupt" => testbed.node().rnic.disconnect(&victim.qp, true),
                "peer closes" => moved.peer.tcp.shutdown(std::net::Shutdown::Write).unwrap(),
                _ => moved.peer.tcp.shutdown(std::net::Shutdown::Both).unwrap(),
            }
            victim.expect_end(way);
            for round in 0..200 {
                assert_eq!(victim.sent().wr_id, round, "{way}");
            }
            drop((moved, victim));
            testbed.check(way);
        }
    });
}

#[test]
fn records_of_a_peer_that_never_rings_the_doorbell_are_received_before_its_end() {
    with_moved("never rings", |_, victim, mut moved| {
        for round in 0..500 {
            victim.recv(round, &[]);
        }
        await_sleep(&moved);
        (0..500).for_each(|_| moved.push(&[]));
        drop(moved);
        victim.expect_end("");
        for round in 0..500 {
            let received = victim.received();
            assert_eq!(
                (received.wr_id, received.status),
                (round, WcStatus::Success)
            );
        }
    });
}

#[test]
fn a_ring_without_end_lets_other_connections_work_and_ends_with_the_socket() {
    with_moved("a flood of doorbells", |testbed, victim, mut moved| {
        for round in 0..4000 {
            victim.recv(round, &[]);
        }
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let unix = moved.unix.try_clone().unwrap();
                unix.set_nonblocking(true).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    let _ = (&unix).write(&[0; 4096]);
                }
            });
            testbed.exchange(500);
            stop.store(true, Ordering::Relaxed);
        });
        for round in 0..20 {
            moved.send(b"");
            assert_eq!(victim.received().wr_id, round);
        }
        drop(moved);
        victim.expect_end("");
    });
}

#[test]
fn doorbells_that_carry_descriptors_leave_none() {
    with_moved(
        "descriptors on the doorbell",
        |testbed, victim, mut moved| {
            for round in 0..100 {
                send_with(&moved.unix, b"x", &[moved.shared.fd.as_fd(); 4]);
                victim.recv(round, &[]);
                moved.send(b"");
                assert_eq!(victim.received().wr_id, round);
            }
            wait_until("descriptors are left", || {
                // The script's: socket, doorbell, memory; the victim's: socket, doorbell.
                descriptors() <= testbed.descriptors + 5
            });
        },
    );
}

#[test]
fn a_peer_cannot_truncate_and_holes_are_harmless() {
    with_moved("holes", |_, victim, mut moved| {
        assert!(rustix::fs::ftruncate(&moved.shared.fd, 0).is_err());
        for round in 0..200_u64 {
            victim.recv(round, &[]);
            moved.send(b"");
            assert_eq!(victim.received().wr_id, round);
            victim.send(round, &[]);
            assert_eq!(victim.sent().wr_id, round);
            let (at, len) = (8192 + RING_LEN as u64, RING_LEN as u64);
            let flags =
                rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(&moved.shared.fd, flags, at, len).unwrap();
        }
    });
}

#[test]
fn flags_of_all_values_wake_or_do_not_and_nothing_else() {
    with_testbed(|testbed| {
        for value in [0, 1, 2, u64::MAX] {
            let victim = testbed.victim();
            let mut moved = Moved::new(&victim, |_| ());
            for round in 0..50 {
                for half in [Half::Creator, Half::Adopter] {
                    for at in [ASLEEP, WAITING, CAN_PULL, KNOWN_ADDR, KNOWN_VALUE] {
                        moved
                            .shared
                            .control(half, at)
                            .store(value, Ordering::Relaxed);
                    }
                }
                victim.recv(round, &[]);
                moved.send(b"");
                assert_eq!(victim.received().wr_id, round);
                victim.send(round, &[]);
                assert_eq!(victim.sent().status, WcStatus::Success);
            }
            drop((moved, victim));
            testbed.check("flags");
        }
    });
}

/// Attacks one victim whose connection has moved, and checks that nothing is left of the attack.
fn with_moved(name: &str, attack: impl FnOnce(&Testbed<'_>, &Side<'_>, Moved)) {
    with_testbed(|testbed| {
        let victim = testbed.victim();
        attack(testbed, &victim, Moved::new(&victim, |_| ()));
        drop(victim);
        testbed.check(name);
    });
}

/// Waits until the victim's engine sleeps.
fn await_sleep(moved: &Moved) {
    let asleep = moved.shared.control(Half::Creator, ASLEEP);
    wait_until("the victim does not sleep", || {
        asleep.load(Ordering::Relaxed) != 0
    });
}

/// Returns true if the adapter's set has no event, now that the engine has served it.
fn is_quiet(node: &Node) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let fd = node.rnic.descriptor().unwrap();
    (0..20).all(|_| {
        std::thread::sleep(Duration::from_millis(2));
        let mut polled = [PollFd::new(&fd, PollFlags::IN)];
        poll(&mut polled, Some(&Timespec::default())).unwrap() == 0
    })
}

#[test]
fn a_peer_that_closes_only_the_doorbell_causes_no_busy_loop() {
    with_moved("the doorbell is closed", |testbed, victim, mut moved| {
        moved.unix.shutdown(std::net::Shutdown::Both).unwrap();
        wait_until("the set stays ready", || is_quiet(testbed.node()));
        // The connection lives as long as its TCP connection: it still delivers a message.
        victim.recv(1, &[]);
        moved.push(&[]);
        drop(moved);
        victim.expect_end("");
        assert_eq!(victim.received().status, WcStatus::Success);
    });
}

#[test]
fn a_full_ring_is_received_while_a_timer_runs() {
    with_moved("a timer", |testbed, victim, mut moved| {
        let memory = testbed.node().memory(64);
        for round in 0..3500 {
            victim.recv(round, &[]);
        }
        // This read is never answered: a graceful disconnect waits for it, with a timer.
        let from = RemoteRange {
            addr: 0,
            len: 64,
            rkey: 1,
        };
        victim.read(1, from, &[memory.sge(0, 64)]);
        testbed.node().rnic.disconnect(&victim.qp, false);
        await_sleep(&moved);
        (0..3500).for_each(|_| moved.push(&[]));
        moved.wake();
        for round in 0..3500 {
            assert_eq!(victim.received().wr_id, round);
        }
        drop(moved);
        victim.event();
    });
}

/// Ends the connection while the peer seems to read the victim's memory. Returns the time until the
/// end is reported.
fn die_while_reading(testbed: &Testbed<'_>, is_deregistered: bool) -> Duration {
    let victim = testbed.victim();
    let memory = testbed.node().memory(1 << 20);
    let moved = Moved::with_pulls(&victim);
    victim.send(1, &[memory.sge(0, 1 << 20)]);
    moved.shared.await_word(Half::Adopter, 0);
    // The state claims that the peer is reading, and this read never ends.
    let state = moved.shared.ring_word(Half::Adopter, 8);
    state.fetch_add(1, Ordering::Relaxed);
    drop(moved);
    let start = Instant::now();
    if is_deregistered {
        drop(memory);
    }
    victim.expect_end("");
    assert_ne!(victim.sent().status, WcStatus::Success);
    let took = start.elapsed();
    drop(victim);
    testbed.check("dies while it reads");
    took
}

/// A wait for the peer would take a second each time. A busy machine delays some attempts as long,
/// so one attempt without a wait is enough.
#[test]
fn no_wait_for_a_peer_that_dies_while_it_reads_memory() {
    with_testbed(|testbed| {
        for is_deregistered in [false, true] {
            let mut times = (0..20).map(|_| die_while_reading(testbed, is_deregistered));
            assert!(
                times.any(|took| took < Duration::from_millis(700)),
                "each attempt waits, deregistered: {is_deregistered}"
            );
        }
    });
}

#[test]
fn a_reader_that_never_ends_keeps_no_other_memory() {
    with_testbed(|testbed| {
        let victim = testbed.victim();
        let memory = testbed.node().memory(1 << 16);
        let moved = Moved::with_pulls(&victim);
        for round in 0..3 {
            victim.send(round, &[memory.sge(0, 1 << 16)]);
        }
        let state = |at| {
            moved.shared.await_word(Half::Adopter, at);
            moved.shared.ring_word(Half::Adopter, at + 8)
        };
        // Marks the second reference as being read, for good. A reference of one piece is one line
        // long, so the references are at 0, 64 and 128.
        state(64).fetch_add(1, Ordering::Relaxed);
        drop(memory);
        for at in [0, 64, 128] {
            let now = state(at).load(Ordering::Relaxed) as u32;
            assert_eq!(now, 5, "the reference at {at} is not revoked");
        }
        drop(moved);
        victim.event();
        drop(victim);
        testbed.check("never ends to read");
    });
}

/// A page that the kernel requests from this process when it is accessed, and that this process
/// withholds (`userfaultfd(2)`).
struct WithheldPage {
    faults: OwnedFd,
    addr: usize,
}

/// A range of addresses, as `ioctl_userfaultfd(2)` defines it.
#[repr(C)]
struct FaultRange {
    start: u64,
    len: u64,
}

impl WithheldPage {
    const LEN: usize = 4096;
    const API: [u64; 3] = [0xAA, 0, 0];
    const MISSING: u64 = 1;
    const UFFDIO_API: libc::c_ulong = 0xC018_AA3F;
    const UFFDIO_REGISTER: libc::c_ulong = 0xC020_AA00;
    const UFFDIO_UNREGISTER: libc::c_ulong = 0x8010_AA01;

    /// Maps the page; `None` if the kernel does not permit this.
    fn map() -> Option<Self> {
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
        // SAFETY: the call takes flags and returns a new descriptor.
        let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
        let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0)?;
        // SAFETY: the kernel has just returned the descriptor.
        let faults = unsafe { OwnedFd::from_raw_fd(fd) };
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let addr = unsafe { libc::mmap(std::ptr::null_mut(), Self::LEN, protection, kind, -1, 0) };
        assert_ne!(addr, libc::MAP_FAILED);
        let page = Self {
            faults,
            addr: addr.expose_provenance(),
        };
        let mut api = Self::API;
        let mut registration = (page.range(), [Self::MISSING, 0]);
        page.control(Self::UFFDIO_API, (&raw mut api).cast());
        page.control(Self::UFFDIO_REGISTER, (&raw mut registration).cast());
        Some(page)
    }

    fn range(&self) -> FaultRange {
        FaultRange {
            start: self.addr as u64,
            len: Self::LEN as u64,
        }
    }

    fn control(&self, request: libc::c_ulong, argument: *mut libc::c_void) {
        // SAFETY: the argument is the structure of the request, which lives in the caller's frame.
        let done = unsafe { libc::ioctl(self.faults.as_raw_fd(), request, argument) };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    }

    /// Waits until a thread waits for the page.
    fn await_access(&self) {
        let mut message = [0; 32];
        wait_until("nothing accesses the page", || {
            rustix::io::read(&self.faults, &mut message).is_ok()
        });
    }

    /// Supplies the page, which contains zeros.
    fn supply(&self) {
        let mut range = self.range();
        self.control(Self::UFFDIO_UNREGISTER, (&raw mut range).cast());
    }
}

impl Drop for WithheldPage {
    fn drop(&mut self) {
        let addr = std::ptr::with_exposed_provenance_mut(self.addr);
        // SAFETY: the mapping of this object.
        unsafe { libc::munmap(addr, Self::LEN) };
    }
}

#[test]
fn a_peer_that_withholds_its_memory_delays_no_other_connection_and_no_registration() {
    with_testbed(|testbed| {
        let Some(page) = WithheldPage::map() else {
            let why = b"\nNOT RUN: withheld memory: userfaultfd(2) is not permitted\n";
            std::io::stderr().write_all(why).unwrap();
            return;
        };
        let victim = testbed.victim();
        let memory = testbed.node().memory(WithheldPage::LEN);
        let mut moved = Moved::with_known_word(&victim);
        victim.recv(1, &[memory.sge(0, WithheldPage::LEN)]);
        let len = WithheldPage::LEN as u64;
        moved.push_reference((1, len), &[(page.addr as u64, len)]);
        std::thread::scope(|scope| {
            let receiver = scope.spawn(|| victim.received());
            moved.wake();
            page.await_access();
            let (done, is_done) = std::sync::mpsc::channel();
            scope.spawn(move || {
                drop(testbed.node().memory(64));
                testbed.exchange(10);
                done.send(()).unwrap();
            });
            let others_work = is_done.recv_timeout(DEADLINE / 2);
            page.supply();
            assert!(others_work.is_ok(), "others wait for the peer");
            assert_eq!(receiver.join().unwrap().status, WcStatus::Success);
        });
        drop(moved);
        victim.event();
        drop((victim, page));
        testbed.check("withholds its memory");
    });
}
