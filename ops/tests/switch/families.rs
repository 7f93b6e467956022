//! The sockets that the switch handles.

use std::sync::Arc;

use anyhow::{Result, ensure};
use ops::{
    AF_INET_DIRECT, AF_INET_OFFLOAD, AF_INET6_DIRECT, AF_INET6_OFFLOAD, Choice, Registry,
    StackRequest, choose,
};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType};

use crate::unix_protocol::{NUMBER, UnixProtocol};

const AF_UNIX: i32 = 1;
const AF_INET: i32 = 2;
const AF_INET6: i32 = 10;
const STREAM: i32 = 1;
const DGRAM: i32 = 2;
const RAW: i32 = 3;
const SEQPACKET: i32 = 5;
const NONBLOCK_CLOEXEC: i32 = 0o4000 | 0o2_000_000;
const TCP: i32 = 6;
const SCTP: i32 = 132;

fn switched(family: i32, request: StackRequest) -> Result<Choice, Errno> {
    Ok(Choice::Switched { family, request })
}

fn native(family: i32) -> Result<Choice, Errno> {
    Ok(Choice::Native { family })
}

#[test]
fn the_switch_handles_stream_sockets_of_both_families() {
    let registry = Arc::new(Registry::default());
    for family in [AF_INET, AF_INET6] {
        for protocol in [0, TCP] {
            for kind in [STREAM, STREAM | NONBLOCK_CLOEXEC] {
                let choice = choose(family, kind, protocol, &registry);
                assert_eq!(choice, switched(family, StackRequest::ByRule));
            }
        }
    }
}

#[test]
fn the_kernel_handles_all_other_sockets() {
    let registry = Arc::new(Registry::default());
    for kind in [DGRAM, RAW, SEQPACKET, DGRAM | NONBLOCK_CLOEXEC] {
        for (family, plain) in [
            (AF_INET, AF_INET),
            (AF_INET6, AF_INET6),
            (AF_INET_OFFLOAD, AF_INET),
            (AF_INET6_OFFLOAD, AF_INET6),
        ] {
            assert_eq!(choose(family, kind, 0, &registry), native(plain));
        }
    }
    assert_eq!(choose(AF_UNIX, STREAM, 0, &registry), native(AF_UNIX));
    assert_eq!(choose(AF_INET, STREAM, SCTP, &registry), native(AF_INET));
}

#[test]
fn programs_may_name_a_family_for_all_stacks_or_one_for_the_kernel() {
    let registry = Arc::new(Registry::default());
    for (family, plain) in [(AF_INET_OFFLOAD, AF_INET), (AF_INET6_OFFLOAD, AF_INET6)] {
        assert_eq!(
            choose(family, STREAM, 0, &registry),
            switched(plain, StackRequest::Every)
        );
    }
    for (family, plain) in [(AF_INET_DIRECT, AF_INET), (AF_INET6_DIRECT, AF_INET6)] {
        for (kind, protocol) in [(STREAM, 0), (STREAM, TCP), (DGRAM, 0)] {
            assert_eq!(choose(family, kind, protocol, &registry), native(plain));
        }
    }
}

#[test]
fn without_the_switch_the_kernel_refuses_the_families() {
    for family in [
        AF_INET_OFFLOAD,
        AF_INET6_OFFLOAD,
        AF_INET_DIRECT,
        AF_INET6_DIRECT,
    ] {
        let family = AddressFamily::from_raw(u16::try_from(family).unwrap());
        let refused = rustix::net::socket(family, SocketType::STREAM, None);
        assert_eq!(refused.unwrap_err(), Errno::AFNOSUPPORT);
    }
}

#[test]
fn a_protocol_can_be_asked_for_by_its_number() -> Result<()> {
    let registry = Arc::new(Registry::default());
    let unknown = choose(AF_INET_OFFLOAD, STREAM, NUMBER, &registry);
    ensure!(unknown == Err(Errno::PROTONOSUPPORT));
    let protocol = UnixProtocol::default();
    let name = protocol.name;
    let _registration = registry.register(Arc::new(protocol), 0)?;
    let known = choose(AF_INET_OFFLOAD, STREAM, NUMBER, &registry);
    ensure!(known == switched(AF_INET, StackRequest::Only(name.to_owned())));
    Ok(())
}
