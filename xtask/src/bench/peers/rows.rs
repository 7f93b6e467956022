//! The rows and the columns of the table with other implementations.

use crate::bench::target::Target;

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
}

impl Peer {
    /// All peers, in the order of the columns.
    pub(super) const ALL: [Self; 5] = [
        Self::UcxCma,
        Self::UcxPosix,
        Self::UcxOwn,
        Self::UcxTcp,
        Self::FabricShm,
    ];

    /// The head of the peer's column.
    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::UcxCma => "UCX cma",
            Self::UcxPosix => "UCX posix",
            Self::UcxOwn => "UCX own",
            Self::UcxTcp => "UCX tcp",
            Self::FabricShm => "fi shm",
        }
    }

    /// The transports that UCX may use; `None` for other peers.
    pub(super) const fn transports(self) -> Option<&'static str> {
        match self {
            Self::UcxCma | Self::UcxOwn => Some("posix,cma,self"),
            Self::UcxPosix => Some("posix,self"),
            Self::UcxTcp => Some("tcp"),
            Self::FabricShm => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Figure {
    /// Half a round trip, in microseconds.
    Latency,
    /// Gigabytes per second.
    Bandwidth,
    /// Million messages per second.
    Rate,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    /// The case, in the form that `dat-bench` parses.
    pub(super) case: &'static str,
    /// The test of `ucx_perftest`.
    pub(super) test: &'static str,
    pub(super) size: usize,
    /// The number of messages in flight; with one, the test is a ping-pong.
    pub(super) depth: usize,
    pub(super) figure: Figure,
    /// The peer with which the ratio is computed.
    pub(super) against: Peer,
    pub(super) target: Option<Target>,
}

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

const LATENCY: Option<Target> = Some(Target::AtMost(3.0));

/// Every row, in the order of the table.
pub(super) const ROWS: &[Row] = &[
    ping("send-ping:64:1", "tag_lat", 64, Peer::UcxPosix, LATENCY),
    // With `posix` alone and memory of the program, UCX implements a put by messages.
    ping("write-ping:64:1", "ucp_put_lat", 64, Peer::UcxOwn, LATENCY),
    ping("send-ping:65536:1", "tag_lat", 64 * KIB, Peer::UcxCma, None),
    ping("send-ping:1048576:1", "tag_lat", MIB, Peer::UcxCma, None),
    bulk("send:65536:16", "tag_bw", 64 * KIB),
    bulk("write:65536:16", "ucp_put_bw", 64 * KIB),
    bulk("read:65536:16", "ucp_get", 64 * KIB),
    bulk("send:1048576:16", "tag_bw", MIB),
    bulk("write:1048576:16", "ucp_put_bw", MIB),
    bulk("read:1048576:16", "ucp_get", MIB),
    Row {
        case: "send:64:64",
        test: "tag_bw",
        size: 64,
        depth: 64,
        figure: Figure::Rate,
        against: Peer::UcxPosix,
        target: None,
    },
];

/// A row with one message in flight.
const fn ping(
    case: &'static str,
    test: &'static str,
    size: usize,
    against: Peer,
    target: Option<Target>,
) -> Row {
    Row {
        case,
        test,
        size,
        depth: 1,
        figure: Figure::Latency,
        against,
        target,
    }
}

/// A row with sixteen messages in flight.
const fn bulk(case: &'static str, test: &'static str, size: usize) -> Row {
    Row {
        case,
        test,
        size,
        depth: 16,
        figure: Figure::Bandwidth,
        against: Peer::UcxCma,
        target: Some(Target::AtLeast(0.95)),
    }
}

impl Row {
    /// True if the peer has a test that can be compared with the row.
    pub(super) fn has(&self, peer: Peer) -> bool {
        match peer {
            // Debian packages none of libfabric's tools but `fi_pingpong`.
            Peer::FabricShm => self.test == "tag_lat",
            // Messages are copied in both cases.
            Peer::UcxOwn => self.is_one_sided(),
            Peer::UcxCma | Peer::UcxPosix | Peer::UcxTcp => true,
        }
    }

    fn is_one_sided(&self) -> bool {
        self.test.starts_with("ucp_")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_names_the_case_that_it_measures() {
        for (index, row) in ROWS.iter().enumerate() {
            let words: Vec<&str> = row.case.split(':').collect();
            let &[work, size, depth] = words.as_slice() else {
                panic!("{}", row.case);
            };
            assert_eq!(size, row.size.to_string());
            assert_eq!(depth, row.depth.to_string());
            assert_eq!(work.ends_with("ping"), row.figure == Figure::Latency);
            assert_eq!(row.figure == Figure::Rate, row.depth > 16);
            assert!(ROWS[..index].iter().all(|other| other.case != row.case));
        }
    }

    #[test]
    fn every_row_is_compared_with_a_peer_that_it_has() {
        for row in ROWS {
            assert!(row.has(row.against), "{}", row.case);
            match (row.figure, row.target) {
                (Figure::Latency, None | Some(Target::AtMost(_)))
                | (Figure::Bandwidth, Some(Target::AtLeast(_)))
                | (Figure::Rate, None) => {}
                (figure, target) => panic!("{}: {target:?} of {figure:?}", row.case),
            }
        }
    }
}
