//! The rows of the table.

use super::work::Processors::{One, Two};
use super::work::{Processors, Way, Work};
use crate::bench::ends::Waiting;

/// The target of a row.
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

const fn row(title: &'static str, work: Work, way: Way, target: Target) -> Row {
    Row {
        title,
        work,
        way,
        target,
    }
}

/// A connection that leaves TCP, with at least this ratio.
const fn at_least(ratio: f64, title: &'static str, work: Work) -> Row {
    row(title, work, Way::Leaves, Target::Ratio(ratio))
}

/// A connection that leaves TCP, with at most this ratio.
const fn at_most(ratio: f64, title: &'static str, work: Work) -> Row {
    row(title, work, Way::Leaves, Target::RatioAtMost(ratio))
}

/// A connection that leaves TCP, and adds at most this.
const fn adds(amount: f64, title: &'static str, work: Work) -> Row {
    row(title, work, Way::Leaves, Target::Adds(amount))
}

/// A connection that stays on TCP, with at least 0.98 of the rate without `opsrun`.
const fn stays(title: &'static str, work: Work) -> Row {
    row(title, work, Way::Stays, Target::Ratio(0.98))
}

/// A row whose programs poll before they sleep.
const fn spins(of: Row) -> Row {
    Row {
        way: Way::Spins,
        ..of
    }
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

const KEPT: Work = Work::Http { is_kept: true };
const ANEW: Work = Work::Http { is_kept: false };

/// Sockets that stay on TCP, then connections within the host.
pub(super) const ROWS: &[Row] = &[
    stays("redis GET, stays on TCP", redis("get", 50, 1)),
    stays("iperf3, stays on TCP", Work::Iperf { streams: 1 }),
    stays(
        "connections, one processor, stay on TCP",
        Work::Connect { on: One },
    ),
    row(
        "start of a program",
        Work::Start,
        Way::Stays,
        Target::Adds(5.0),
    ),
    at_least(1.35, "redis GET, 50 clients", redis("get", 50, 1)),
    at_least(1.35, "redis SET, 50 clients", redis("set", 50, 1)),
    at_least(1.0, "redis GET, 10 clients", redis("get", 10, 1)),
    at_least(
        1.15,
        "redis GET, 1 client, one processor",
        redis_on(One, "get", 1, 1),
    ),
    at_least(
        1.15,
        "redis GET, 1 client, two processors",
        redis("get", 1, 1),
    ),
    at_least(1.15, "redis GET, 50 clients, 16 each", redis("get", 50, 16)),
    at_least(1.10, "nginx by wrk, connections are kept", KEPT),
    at_least(0.85, "nginx by wrk, a new connection each", ANEW),
    at_least(
        1.03,
        "pgbench, select only, one processor",
        Work::Pgbench { on: One },
    ),
    at_least(
        1.03,
        "pgbench, select only, two processors",
        Work::Pgbench { on: Two },
    ),
    at_least(1.0, "memcached get, 4 connections", Work::Memcached),
    at_least(1.2, "iperf3, 1 stream", Work::Iperf { streams: 1 }),
    at_least(1.2, "iperf3, 4 streams", Work::Iperf { streams: 4 }),
    at_most(
        0.85,
        "64 B ping-pong, blocking, one processor",
        ping(Waiting::Blocking, One),
    ),
    at_most(
        0.85,
        "64 B ping-pong, epoll, one processor",
        ping(Waiting::Epoll, One),
    ),
    at_most(
        0.85,
        "64 B ping-pong, blocking, two processors",
        ping(Waiting::Blocking, Two),
    ),
    at_most(
        0.85,
        "64 B ping-pong, epoll, two processors",
        ping(Waiting::Epoll, Two),
    ),
    at_least(
        0.85,
        "connections, one processor",
        Work::Connect { on: One },
    ),
    at_least(
        0.85,
        "connections, two processors",
        Work::Connect { on: Two },
    ),
    adds(16.0, "memory of a connection's end", Work::Memory),
    adds(0.0, "descriptors of a connection's end", Work::Descriptors),
    spins(at_least(
        2.0,
        "redis GET, 1 client, two processors, --spin",
        redis("get", 1, 1),
    )),
    spins(at_least(
        1.15,
        "redis GET, 1 client, one processor, --spin",
        redis_on(One, "get", 1, 1),
    )),
    spins(at_least(
        1.35,
        "redis GET, 50 clients, --spin",
        redis("get", 50, 1),
    )),
    spins(at_most(
        0.5,
        "64 B ping-pong, blocking, two processors, --spin",
        ping(Waiting::Blocking, Two),
    )),
    spins(at_most(
        0.5,
        "64 B ping-pong, epoll, two processors, --spin",
        ping(Waiting::Epoll, Two),
    )),
    spins(at_most(
        0.85,
        "64 B ping-pong, epoll, one processor, --spin",
        ping(Waiting::Epoll, One),
    )),
];
