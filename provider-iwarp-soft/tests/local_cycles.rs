//! Connections that are made, move to shared memory and end leave nothing behind. A separate test
//! binary, because descriptors, mappings and threads of the process are counted.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod support;

use std::time::{Duration, Instant};

use rnic::*;
use support::moved::is_moved;
use support::testbed::{descriptors, mappings, wait_until};
use support::*;

const CYCLES: u64 = 3_000;
/// Cycles before the first count, after which allocators and tables have their final size.
const WARM_CYCLES: u64 = 300;
/// Mappings that may be left: the C library's allocator makes one now and then. One mapping per
/// cycle would be hundreds of times as many.
const MAPPINGS_LEFT: usize = 8;
/// Messages in flight at once: enough for the offer of shared memory.
const MESSAGES: u64 = 20;
const THREADS: u64 = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Census {
    descriptors: usize,
    mappings: usize,
    threads: usize,
}

impl Census {
    fn take() -> Self {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        Self {
            descriptors: descriptors(),
            mappings: maps.lines().count(),
            threads: std::fs::read_dir("/proc/self/task").unwrap().count(),
        }
    }

    /// Waits until the engine has closed the connections that have ended.
    fn settled() -> Self {
        let mut last = Self::take();
        wait_until("descriptors come and go", || {
            let now = Self::take();
            mappings() == 0 && std::mem::replace(&mut last, now) == now
        });
        last
    }
}

/// Makes a connection, moves it, and ends it.
fn cycle(a: &Node, b: &Node, (port, listener): (u16, u64), number: u64) {
    let (client, server) = (a.side(10 * number + 100), b.side(10 * number + 105));
    for _ in 0..MESSAGES {
        server.recv(1, &[]);
    }
    client.connect(port, b"");
    let (request, _) = b.recorder.request(listener);
    server.accept(request, &[]);
    for side in [&client, &server] {
        assert!(matches!(side.event(), Event::Established { .. }));
    }
    for _ in 0..MESSAGES {
        client.send(1, &[]);
    }
    for _ in 0..MESSAGES {
        assert_eq!(server.received().status, WcStatus::Success);
        assert_eq!(client.sent().status, WcStatus::Success);
    }
    let deadline = Instant::now() + DEADLINE;
    while !(is_moved(&client) && is_moved(&server)) {
        assert!(Instant::now() < deadline, "the connection stays on TCP");
        a.rnic.drive();
        b.rnic.drive();
    }
    let ender = if number % 12 < 4 { &client } else { &server };
    ender
        .node
        .rnic
        .disconnect(&ender.qp, number / THREADS % 2 == 1);
    for side in [&client, &server] {
        assert_eq!(side.event(), Event::Disconnected, "{number}");
    }
}

/// Cycles on several threads, because a cycle mostly waits.
fn cycles(a: &Node, b: &Node, numbers: std::ops::Range<u64>) {
    let cycles_of = |thread: u64| {
        let address = ListenAddress { port: 0 };
        let (_listener, port) = b.rnic.listen(&address, ListenToken(thread)).unwrap();
        for number in numbers.clone().filter(|it| it % THREADS == thread) {
            cycle(a, b, (port, thread), number);
        }
    };
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let cycles_of = &cycles_of;
            scope.spawn(move || cycles_of(thread));
        }
    });
}

#[test]
fn connections_that_move_and_end_leak_nothing() {
    let (a, b) = nodes();
    cycles(&a, &b, 0..WARM_CYCLES);
    let before = Census::settled();
    cycles(&a, &b, WARM_CYCLES..WARM_CYCLES + CYCLES);
    let is_left = |after: &Census| {
        after.descriptors > before.descriptors
            || after.threads > before.threads
            || after.mappings > before.mappings + MAPPINGS_LEFT
    };
    // A thread that was joined is counted until the kernel has removed it.
    let deadline = Instant::now() + DEADLINE;
    let mut after = Census::settled();
    while is_left(&after) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
        after = Census::settled();
    }
    eprintln!("{before:?} {after:?}");
    assert!(!is_left(&after), "{before:?} {after:?}");
}
