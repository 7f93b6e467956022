//! The patterns that are measured, and the names of cases that the two processes exchange.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Error, bail};

/// The pattern of one case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Sends in both directions, with busy polling. Raw: send and recv, spinning.
    SendPing,
    /// RDMA Writes in both directions; each side watches the last byte. Raw: as for `SendPing`.
    WritePing,
    /// RDMA Reads, one at a time. Raw: as for `SendPing`.
    ReadPing,
    /// Sends in both directions, sleeping in `dat_evd_wait`. Raw: blocking recv.
    BlockedPing,
    /// Sends in one direction. Raw: one write per message.
    StreamSend,
    /// RDMA Writes in one direction. Raw: one write per message.
    StreamWrite,
    /// RDMA Reads: the data is transmitted by the peer. Raw: the peer writes, one write per
    /// message.
    StreamRead,
    /// RDMA Writes to a program that does not call DAT meanwhile. Raw: one write per message.
    UnattendedWrite,
    /// RDMA Reads from a program that does not call DAT meanwhile. Raw: as for reads.
    UnattendedRead,
    /// RDMA Writes, one at a time, to a program that polls its memory and does not call DAT. The
    /// figure is the time from the post until that program sees the last byte. Raw: send and a
    /// spinning recv, by the same two clocks.
    UnattendedPing,
    /// RDMA Reads, one at a time, from a program that polls an empty EVD of the same adapter, which
    /// has nothing to do with the connection. Raw: as for Sends.
    ReadOtherEvd,
    /// An operation that the target's provider serves, on a connection that both sides have polled
    /// for milliseconds. The target's program has stopped polling and makes no call. The figure is
    /// the time from the post to the completion of a Send that the target reads by reference in
    /// shared memory, or of an RDMA Read over TCP. Raw: nothing.
    AfterPolls(Program),
    /// Processor time of both processes for Sends in one direction. Raw: one write per message.
    SendCost,
    /// Connections that are established and closed. Raw: connect, a byte in each direction, close.
    Connect,
    /// The resident memory of an idle connected endpoint. Raw: nothing.
    IdleEndpoints,
    /// An SDP stream: one message in each direction, both sides polling. Raw: as for Sends.
    SdpPing,
    /// An SDP stream: one message in each direction, both sides blocked in a read. Raw: blocking
    /// recv.
    SdpBlockedPing,
    /// Writes to an SDP stream, in one direction. Raw: one write per message.
    SdpWrite(Mechanism),
    /// Operations in both directions at once. Raw: one write per message, in both directions.
    Bidirectional(Operation),
}

/// The behaviour of a program that makes no call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// It sleeps.
    Sleeps,
    /// It uses its processor.
    Computes,
}

/// An operation that both sides of a bidirectional case post.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Messages.
    Send,
    /// RDMA Writes.
    Write,
    /// RDMA Reads.
    Read,
}

/// The mechanism by which an SDP stream transfers the bytes of writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mechanism {
    /// The stream chooses by the length of a write.
    Chosen,
    /// Each byte is copied into and out of the stream's buffers.
    Copied,
    /// Sends carry the bytes from the writer's memory.
    Registered,
    /// All writes are advertised, and the peer transfers them by RDMA Read.
    Read,
    /// The writer transfers the bytes by RDMA Write where the reader waits, otherwise in Sends.
    Written,
}

impl Mechanism {
    /// All mechanisms.
    pub const ALL: [Self; 5] = [
        Self::Chosen,
        Self::Copied,
        Self::Registered,
        Self::Read,
        Self::Written,
    ];
}

/// The network between the two processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    /// The loopback device, with the provider's defaults: traffic moves to shared memory.
    Local,
    /// The loopback device, where connections stay on TCP (`local=off`).
    Tcp,
    /// TCP over the loopback device without CRC at both ends.
    TcpNoCrc,
    /// A pair of virtual Ethernet devices of MTU 1500 between two network namespaces.
    Veth,
    /// [`Wire::Veth`], where each FPDU fits into one TCP segment, as with a peer of another
    /// implementation.
    VethSegments,
    /// [`Wire::Veth`] behind a token bucket filter of 10 Gbit/s in each direction.
    Shaped,
    /// The network between this host and another one that runs `dat-bench --server`.
    Network,
}

/// A case that can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// The pattern.
    pub work: Work,
    /// Bytes per message.
    pub size: usize,
    /// Messages in flight.
    pub depth: usize,
    /// The network.
    pub wire: Wire,
}

/// The unit of a case's figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Half a round trip, or one direction, in microseconds; less is better.
    Microseconds,
    /// Gigabytes per second; more is better.
    Gigabytes,
    /// Million messages per second; more is better.
    MegaMessages,
    /// Thousand connections per second; more is better.
    KiloConnections,
    /// KiB per endpoint; less is better.
    Kibibytes,
    /// Seconds of processor time per GiB; less is better.
    SecondsPerGib,
}

/// The stack that carries the bytes of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stack {
    /// A TCP socket, one system call per message.
    Raw,
    /// A TCP socket, sixteen messages per `writev`.
    RawBatch,
    /// A TCP socket that carries FPDUs with CRC, and nothing else of DAT.
    Framed,
    /// A DAT endpoint.
    Dat,
    /// An SDP stream over DAT.
    Sdp,
}

/// Largest message, in bytes.
pub const SIZE_MAX: usize = 1 << 20;

/// Messages in one `writev` of [`Stack::RawBatch`].
pub const BATCH: usize = 16;

impl Case {
    /// Creates a case from its four parts.
    pub const fn new(work: Work, size: usize, depth: usize, wire: Wire) -> Self {
        Self {
            work,
            size,
            depth,
            wire,
        }
    }

    /// True if each message is answered before the next one is sent.
    pub fn is_ping(self) -> bool {
        matches!(
            self.work,
            Work::SendPing
                | Work::WritePing
                | Work::ReadPing
                | Work::ReadOtherEvd
                | Work::UnattendedPing
                | Work::AfterPolls(_)
                | Work::BlockedPing
                | Work::SdpPing
                | Work::SdpBlockedPing
        )
    }

    /// The number by which the time of a ping-pong is divided. The figure is half of a round trip,
    /// except where the case measures one direction itself. A read from another host counts whole,
    /// as perftest counts it.
    pub fn parts(self) -> f64 {
        match self.work {
            Work::UnattendedPing | Work::AfterPolls(_) => 1.0,
            Work::ReadPing if self.wire == Wire::Network => 1.0,
            _ => 2.0,
        }
    }

    /// The bytes of all messages of `count` operations of each side that posts some.
    fn bytes(self, count: f64) -> f64 {
        let directions = match self.work {
            Work::Bidirectional(_) => 2.0,
            _ => 1.0,
        };
        count * self.size as f64 * directions
    }

    /// True if the figure is the processor time of both processes.
    pub fn is_cost(self) -> bool {
        self.work == Work::SendCost
    }

    /// True if the endpoints sleep in `dat_evd_wait` between completions of bulk work: a link that
    /// is slower than the processors leaves time to sleep, and raw TCP sleeps there too.
    pub fn sleeps_on_bulk(self) -> bool {
        self.wire == Wire::Shaped
    }

    /// The contender that is measured against raw TCP.
    pub const fn contender(self) -> Stack {
        match self.work {
            Work::SdpPing | Work::SdpBlockedPing | Work::SdpWrite(_) => Stack::Sdp,
            _ => Stack::Dat,
        }
    }

    /// True if both sides of a ping-pong sleep until an event is received.
    pub const fn is_blocking(self) -> bool {
        matches!(self.work, Work::BlockedPing | Work::SdpBlockedPing)
    }

    /// True if the program at the other end does not call DAT during a sample.
    pub fn is_unattended(self) -> bool {
        matches!(
            self.work,
            Work::UnattendedWrite | Work::UnattendedRead | Work::UnattendedPing
        )
    }

    /// True if the case measures the connections and not the traffic on them.
    pub fn is_scale(self) -> bool {
        matches!(self.work, Work::Connect | Work::IdleEndpoints)
    }

    /// True if raw TCP does the same work.
    pub fn is_compared(self) -> bool {
        !matches!(self.work, Work::IdleEndpoints | Work::AfterPolls(_))
    }

    /// True for small messages in one direction, where the figure is the number of messages.
    pub fn is_message_rate(self) -> bool {
        !self.is_ping() && !self.is_scale() && self.size < 1024
    }

    /// The unit of the figure.
    pub fn unit(self) -> Unit {
        match self {
            _ if self.work == Work::Connect => Unit::KiloConnections,
            _ if self.work == Work::IdleEndpoints => Unit::Kibibytes,
            _ if self.is_cost() => Unit::SecondsPerGib,
            _ if self.is_ping() => Unit::Microseconds,
            _ if self.is_message_rate() => Unit::MegaMessages,
            _ => Unit::Gigabytes,
        }
    }

    /// The figure of `count` operations in `seconds`.
    pub fn figure(self, count: u64, seconds: f64) -> f64 {
        let count = count as f64;
        match self.unit() {
            Unit::KiloConnections => count / seconds / 1e3,
            // The figure is not a time; see `Bench::idle_endpoints`.
            Unit::Kibibytes => f64::NAN,
            Unit::Microseconds => seconds / count / self.parts() * 1e6,
            Unit::Gigabytes => self.bytes(count) / seconds / 1e9,
            Unit::MegaMessages => self.bytes(count) / self.size as f64 / seconds / 1e6,
            Unit::SecondsPerGib => seconds / self.bytes(count) * f64::from(1u32 << 30),
        }
    }

    /// The text that names this pattern in the table.
    pub fn title(self) -> String {
        let size = match self.size {
            size if size >= 1 << 20 => format!("{} MiB", size >> 20),
            size if size >= 1 << 10 => format!("{} KiB", size >> 10),
            size => format!("{size} B"),
        };
        let title = self.work.row().2.replace("{size}", &size);
        title.replace("{depth}", &self.depth.to_string())
    }
}

impl Stack {
    /// The text that names this stack in the table.
    pub fn title(self) -> &'static str {
        let found = STACKS.iter().find(|(stack, ..)| *stack == self);
        found.map_or("", |(_, _, title)| title)
    }
}

impl Unit {
    /// True if a smaller figure is better.
    pub fn is_less_better(self) -> bool {
        matches!(
            self,
            Self::Microseconds | Self::Kibibytes | Self::SecondsPerGib
        )
    }

    /// The abbreviation in the table.
    pub fn label(self) -> &'static str {
        match self {
            Self::Microseconds => "us",
            Self::Gigabytes => "GB/s",
            Self::MegaMessages => "M/s",
            Self::KiloConnections => "k/s",
            Self::Kibibytes => "KiB",
            Self::SecondsPerGib => "s/GiB",
        }
    }
}

/// Declares a table of values with their names and titles.
macro_rules! table {
    ($($value:expr, $name:literal, $title:literal;)+) => { [$(($value, $name, $title)),+] };
}

/// Works with their names, the first words of cases, and their titles in the table.
pub(super) const WORKS: [(Work, &str, &str); 26] = table! {
    Work::SendPing, "send-ping", "{size} send ping-pong";
    Work::WritePing, "write-ping", "{size} RDMA write ping-pong";
    Work::ReadPing, "read-ping", "{size} RDMA read, one at a time";
    Work::BlockedPing, "blocked-ping", "{size} send ping-pong, blocking";
    Work::StreamSend, "send", "{size} send, {depth} queued";
    Work::StreamWrite, "write", "{size} RDMA write, {depth} queued";
    Work::StreamRead, "read", "{size} RDMA read, {depth} queued";
    Work::UnattendedWrite, "write-unattended", "{size} RDMA write, target idle, {depth}";
    Work::UnattendedRead, "read-unattended", "{size} RDMA read, target idle, {depth}";
    Work::UnattendedPing, "write-unattended-ping", "{size} write, target polls memory";
    Work::ReadOtherEvd, "read-other-evd", "{size} read, target polls other EVD";
    Work::AfterPolls(Program::Sleeps), "after-polls", "{size} after polls, target sleeps";
    Work::AfterPolls(Program::Computes), "after-polls-computing",
        "{size} after polls, target computes";
    Work::SendCost, "send-cost", "{size} send, {depth} queued, CPU time";
    Work::Connect, "connect", "connections, {depth} under way";
    Work::IdleEndpoints, "idle-ep", "memory of an idle connected EP";
    Work::SdpPing, "sdp-ping", "{size} SDP ping-pong";
    Work::SdpBlockedPing, "sdp-blocked-ping", "{size} SDP ping-pong, blocking";
    Work::SdpWrite(Mechanism::Chosen), "sdp-write", "{size} SDP writes";
    Work::SdpWrite(Mechanism::Copied), "sdp-copy", "{size} SDP writes, copied";
    Work::SdpWrite(Mechanism::Registered), "sdp-registered", "{size} SDP writes, registered";
    Work::SdpWrite(Mechanism::Read), "sdp-rdma-read", "{size} SDP writes, by RDMA Read";
    Work::SdpWrite(Mechanism::Written), "sdp-rdma-write", "{size} SDP writes, by RDMA Write";
    Work::Bidirectional(Operation::Send), "send-bidirectional", "{size} send, both ways, {depth}";
    Work::Bidirectional(Operation::Write), "write-bidirectional",
        "{size} RDMA write, both ways, {depth}";
    Work::Bidirectional(Operation::Read), "read-bidirectional",
        "{size} RDMA read, both ways, {depth}";
};

impl Work {
    /// The first word of a case.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    fn row(self) -> (Self, &'static str, &'static str) {
        let found = WORKS.into_iter().find(|(work, ..)| *work == self);
        found.unwrap_or((self, "", ""))
    }
}

/// Places with their names, the words after the `@` of cases, and the lines above their rows.
const WIRES: [(Wire, &str, &str); 7] = table! {
    Wire::Local, "local", "loopback, shared memory (local=on)";
    Wire::Tcp, "tcp", "loopback, TCP (local=off)";
    Wire::TcpNoCrc, "no-crc", "loopback, TCP, no CRC (local=off crc=off)";
    Wire::Veth, "veth", "veth pair, MTU 1500";
    Wire::VethSegments, "veth-segments",
        "veth pair, MTU 1500, one FPDU a segment (as to other implementations)";
    Wire::Shaped, "10g", "veth pair, MTU 1500, behind 10 Gbit/s (tbf); both ends sleep";
    Wire::Network, "network", "network between two hosts";
};

impl Wire {
    /// All wires, in the order of the table.
    pub fn all() -> [Self; WIRES.len()] {
        WIRES.map(|(wire, ..)| wire)
    }

    /// The word after the `@` of a case.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// The line above the rows of a place.
    pub fn title(self) -> &'static str {
        self.row().2
    }

    fn row(self) -> (Self, &'static str, &'static str) {
        let found = WIRES.into_iter().find(|(wire, ..)| *wire == self);
        found.unwrap_or((self, "", ""))
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.work.name(), self.size, self.depth)?;
        match self.wire {
            Wire::Local => Ok(()),
            wire => write!(f, "@{}", wire.name()),
        }
    }
}

impl FromStr for Wire {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let found = WIRES.iter().find(|(_, known, _)| *known == name);
        let (wire, ..) = found.with_context(|| format!("unknown place {name:?}"))?;
        Ok(*wire)
    }
}

impl FromStr for Case {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (plain, wire) = match text.split_once('@') {
            Some((plain, place)) => (plain, place.parse()?),
            None => (text, Wire::Local),
        };
        let mut parts = plain.split(':');
        let (Some(name), Some(size), Some(depth), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            bail!("a case is work:bytes:depth or work:bytes:depth@place, not {text:?}");
        };
        let (work, ..) = WORKS
            .into_iter()
            .find(|(_, known, _)| *known == name)
            .with_context(|| format!("unknown work {name:?}"))?;
        let case = Self::new(work, size.parse()?, depth.parse()?, wire);
        if case.size == 0 || case.size > SIZE_MAX || !(1..=256).contains(&case.depth) {
            bail!("{text:?}: 1 to {} bytes and 1 to 256 queued", SIZE_MAX);
        }
        Ok(case)
    }
}

/// Stacks with their names, and their titles in the table.
const STACKS: [(Stack, &str, &str); 5] = table! {
    Stack::Raw, "raw", "raw TCP";
    Stack::RawBatch, "raw-batch", "writev";
    Stack::Framed, "framed", "framed";
    Stack::Dat, "dat", "DAT";
    Stack::Sdp, "sdp", "SDP";
};

impl fmt::Display for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = STACKS.iter().find(|(stack, ..)| stack == self);
        f.write_str(found.map_or("", |(_, name, _)| name))
    }
}

impl FromStr for Stack {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let found = STACKS.iter().find(|(_, name, _)| *name == text);
        let (stack, ..) = found.with_context(|| format!("unknown stack {text:?}"))?;
        Ok(*stack)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_keeps_its_name_across_the_processes() {
        for (work, ..) in WORKS {
            for wire in Wire::all() {
                let case = Case::new(work, 4096, 16, wire);
                assert_eq!(case.to_string().parse::<Case>().unwrap(), case);
            }
        }
        let local: Case = "send:64:1@local".parse().unwrap();
        assert_eq!(local.to_string(), "send:64:1");
        assert!("send:64:1@moon".parse::<Case>().is_err());
        assert!("send:64:1@".parse::<Case>().is_err());
        assert!("send:0:1".parse::<Case>().is_err());
        assert!("send:64:0".parse::<Case>().is_err());
        assert!("teleport:64:1".parse::<Case>().is_err());
    }

    #[test]
    fn titles_fit_into_their_column() {
        for (work, ..) in WORKS {
            let title = Case::new(work, 64 << 10, 16, Wire::Local).title();
            assert!(title.len() <= 35, "{title}");
        }
    }

    #[test]
    fn figures_have_the_units_they_claim() {
        let ping = Case::new(Work::SendPing, 64, 1, Wire::Local);
        assert!((ping.figure(1000, 0.006) - 3.0).abs() < 1e-9);
        let stream = Case::new(Work::StreamSend, 1 << 20, 16, Wire::Local);
        assert!((stream.figure(1000, 1.0) - 1.048_576).abs() < 1e-9);
        let rate = Case::new(Work::StreamSend, 64, 16, Wire::Local);
        assert!((rate.figure(5_000_000, 1.0) - 5.0).abs() < 1e-9);
        let one_way = Case::new(Work::UnattendedPing, 64, 1, Wire::Local);
        assert!((one_way.figure(1000, 0.006) - 6.0).abs() < 1e-9);
        let both = Work::Bidirectional(Operation::Write);
        let both = Case::new(both, 1 << 20, 16, Wire::Network);
        assert!((both.figure(1000, 1.0) - 2.097_152).abs() < 1e-9);
        let read = Case::new(Work::ReadPing, 64, 1, Wire::Network);
        assert!((read.figure(1000, 0.006) - 6.0).abs() < 1e-9);
        let cost = Case::new(Work::SendCost, 1 << 20, 16, Wire::Shaped);
        assert!((cost.figure(2048, 0.5) - 0.25).abs() < 1e-9);
    }
}
