//! A peer that ends in every way, at every step of operations of every kind, over both carriers.
//! Each operation that reports success must have had its effect, to the last byte.
//!
//! The other process is this test binary again, in another role. Both processes post the same
//! operations and check the same completions. The other process overwrites its memory right after
//! the peer may no longer read it, so that bytes that are read too late are noticed.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod support;

use std::io::{Read, Write};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use rnic::*;
use support::area::Area;
use support::moved::is_moved;
use support::process::OtherProcess;
use support::*;

/// The variable that makes this binary the other process, and has the parameters of its adapter.
const ROLE: &str = "ENDED_PEERS_ROLE";
const CARRIERS: [&str; 2] = ["lo 0", "lo 0 local=off"];
/// Lengths on both sides of each limit of the ring: the first line of a record, the longest payload
/// that is copied, and the longest segment.
const LENGTHS: [usize; 6] = [8, 5000, 9000, 70_000, 300_000, SLOT];
const SLOTS: usize = LENGTHS.len();
/// Bytes of a slot of memory: one for each length.
const SLOT: usize = 1_200_000;
const ALL: usize = SLOTS * SLOT;
/// The number of completions of a round, for each end.
const COMPLETIONS: usize = KINDS.len() * SLOTS + 2 * SLOTS;
/// The steps of the short form: the numbers of completions after which the peer ends.
const STEPS: [usize; 4] = [0, 2, 7, 19];
const SEED: usize = 7;
/// Messages that are exchanged before a round.
const WARM_UP: usize = 40;
const CONTROL: u64 = 1000;

/// The ways in which a process ends its connection, or the use of its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Exit,
    Kill,
    /// The memory is deregistered.
    Deregister,
    /// The memory is removed although it is registered.
    Unmap,
    DisconnectAbruptly,
    DisconnectGracefully,
    DestroyQueuePair,
    CloseAdapter,
}

const WAYS: [Way; 8] = [
    Way::Exit,
    Way::Kill,
    Way::Deregister,
    Way::Unmap,
    Way::DisconnectAbruptly,
    Way::DisconnectGracefully,
    Way::DestroyQueuePair,
    Way::CloseAdapter,
];

/// The kinds of operations, in the order in which a round posts them for each length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Write,
    /// The Send of the last length also invalidates a window.
    Send,
    Read,
    WriteImmediate,
    ReadToWindow,
    Atomic,
}

const KINDS: [Kind; 6] = [
    Kind::Write,
    Kind::Send,
    Kind::Read,
    Kind::WriteImmediate,
    Kind::ReadToWindow,
    Kind::Atomic,
];

/// The memory of one end. The peer's Writes with immediate data are behind its other Writes, and
/// reads to a window behind reads, which are behind messages.
fn area(node: &Node) -> Area {
    Area::new(node, SEED, ALL, [2, 3])
}

/// Memory of the peer.
#[derive(Clone, Copy)]
struct Remote {
    addr: u64,
    rkey: u32,
}

impl Remote {
    fn range(self, at: usize, len: usize) -> RemoteRange {
        RemoteRange {
            addr: self.addr + at as u64,
            len: len as u32,
            rkey: self.rkey,
        }
    }
}

/// One end of a connection.
struct End<'n> {
    side: Side<'n>,
    area: Area,
    /// The peer's source, target and counter.
    remote: [Remote; 3],
    /// The window of this end that the peer invalidates, and the peer's.
    windows: [u32; 2],
    _window: provider_iwarp_soft::SoftMw,
    sent: usize,
    received: usize,
}

impl<'n> End<'n> {
    /// Exchanges addresses with the peer, and messages until the connection has moved. The second
    /// end has posted a receive for the first message ([`first_receive`]).
    fn new(side: Side<'n>, area: Area, is_first: bool, may_move: bool) -> Self {
        let node = side.node;
        let window = node.rnic.create_mw(&node.pd).unwrap();
        let bind = BindMw {
            qp_only: true,
            ..bind_to(&area.inbox, CONTROL, 64)
        };
        let stag = node.rnic.bind_mw(&side.qp, &window, &bind).unwrap();
        assert_eq!(side.sent().status, WcStatus::Success);
        let own = [&area.source, &area.target, &area.words];
        for (index, memory) in own.into_iter().enumerate() {
            area.set_word(1 + 2 * index, memory.addr());
            area.set_word(2 + 2 * index, u64::from(memory.keys.rkey));
        }
        area.set_word(7, u64::from(stag));
        let ours = area.words.sge(8, 56);
        for round in 0.. {
            if is_first {
                // The last word also says whether the exchange is over.
                let is_over = round >= WARM_UP && (!may_move || is_moved(&side));
                area.set_word(7, u64::from(stag) | u64::from(is_over) << 32);
                first_receive(&side, &area);
                side.send(CONTROL, &[ours]);
            }
            assert_eq!(side.received().status, WcStatus::Success);
            let is_over = area.word(if is_first { 7 } else { 14 }) >> 32 != 0;
            if !is_first {
                if !is_over {
                    first_receive(&side, &area);
                }
                side.send(CONTROL, &[ours]);
            }
            assert_eq!(side.sent().status, WcStatus::Success);
            if is_over {
                break;
            }
        }
        let remote = [0, 1, 2].map(|index| Remote {
            addr: area.word(8 + 2 * index),
            rkey: area.word(9 + 2 * index) as u32,
        });
        let windows = [stag, area.word(14) as u32];
        Self {
            side,
            area,
            remote,
            windows,
            _window: window,
            sent: 0,
            received: 0,
        }
    }

    fn post_receives(&self) {
        for index in 0..SLOTS {
            let message = self.area.inbox.sge(index * SLOT, SLOT);
            self.side.recv(2 * index as u64, &[message]);
            self.side.recv(2 * index as u64 + 1, &[]);
        }
    }

    fn post_all(&self) {
        for index in 0..SLOTS {
            for (number, kind) in KINDS.into_iter().enumerate() {
                self.post((number * SLOTS + index) as u64, kind, index);
            }
        }
    }

    fn post(&self, wr_id: u64, kind: Kind, index: usize) {
        let (at, len) = (index * SLOT, LENGTHS[index]);
        let [source, target, counter] = self.remote;
        let area = &self.area;
        let from = [area.source.sge(at, len)];
        let (op, sge) = match kind {
            Kind::Write => (SendOp::Write(target.range(at, len)), from),
            Kind::Send => {
                let invalidate = (index == SLOTS - 1).then_some(self.windows[1]);
                let solicited = false;
                (
                    SendOp::Send {
                        solicited,
                        invalidate,
                    },
                    from,
                )
            }
            Kind::Read => {
                let to = area.inbox.sge(ALL + at, len);
                (SendOp::Read(source.range(at, len)), [to])
            }
            Kind::WriteImmediate => {
                let to = target.range(ALL + at, len);
                let (value, solicited) = (index as u32, false);
                (
                    SendOp::WriteImmediate {
                        to,
                        value,
                        solicited,
                    },
                    from,
                )
            }
            Kind::ReadToWindow => {
                let local = area.inbox.remote(2 * ALL + at, len);
                let remote = source.range(at, len);
                let op = SendOp::ReadToWindow { local, remote };
                return self.post_or_end(wr_id, op, &[]);
            }
            Kind::Atomic => {
                let op = SendOp::FetchAdd(counter.range(0, 8), 1);
                (op, [area.results.sge(8 * index, 8)])
            }
        };
        self.post_or_end(wr_id, op, &sge);
    }

    /// A connection that has ended already refuses the post or flushes the request.
    fn post_or_end(&self, wr_id: u64, op: SendOp, sgl: &[Sge]) {
        let posted = self.side.try_post(wr_id, op, sgl);
        assert!(posted.is_ok(), "{posted:?}");
    }

    /// Drives once, and checks the completions.
    fn step(&mut self) {
        self.side.node.rnic.drive();
        // First the queue of requests: a completion of it may announce the data of a receive.
        for done in self.side.poll_all(&self.side.send_cq) {
            self.sent += 1;
            if done.status == WcStatus::Success {
                self.check_sent(done.wr_id as usize);
            }
        }
        for done in self.side.poll_all(&self.side.recv_cq) {
            self.received += 1;
            if done.status == WcStatus::Success {
                self.check_received(&done);
            }
        }
    }

    fn check_sent(&self, wr_id: usize) {
        let index = wr_id % SLOTS;
        let area = &self.area;
        match KINDS[wr_id / SLOTS] {
            Kind::Read => expect_pattern("read", &area.inbox, ALL, index),
            Kind::ReadToWindow => expect_pattern("read to window", &area.inbox, 2 * ALL, index),
            Kind::Atomic => {
                let original = area.results.copy(8 * index, 8);
                assert_eq!(original, (index as u64).to_ne_bytes(), "atomic {index}");
            }
            // Their effect is in the peer's memory, which the peer checks.
            Kind::Write | Kind::Send | Kind::WriteImmediate => {}
        }
    }

    fn check_received(&self, done: &Completion) {
        let index = done.wr_id as usize / 2;
        if done.wr_id.is_multiple_of(2) {
            assert_eq!(done.byte_len as usize, LENGTHS[index]);
            expect_pattern("message", &self.area.inbox, 0, index);
            expect_pattern("Write before a message", &self.area.target, 0, index);
            let expected = (index == SLOTS - 1).then_some(self.windows[0]);
            assert_eq!(done.invalidated, expected);
        } else {
            assert_eq!(done.immediate, Some(index as u32));
            expect_pattern("Write with immediate data", &self.area.target, ALL, index);
        }
    }
}

/// Posts a receive for the addresses of the peer.
fn first_receive(side: &Side<'_>, area: &Area) {
    side.recv(CONTROL, &[area.words.sge(64, 56)]);
}

/// Checks that slot `index` from `base` on contains the pattern of the peer's source.
fn expect_pattern(what: &str, memory: &Memory, base: usize, index: usize) {
    let len = LENGTHS[index];
    let found = memory.copy(base + index * SLOT, len);
    let expected = patterned(SEED + index * SLOT, len);
    let wrong = found.iter().zip(&expected).position(|(a, b)| a != b);
    assert_eq!(wrong, None, "{what} of {len} bytes: the first wrong byte");
}

/// Not a test: the other process. It ends in the way that it reads from its input.
#[test]
fn other_process() {
    let Some(params) = std::env::var_os(ROLE) else {
        return;
    };
    let command = Arc::new(AtomicUsize::new(0));
    std::thread::spawn({
        let command = command.clone();
        move || {
            let mut byte = [0];
            while std::io::stdin()
                .read(&mut byte)
                .is_ok_and(|count| count == 1)
            {
                command.store(usize::from(byte[0]), Ordering::Release);
            }
            command.store(usize::MAX, Ordering::Release);
        }
    });
    let node = Node::new(params.to_str().unwrap());
    let side = node.side(10);
    let (_listener, port) = node.listen();
    let area = area(&node);
    first_receive(&side, &area);
    println!("PORT {port}");
    let (request, _) = node.recorder.request(7);
    side.accept(request, &[]);
    assert!(matches!(side.event(), Event::Established { .. }));
    let mut end = End::new(side, area, false, false);
    end.post_receives();
    println!("READY");
    while command.load(Ordering::Acquire) == 0 {
        end.step();
    }
    end.post_all();
    let way = loop {
        match command.load(Ordering::Acquire) {
            1 => end.step(),
            usize::MAX => return,
            way => break WAYS[way - 2],
        }
    };
    let bytes = end.area.source.bytes;
    let area = end_by(way, end, &node);
    if !matches!(way, Way::Unmap | Way::DisconnectGracefully) {
        bytes.fill(SEED + 1);
    }
    println!("ENDED");
    while command.load(Ordering::Acquire) != usize::MAX {
        std::thread::yield_now();
    }
    drop(area);
}

/// Ends this process's part of the connection. Afterwards the peer may not read its source, except
/// after a graceful disconnect.
fn end_by<'n>(way: Way, mut end: End<'n>, node: &'n Node) -> Option<End<'n>> {
    match way {
        Way::Exit => std::process::exit(0),
        Way::Kill => std::thread::park(),
        Way::Deregister => {
            let unused = Memory::new(node, vec![0; 8], ALL_RIGHTS);
            drop(std::mem::replace(&mut end.area.source, unused));
        }
        Way::Unmap => {
            let start = (end.area.source.addr() as usize).next_multiple_of(4096);
            // SAFETY: the pages are within an allocation that nothing else uses, and that is never
            // freed.
            unsafe { libc::munmap(start as *mut libc::c_void, ALL / 4096 * 4096 - 4096) };
        }
        Way::DisconnectAbruptly => node.rnic.disconnect(&end.side.qp, true),
        Way::DisconnectGracefully => {
            node.rnic.disconnect(&end.side.qp, false);
            end.side.expect_end("graceful");
        }
        Way::DestroyQueuePair => {
            drop(end);
            return None;
        }
        Way::CloseAdapter => {
            drop(end);
            node.rnic.shutdown();
            return None;
        }
    }
    Some(end)
}

fn round(params: &str, way: Way, step: usize) {
    let mut other = OtherProcess::start((ROLE, params), |command| {
        command.stdin(Stdio::piped());
    });
    let mut input = other.child.stdin.take().unwrap();
    let port = other.word_after("PORT ").parse().unwrap();
    let node = Node::new(params);
    let side = node.side(10);
    side.connect(port, b"");
    assert!(matches!(side.event(), Event::Established { .. }));
    let may_move = params == CARRIERS[0];
    let mut end = End::new(side, area(&node), true, may_move);
    end.post_receives();
    other.word_after("READY");
    input.write_all(&[1]).unwrap();
    end.post_all();
    let deadline = Instant::now() + DEADLINE;
    let mut has_ended = false;
    while end.sent < KINDS.len() * SLOTS || !has_ended {
        end.step();
        if !has_ended && end.sent + end.received >= step {
            has_ended = true;
            match way {
                Way::Kill => other.child.kill().unwrap(),
                _ => {
                    let number = WAYS.iter().position(|it| *it == way).unwrap() as u8;
                    input.write_all(&[2 + number]).unwrap();
                }
            }
        }
        assert!(Instant::now() < deadline, "an operation does not end");
    }
    node.rnic.disconnect(&end.side.qp, true);
    while end.received < 2 * SLOTS {
        end.step();
        assert!(Instant::now() < deadline, "a receive does not end");
    }
    drop(input);
    let status = other.child.wait().unwrap();
    // A process may die of its own access to memory that it has removed.
    let may_die = matches!(way, Way::Kill | Way::Unmap);
    assert!(status.success() || may_die, "the peer has failed: {status}");
}

fn operations_report_the_truth(way: Way) {
    if std::env::var_os(ROLE).is_some() {
        return;
    }
    let is_full = std::env::var_os("STACK_TESTS_FULL").is_some_and(|value| !value.is_empty());
    let all: Vec<usize> = (0..COMPLETIONS).collect();
    let steps = if is_full { &all[..] } else { &STEPS };
    for params in CARRIERS {
        for step in steps {
            eprintln!("{params:?}: {way:?} after {step} completions");
            round(params, way, *step);
        }
    }
}

macro_rules! ways {
    ($($name:ident: $way:expr,)*) => {$(
        #[test]
        fn $name() {
            operations_report_the_truth($way);
        }
    )*};
}

ways! {
    a_peer_that_exits: Way::Exit,
    a_peer_that_is_killed: Way::Kill,
    a_peer_that_deregisters_its_memory: Way::Deregister,
    a_peer_that_unmaps_its_memory: Way::Unmap,
    a_peer_that_disconnects_abruptly: Way::DisconnectAbruptly,
    a_peer_that_disconnects_gracefully: Way::DisconnectGracefully,
    a_peer_that_destroys_its_queue_pair: Way::DestroyQueuePair,
    a_peer_that_closes_its_adapter: Way::CloseAdapter,
}
