//! Data transfers.

use std::sync::atomic::{AtomicU8, Ordering};

use dat_abi::*;

use super::consumer::*;
use crate::rnic::Rnic;

const THRESHOLD: DatCompletionFlags = DAT_COMPLETION_EVD_THRESHOLD_FLAG;
const BIG: usize = 1 << 20;

/// A connection and a megabyte at each end.
struct Bulk {
    pair: Pair,
    memory: [Box<[AtomicU8]>; 2],
    keys: [DatLmrParam; 2],
}

impl Bulk {
    fn new<R: Rnic>(params: &str) -> Self {
        let pair = Pair::on(Dat::open_on::<R>(params), THRESHOLD);
        let memory = [(); 2].map(|()| {
            (0..BIG)
                .map(|_| AtomicU8::new(0))
                .collect::<Box<[AtomicU8]>>()
        });
        let keys = [0, 1].map(|end: usize| pair.dat.lmr(pair.pz, &memory[end]));
        Self { pair, memory, keys }
    }

    fn local(&self, end: usize, offset: usize, len: usize) -> DatLmrTriplet {
        DatLmrTriplet {
            virtual_address: self.keys[end].registered_address + offset as u64,
            segment_length: u32::try_from(len).unwrap(),
            lmr_context: self.keys[end].lmr_context,
        }
    }

    fn remote(&self, end: usize, offset: usize, len: usize) -> DatRmrTriplet {
        let local = self.local(end, offset, len);
        DatRmrTriplet {
            virtual_address: local.virtual_address,
            segment_length: local.segment_length,
            rmr_context: self.keys[end].rmr_context,
        }
    }

    /// Fills the memory of one end with bytes that depend on their position and the round.
    fn fill(&self, end: usize, round: usize) {
        for (place, byte) in self.memory[end].iter().enumerate() {
            byte.store(pattern(place, round), Ordering::Relaxed);
        }
    }

    fn expect(&self, end: usize, places: std::ops::Range<usize>, from: usize, round: usize) {
        for (distance, byte) in self.memory[end][places].iter().enumerate() {
            assert_eq!(
                byte.load(Ordering::Relaxed),
                pattern(from + distance, round)
            );
        }
    }

    fn recv(&self, end: usize, iov: &mut [DatLmrTriplet]) {
        let (ep, cookie) = (self.pair.ends[end].ep, DatContext::from_u64(2));
        let count = i32::try_from(iov.len()).unwrap();
        succeed!(
            self.pair.dat,
            ep_post_recv,
            ep,
            count,
            iov.as_mut_ptr(),
            cookie,
            0
        );
    }

    fn send(&self, end: usize, iov: &mut [DatLmrTriplet]) {
        let (ep, cookie) = (self.pair.ends[end].ep, DatContext::from_u64(1));
        let count = i32::try_from(iov.len()).unwrap();
        succeed!(
            self.pair.dat,
            ep_post_send,
            ep,
            count,
            iov.as_mut_ptr(),
            cookie,
            0
        );
    }

    fn done(&self, evd: DatEvdHandle) -> Finished {
        done(&self.pair.dat, evd)
    }

    /// Returns the completions of a request of one end and of the peer's receive. Two threads wait
    /// for them, because a message that fills the sockets between the ends needs progress at both
    /// ends.
    fn both(&self, end: usize) -> (Finished, Finished) {
        let dat = &self.pair.dat;
        let sent = self.pair.ends[end].request.expose_provenance();
        let received = self.pair.ends[1 - end].recv;
        std::thread::scope(|scope| {
            let sent = scope.spawn(move || done(dat, std::ptr::with_exposed_provenance_mut(sent)));
            let received = done(dat, received);
            (sent.join().unwrap(), received)
        })
    }
}

/// Waits for the next completion of an EVD.
fn done(dat: &Dat, evd: DatEvdHandle) -> Finished {
    Finished::of(&dto(&dat.wait(evd, LONG_US, 1).unwrap().0))
}

/// The relevant fields of a completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Finished {
    status: DatDtoCompletionStatus,
    operation: DatDtos,
    len: u32,
    cookie: u64,
}

impl Finished {
    fn of(data: &DatDtoCompletionEventData) -> Self {
        Self {
            status: data.status,
            operation: data.operation,
            len: data.transfered_length,
            cookie: data.user_cookie.to_u64(),
        }
    }

    fn good(operation: DatDtos, len: usize, cookie: u64) -> Self {
        Self {
            status: DAT_DTO_SUCCESS,
            operation,
            len: u32::try_from(len).unwrap(),
            cookie,
        }
    }
}

fn pattern(place: usize, round: usize) -> u8 {
    ((place * 31 + place / 251 + round * 97) & 0xFF) as u8
}

pub(super) fn a_send_carries_every_length<R: Rnic>(params: &str) {
    let bulk = Bulk::new::<R>(params);
    let lengths = [0, 1, 3, 64, 1459, 1460, 4096, 16_383, 65_536, 300_001, BIG];
    for (round, len) in lengths.into_iter().enumerate() {
        let (from, to) = (round % 2, 1 - round % 2);
        bulk.fill(from, round);
        bulk.recv(to, &mut [bulk.local(to, 0, BIG)]);
        bulk.send(from, &mut [bulk.local(from, 0, len)]);
        let (sent, received) = bulk.both(from);
        assert_eq!(sent, Finished::good(DAT_DTO_SEND, len, 1));
        assert_eq!(received, Finished::good(DAT_DTO_RECEIVE, len, 2));
        bulk.expect(to, 0..len, 0, round);
    }
}

pub(super) fn segments_are_gathered_and_scattered<R: Rnic>(params: &str) {
    let bulk = Bulk::new::<R>(params);
    bulk.fill(0, 3);
    bulk.recv(
        1,
        &mut [
            bulk.local(1, 10, 5),
            bulk.local(1, 100, 0),
            bulk.local(1, 200, 95),
        ],
    );
    bulk.send(
        0,
        &mut [
            bulk.local(0, 7, 50),
            bulk.local(0, 57, 1),
            bulk.local(0, 58, 49),
        ],
    );
    let (sent, received) = bulk.both(0);
    assert_eq!((sent.len, received.len), (100, 100));
    bulk.expect(1, 10..15, 7, 3);
    bulk.expect(1, 200..295, 12, 3);
    assert_eq!(bulk.memory[1][15].load(Ordering::Relaxed), 0);
    assert_eq!(bulk.memory[1][295].load(Ordering::Relaxed), 0);
}

pub(super) fn rdma_write_and_read_move_the_named_bytes<R: Rnic>(params: &str) {
    let bulk = Bulk::new::<R>(params);
    let (dat, end) = (&bulk.pair.dat, &bulk.pair.ends[0]);
    let cookie = DatContext::from_u64(5);
    for (round, len) in [1, 777, 70_000, BIG / 2].into_iter().enumerate() {
        bulk.fill(0, round);
        let mut local = bulk.local(0, 0, len);
        let remote = bulk.remote(1, 1000, len);
        let (remote, iov) = (&raw const remote, &raw mut local);
        succeed!(dat, ep_post_rdma_write, end.ep, 1, iov, cookie, remote, 0);
        let written = bulk.done(end.request);
        assert_eq!(written, Finished::good(DAT_DTO_RDMA_WRITE, len, 5));
        let mut local = bulk.local(0, BIG / 2, len);
        let iov = &raw mut local;
        succeed!(dat, ep_post_rdma_read, end.ep, 1, iov, cookie, remote, 0);
        let read = bulk.done(end.request);
        assert_eq!(read, Finished::good(DAT_DTO_RDMA_READ, len, 5));
        // The read was posted after the write, so it returned the written data.
        bulk.expect(0, BIG / 2..BIG / 2 + len, 0, round);
        bulk.expect(1, 1000..1000 + len, 0, round);
    }
    assert!(dat.dequeue(bulk.pair.ends[1].recv).is_err(), "one-sided");
}

pub(super) fn many_sends_arrive_in_order<R: Rnic>(params: &str) {
    let bulk = Bulk::new::<R>(params);
    let dat = &bulk.pair.dat;
    let (from, to) = (&bulk.pair.ends[0], &bulk.pair.ends[1]);
    for round in 0..20_u64 {
        for number in 0..50 {
            let mut iov = bulk.local(1, 0, 4096);
            let cookie = DatContext::from_u64(round * 50 + number);
            succeed!(dat, ep_post_recv, to.ep, 1, &raw mut iov, cookie, 0);
        }
        for number in 0..50_usize {
            let mut iov = bulk.local(0, 0, number * 37);
            let cookie = DatContext::from_u64(number as u64);
            succeed!(dat, ep_post_send, from.ep, 1, &raw mut iov, cookie, 0);
        }
        for number in 0..50_usize {
            let received = bulk.done(to.recv);
            let cookie = round * 50 + number as u64;
            assert_eq!(
                received,
                Finished::good(DAT_DTO_RECEIVE, number * 37, cookie)
            );
            let sent = bulk.done(from.request);
            assert_eq!(
                sent,
                Finished::good(DAT_DTO_SEND, number * 37, number as u64)
            );
        }
    }
}

pub(super) fn foreign_memory_is_not_reached<R: Rnic>(params: &str) {
    for (beyond, key) in [(1, 0), (0, 0x0100_0001)] {
        let bulk = Bulk::new::<R>(params);
        let (dat, end) = (&bulk.pair.dat, &bulk.pair.ends[0]);
        let mut local = bulk.local(0, 0, 16);
        let mut remote = bulk.remote(1, BIG - 16 + beyond, 16);
        remote.rmr_context ^= key;
        let cookie = DatContext::from_u64(5);
        let (remote, iov) = (&raw const remote, &raw mut local);
        succeed!(dat, ep_post_rdma_read, end.ep, 1, iov, cookie, remote, 0);
        let refused = bulk.done(end.request).status;
        assert!(
            matches!(
                refused,
                DAT_DTO_ERR_REMOTE_ACCESS | DAT_DTO_ERR_REMOTE_RESPONDER
            ),
            "{refused}"
        );
        for end in &bulk.pair.ends {
            let (event, _) = dat.wait(end.connect, LONG_US, 1).unwrap();
            assert_eq!(event.event_number, DAT_CONNECTION_EVENT_BROKEN);
        }
    }
}
