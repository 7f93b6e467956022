//! Messages in a steady state, and sleeps, cause no allocation. A separate test binary, because it
//! counts the calls of the C library's allocator.
//!
//! The crate has an allocator of its own, so another one cannot be declared here. That allocator
//! takes its memory from `malloc`, which this program defines instead.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod support;

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::Arc;
use std::time::Duration;

use rnic::*;
use support::*;

/// The number of messages of one round, which takes less than a tick of the engine.
const MESSAGES: u64 = 20;
/// The most rounds until one without an allocation. If the thread loses its processor for a tick,
/// the engine takes the connection over, and the next poll allocates a new list of connections.
const ROUNDS: usize = 1000;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

unsafe extern "C" {
    fn __libc_malloc(len: usize) -> *mut c_void;
    fn __libc_calloc(count: usize, len: usize) -> *mut c_void;
    fn __libc_realloc(block: *mut c_void, len: usize) -> *mut c_void;
    fn __libc_memalign(align: usize, len: usize) -> *mut c_void;
}

fn count() {
    ALLOCATIONS.set(ALLOCATIONS.get() + 1);
}

// SAFETY: the four functions have the contracts of the C library's functions of these names.
#[unsafe(no_mangle)]
unsafe extern "C" fn malloc(len: usize) -> *mut c_void {
    count();
    // SAFETY: the caller's arguments, unchanged.
    unsafe { __libc_malloc(len) }
}

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn calloc(count_of: usize, len: usize) -> *mut c_void {
    count();
    // SAFETY: the caller's arguments, unchanged.
    unsafe { __libc_calloc(count_of, len) }
}

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn realloc(block: *mut c_void, len: usize) -> *mut c_void {
    count();
    // SAFETY: the caller's arguments, unchanged.
    unsafe { __libc_realloc(block, len) }
}

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn posix_memalign(out: *mut *mut c_void, align: usize, len: usize) -> i32 {
    count();
    // SAFETY: the caller's arguments, unchanged.
    let block = unsafe { __libc_memalign(align, len) };
    if block.is_null() {
        return 12;
    }
    // SAFETY: the caller passes a place for the result.
    unsafe { *out = block };
    0
}

/// Returns the number of allocations of this thread during `work`.
fn allocations(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

/// Returns true if at least one round makes no allocation.
fn has_steady_state(mut round: impl FnMut()) -> bool {
    (0..ROUNDS).any(|_| allocations(&mut round) == 0)
}

#[test]
fn a_blocked_consumer_causes_no_allocation() {
    let node = Node::new("lo 0");
    let cq = node.rnic.create_cq(16, CqToken(1)).unwrap();
    let waker = Arc::new(Waker::new());
    let sleeps = has_steady_state(|| {
        node.rnic.arm_cq(&cq, false);
        node.rnic
            .wait(&[&cq], &waker, Some(Duration::from_millis(1)));
    });
    assert!(sleeps);
}

#[test]
fn short_messages_cause_no_allocation() {
    assert!(allocations(|| drop(std::hint::black_box(Box::new(1)))) > 0);
    for (params, is_moved) in [("lo 0 local=off", false), ("lo 0", true)] {
        let (a, b) = (Node::new(params), Node::new(params));
        let (client, server) = (a.side(10), b.side(20));
        connect(&client, &server);
        if is_moved {
            moved::move_on(&client, &server);
        }
        let (from, to) = (a.memory(64), b.memory(64));
        let pings = has_steady_state(|| {
            for id in 0..MESSAGES {
                server.recv(id, &[to.sge(0, 64)]);
                client.send(id, &[from.sge(0, 64)]);
                server.received();
                client.sent();
            }
        });
        assert!(pings, "{params}: one by one");
        let bursts = has_steady_state(|| {
            for id in 0..MESSAGES {
                server.recv(id, &[to.sge(0, 64)]);
            }
            for id in 0..MESSAGES {
                client.send(id, &[from.sge(0, 64)]);
            }
            for _ in 0..MESSAGES {
                server.received();
                client.sent();
            }
        });
        assert!(bursts, "{params}: in bursts");
    }
}
