//! Errors for a lack of memory. A separate test binary, because the limit belongs to the process.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod support;

use access_layer::rnic::*;
use rustix::process::{Rlimit, getrlimit, setrlimit};
use support::*;

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
