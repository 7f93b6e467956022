//! The rows of the table.

use super::work::Processors::{One, Two};
use super::work::Work::{
    Bulk, BulkTime, Calls, Connect, Descriptors, First, Http, Iperf, Memcached, Memory, Pgbench,
    RedisTime, Start,
};
use super::work::{Processors, Way, Work};
use crate::bench::contest::Compared;
use crate::bench::ends::Waiting;
use tool_args::bench::rows::Target::{self, AtLeast, AtMost};

/// A kind of work, done without `opsrun` and in another way.
pub(super) struct Row {
    pub(super) title: &'static str,
    pub(super) work: Work,
    pub(super) way: Way,
    /// The comparison of the way with the run without `opsrun`, and its bound.
    pub(super) target: (Compared, Target),
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

/// At least this ratio.
const fn at_least(ratio: f64) -> (Compared, Target) {
    (Compared::Ratio(1, 0), AtLeast(ratio))
}

/// At most this ratio.
const fn at_most(ratio: f64) -> (Compared, Target) {
    (Compared::Ratio(1, 0), AtMost(ratio))
}

/// At most this much more, in the row's unit.
const fn adds(difference: f64) -> (Compared, Target) {
    (Compared::Difference(1, 0), AtMost(difference))
}

const KEPT: Work = Http { is_kept: true };
const ANEW: Work = Http { is_kept: false };

/// Sockets that stay on TCP, then connections within the host.
pub(super) const ROWS: &[Row] = rows! {
    "redis GET, stays on TCP": redis("get", 50, 1), Stays, at_least(0.98);
    "a round of calls, stays on TCP": Calls, Stays, at_most(1.02);
    "iperf3, stays on TCP": Iperf { streams: 1 }, Stays, at_least(0.98);
    "connections, one processor, stay on TCP": Connect { on: One }, Stays, at_least(0.98);
    "start of a program": Start, Stays, adds(5.0);
    "first connection of a program, stays on TCP": First, Stays, adds(5.0);
    "redis GET, 50 clients": redis("get", 50, 1), Leaves, at_least(1.35);
    "redis SET, 50 clients": redis("set", 50, 1), Leaves, at_least(1.35);
    "redis GET, 10 clients": redis("get", 10, 1), Leaves, at_least(1.0);
    "redis GET, 5 clients": redis("get", 5, 1), Leaves, at_least(1.0);
    "processor time of a GET, 5 clients": RedisTime { clients: 5 }, Leaves, at_most(1.0);
    "processor time of a GET, 1 client": RedisTime { clients: 1 }, Leaves, at_most(1.0);
    "redis GET, 1 client, one processor": redis_on(One, "get", 1, 1), Leaves, at_least(1.15);
    "redis GET, 1 client, two processors": redis("get", 1, 1), Leaves, at_least(1.15);
    "redis GET, 50 clients, 16 each": redis("get", 50, 16), Leaves, at_least(1.15);
    "nginx by wrk, connections are kept": KEPT, Leaves, at_least(1.10);
    "nginx by wrk, a new connection each": ANEW, Leaves, at_least(0.85);
    "pgbench, select only, one processor": Pgbench { on: One }, Leaves, at_least(1.03);
    "pgbench, select only, two processors": Pgbench { on: Two }, Leaves, at_least(1.03);
    "memcached get, 4 connections": Memcached, Leaves, at_least(1.0);
    "iperf3, 1 stream": Iperf { streams: 1 }, Leaves, at_least(1.2);
    "iperf3, 4 streams": Iperf { streams: 4 }, Leaves, at_least(1.2);
    "64 B ping-pong, blocking, one processor":
        ping(Waiting::Blocking, One), Leaves, at_most(0.85);
    "64 B ping-pong, epoll, one processor": ping(Waiting::Epoll, One), Leaves, at_most(0.85);
    "64 B ping-pong, blocking, two processors":
        ping(Waiting::Blocking, Two), Leaves, at_most(0.85);
    "64 B ping-pong, epoll, two processors": ping(Waiting::Epoll, Two), Leaves, at_most(0.85);
    "first connection of a program": First, Leaves, adds(5.0);
    "connections, one processor": Connect { on: One }, Leaves, at_least(0.85);
    "connections, two processors": Connect { on: Two }, Leaves, at_least(0.85);
    "memory of a connection's end": Memory, Leaves, adds(16.0);
    "descriptors of a connection's end": Descriptors, Leaves, adds(0.0);
    "redis GET, 1 client, two processors, --spin": redis("get", 1, 1), Spins, at_least(2.0);
    "redis GET, 1 client, one processor, --spin": redis_on(One, "get", 1, 1), Spins, at_least(1.15);
    "redis GET, 50 clients, --spin": redis("get", 50, 1), Spins, at_least(1.35);
    "64 B ping-pong, blocking, two processors, --spin":
        ping(Waiting::Blocking, Two), Spins, at_most(0.5);
    "64 B ping-pong, epoll, two processors, --spin":
        ping(Waiting::Epoll, Two), Spins, at_most(0.5);
    "64 KiB writes, SDP": Bulk { kib: 64 }, Sdp, at_least(1.0);
    "256 KiB writes, SDP": Bulk { kib: 256 }, Sdp, at_least(1.0);
    "1 MiB writes, SDP": Bulk { kib: 1024 }, Sdp, at_least(1.1);
    "64 KiB writes, SDP, copied": Bulk { kib: 64 }, SdpCopies, at_least(0.5);
    "256 KiB writes, SDP, copied": Bulk { kib: 256 }, SdpCopies, at_least(0.5);
    "1 MiB writes, SDP, copied": Bulk { kib: 1024 }, SdpCopies, at_least(0.5);
    "processor time of 64 KiB writes, SDP": BulkTime { kib: 64 }, Sdp, at_most(1.2);
    "processor time of 256 KiB writes, SDP": BulkTime { kib: 256 }, Sdp, at_most(1.2);
    "processor time of 1 MiB writes, SDP": BulkTime { kib: 1024 }, Sdp, at_most(1.0);
    "processor time of 64 KiB writes, SDP, copied":
        BulkTime { kib: 64 }, SdpCopies, at_most(2.0);
    "processor time of 1 MiB writes, SDP, copied":
        BulkTime { kib: 1024 }, SdpCopies, at_most(2.0);
    "64 B ping-pong, epoll, one processor, --spin":
        ping(Waiting::Epoll, One), Spins, at_most(0.85);
};
