//! Errors for a lack of memory. A separate test binary, because the limit belongs to the process.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod support;

use rnic::*;
use rustix::process::{Rlimit, getrlimit, setrlimit};
use std::cell::Cell;
use std::ffi::c_void;
use std::io::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use support::scripted::Scripted;
use support::*;

/// Held by each test, because the limit belongs to the process.
static ALONE: Mutex<()> = Mutex::new(());

/// Prevents new mappings while `work` runs.
fn without_new_memory<T>(work: impl FnOnce() -> T) -> T {
    let resource = rustix::process::Resource::As;
    let before = getrlimit(resource);
    let none = Rlimit {
        current: Some(0),
        ..before
    };
    setrlimit(resource, none).unwrap();
    let result = work();
    setrlimit(resource, before).unwrap();
    result
}

#[test]
fn a_queue_that_cannot_grow_reports_a_lack_of_memory() {
    let _alone = ALONE.lock();
    let node = Node::new("lo 0");
    let depth = node.rnic.attr().cqe_max;
    // More than the 64 MiB that the C library has mapped for a thread without using them.
    let cqs: Vec<_> = (0..100)
        .map(|token| node.rnic.create_cq(16, CqToken(token)).unwrap())
        .collect();
    let grow = |cq| node.rnic.resize_cq(cq, depth).map_err(|error| (cq, error));
    let refused = without_new_memory(|| cqs.iter().try_for_each(grow));
    let (cq, error) = refused.expect_err("there is memory");
    assert!(
        matches!(error, RnicError::NoResources(Resource::Memory)),
        "{error:?}"
    );
    node.rnic.resize_cq(cq, depth).unwrap();
}

/// True while the C library refuses long blocks to the threads of adapters.
static REFUSES: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// True for the thread of the test, which needs memory to report a failure.
    static IS_OF_TEST: Cell<bool> = const { Cell::new(false) };
}

unsafe extern "C" {
    fn __libc_calloc(count: usize, len: usize) -> *mut c_void;
}

/// Replaces the C library's function.
#[unsafe(no_mangle)]
extern "C" fn calloc(count: usize, len: usize) -> *mut c_void {
    let is_long = count.saturating_mul(len) > 1 << 16;
    if REFUSES.load(Ordering::Relaxed) && is_long && !IS_OF_TEST.get() {
        return std::ptr::null_mut();
    }
    // SAFETY: the function has no preconditions.
    unsafe { __libc_calloc(count, len) }
}

/// Each half of a frame needs a staging buffer of 256 KiB, and the reserve has room for a few.
#[test]
fn half_received_frames_without_memory_end_connections_and_not_the_process() {
    const COUNT: usize = 24;
    /// The length of an FPDU, and a part of its header.
    const HALF: [u8; 6] = [0x75, 0x30, 0x41, 0x43, 0, 0];
    let _alone = ALONE.lock();
    IS_OF_TEST.set(true);
    let node = Node::new("lo 0");
    let sides: Vec<_> = (0..COUNT)
        .map(|at| node.side(10 * (at as u64 + 1)))
        .collect();
    let mut peers: Vec<_> = sides.iter().map(Scripted::initiator).collect();
    REFUSES.store(true, Ordering::Relaxed);
    for peer in &mut peers {
        peer.tcp.write_all(&HALF).unwrap();
    }
    // The engine may read the sockets in any order.
    while node.recorder.any_connection().1 != Event::Broken {}
    REFUSES.store(false, Ordering::Relaxed);
    let (a, b) = nodes();
    let (client, server) = connected(&a, &b);
    exchange(&client, &server, 10);
}
