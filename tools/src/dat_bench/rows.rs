//! The cases of the table.

use tool_args::bench::case::Case;
use tool_args::bench::case::Mechanism::{Chosen, Copied, Read, Registered, Written};
use tool_args::bench::case::Wire::{self, Local, Shaped, Tcp, TcpNoCrc, Veth, VethSegments};
use tool_args::bench::case::Work::{
    self, BlockedPing, Connect, IdleEndpoints, ReadOtherEvd, ReadPing, SdpBlockedPing, SdpPing,
    SdpWrite, SendCost, SendPing, StreamRead, StreamSend, StreamWrite, UnattendedPing,
    UnattendedRead, UnattendedWrite, WritePing,
};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Every case, in the order of the table.
pub(crate) const ALL: &[Case] = &[
    case(SendPing, 64, 1, Local),
    case(WritePing, 64, 1, Local),
    case(BlockedPing, 64, 1, Local),
    case(StreamSend, 64 * KIB, 16, Local),
    case(StreamWrite, 64 * KIB, 16, Local),
    case(StreamRead, 64 * KIB, 16, Local),
    case(StreamSend, MIB, 16, Local),
    case(StreamWrite, MIB, 16, Local),
    case(StreamRead, MIB, 16, Local),
    case(UnattendedWrite, 64 * KIB, 16, Local),
    case(UnattendedRead, 64 * KIB, 16, Local),
    case(StreamSend, 64, 64, Local),
    case(UnattendedPing, 64, 1, Local),
    case(ReadPing, 8, 1, Local),
    case(ReadOtherEvd, 8, 1, Local),
    case(SendPing, 64, 1, Tcp),
    case(SendPing, 4 * KIB, 1, Tcp),
    case(SendPing, 64 * KIB, 1, Tcp),
    case(WritePing, 64, 1, Tcp),
    case(BlockedPing, 64, 1, Tcp),
    case(StreamSend, 4 * KIB, 16, Tcp),
    case(StreamSend, 64 * KIB, 16, Tcp),
    case(StreamWrite, 64 * KIB, 16, Tcp),
    case(StreamRead, 64 * KIB, 16, Tcp),
    case(StreamSend, MIB, 16, Tcp),
    case(StreamWrite, MIB, 16, Tcp),
    case(StreamRead, MIB, 16, Tcp),
    case(UnattendedWrite, 64 * KIB, 16, Tcp),
    case(UnattendedRead, 64 * KIB, 16, Tcp),
    case(StreamSend, 64, 16, Tcp),
    case(StreamSend, 64, 64, Tcp),
    case(UnattendedPing, 64, 1, Tcp),
    case(ReadPing, 8, 1, Tcp),
    case(ReadOtherEvd, 8, 1, Tcp),
    case(SendPing, 64 * KIB, 1, TcpNoCrc),
    case(StreamSend, 64 * KIB, 16, TcpNoCrc),
    case(StreamWrite, 64 * KIB, 16, TcpNoCrc),
    case(StreamRead, 64 * KIB, 16, TcpNoCrc),
    case(StreamSend, MIB, 16, TcpNoCrc),
    case(StreamWrite, MIB, 16, TcpNoCrc),
    case(StreamRead, MIB, 16, TcpNoCrc),
    case(SendPing, 64, 1, Veth),
    case(SendPing, 4 * KIB, 1, Veth),
    case(StreamSend, 64 * KIB, 16, Veth),
    case(StreamWrite, 64 * KIB, 16, Veth),
    case(StreamRead, 64 * KIB, 16, Veth),
    case(StreamSend, MIB, 16, Veth),
    case(StreamWrite, MIB, 16, Veth),
    case(StreamRead, MIB, 16, Veth),
    case(StreamSend, 64 * KIB, 16, VethSegments),
    case(StreamSend, MIB, 16, VethSegments),
    case(StreamSend, MIB, 16, Shaped),
    case(SendCost, MIB, 16, Shaped),
    case(Connect, 1, 16, Tcp),
    case(Connect, 1, 16, Local),
    case(IdleEndpoints, 1, 16, Tcp),
    case(IdleEndpoints, 1, 16, Local),
    case(SdpPing, 64, 1, Local),
    case(SdpBlockedPing, 64, 1, Local),
    case(SdpWrite(Chosen), 64 * KIB, 1, Local),
    case(SdpWrite(Chosen), MIB, 1, Local),
    case(SdpWrite(Copied), 64 * KIB, 1, Local),
    case(SdpWrite(Copied), MIB, 1, Local),
    case(SdpWrite(Registered), 64 * KIB, 1, Local),
    case(SdpWrite(Registered), MIB, 1, Local),
    case(SdpWrite(Read), 64 * KIB, 1, Local),
    case(SdpWrite(Read), MIB, 1, Local),
    case(SdpWrite(Written), 64 * KIB, 1, Local),
    case(SdpWrite(Written), MIB, 1, Local),
    case(SdpPing, 64, 1, Tcp),
    case(SdpBlockedPing, 64, 1, Tcp),
    case(SdpWrite(Chosen), 64 * KIB, 1, Tcp),
    case(SdpWrite(Chosen), MIB, 1, Tcp),
    case(SdpWrite(Copied), 64 * KIB, 1, Tcp),
    case(SdpWrite(Copied), MIB, 1, Tcp),
    case(SdpWrite(Registered), 64 * KIB, 1, Tcp),
    case(SdpWrite(Registered), MIB, 1, Tcp),
    case(SdpWrite(Read), 64 * KIB, 1, Tcp),
    case(SdpWrite(Read), MIB, 1, Tcp),
    case(SdpWrite(Written), 64 * KIB, 1, Tcp),
    case(SdpWrite(Written), MIB, 1, Tcp),
    case(SdpWrite(Chosen), 64 * KIB, 1, TcpNoCrc),
    case(SdpWrite(Chosen), MIB, 1, TcpNoCrc),
    case(SdpWrite(Chosen), 64 * KIB, 1, Shaped),
    case(SdpWrite(Chosen), MIB, 1, Shaped),
];

/// The cases of a run of a few seconds.
pub(crate) const QUICK: [Case; 7] = [
    case(SendPing, 64, 1, Local),
    case(StreamSend, 64 * KIB, 16, Local),
    case(StreamWrite, 64 * KIB, 16, Local),
    case(StreamSend, 64 * KIB, 16, Tcp),
    case(SdpWrite(Chosen), 64 * KIB, 1, Local),
    case(SdpBlockedPing, 64, 1, Tcp),
    case(SdpWrite(Chosen), 64 * KIB, 1, Tcp),
];

const fn case(work: Work, size: usize, depth: usize, wire: Wire) -> Case {
    Case::new(work, size, depth, wire)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_case_occurs_twice_and_the_quick_ones_are_among_all() {
        for (index, case) in ALL.iter().enumerate() {
            assert!(!ALL[..index].contains(case), "{case}");
        }
        assert!(QUICK.iter().all(|case| ALL.contains(case)));
    }

    #[test]
    fn every_case_within_the_host_is_measured_over_tcp_too() {
        for local in ALL.iter().filter(|case| case.wire == Local) {
            let over_tcp = Case {
                wire: Tcp,
                ..*local
            };
            assert!(ALL.contains(&over_tcp), "{local}");
        }
    }
}
