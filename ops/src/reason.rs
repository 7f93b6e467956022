//! The reasons why a socket stays on TCP, or a protocol is not used.

use std::time::Duration;

use rustix::io::Errno;

/// The reason why a socket stays on TCP, or a protocol is not used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// A rule selects TCP.
    #[error("line {line} of the rule file says tcp")]
    Rule {
        /// Line number of the rule.
        line: u32,
    },
    /// The program has named the kernel's stack.
    #[error("the program wants the kernel's stack")]
    KernelWanted,
    /// The rule file cannot be used, so the wanted stack is unknown.
    #[error("the rule file cannot be used")]
    NoRules,
    /// The program set a socket option that only TCP supports.
    #[error("socket option {0} needs TCP")]
    Option(&'static str),
    /// Another descriptor of the program refers to the socket.
    #[error("another descriptor refers to the socket")]
    Duplicated,
    /// Another process may have the socket, and it does not listen yet.
    #[error("the program forked before it listened")]
    Shared,
    /// The socket or the calling thread is in another network namespace than the switch.
    #[error("the socket is in another network namespace")]
    Namespace,
    /// No offload protocol is registered.
    #[error("no offload protocol is registered")]
    NoProtocol,
    /// The rule names another protocol.
    #[error("the rule wants another protocol")]
    OtherProtocol,
    /// The protocol does not carry this family.
    #[error("does not carry this address family")]
    Family,
    /// The address is not a unicast address.
    #[error("the address is not a unicast address")]
    NoUnicast,
    /// There is no route; TCP will fail with the same error.
    #[error("no route: {0}")]
    NoRoute(Errno),
    /// The routing tables cannot be read.
    #[error("routes cannot be looked up: netlink is not permitted")]
    NoNetlink,
    /// The peer is another host, and the protocol carries local connections only.
    #[error("the peer is another host")]
    Remote,
    /// The protocol is used only where a rule names it.
    #[error("no rule names the protocol")]
    NotNamed,
    /// No program of this host offers the service over the protocol.
    #[error("no program under opsrun listens there on this host")]
    NotOffered,
    /// The listener's queue is full.
    #[error("the listener's queue is full")]
    BacklogFull,
    /// The route uses a device without RDMA.
    #[error("{}", no_rdma(device.as_deref()))]
    NoRdma {
        /// Name of the device; `None` for a listener on every device.
        device: Option<String>,
    },
    /// The route uses an RDMA device of the kernel's software, which is slower than TCP, and no
    /// rule names the protocol.
    #[error("{device} is slower than TCP, and no rule names the protocol")]
    SoftwareDevice {
        /// Name of the RDMA device.
        device: String,
    },
    /// The protocol's own reason.
    #[error("{0}")]
    Protocol(String),
    /// The protocol uses the port for another socket.
    #[error("uses the port for another socket")]
    PortTaken,
    /// The peer has no port mapper.
    #[error("no program of the peer runs under opsrun")]
    PeerAbsent,
    /// The peer's port mapper did not answer in time.
    #[error("UDP port 3935 of the peer does not answer")]
    PeerSilent,
    /// The peer does not offer this service over an offload protocol.
    #[error("the peer does not offer this service over RDMA")]
    PeerRefused,
    /// The peer's answer names an address that is not the service's, or a port that may belong to
    /// another user.
    #[error("the peer's mapping of the service cannot be trusted")]
    PeerUntrusted,
    /// The protocol's peer refused the connection.
    #[error("the peer refused")]
    Refused,
    /// The peer uses another version of the protocol.
    #[error("the peer speaks another version")]
    Version,
    /// No protocol connected in time.
    #[error("no connection was made within {within:?}")]
    Late {
        /// The time limit for all protocols together.
        within: Duration,
    },
    /// The protocol failed.
    #[error("failed: {0}")]
    Failed(Errno),
}

impl Reason {
    /// Returns the reason in full, for an explanation. The `Display` text is short, because
    /// listings print it in a column.
    pub(crate) fn at_length(&self) -> String {
        match self {
            Self::PeerAbsent => "nothing answers at its UDP port 3935".to_owned(),
            Self::PeerSilent => "its UDP port 3935 is silent; perhaps a firewall is in between, \
                                 or the host is down"
                .to_owned(),
            Self::NotOffered => format!("{self}, or the listener has SO_REUSEPORT"),
            reason => reason.to_string(),
        }
    }
}

fn no_rdma(device: Option<&str>) -> String {
    match device {
        None => "no network device has RDMA".to_owned(),
        Some(device) => format!("device {device} has no RDMA"),
    }
}
