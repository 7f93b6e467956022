//! The rows of the table.

use super::work::Processors::{One, Two};
use super::work::Work::{
    Calls, Connect, Descriptors, First, Http, Iperf, Memcached, Memory, Pgbench, RedisTime, Start,
};
use super::work::{Processors, Way, Work};
use crate::bench::ends::Waiting;
use Target::{Adds, Ratio, RatioAtMost};

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Target {
    /// At least this ratio to the run without `opsrun`.
    Ratio(f64),
    /// At most this ratio to the run without `opsrun`.
    RatioAtMost(f64),
    /// At most this much more than in the run without `opsrun`, in the row's unit.
    Adds(f64),
}

/// A kind of work, done without `opsrun` and in another way.
pub(super) struct Row {
    pub(super) title: &'static str,
    pub(super) work: Work,
    pub(super) way: Way,
    pub(super) target: Target,
}

/// Declares rows: the title, the work, the way and the target.
macro_rules! rows {
    ($($title:literal: $work:expr, $way:ident, $target:expr;)+) => {
        &[$(Row {
            title: $title,
            work: $work,
            way: Way::$way,
            target: $target,
        }),+]
    };
}

const fn redis(command: &'static str, clients: u32, pipeline: u32) -> Work {
    redis_on(Two, command, clients, pipeline)
}

const fn redis_on(on: Processors, command: &'static str, clients: u32, pipeline: u32) -> Work {
    Work::Redis {
        command,
        clients,
        pipeline,
        on,
    }
}

const fn ping(waiting: Waiting, on: Processors) -> Work {
    Work::PingPong { waiting, on }
}

const KEPT: Work = Http { is_kept: true };
const ANEW: Work = Http { is_kept: false };

/// Sockets that stay on TCP, then connections within the host.
pub(super) const ROWS: &[Row] = rows! {
    "redis GET, stays on TCP": redis("get", 50, 1), Stays, Ratio(0.98);
    "a round of calls, stays on TCP": Calls, Stays, RatioAtMost(1.02);
    "iperf3, stays on TCP": Iperf { streams: 1 }, Stays, Ratio(0.98);
    "connections, one processor, stay on TCP": Connect { on: One }, Stays, Ratio(0.98);
    "start of a program": Start, Stays, Adds(5.0);
    "first connection of a program, stays on TCP": First, Stays, Adds(5.0);
    "redis GET, 50 clients": redis("get", 50, 1), Leaves, Ratio(1.35);
    "redis SET, 50 clients": redis("set", 50, 1), Leaves, Ratio(1.35);
    "redis GET, 10 clients": redis("get", 10, 1), Leaves, Ratio(1.0);
    "redis GET, 5 clients": redis("get", 5, 1), Leaves, Ratio(1.0);
    "processor time of a GET, 5 clients": RedisTime { clients: 5 }, Leaves, RatioAtMost(1.0);
    "processor time of a GET, 1 client": RedisTime { clients: 1 }, Leaves, RatioAtMost(1.0);
    "redis GET, 1 client, one processor": redis_on(One, "get", 1, 1), Leaves, Ratio(1.15);
    "redis GET, 1 client, two processors": redis("get", 1, 1), Leaves, Ratio(1.15);
    "redis GET, 50 clients, 16 each": redis("get", 50, 16), Leaves, Ratio(1.15);
    "nginx by wrk, connections are kept": KEPT, Leaves, Ratio(1.10);
    "nginx by wrk, a new connection each": ANEW, Leaves, Ratio(0.85);
    "pgbench, select only, one processor": Pgbench { on: One }, Leaves, Ratio(1.03);
    "pgbench, select only, two processors": Pgbench { on: Two }, Leaves, Ratio(1.03);
    "memcached get, 4 connections": Memcached, Leaves, Ratio(1.0);
    "iperf3, 1 stream": Iperf { streams: 1 }, Leaves, Ratio(1.2);
    "iperf3, 4 streams": Iperf { streams: 4 }, Leaves, Ratio(1.2);
    "64 B ping-pong, blocking, one processor":
        ping(Waiting::Blocking, One), Leaves, RatioAtMost(0.85);
    "64 B ping-pong, epoll, one processor": ping(Waiting::Epoll, One), Leaves, RatioAtMost(0.85);
    "64 B ping-pong, blocking, two processors":
        ping(Waiting::Blocking, Two), Leaves, RatioAtMost(0.85);
    "64 B ping-pong, epoll, two processors": ping(Waiting::Epoll, Two), Leaves, RatioAtMost(0.85);
    "first connection of a program": First, Leaves, Adds(5.0);
    "connections, one processor": Connect { on: One }, Leaves, Ratio(0.85);
    "connections, two processors": Connect { on: Two }, Leaves, Ratio(0.85);
    "memory of a connection's end": Memory, Leaves, Adds(16.0);
    "descriptors of a connection's end": Descriptors, Leaves, Adds(0.0);
    "redis GET, 1 client, two processors, --spin": redis("get", 1, 1), Spins, Ratio(2.0);
    "redis GET, 1 client, one processor, --spin": redis_on(One, "get", 1, 1), Spins, Ratio(1.15);
    "redis GET, 50 clients, --spin": redis("get", 50, 1), Spins, Ratio(1.35);
    "64 B ping-pong, blocking, two processors, --spin":
        ping(Waiting::Blocking, Two), Spins, RatioAtMost(0.5);
    "64 B ping-pong, epoll, two processors, --spin":
        ping(Waiting::Epoll, Two), Spins, RatioAtMost(0.5);
    "64 B ping-pong, epoll, one processor, --spin":
        ping(Waiting::Epoll, One), Spins, RatioAtMost(0.85);
};
