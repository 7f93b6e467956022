//! An engine stays asleep while consumers block and wake again and again. A separate test binary,
//! because it counts how often the engines of the process sleep.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod support;

use std::fs;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rnic::*;
use support::*;

const BATCHES: u64 = 20;
const ROUNDS: u64 = 50;

/// The tick of an engine while consumers drive.
const TICK: Duration = Duration::from_millis(1);

/// The number of times that the engines of this process have gone to sleep.
fn engine_sleeps() -> u64 {
    let count = |task: fs::DirEntry| {
        let status = fs::read_to_string(task.path().join("status")).ok()?;
        let field = |name| status.lines().find_map(|line| line.strip_prefix(name));
        if field("Name:")?.trim() != "iwarp-engine" {
            return None;
        }
        field("voluntary_ctxt_switches:")?
            .trim()
            .parse::<u64>()
            .ok()
    };
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    tasks.filter_map(|task| count(task.unwrap())).sum::<u64>()
}

#[test]
fn short_waits_do_not_wake_the_engine() {
    let (a, b) = nodes();
    let (client, server) = connected(&a, &b);
    for side in [&client, &server] {
        (0..BATCHES * ROUNDS).for_each(|id| side.recv(id, &[]));
    }
    let waker_of = |side: &Side<'_>| {
        let waker = Arc::new(Waker::new());
        side.node.recorder.wake_on(side.token + 2, &waker);
        waker
    };
    let (ours, theirs) = (waker_of(&client), waker_of(&server));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..BATCHES * ROUNDS {
                assert_eq!(server.blocked(&server.recv_cq, &theirs).wr_id, round);
                // Long enough for the client to fall asleep.
                sleep(Duration::from_micros(200));
                server.send(round, &[]);
            }
        });
        let batch = |number: u64| {
            let (before, start) = (engine_sleeps(), Instant::now());
            for round in number * ROUNDS..(number + 1) * ROUNDS {
                client.send(round, &[]);
                assert_eq!(client.blocked(&client.recv_cq, &ours).wr_id, round);
            }
            // Each of the two engines has a timer.
            let ticks = 2 * (start.elapsed().as_millis() / TICK.as_millis()) as u64;
            (engine_sleeps() - before).saturating_sub(ticks)
        };
        // On a busy machine a round may last longer than an engine's patience, so the best batch
        // counts.
        let least = (0..BATCHES).map(batch).min().unwrap();
        assert!(least < ROUNDS / 2, "{least} sleeps in {ROUNDS} rounds");
    });
}
