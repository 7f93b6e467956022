//! The rows of the table.

use super::work::Processors::{One, Two};
use super::work::{Processors, Way, Work};
use crate::bench::ends::Waiting;

/// The target of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Target {
    /// At least this ratio to the plain way.
    Ratio(f64),
    /// At most this ratio to the plain way.
    RatioAtMost(f64),
    /// The way adds at most this, in the row's unit.
    Adds(f64),
}

/// A kind of work, done without `opsrun` and in another way.
pub(super) struct Row {
    pub(super) title: &'static str,
    pub(super) work: Work,
    pub(super) way: Way,
    pub(super) target: Target,
}

const fn row(title: &'static str, work: Work, target: Target) -> Row {
    Row {
        title,
        work,
        way: Way::Leaves,
        target,
    }
}

const fn stays(title: &'static str, work: Work) -> Row {
    Row {
        title,
        work,
        way: Way::Stays,
        target: Target::Ratio(0.98),
    }
}

const fn spins(title: &'static str, work: Work, target: Target) -> Row {
    Row {
        title,
        work,
        way: Way::Spins,
        target,
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
    Row {
        title: "start of a program",
        work: Work::Start,
        way: Way::Stays,
        target: Target::Adds(5.0),
    },
    row(
        "redis GET, 50 clients",
        redis("get", 50, 1),
        Target::Ratio(1.35),
    ),
    row(
        "redis SET, 50 clients",
        redis("set", 50, 1),
        Target::Ratio(1.35),
    ),
    row(
        "redis GET, 10 clients",
        redis("get", 10, 1),
        Target::Ratio(1.0),
    ),
    row(
        "redis GET, 1 client, one processor",
        redis_on(One, "get", 1, 1),
        Target::Ratio(1.15),
    ),
    row(
        "redis GET, 1 client, two processors",
        redis("get", 1, 1),
        Target::Ratio(1.15),
    ),
    row(
        "redis GET, 50 clients, 16 each",
        redis("get", 50, 16),
        Target::Ratio(1.15),
    ),
    row(
        "nginx by wrk, connections are kept",
        KEPT,
        Target::Ratio(1.10),
    ),
    row(
        "nginx by wrk, a new connection each",
        ANEW,
        Target::Ratio(0.85),
    ),
    row(
        "pgbench, select only, one processor",
        Work::Pgbench { on: One },
        Target::Ratio(1.03),
    ),
    row(
        "pgbench, select only, two processors",
        Work::Pgbench { on: Two },
        Target::Ratio(1.03),
    ),
    row(
        "memcached get, 4 connections",
        Work::Memcached,
        Target::Ratio(1.0),
    ),
    row(
        "iperf3, 1 stream",
        Work::Iperf { streams: 1 },
        Target::Ratio(1.2),
    ),
    row(
        "iperf3, 4 streams",
        Work::Iperf { streams: 4 },
        Target::Ratio(1.2),
    ),
    row(
        "64 B ping-pong, blocking, one processor",
        ping(Waiting::Blocking, One),
        Target::RatioAtMost(0.85),
    ),
    row(
        "64 B ping-pong, epoll, one processor",
        ping(Waiting::Epoll, One),
        Target::RatioAtMost(0.85),
    ),
    row(
        "64 B ping-pong, blocking, two processors",
        ping(Waiting::Blocking, Two),
        Target::RatioAtMost(0.85),
    ),
    row(
        "64 B ping-pong, epoll, two processors",
        ping(Waiting::Epoll, Two),
        Target::RatioAtMost(0.85),
    ),
    row(
        "connections, one processor",
        Work::Connect { on: One },
        Target::Ratio(0.85),
    ),
    row(
        "connections, two processors",
        Work::Connect { on: Two },
        Target::Ratio(0.85),
    ),
    row(
        "memory of a connection's end",
        Work::Memory,
        Target::Adds(16.0),
    ),
    row(
        "descriptors of a connection's end",
        Work::Descriptors,
        Target::Adds(0.0),
    ),
    spins(
        "redis GET, 1 client, two processors, --spin",
        redis("get", 1, 1),
        Target::Ratio(2.0),
    ),
    spins(
        "redis GET, 1 client, one processor, --spin",
        redis_on(One, "get", 1, 1),
        Target::Ratio(1.15),
    ),
    spins(
        "redis GET, 50 clients, --spin",
        redis("get", 50, 1),
        Target::Ratio(1.35),
    ),
    spins(
        "64 B ping-pong, blocking, two processors, --spin",
        ping(Waiting::Blocking, Two),
        Target::RatioAtMost(0.5),
    ),
    spins(
        "64 B ping-pong, epoll, two processors, --spin",
        ping(Waiting::Epoll, Two),
        Target::RatioAtMost(0.5),
    ),
    spins(
        "64 B ping-pong, epoll, one processor, --spin",
        ping(Waiting::Epoll, One),
        Target::RatioAtMost(0.85),
    ),
];
