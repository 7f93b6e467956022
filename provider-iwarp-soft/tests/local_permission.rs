//! Processes that lose the permission for a system call: payloads are copied when the kernel no
//! longer permits a process to read the memory of its peer, and no operation fails.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod support;

use rnic::*;
use support::area::Area;
use support::moved::move_on;
use support::process::OtherProcess;
use support::testbed::alone;
use support::*;

/// The variable that makes this binary a process that loses a permission, and names the permission.
const ROLE: &str = "LOCAL_PERMISSION_ROLE";
const LENGTHS: [usize; 4] = [9000, 100_000, 1 << 20, 2_500_000];
const SLOT: usize = 2_500_000;
const ALL: usize = LENGTHS.len() * SLOT;
const SEED: usize = 5;

fn area(node: &Node) -> Area {
    Area::new(node, SEED, ALL, [1, 2])
}

/// Posts a Send, a Write and a read of each length.
fn post_all(side: &Side<'_>, area: &Area, peer: &Area) {
    for (index, len) in LENGTHS.into_iter().enumerate() {
        let (at, wr_id) = (index * SLOT, 10 * index as u64);
        let from = [area.source.sge(at, len)];
        side.write(wr_id, peer.target.remote(at, len), &from);
        side.send(wr_id + 1, &from);
        let to = [area.inbox.sge(ALL + at, len)];
        side.read(wr_id + 2, peer.source.remote(at, len), &to);
    }
}

fn post_receives(side: &Side<'_>, area: &Area) {
    for index in 0..LENGTHS.len() {
        side.recv(index as u64, &[area.inbox.sge(index * SLOT, SLOT)]);
    }
}

/// Waits for the completions of one end, and checks all bytes.
fn expect_all(side: &Side<'_>, area: &Area) {
    for index in 0..LENGTHS.len() as u64 {
        for kind in 0..3 {
            side.expect_sent(10 * index + kind);
        }
    }
    for (index, len) in LENGTHS.into_iter().enumerate() {
        let done = side.received();
        assert_eq!(done.status, WcStatus::Success);
        assert_eq!((done.wr_id, done.byte_len), (index as u64, len as u32));
        let at = index * SLOT;
        let expected = patterned(SEED + at, len);
        assert!(area.inbox.copy(at, len) == expected, "Send of {len}");
        assert!(area.target.copy(at, len) == expected, "Write of {len}");
        assert!(area.inbox.copy(ALL + at, len) == expected, "read of {len}");
    }
}

fn clear(area: &Area) {
    for memory in [&area.target, &area.inbox] {
        memory.fill(0);
    }
}

/// Posts operations of both ends, loses the permission, and posts more operations. Returns the
/// number of bytes that an end has read by reference in the last round.
fn exchange_without(permission_ends: impl FnOnce(&[&Area; 2])) -> u64 {
    let (a, b) = nodes();
    let (client, server) = connected(&a, &b);
    move_on(&client, &server);
    let (ours, theirs) = (area(&a), area(&b));
    let mut permission_ends = Some(permission_ends);
    let (mut total, mut last) = (0, 0);
    for _ in 0..3 {
        post_receives(&client, &ours);
        post_receives(&server, &theirs);
        post_all(&client, &ours, &theirs);
        post_all(&server, &theirs, &ours);
        if let Some(permission_ends) = permission_ends.take() {
            permission_ends(&[&ours, &theirs]);
        }
        // The operations of the ends depend on each other, so both are driven.
        std::thread::scope(|scope| {
            scope.spawn(|| expect_all(&client, &ours));
            expect_all(&server, &theirs);
        });
        clear(&ours);
        clear(&theirs);
        let read = a.rnic.traffic(&client.qp).unwrap().reference.received.bytes;
        last = read - total;
        total = read;
    }
    last
}

/// Makes a system call fail with EPERM in all threads of this process.
fn forbid(number: libc::c_long) {
    const LOAD_NUMBER: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const IS_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut filter = [
        step(LOAD_NUMBER, 0, 0, 0),
        step(IS_EQUAL, 0, 1, number as u32),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: both calls take numbers, and a program of this frame.
    let result = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        let (mode, all) = (
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_TSYNC,
        );
        libc::syscall(libc::SYS_seccomp, mode, all, &raw const program)
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

/// Not a test: the process that loses a permission. Both ends are in it.
#[test]
fn other_process() {
    match std::env::var(ROLE).as_deref() {
        Ok("process_vm_readv") => {
            let by_reference = exchange_without(|_| forbid(libc::SYS_process_vm_readv));
            assert_eq!(by_reference, 0, "payloads are copied through the ring");
        }
        Ok("ioctl") => {
            let node = Node::new("lo 0");
            forbid(libc::SYS_ioctl);
            drop(node.memory(100_000));
            let request = RegisterMr {
                addr: 4096,
                len: 4096,
                access: ALL_RIGHTS,
                iova: None,
            };
            let refused = node.rnic.register_mr(&node.pd, &request);
            assert!(matches!(refused, Err(RnicError::InvalidArgument(_))));
        }
        _ => {}
    }
}

/// Runs the process that loses this permission.
fn without(permission: &str) {
    if std::env::var_os(ROLE).is_none() {
        let mut other = OtherProcess::start((ROLE, permission), |_| {});
        let status = other.child.wait().unwrap();
        assert!(status.success(), "{status}");
    }
}

#[test]
fn a_connection_continues_when_the_kernel_forbids_reading() {
    for _ in 0..3 {
        without("process_vm_readv");
    }
}

#[test]
fn memory_is_registered_where_queries_of_mappings_are_forbidden() {
    without("ioctl");
}

#[test]
fn memory_that_other_processes_cannot_read_is_supplied() {
    if std::env::var_os(ROLE).is_some() {
        return;
    }
    let _alone = alone();
    exchange_without(|areas| {
        for area in areas {
            let start = (area.source.addr() as usize).next_multiple_of(4096);
            let pages = ALL / 4096 * 4096 - 4096;
            // SAFETY: the pages are within an allocation that the test never frees. A processor
            // reads memory that is mapped for writing only.
            let done =
                unsafe { libc::mprotect(start as *mut libc::c_void, pages, libc::PROT_WRITE) };
            assert_eq!(done, 0);
        }
    });
}
