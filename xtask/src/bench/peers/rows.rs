//! The rows and the columns of the tables with other implementations.

use tool_args::bench::case::Wire::Local;
use tool_args::bench::case::Work::{SendPing, StreamRead, StreamSend, StreamWrite, WritePing};
use tool_args::bench::case::{Case, Work};

use tool_args::bench::rows::Target::{self, AtLeast, AtMost};

/// Another implementation that moves messages between two processes, and its transports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Peer {
    /// UCX with `posix` and `cma`: a copy by the kernel from one process to the other.
    UcxCma,
    /// UCX with `posix` alone: two copies through shared memory.
    UcxPosix,
    /// UCX with `posix` and `cma` on memory that UCX has allocated: both processes map it, so a put
    /// or a get is a `memcpy` of one process.
    UcxOwn,
    UcxTcp,
    /// libfabric with its provider `shm`.
    FabricShm,
    /// Programs of perftest under `verbsrun`.
    Verbs,
}

impl Peer {
    /// The head of the peer's column.
    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::UcxCma => "UCX cma",
            Self::UcxPosix => "UCX posix",
            Self::UcxOwn => "UCX own",
            Self::UcxTcp => "UCX tcp",
            Self::FabricShm => "fi shm",
            Self::Verbs => "verbs",
        }
    }

    /// The transports that UCX may use.
    pub(super) const fn transports(self) -> &'static str {
        match self {
            Self::UcxPosix => "posix,self",
            Self::UcxTcp => "tcp",
            _ => "posix,cma,self",
        }
    }
}

/// A table of peers.
pub(in crate::bench) struct Group {
    pub(super) peers: &'static [Peer],
    pub(super) rows: &'static [Row],
    pub(super) note: &'static str,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    pub(super) case: Case,
    /// The peer with which DAT is compared.
    pub(super) against: Peer,
    pub(super) target: Option<Target>,
}

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// UCX and libfabric.
pub(in crate::bench) const OTHERS: Group = Group {
    peers: &[
        Peer::UcxCma,
        Peer::UcxPosix,
        Peer::UcxOwn,
        Peer::UcxTcp,
        Peer::FabricShm,
    ],
    rows: &[
        row(SendPing, 64, 1, Peer::UcxPosix, Some(AtMost(3.0))),
        // With `posix` alone and memory of the program, UCX implements a put by messages.
        row(WritePing, 64, 1, Peer::UcxOwn, Some(AtMost(3.0))),
        row(SendPing, 64 * KIB, 1, Peer::UcxCma, None),
        row(SendPing, MIB, 1, Peer::UcxCma, None),
        row(StreamSend, 64 * KIB, 16, Peer::UcxCma, Some(AtLeast(0.95))),
        row(StreamWrite, 64 * KIB, 16, Peer::UcxCma, Some(AtLeast(0.95))),
        row(StreamRead, 64 * KIB, 16, Peer::UcxCma, Some(AtLeast(0.95))),
        row(StreamSend, MIB, 16, Peer::UcxCma, Some(AtLeast(0.95))),
        row(StreamWrite, MIB, 16, Peer::UcxCma, Some(AtLeast(0.95))),
        row(StreamRead, MIB, 16, Peer::UcxCma, Some(AtLeast(0.95))),
        row(StreamSend, 64, 64, Peer::UcxPosix, None),
    ],
    note: "\
us: half a round trip.
UCX cma, UCX posix, UCX tcp: ucx_perftest with UCX_TLS=posix,cma,self, posix,self and tcp, on
memory of the program (UCX_ALLOC_PRIO=heap), as a program registers it with DAT. UCX own:
posix,cma,self on memory that UCX has allocated and both processes map; a put or a get is then a
memcpy of one process.
fi shm: libfabric's provider shm. Of libfabric's tools Debian packages fi_pingpong alone, so it has
figures in the rows of a ping-pong only.",
};

/// Programs for verbs.
pub(in crate::bench) const VERBS: Group = Group {
    peers: &[Peer::Verbs],
    rows: &[
        row(WritePing, 64, 1, Peer::Verbs, Some(AtMost(1.1))),
        row(SendPing, 64, 1, Peer::Verbs, Some(AtMost(1.1))),
        row(StreamWrite, 64 * KIB, 16, Peer::Verbs, Some(AtLeast(0.95))),
        row(StreamWrite, MIB, 16, Peer::Verbs, Some(AtLeast(0.95))),
        row(StreamSend, 64 * KIB, 16, Peer::Verbs, Some(AtLeast(0.95))),
        row(StreamSend, MIB, 16, Peer::Verbs, Some(AtLeast(0.95))),
    ],
    note: "\
us: half a round trip.
verbs: programs of perftest under verbsrun, with as many messages in flight as DAT.",
};

const fn row(work: Work, size: usize, depth: usize, against: Peer, target: Option<Target>) -> Row {
    Row {
        case: Case::new(work, size, depth, Local),
        against,
        target,
    }
}

impl Row {
    /// The test of `ucx_perftest`.
    pub(super) fn ucx_test(&self) -> &'static str {
        match self.case.work {
            SendPing => "tag_lat",
            WritePing => "ucp_put_lat",
            StreamWrite => "ucp_put_bw",
            StreamRead => "ucp_get",
            _ => "tag_bw",
        }
    }

    /// The program of perftest.
    pub(super) fn verbs_program(&self) -> &'static str {
        match self.case.work {
            SendPing => "ib_send_lat",
            WritePing => "ib_write_lat",
            StreamWrite => "ib_write_bw",
            StreamRead => "ib_read_bw",
            _ => "ib_send_bw",
        }
    }

    /// True if the peer has a test that can be compared with the row.
    pub(super) fn has(&self, peer: Peer) -> bool {
        match peer {
            // Debian packages none of libfabric's tools but `fi_pingpong`.
            Peer::FabricShm => self.case.work == SendPing,
            // Messages are copied in both cases.
            Peer::UcxOwn => !matches!(self.case.work, SendPing | StreamSend),
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_compared_with_a_peer_of_its_group_that_has_it() {
        for group in [OTHERS, VERBS] {
            for row in group.rows {
                assert!(row.has(row.against), "{}", row.case);
                assert!(group.peers.contains(&row.against), "{}", row.case);
                let is_bound_above = match row.target {
                    None => continue,
                    Some(target) => matches!(target, AtMost(_)),
                };
                assert_eq!(
                    row.case.unit().is_less_better(),
                    is_bound_above,
                    "{}",
                    row.case
                );
            }
        }
    }
}
