//! Two processes whose connection is in shared memory: one of them dies, stops, forks, or belongs
//! to another user. The other process is this test binary again, in another role.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod support;

use std::collections::VecDeque;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::time::{Duration, Instant};

use rnic::*;
use rustix::process::{Pid, Signal, kill_process};
use support::process::{OtherProcess, is_so_in_child};
use support::testbed::{alone, descriptors, mappings, wait_until};
use support::*;

/// The variable that makes this binary the other process.
const ROLE: &str = "LOCAL_PROCESSES_ROLE";
/// Receives of the other process.
const RECEIVES: usize = 64;
const LONG: usize = 1 << 20;

/// Not a test: the other process. It answers each message with the sum of its bytes.
#[test]
fn other_process() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    let node = Node::new("lo 0");
    let server = node.side(10);
    let (_listener, port) = node.listen();
    let slots = node.memory(RECEIVES * LONG);
    let answers = node.memory(RECEIVES * 8);
    for slot in 0..RECEIVES {
        server.recv(slot as u64, &[slots.sge(slot * LONG, LONG)]);
    }
    println!("PORT {port}");
    let (request, _) = node.recorder.request(7);
    server.accept(request, &[]);
    assert!(matches!(server.event(), Event::Established { .. }));
    let mut out = [Completion::EMPTY; 16];
    loop {
        node.rnic.drive();
        let count = server.poll(&server.recv_cq, &mut out);
        for done in &out[..count] {
            if done.status != WcStatus::Success {
                continue;
            }
            let slot = done.wr_id as usize;
            let bytes = slots.copy(slot * LONG, done.byte_len as usize);
            let sum: u64 = bytes.iter().map(|byte| u64::from(*byte)).sum();
            for (at, byte) in sum.to_ne_bytes().into_iter().enumerate() {
                answers.set(slot * 8 + at, byte);
            }
            server.recv(done.wr_id, &[slots.sge(slot * LONG, LONG)]);
            server.send(done.wr_id, &[answers.sge(slot * 8, 8)]);
        }
        server.poll_all(&server.send_cq);
        if node.recorder.has_connection_event(10) {
            println!("END {:?}", server.event());
            return;
        }
    }
}

/// The other process, and this end of the connection to it.
struct Other<'n> {
    process: OtherProcess,
    client: Side<'n>,
    answers: Memory,
    expected: VecDeque<u64>,
}

impl<'n> Other<'n> {
    fn start(node: &'n Node, token: u64) -> Self {
        Self::start_as(node, token, None)
    }

    fn start_as(node: &'n Node, token: u64, user: Option<u32>) -> Self {
        let mut process = OtherProcess::start((ROLE, "1"), |command| {
            if let Some(user) = user {
                command.uid(user).gid(user);
            }
        });
        let port = process.word_after("PORT ").parse().unwrap();
        let client = node.side(token);
        client.connect(port, b"");
        assert!(matches!(client.event(), Event::Established { .. }));
        let answers = node.memory(8 * RECEIVES);
        Self {
            process,
            client,
            answers,
            expected: VecDeque::new(),
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process.child), signal).unwrap();
    }

    /// Sends a message without waiting for its answer.
    fn post(&mut self, memory: &Memory, len: usize, sum: u64) {
        let slot = self.expected.len();
        let answer = self.answers.sge(8 * (slot % RECEIVES), 8);
        self.client.recv(slot as u64, &[answer]);
        self.client.send(slot as u64, &[memory.sge(0, len)]);
        self.expected.push_back(sum);
    }

    /// Awaits all answers.
    fn await_answers(&mut self) {
        for (slot, sum) in std::mem::take(&mut self.expected).into_iter().enumerate() {
            assert_eq!(self.client.received().status, WcStatus::Success);
            assert_eq!(self.client.sent().status, WcStatus::Success);
            let bytes = self.answers.copy(8 * (slot % RECEIVES), 8);
            assert_eq!(u64::from_ne_bytes(bytes.try_into().unwrap()), sum);
        }
    }

    /// Exchanges short messages one after another.
    fn exchange(&mut self, memory: &Memory, count: usize) {
        for _ in 0..count {
            self.post(memory, 0, 0);
            self.await_answers();
        }
    }

    fn move_to_shared_memory(&mut self, memory: &Memory) {
        let before = mappings();
        wait_until("the connection stays on TCP", || {
            self.exchange(memory, 20);
            mappings() > before
        });
        self.exchange(memory, 20);
    }

    /// Takes the remaining completions after the end: each posted request has completed once.
    fn reap(&mut self) {
        for slot in 0..self.expected.len() {
            assert_eq!(self.client.received().wr_id, slot as u64);
            assert_eq!(self.client.sent().wr_id, slot as u64);
        }
        self.expected.clear();
        self.process.end();
    }
}

/// Checks that nothing is left of connections that have ended.
fn expect_nothing_left(before: usize) {
    wait_until("mappings are left", || mappings() == 0);
    wait_until("descriptors are left", || descriptors() <= before);
}

/// Returns the number of descriptors of an adapter whose engine and rendezvous are open.
fn warm_up(node: &Node) -> usize {
    let memory = node.memory(8);
    let mut other = Other::start(node, 1);
    other.move_to_shared_memory(&memory);
    drop(other);
    wait_until("mappings are left", || mappings() == 0);
    let mut before = 0;
    wait_until("the number of descriptors changes", || {
        std::mem::replace(&mut before, descriptors()) == before
    });
    before
}

#[test]
fn a_peer_that_is_killed_at_any_step_of_the_move_is_reported() {
    let _alone = alone();
    let node = Node::new("lo 0");
    let before = warm_up(&node);
    let memory = node.memory(8);
    for count in (0..36).step_by(3) {
        let mut other = Other::start(&node, 100 + 10 * count);
        other.exchange(&memory, 8);
        // These messages are in flight when the peer is killed.
        for _ in 0..count {
            other.post(&memory, 0, 0);
        }
        other.signal(Signal::KILL);
        other.client.expect_end(&count.to_string());
        other.reap();
    }
    expect_nothing_left(before);
}

#[test]
fn a_peer_that_is_killed_in_the_middle_of_long_messages_is_reported() {
    let _alone = alone();
    let node = Node::new("lo 0");
    let before = warm_up(&node);
    let memory = node.memory(LONG);
    for round in 0..10 {
        let mut other = Other::start(&node, 100 + 10 * round);
        other.move_to_shared_memory(&memory);
        for _ in 0..40 {
            other.post(&memory, LONG, 0);
        }
        std::thread::sleep(Duration::from_micros(300 * round));
        other.signal(Signal::KILL);
        other.client.expect_end(&round.to_string());
        other.reap();
    }
    expect_nothing_left(before);
}

#[test]
fn a_stopped_peer_delays_its_own_connection_only() {
    let _alone = alone();
    let node = Node::new("lo 0");
    let before = warm_up(&node);
    let memory = node.memory(LONG);
    memory.fill(5);
    let sum = |len| patterned(5, len).iter().map(|it| u64::from(*it)).sum();
    let (sum_of_long, sum_of_short) = (sum(LONG), sum(4096));
    let (mut stopped, mut running) = (Other::start(&node, 10), Other::start(&node, 20));
    stopped.move_to_shared_memory(&memory);
    running.move_to_shared_memory(&memory);
    for round in 0..5 {
        stopped.signal(Signal::STOP);
        for _ in 0..20 {
            stopped.post(&memory, LONG, sum_of_long);
            stopped.post(&memory, 4096, sum_of_short);
        }
        running.exchange(&memory, 100);
        // Registered memory whose address the stopped process has can be deregistered at once.
        let other = node.memory(LONG);
        drop(other);
        stopped.signal(Signal::CONT);
        stopped.await_answers();
        assert_eq!(stopped.expected.len(), 0, "{round}");
    }
    drop((stopped, running));
    expect_nothing_left(before);
}

#[test]
fn a_stopped_peer_keeps_neither_memory_nor_connection() {
    let _alone = alone();
    let node = Node::new("lo 0");
    let before = warm_up(&node);
    for is_abrupt in [true, false] {
        let memory = node.memory(LONG);
        let mut other = Other::start(&node, if is_abrupt { 10 } else { 20 });
        other.move_to_shared_memory(&memory);
        other.signal(Signal::STOP);
        for _ in 0..20 {
            other.post(&memory, LONG, 0);
        }
        let start = Instant::now();
        if is_abrupt {
            node.rnic.disconnect(&other.client.qp, true);
        } else {
            // After the deregistration, the peer's unfinished reads of the memory fail. A failed
            // read ends the connection.
            drop(memory);
            other.signal(Signal::CONT);
        }
        other.client.expect_end("");
        assert!(
            start.elapsed() < DEADLINE / 2,
            "delayed by a stopped process"
        );
        other.reap();
    }
    expect_nothing_left(before);
}

#[test]
fn a_fork_during_an_operation_leaks_nothing() {
    let _alone = alone();
    let node = Node::new("lo 0");
    let before = warm_up(&node);
    let memory = node.memory(LONG);
    let mut other = Other::start(&node, 10);
    other.move_to_shared_memory(&memory);
    for round in 0..5 {
        for _ in 0..10 {
            other.post(&memory, LONG, 0);
        }
        // The child reads a file into memory of its stack.
        let child_has_ring = is_so_in_child(has_ring);
        other.await_answers();
        assert!(
            !child_has_ring,
            "{round}: the child has a mapping of a ring"
        );
    }
    // A child that continues to run keeps no connection alive.
    // SAFETY: the child calls the kernel only, until it is killed.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: it does not return.
        unsafe {
            libc::sleep(300);
            libc::_exit(0);
        }
    }
    node.rnic.disconnect(&other.client.qp, true);
    assert_eq!(other.client.event(), Event::Disconnected);
    let ended = other.process.word_after("END ");
    assert!(["Disconnected", "Broken"].contains(&&*ended), "{ended}");
    // SAFETY: our own child.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, std::ptr::null_mut(), 0);
    }
    drop(other);
    expect_nothing_left(before);
}

/// Returns true if this process has a ring mapped. Does not allocate, because a child of a fork
/// calls it.
fn has_ring() -> bool {
    let Ok(maps) = rustix::fs::open(
        c"/proc/self/maps",
        rustix::fs::OFlags::RDONLY,
        rustix::fs::Mode::empty(),
    ) else {
        return true;
    };
    let mut last = [0_u8; 64];
    let mut bytes = [0_u8; 4096];
    while let Ok(count) = rustix::io::read(&maps, &mut bytes) {
        if count == 0 {
            return false;
        }
        let mut window = [0_u8; 64 + 4096];
        window[..64].copy_from_slice(&last);
        window[64..64 + count].copy_from_slice(&bytes[..count]);
        let all = &window[..64 + count];
        if all.windows(16).any(|at| at == b"memfd:dat-rs-rin") {
            return true;
        }
        last.copy_from_slice(&all[count..]);
    }
    true
}

#[test]
fn processes_of_two_users_copy_through_the_ring() {
    let _alone = alone();
    if !rustix::process::geteuid().is_root() {
        // The line is written past the capture of the test harness.
        let why = b"\nNOT RUN: processes of two users: only root can start the other\n";
        std::io::stderr().write_all(why).unwrap();
        return;
    }
    let node = Node::new("lo 0");
    let before = warm_up(&node);
    let memory = node.memory(LONG);
    memory.fill(3);
    let mut other = Other::start_as(&node, 10, Some(65_534));
    other.move_to_shared_memory(&memory);
    for len in [1, 4096, 8193, 100_000, LONG] {
        let sum = patterned(3, len).iter().map(|byte| u64::from(*byte)).sum();
        for _ in 0..10 {
            other.post(&memory, len, sum);
        }
        other.await_answers();
    }
    drop(other);
    expect_nothing_left(before);
}
