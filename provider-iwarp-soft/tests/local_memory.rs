//! The memory of a thousand connections that have moved and are idle, at both ends. The process at
//! the other end is this test binary again, in another role.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod support;

use std::io::Write;
use std::process::Stdio;
use std::time::Instant;

use provider_iwarp_soft::{SoftCq, SoftQp};
use rnic::*;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use support::process::OtherProcess;
use support::testbed::{mappings, wait_until};
use support::*;

/// The variable that makes this binary the other process.
const ROLE: &str = "LOCAL_MEMORY_ROLE";
const CONNECTIONS: usize = 1000;
/// The limit of the memory of both processes. A page that both have mapped counts once.
const PAIR_MAX_KIB: usize = 64 * 1024;
/// Two descriptors for each end of a connection, and some for the rest of a process.
const DESCRIPTORS: u64 = 2 * CONNECTIONS as u64 + 100;
/// Messages of a connection in each direction: they fill both of its rings several times.
const ROUNDS: usize = 200;
const LEN: usize = 2048;

/// The ends of all connections in one process. They share their completion queues.
struct Ends<'n> {
    node: &'n Node,
    qps: Vec<SoftQp>,
    send_cq: SoftCq,
    recv_cq: SoftCq,
    memory: Memory,
}

impl<'n> Ends<'n> {
    fn new(node: &'n Node) -> Self {
        let rnic = &node.rnic;
        let send_cq = rnic.create_cq(4096, CqToken(1)).unwrap();
        let recv_cq = rnic.create_cq(4096, CqToken(2)).unwrap();
        let qp = |token| {
            let (sends, receives) = (Some(&send_cq), Some(&recv_cq));
            let qp = rnic.create_qp(&node.pd, sends, receives, None, &QP_ATTR, QpToken(token));
            qp.unwrap()
        };
        let qps = (0..CONNECTIONS as u64).map(qp).collect();
        Self {
            node,
            qps,
            send_cq,
            recv_cq,
            memory: node.memory(LEN),
        }
    }

    fn await_established(&self) {
        for token in 0..CONNECTIONS as u64 {
            let event = self.node.recorder.connection(token);
            assert!(matches!(event, Event::Established { .. }), "{event:?}");
        }
    }

    fn recv(&self, index: usize) {
        let wr = RecvWr {
            wr_id: index as u64,
            sgl: &[self.memory.sge(0, LEN)],
            signalled: true,
        };
        self.node.rnic.post_recv(&self.qps[index], &wr).unwrap();
    }

    fn send(&self, index: usize) {
        let sgl = [self.memory.sge(0, LEN)];
        let wr = send_wr(index as u64, SEND, &sgl);
        self.node.rnic.post_send(&self.qps[index], &wr).unwrap();
    }

    /// Awaits `count` messages and the completions of as many sends. `on_message` is called for
    /// each message.
    fn await_messages(&self, count: usize, on_message: impl Fn(usize)) {
        let mut out = [Completion::EMPTY; 64];
        let (mut received, mut sent) = (0, 0);
        let mut last = Instant::now();
        while received < count || sent < count {
            self.node.rnic.drive();
            let messages = self.node.rnic.poll_cq(&self.recv_cq, &mut out);
            for done in &out[..messages] {
                assert_eq!(done.status, WcStatus::Success);
                on_message(done.wr_id as usize);
                last = Instant::now();
            }
            assert!(
                last.elapsed() < DEADLINE,
                "{received} and {sent} of {count}"
            );
            received += messages;
            sent += self.node.rnic.poll_cq(&self.send_cq, &mut out);
        }
    }

    fn moved(&self) -> usize {
        let is_moved = |qp: &&SoftQp| {
            let traffic = self.node.rnic.traffic(qp).unwrap();
            (traffic.moved_sending, traffic.moved_receiving) == (1, 1)
        };
        self.qps.iter().filter(is_moved).count()
    }
}

/// Not a test: the other process. It answers each message, and then keeps its connections.
#[test]
fn other_process() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    let node = Node::new("lo 0");
    let ends = Ends::new(&node);
    let (_listener, port) = node.listen();
    println!("PORT {port}");
    for (index, qp) in ends.qps.iter().enumerate() {
        ends.recv(index);
        let (request, _) = node.recorder.request(7);
        let params = AcceptParams { private_data: &[] };
        node.rnic.accept(request, qp, &params).unwrap();
    }
    ends.await_established();
    ends.await_messages(ROUNDS * CONNECTIONS, |index| {
        ends.recv(index);
        ends.send(index);
    });
    println!("MOVED {}", ends.moved());
    // Returns when the first process has ended.
    let _ = std::io::stdin().read_line(&mut String::new());
}

/// Returns the resident memory of a process in KiB: its Rss, and its Pss, in which a page that two
/// processes have mapped counts half (`proc_pid_smaps(5)`).
fn resident_kib(pid: u32) -> [usize; 2] {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    ["Rss:", "Pss:"].map(|name| {
        let line = rollup.lines().find(|line| line.starts_with(name));
        let kib = line.unwrap().split_whitespace().nth(1);
        kib.unwrap().parse().unwrap()
    })
}

/// Raises the descriptor limit of the process, and of those that it starts, as far as the system
/// permits. Returns false, and reports that the test is not run, if these are too few.
fn allow_descriptors() -> bool {
    let limit = getrlimit(Resource::Nofile);
    let current = limit.maximum;
    setrlimit(Resource::Nofile, Rlimit { current, ..limit }).unwrap();
    let is_enough = current.is_none_or(|current| current >= DESCRIPTORS);
    if !is_enough {
        let why = "descriptors are too few (ulimit -Hn)";
        let text = format!("\nNOT RUN: a thousand idle connections: {why}\n");
        // Written past the capture of the test harness, so that it is counted.
        std::io::stderr().write_all(text.as_bytes()).unwrap();
    }
    is_enough
}

#[test]
fn a_thousand_idle_connections_keep_little_memory() {
    if std::env::var_os(ROLE).is_some() || !allow_descriptors() {
        return;
    }
    let mut other = OtherProcess::start((ROLE, "1"), |command| {
        command.stdin(Stdio::piped());
    });
    let port = other.word_after("PORT ").parse().unwrap();
    let pair = [std::process::id(), other.child.id()];
    let before = pair.map(resident_kib);
    let node = Node::new("lo 0");
    let ends = Ends::new(&node);
    for qp in &ends.qps {
        node.rnic
            .connect(qp, &node.connect_params(port, b""))
            .unwrap();
    }
    ends.await_established();
    for _ in 0..ROUNDS {
        for index in 0..CONNECTIONS {
            ends.recv(index);
            ends.send(index);
        }
        ends.await_messages(CONNECTIONS, |_| {});
    }
    assert_eq!(ends.moved(), CONNECTIONS, "some stay on TCP");
    assert_eq!(other.word_after("MOVED "), CONNECTIONS.to_string());
    assert_eq!(mappings(), CONNECTIONS);
    let mut last = [[0; 2]; 2];
    wait_until("idle connections keep their memory", || {
        let now = pair.map(resident_kib);
        if now != last {
            eprintln!("{now:?} KiB of each process, {before:?} without connections");
            last = now;
        }
        now.iter().map(|[_, pss]| pss).sum::<usize>() <= PAIR_MAX_KIB
    });
}
