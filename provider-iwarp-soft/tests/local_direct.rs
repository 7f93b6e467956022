//! RDMA Writes and Reads of a process in the memory of another one, which is stopped, dies, or
//! takes its memory back. The other process is this test binary again, in another role.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod support;

use std::io::Write;
use std::time::Duration;

use rnic::*;
use rustix::process::{Pid, Signal, kill_process};
use support::area::Area;
use support::moved::move_on;
use support::process::OtherProcess;
use support::testbed::{alone, wait_until};
use support::*;

/// The variable that makes this binary the other process.
const ROLE: &str = "LOCAL_DIRECT_ROLE";
const LEN: usize = 1 << 21;
const SEED: usize = 11;

/// Not a test: the other process. It offers memory, and answers each message with an empty one.
/// After a message of one byte, it deregisters the memory and fills it.
#[test]
fn other_process() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    let node = Node::new("lo 0");
    let server = node.side(10);
    let (_listener, port) = node.listen();
    let memory = node.memory(LEN);
    memory.fill(SEED);
    let (range, bytes) = (memory.remote(0, LEN), memory.bytes);
    let mut memory = Some(memory);
    let inbox = node.memory(8);
    for id in 0..32 {
        server.recv(id, &[inbox.sge(0, 8)]);
    }
    println!("PORT {port}");
    println!("ADDR {}", range.addr);
    println!("RKEY {}", range.rkey);
    let (request, _) = node.recorder.request(7);
    server.accept(request, &[]);
    let mut out = [Completion::EMPTY; 16];
    while !node.recorder.has_connection_event(10) || server.event().is_established() {
        node.rnic.drive();
        let count = server.poll(&server.recv_cq, &mut out);
        for done in &out[..count] {
            if done.status != WcStatus::Success {
                continue;
            }
            server.recv(done.wr_id, &[inbox.sge(0, 8)]);
            if done.byte_len == 1 {
                memory = None;
                bytes.fill(SEED + 1);
            }
            server.send(done.wr_id, &[]);
        }
        server.poll_all(&server.send_cq);
    }
    drop(memory);
    // The bytes after the end of the connection, which nothing may change any more.
    let is_filled = bytes.copy(0, LEN) == patterned(SEED + 1, LEN);
    println!("FILLED {is_filled}");
}

/// The other process, and this end of the connection to it.
struct Other<'n> {
    process: OtherProcess,
    client: Side<'n>,
    theirs: RemoteRange,
}

impl<'n> Other<'n> {
    /// Starts the process, and moves the connection until requests are carried out directly. `None`
    /// if the kernel does not permit it.
    fn start(node: &'n Node, token: u64) -> Option<Self> {
        let mut process = OtherProcess::start((ROLE, "1"), |_| ());
        let port = process.word_after("PORT ").parse().unwrap();
        let theirs = RemoteRange {
            addr: process.word_after("ADDR ").parse().unwrap(),
            rkey: process.word_after("RKEY ").parse().unwrap(),
            len: LEN as u32,
        };
        let client = node.side(token);
        client.connect(port, b"");
        assert!(matches!(client.event(), Event::Established { .. }));
        let other = Self {
            process,
            client,
            theirs,
        };
        let small = node.memory(8);
        wait_until("the connection stays on TCP", || {
            other.exchange(0);
            support::moved::is_moved(&other.client)
        });
        // The peer has announced its memory once its direction has moved.
        other.client.read(1, other.part(0, 8), &[small.sge(0, 8)]);
        other.client.expect_sent(1);
        if other.direct().received.segments == 1 {
            return Some(other);
        }
        // The line is written past the capture of the test harness.
        let why = b"\nNOT RUN: direct copies: the kernel does not permit them\n";
        std::io::stderr().write_all(why).unwrap();
        None
    }

    /// Sends a message of `len` bytes and awaits the answer.
    fn exchange(&self, len: usize) {
        let small = self.client.node.memory(8);
        self.client.recv(1, &[]);
        self.client.send(1, &[small.sge(0, len)]);
        assert_eq!(self.client.received().status, WcStatus::Success);
        self.client.expect_sent(1);
    }

    fn part(&self, at: usize, len: usize) -> RemoteRange {
        RemoteRange {
            addr: self.theirs.addr + at as u64,
            len: len as u32,
            ..self.theirs
        }
    }

    fn direct(&self) -> Flow {
        let traffic = self.client.node.rnic.traffic(&self.client.qp).unwrap();
        traffic.direct
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process.child), signal).unwrap();
    }

    /// Stops the process, and waits until the kernel has stopped it.
    fn stop(&self) {
        self.signal(Signal::STOP);
        let path = format!("/proc/{}/stat", self.process.child.id());
        wait_until("the process is not stopped", || {
            let stat = std::fs::read_to_string(&path).unwrap();
            stat.rsplit(") ").next().unwrap().starts_with('T')
        });
    }
}

trait IsEstablished {
    fn is_established(&self) -> bool;
}

impl IsEstablished for Event {
    fn is_established(&self) -> bool {
        matches!(self, Self::Established { .. })
    }
}

#[test]
fn a_stopped_process_is_written_and_read() {
    let _alone = alone();
    let node = Node::new("lo 0");
    let Some(mut other) = Other::start(&node, 10) else {
        return;
    };
    let (ours, back) = (node.memory(LEN), node.memory(LEN));
    ours.fill(3);
    other.stop();
    for (index, len) in [1, 8, 64, 4095, 65_536, 1 << 20].into_iter().enumerate() {
        let at = 100 * index + 1;
        let halves = [ours.sge(at, len / 2), ours.sge(at + len / 2, len - len / 2)];
        other.client.write(1, other.part(at, len), &halves);
        other.client.expect_sent(1);
        // One byte before and after it, which are those of the former Write.
        let all = len + 2;
        other
            .client
            .read(2, other.part(at - 1, all), &[back.sge(0, all)]);
        other.client.expect_sent(2);
        assert!(back.copy(1, len) == patterned(3 + at, len), "{len}");
    }
    let direct = other.direct();
    assert_eq!((direct.sent.segments, direct.received.segments), (6, 7));
    other.signal(Signal::CONT);
    other.exchange(1);
    node.rnic.disconnect(&other.client.qp, false);
    assert_eq!(other.process.word_after("FILLED "), "true");
}

#[test]
fn writes_that_race_with_a_deregistration_change_nothing_after_it() {
    let _alone = alone();
    let node = Node::new("lo 0");
    let ours = node.memory(LEN);
    ours.fill(3);
    for round in 0..8 {
        let Some(mut other) = Other::start(&node, 10 * round + 10) else {
            return;
        };
        let small = node.memory(8);
        other.client.recv(1, &[]);
        other.client.send(1, &[small.sge(0, 1)]);
        // The Writes overtake the message, and reach the memory until it is deregistered.
        let len = 64 << (2 * round);
        let mut posted = 0;
        while !node.recorder.has_connection_event(10 * round + 10) {
            let range = other.part(0, len);
            let _ = other
                .client
                .try_post(2, SendOp::Write(range), &[ours.sge(0, len)]);
            posted += 1;
            node.rnic.drive();
            other.client.poll_all(&other.client.send_cq);
        }
        // The target names the fault: a Write to memory that is no longer registered.
        other.client.expect_end(&format!("{round}: {posted}"));
        assert_eq!(other.process.word_after("FILLED "), "true", "{round}");
    }
}

#[test]
fn a_process_that_is_killed_at_any_step_is_reported() {
    let _alone = alone();
    let node = Node::new("lo 0");
    let ours = node.memory(LEN);
    for round in 0..8 {
        let token = 10 * round + 10;
        let Some(mut other) = Other::start(&node, token) else {
            return;
        };
        let killer = std::thread::spawn({
            let pid = Pid::from_child(&other.process.child);
            move || {
                std::thread::sleep(Duration::from_micros(200 * round));
                kill_process(pid, Signal::KILL).unwrap();
            }
        });
        let mut completed = 0;
        let mut posted = 0;
        while !node.recorder.has_connection_event(token) {
            let range = other.part(0, LEN);
            let local = [ours.sge(0, LEN)];
            let op = match posted % 2 {
                0 => SendOp::Write(range),
                _ => SendOp::Read(range),
            };
            if other.client.try_post(posted, op, &local).is_ok() {
                posted += 1;
            }
            node.rnic.drive();
            completed += other.client.poll_all(&other.client.send_cq).len() as u64;
        }
        other.client.expect_end(&round.to_string());
        completed += other.client.poll_all(&other.client.send_cq).len() as u64;
        assert_eq!(completed, posted, "each request completes once");
        killer.join().unwrap();
        other.process.end();
        // Memory of this process is free at once.
        drop(node.memory(8));
    }
}

/// Small numbers without a pattern (Numerical Recipes).
struct Random(u32);

impl Random {
    fn below(&mut self, end: u32) -> usize {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((self.0 >> 8) % end) as usize
    }
}

/// Requests of all kinds in random order: each Read returns what the Writes before it have written,
/// and each Send finds the Writes before it.
#[test]
fn a_random_sequence_keeps_its_order() {
    const AREA: usize = 1 << 16;
    let _alone = alone();
    for seed in 0..6 {
        let (a, b) = nodes();
        let (client, server) = connected(&a, &b);
        move_on(&client, &server);
        let (ours, theirs) = (
            Area::new(&a, 1, AREA, [1, 1]),
            Area::new(&b, 2, AREA, [1, 1]),
        );
        let mut model = theirs.target.copy(0, AREA);
        let mut random = Random(seed);
        for step in 0..400_u64 {
            let len = [1, 8, 64, 5_000, 20_000][random.below(5)];
            let (from, at) = (
                random.below((AREA - len) as u32),
                random.below((AREA - len) as u32),
            );
            let source = [ours.source.sge(from, len)];
            match random.below(4) {
                0 | 1 => {
                    client.write(step, theirs.target.remote(at, len), &source);
                    model[at..at + len].copy_from_slice(&ours.source.copy(from, len));
                }
                2 => {
                    client.read(
                        step,
                        theirs.target.remote(at, len),
                        &[ours.inbox.sge(at, len)],
                    );
                    while client.sent().wr_id != step {}
                    assert!(
                        ours.inbox.copy(at, len) == model[at..at + len],
                        "{seed} {step}"
                    );
                }
                _ => {
                    server.recv(step, &[theirs.inbox.sge(0, AREA)]);
                    // By shared memory the Send waits in the ring, a long one by reference.
                    let op = SendOp::Write(theirs.target.remote(at, len));
                    client.post(step, op, &source);
                    model[at..at + len].copy_from_slice(&ours.source.copy(from, len));
                    client.send(step, &source);
                    assert_eq!(server.received().status, WcStatus::Success);
                    assert!(theirs.target.copy(0, AREA) == model, "{seed} {step}");
                }
            }
            client.poll_all(&client.send_cq);
        }
    }
}
