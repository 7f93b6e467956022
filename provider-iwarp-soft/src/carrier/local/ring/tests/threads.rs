//! Both ends at the same time, each on its own thread.

use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use super::*;

/// A time that is longer than any test takes unless a wake-up was lost.
const LIMIT: Duration = Duration::from_secs(60);

/// A doorbell of the test.
#[derive(Default)]
struct Bell {
    is_rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    fn ring(&self) {
        *self.is_rung.lock().unwrap() = true;
        self.changed.notify_one();
    }

    fn wait(&self) {
        let guard = self.is_rung.lock().unwrap();
        let (mut guard, waited) = self
            .changed
            .wait_timeout_while(guard, LIMIT, |is_rung| !*is_rung)
            .unwrap();
        assert!(!waited.timed_out(), "a wake-up was lost");
        *guard = false;
    }
}

/// Runs both ends. An end that fails ends the test, because the other end would wait forever.
fn run(produce: impl FnOnce() + Send, consume: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        scope.spawn(produce);
        scope.spawn(consume);
    });
}

/// Lets the other end run, which may have failed.
fn pause(deadline: Instant) {
    assert!(Instant::now() < deadline, "the other end makes no progress");
    std::thread::yield_now();
}

/// A barrier on which two threads spin, so that the stores and loads of a step race.
#[derive(Default)]
struct Steps {
    arrived: [AtomicU32; 2],
}

impl Steps {
    fn wait_for_peer(&self, side: usize) {
        let step = self.arrived[side].fetch_add(1, Ordering::AcqRel) + 1;
        let deadline = Instant::now() + LIMIT;
        let mut spins = 0_u32;
        while self.arrived[1 - side].load(Ordering::Acquire) < step {
            spins += 1;
            if spins < 2000 {
                std::hint::spin_loop();
            } else {
                pause(deadline);
            }
        }
    }
}

/// Publishes a record and rings if necessary.
fn send(producer: &mut Producer, header: &[u8], payload: &[u8], bells: &[Bell; 2]) {
    loop {
        match push(producer, header, payload) {
            Ok(_) => break,
            Err(Refused::Full) => {}
            Err(refused) => panic!("{refused:?}"),
        }
        publish(producer, bells);
        if !producer.announce_wait().unwrap() {
            bells[1].wait();
            producer.end_wait();
        }
    }
}

fn publish(producer: &mut Producer, bells: &[Bell; 2]) {
    producer.publish();
    if producer.must_ring() {
        bells[0].ring();
    }
}

/// Waits for the next record.
fn receive(consumer: &mut Consumer, bells: &[Bell; 2]) -> (Vec<u8>, Vec<u8>) {
    loop {
        if let Some(message) = take(consumer) {
            return message;
        }
        let has_work = consumer.announce_sleep();
        notify(consumer, bells);
        if !has_work {
            bells[0].wait();
            consumer.wake();
        }
    }
}

fn notify(consumer: &mut Consumer, bells: &[Bell; 2]) {
    if consumer.must_notify() {
        bells[1].ring();
    }
}

/// Both ends sleep whenever possible, so almost each of these records is a race between a sleep and
/// a publication, and each fourth one between a wait and a release.
#[test]
fn no_wake_up_is_lost() {
    const ROUNDS: u32 = 200_000;
    let (mut producer, mut consumer) = ring(RING_LEN_MIN);
    let bells: [Bell; 2] = Default::default();
    run(
        || {
            for round in 0..ROUNDS {
                let len = [0, 10, 700][round as usize % 3];
                send(
                    &mut producer,
                    &round.to_ne_bytes(),
                    &[5; 700][..len],
                    &bells,
                );
                publish(&mut producer, &bells);
            }
        },
        || {
            for round in 0..ROUNDS {
                let (header, _) = receive(&mut consumer, &bells);
                assert_eq!(header, round.to_ne_bytes());
                if round % 4 == 0 {
                    consumer.release();
                }
                notify(&mut consumer, &bells);
            }
        },
    );
}

#[test]
fn two_threads_see_the_same_records() {
    let deadline = Instant::now() + Duration::from_secs(2);
    let (mut producer, mut consumer) = ring(RING_LEN_MIN);
    let payload_max = producer.payload_max();
    let bells: [Bell; 2] = Default::default();
    run(
        || {
            let (mut messages, mut batches) = (Numbers(11), Numbers(13));
            let mut sent = 0_u64;
            while Instant::now() < deadline || sent < 50_000 {
                for _ in 0..=batches.below(8) {
                    let (header, payload) = messages.message(payload_max);
                    send(&mut producer, &header, &payload, &bells);
                    sent += 1;
                }
                publish(&mut producer, &bells);
            }
            send(&mut producer, b"that was all", &[], &bells);
            publish(&mut producer, &bells);
        },
        || {
            let mut messages = Numbers(11);
            loop {
                let received = receive(&mut consumer, &bells);
                if received.0 == b"that was all" {
                    break;
                }
                assert_eq!(received, messages.message(payload_max));
                notify(&mut consumer, &bells);
            }
        },
    );
}

/// A reference is either pulled or revoked, never both, and both ends agree on it.
#[test]
fn a_revocation_and_a_pull_exclude_each_other() {
    const ROUNDS: u32 = 20_000;
    let (mut producer, mut consumer) = ring(RING_LEN_MIN);
    let mut pulled_there = Vec::new();
    let mut pulled_here = Vec::new();
    let piece = [Piece { addr: 1, len: 1 }];
    run(
        || {
            for round in 0..ROUNDS {
                let deadline = Instant::now() + LIMIT;
                let position = producer.push_reference(&[], &piece).unwrap();
                producer.publish();
                let revoked = (round % 3 != 0).then(|| producer.revoker().revoke(position));
                let outcome = loop {
                    if let Some(finished) = producer.poll_reference().unwrap() {
                        break finished.outcome;
                    }
                    pause(deadline);
                };
                match revoked {
                    Some(Revoked::Taken) => assert_eq!(outcome, Outcome::Revoked),
                    _ => assert_eq!(outcome, Outcome::Pulled),
                }
                pulled_here.push(outcome == Outcome::Pulled);
            }
        },
        || {
            for _ in 0..ROUNDS {
                let deadline = Instant::now() + LIMIT;
                while consumer.peek().unwrap().is_none() {
                    pause(deadline);
                }
                let pulls = consumer.begin_pull().unwrap();
                if pulls {
                    consumer.end_pull();
                }
                pulled_there.push(pulls);
                consumer.advance();
            }
        },
    );
    assert_eq!(pulled_here, pulled_there);
}

/// Without the fence of either side, both miss each other in some of these rounds: each store is
/// still in flight when the other side loads.
#[test]
fn a_sleep_and_a_publication_at_once_see_each_other() {
    const ROUNDS: u32 = 50_000;
    let (mut producer, mut consumer) = ring(RING_LEN_MIN);
    let (steps, has_rung) = (Steps::default(), AtomicBool::new(false));
    run(
        || {
            for _ in 0..ROUNDS {
                push(&mut producer, &[1], &[]).unwrap();
                steps.wait_for_peer(0);
                producer.publish();
                has_rung.store(producer.must_ring(), Ordering::Relaxed);
                steps.wait_for_peer(0);
                steps.wait_for_peer(0);
            }
        },
        || {
            for round in 0..ROUNDS {
                steps.wait_for_peer(1);
                let has_work = consumer.announce_sleep();
                steps.wait_for_peer(1);
                assert!(has_work || has_rung.load(Ordering::Relaxed), "{round}");
                assert!(take(&mut consumer).is_some());
                consumer.wake();
                consumer.release();
                steps.wait_for_peer(1);
            }
        },
    );
}

#[test]
fn a_wait_and_a_release_at_once_see_each_other() {
    const ROUNDS: u32 = 50_000;
    let (mut producer, mut consumer) = ring(RING_LEN_MIN);
    let (steps, has_notified) = (Steps::default(), AtomicBool::new(false));
    run(
        || {
            for round in 0..ROUNDS {
                push(&mut producer, &[1], &[]).unwrap();
                producer.publish();
                steps.wait_for_peer(0);
                steps.wait_for_peer(0);
                let has_work = producer.announce_wait().unwrap();
                steps.wait_for_peer(0);
                assert!(has_work || has_notified.load(Ordering::Relaxed), "{round}");
                producer.end_wait();
                while producer.announce_wait().unwrap() {}
                producer.end_wait();
            }
        },
        || {
            for _ in 0..ROUNDS {
                steps.wait_for_peer(1);
                assert!(take(&mut consumer).is_some());
                steps.wait_for_peer(1);
                consumer.release();
                has_notified.store(consumer.must_notify(), Ordering::Relaxed);
                steps.wait_for_peer(1);
            }
        },
    );
}
