//! The attacks of RFC 5042 that concern memory and queues, over TCP and through shared memory. Each
//! attack ends the connection in the same way on both carriers, and changes no byte.

use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::support::scripted::{Half, Moved, Scripted};
use crate::support::testbed::{Testbed, with_testbed};
use crate::support::*;
use rnic::*;

const LEN: usize = 64;

/// The state of a reference that its producer has revoked.
const REVOKED: u32 = 5;

/// The STags and addresses of the victim that the attacker uses.
struct Target {
    /// `LEN` bytes with all rights, in the middle of an allocation.
    open: (u32, u64),
    readable: (u32, u64),
    writable: (u32, u64),
    deregistered: (u32, u64),
    other_domain: (u32, u64),
    /// A window for the peer of another queue pair only.
    other_stream: (u32, u64),
}

fn write(stag: u32, to: u64, payload: &[u8]) -> Vec<u8> {
    let parts: [&[u8]; 4] = [
        &[0xC1, 0x40],
        &stag.to_be_bytes(),
        &to.to_be_bytes(),
        payload,
    ];
    parts.concat()
}

fn untagged(opcode: u8, invalidate: u32, (queue, msn, offset): (u32, u32, u32)) -> Vec<u8> {
    let parts: [&[u8]; 5] = [
        &[0x41, 0x40 | opcode],
        &invalidate.to_be_bytes(),
        &queue.to_be_bytes(),
        &msn.to_be_bytes(),
        &offset.to_be_bytes(),
    ];
    parts.concat()
}

/// The second Read Request of a connection. The first one has negotiated the carrier.
fn read(len: u32, stag: u32, to: u64) -> Vec<u8> {
    let parts: [&[u8]; 5] = [
        &[0; 12],
        &len.to_be_bytes(),
        &stag.to_be_bytes(),
        &to.to_be_bytes(),
        &[],
    ];
    [untagged(1, 0, (1, 2, 0)), parts.concat()].concat()
}

type Make = fn(&Target, u32) -> Vec<u8>;

/// Declares attacks: the section and the name, and the function.
macro_rules! attacks {
    ($($name:literal: $make:expr;)+) => {
        &[$(($name, $make)),+]
    };
}

/// Functions that make the segment of an attack, by section and attack. Their second argument is
/// the MSN of the next Send.
const ATTACKS: &[(&str, Make)] = attacks! {
    "6.1.1 write with a guessed STag": |it, _| write(it.open.0 ^ 0x100, it.open.1, &[1; 8]);
    "6.1.1 read with a guessed STag": |it, _| read(8, it.open.0 ^ 0x100, it.open.1);
    "6.1.1 write to another protection domain":
        |it, _| write(it.other_domain.0, it.other_domain.1, &[1]);
    "6.1.1 read of another protection domain":
        |it, _| read(8, it.other_domain.0, it.other_domain.1);
    "6.1.1 write to the window of another stream":
        |it, _| write(it.other_stream.0, it.other_stream.1, &[1]);
    "6.2.1 write of the byte after the region":
        |it, _| write(it.open.0, it.open.1 + LEN as u64, &[1]);
    "6.2.1 write across the end of the region": |it, _| write(it.open.0, it.open.1 + 1, &[1; LEN]);
    "6.2.1 write from the byte before the region": |it, _| write(it.open.0, it.open.1 - 1, &[1; 2]);
    "6.2.1 write at an address that wraps": |it, _| write(it.open.0, u64::MAX, &[1; 8]);
    "6.2.1 write at address 0": |it, _| write(it.open.0, 0, &[1; 8]);
    "6.2.1 Read Response without a request": |it, _| {
        let mut segment = write(it.open.0, it.open.1, &[1; 8]);
        segment[1] = 0x42;
        segment
    };
    "6.3.1 read of the byte after the region": |it, _| read(1, it.open.0, it.open.1 + LEN as u64);
    "6.3.1 read across the end of the region": |it, _| read(LEN as u32 + 1, it.open.0, it.open.1);
    "6.3.1 read from the byte before the region": |it, _| read(2, it.open.0, it.open.1 - 1);
    "6.3.1 read of 4 GiB": |it, _| read(u32::MAX, it.open.0, it.open.1);
    "6.3.3 write to a deregistered region":
        |it, _| write(it.deregistered.0, it.deregistered.1, &[1; 8]);
    "6.3.3 read of a deregistered region": |it, _| read(8, it.deregistered.0, it.deregistered.1);
    "6.3.5 write to a read-only region": |it, _| write(it.readable.0, it.readable.1, &[1; 8]);
    "6.3.5 read of a write-only region": |it, _| read(8, it.writable.0, it.writable.1);
    "6.4.5 invalidation of a region": |it, msn| untagged(4, it.open.0, (0, msn, 0));
    "6.4 Send to an undefined queue number": |_, msn| untagged(3, 0, (7, msn, 0));
    "6.4 Send with an MSN that is too high": |_, msn| untagged(3, 0, (0, msn + 5, 0));
    "6.4 Send with an MSN that was received": |_, msn| untagged(3, 0, (0, msn - 1, 0));
    "6.4 Send whose first segment has an offset":
        |_, msn| [untagged(3, 0, (0, msn, 9)), vec![1; 8]].concat();
    "6.4 Send that is longer than its receive":
        |_, msn| [untagged(3, 0, (0, msn, 0)), vec![1; LEN + 1]].concat();
};

/// Returns the length of the header of a segment.
fn header_len(segment: &[u8]) -> usize {
    match (segment[0] & 0x80, segment[1] & 0xF) {
        (0, 1) => segment.len(),
        (0, _) => 18,
        _ => 14,
    }
}

/// Returns the first two bytes of the Terminate message in a segment: layer and type, and the code.
fn code_of(segment: &[u8]) -> (u8, u8) {
    assert_eq!(segment[1] & 0xF, 7, "a Terminate message: {segment:x?}");
    (segment[18], segment[19])
}

/// Waits for a Terminate message in the ring of the victim, and returns its code.
fn code_in_ring(moved: &Moved) -> (u8, u8) {
    let deadline = Instant::now() + DEADLINE;
    let mut position = 0;
    loop {
        let word = moved.shared.await_word(Half::Adopter, position);
        let bytes = |at: u64| {
            let word = moved.shared.ring_word(Half::Adopter, position + 8 + at);
            word.load(Ordering::Relaxed).to_ne_bytes()
        };
        let header: Vec<u8> = (0..3).flat_map(|index| bytes(index * 8)).collect();
        if header[1] & 0xF == 7 {
            return code_of(&header);
        }
        assert!(Instant::now() < deadline, "no Terminate message");
        let (header_len, len) = ((word >> 8 & 0xFF) as usize, (word >> 32) as usize);
        let after = 8 + header_len.next_multiple_of(8);
        let payload_at = match after + len <= 64 {
            true => after,
            false => after.next_multiple_of(64),
        };
        position += (payload_at + len).next_multiple_of(64) as u64;
    }
}

fn attack_in_ring(
    victim: &Side<'_>,
    around: &Memory,
    attack: impl Fn(u32) -> Vec<u8>,
) -> (Event, (u8, u8)) {
    let mut moved = Moved::new(victim, |_| ());
    victim.recv(5, &[around.sge(LEN, LEN)]);
    let segment = attack(moved.peer.next_send());
    let (header, payload) = segment.split_at(header_len(&segment));
    moved.tail = moved.shared.push(Half::Creator, 0, header, payload);
    moved.wake();
    (victim.event(), code_in_ring(&moved))
}

fn attack_over_tcp(
    victim: &Side<'_>,
    around: &Memory,
    attack: impl Fn(u32) -> Vec<u8>,
) -> (Event, (u8, u8)) {
    let mut peer = Scripted::initiator(victim);
    victim.recv(4, &[]);
    peer.send(&[]);
    victim.received();
    victim.recv(5, &[around.sge(LEN, LEN)]);
    let segment = attack(peer.next_send());
    peer.send_segment(&[&segment]);
    (victim.event(), code_of(&peer.read_segment()))
}

/// Runs one attack, and returns the end of the connection.
fn run(testbed: &Testbed<'_>, make: Make, is_local: bool) -> (Event, (u8, u8)) {
    let victim = testbed.victim();
    let node = victim.node;
    let region = |access| Memory::new(node, vec![3; LEN], access);
    let bytes = vec![3_u8; 3 * LEN];
    let around = Memory::new(node, bytes, ALL_RIGHTS);
    let request = |pd: &_| {
        let request = RegisterMr {
            addr: around.addr() + LEN as u64,
            len: LEN as u64,
            access: ALL_RIGHTS,
            iova: None,
        };
        let mr = node.rnic.register_mr(pd, &request).unwrap();
        (node.rnic.mr_keys(&mr).rkey, mr)
    };
    let at = around.addr() + LEN as u64;
    let rights = |remote_read, remote_write| Access {
        remote_read,
        remote_write,
        ..ALL_RIGHTS
    };
    let (readable, writable) = (region(rights(true, false)), region(rights(false, true)));
    let other_pd = node.rnic.create_pd().unwrap();
    let (open, _open) = request(&node.pd);
    let (other, _other) = request(&other_pd);
    let (deregistered, mr) = request(&node.pd);
    drop(mr);
    let window = node.rnic.create_mw(&node.pd).unwrap();
    let bind = BindMw {
        range: around.sge(LEN, LEN),
        qp_only: true,
        completion: false,
        signalled: false,
        ..bind_to(&around, 1, LEN)
    };
    // The window belongs to the healthy connection.
    let healthy = testbed.healthy_server();
    let other_stream = node.rnic.bind_mw(&healthy.qp, &window, &bind).unwrap();
    let target = Target {
        open: (open, at),
        readable: (readable.keys.rkey, readable.addr()),
        writable: (writable.keys.rkey, writable.addr()),
        deregistered: (deregistered, at),
        other_domain: (other, at),
        other_stream: (other_stream, at),
    };
    let attack = |msn| make(&target, msn);
    let ended = match is_local {
        true => attack_in_ring(&victim, &around, attack),
        false => attack_over_tcp(&victim, &around, attack),
    };
    assert_eq!(around.copy(0, 3 * LEN), vec![3; 3 * LEN]);
    for memory in [&readable, &writable] {
        assert_eq!(memory.copy(0, LEN), [3; LEN]);
    }
    ended
}

#[test]
fn an_attack_ends_the_same_way_over_both_carriers() {
    with_testbed(|testbed| {
        for &(name, make) in ATTACKS {
            let over_tcp = run(testbed, make, false);
            let through_memory = run(testbed, make, true);
            assert_eq!(over_tcp.0, Event::Broken, "{name}");
            assert_eq!(over_tcp, through_memory, "{name}");
            testbed.check(name);
        }
    });
}

#[test]
fn a_peer_reads_no_window_by_reference_after_it_was_invalidated() {
    with_testbed(|testbed| {
        let victim = testbed.victim();
        let node = victim.node;
        let memory = node.memory(1 << 16);
        let window = node.rnic.create_mw(&node.pd).unwrap();
        let bind = BindMw {
            zero_based: true,
            completion: false,
            signalled: false,
            ..bind_to(&memory, 1, 1 << 16)
        };
        let healthy = testbed.healthy_server();
        let stag = node.rnic.bind_mw(&healthy.qp, &window, &bind).unwrap();
        let mut moved = Moved::with_pulls(&victim);
        let push = |moved: &mut Moved, segment: &[u8]| {
            moved.tail = moved.shared.push(Half::Creator, moved.tail, segment, &[]);
            moved.wake();
        };
        push(&mut moved, &read(1 << 16, stag, 0));
        // The response is a reference, which the peer does not follow yet.
        moved.shared.await_word(Half::Adopter, 0);
        victim.recv(5, &[]);
        let number = moved.peer.next_send();
        push(&mut moved, &untagged(4, stag, (0, number, 0)));
        assert_eq!(victim.received().opcode, WcOpcode::RecvInvalidate);
        let state = moved.shared.ring_word(Half::Adopter, 8);
        let now = state.load(Ordering::Relaxed) as u32;
        assert_eq!(now, REVOKED, "the reference is not revoked");
        assert_eq!(victim.event(), Event::Broken);
        drop((moved, victim));
        testbed.check("invalidated");
    });
}
