//! The reasons why a socket stays on TCP, or a protocol is not used.

use std::fmt;
use std::time::Duration;

use rustix::io::Errno;

/// The reason why a socket stays on TCP, or a protocol is not used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// A rule selects TCP.
    Rule {
        /// Line number of the rule.
        line: u32,
    },
    /// The rule file cannot be used, so the wanted stack is unknown.
    NoRules,
    /// The program set a socket option that only TCP supports.
    Option(&'static str),
    /// Another descriptor of the program refers to the socket.
    Duplicated,
    /// Another process may have the socket, and it does not listen yet.
    Shared,
    /// The socket or the calling thread is in another network namespace than the switch.
    Namespace,
    /// No offload protocol is registered.
    NoProtocol,
    /// The rule names another protocol.
    OtherProtocol,
    /// The protocol does not carry this family.
    Family,
    /// The address is not a unicast address.
    NoUnicast,
    /// There is no route; TCP will fail with the same error.
    NoRoute(Errno),
    /// The routing tables cannot be read.
    NoNetlink,
    /// The peer is another host, and the protocol carries local connections only.
    Remote,
    /// The protocol is used only where a rule names it.
    NotNamed,
    /// No program of this host offers the service over the protocol.
    NotOffered,
    /// The listener's queue is full.
    BacklogFull,
    /// The route uses a device without RDMA.
    NoRdma {
        /// Name of the device; `None` for a listener on every device.
        device: Option<String>,
    },
    /// The route uses an RDMA device of the kernel's software, which is slower than TCP, and no
    /// rule names the protocol.
    SoftwareDevice {
        /// Name of the RDMA device.
        device: String,
    },
    /// The protocol's own reason.
    Protocol(String),
    /// The protocol uses the port for another socket.
    PortTaken,
    /// The peer has no port mapper.
    PeerAbsent,
    /// The peer's port mapper did not answer in time.
    PeerSilent,
    /// The peer does not offer this service over an offload protocol.
    PeerRefused,
    /// The peer's answer names an address that is not the service's, or a port that may belong to
    /// another user.
    PeerUntrusted,
    /// The protocol's peer refused the connection.
    Refused,
    /// The peer uses another version of the protocol.
    Version,
    /// No protocol connected in time.
    Late {
        /// The time limit for all protocols together.
        within: Duration,
    },
    /// The protocol failed.
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

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule { line } => write!(f, "line {line} of the rule file says tcp"),
            Self::NoRules => f.write_str("the rule file cannot be used"),
            Self::Option(name) => write!(f, "socket option {name} needs TCP"),
            Self::Duplicated => f.write_str("another descriptor refers to the socket"),
            Self::Shared => f.write_str("the program forked before it listened"),
            Self::Namespace => f.write_str("the socket is in another network namespace"),
            Self::NoProtocol => f.write_str("no offload protocol is registered"),
            Self::OtherProtocol => f.write_str("the rule wants another protocol"),
            Self::Family => f.write_str("does not carry this address family"),
            Self::NoUnicast => f.write_str("the address is not a unicast address"),
            Self::NoRoute(errno) => write!(f, "no route: {errno}"),
            Self::NoNetlink => f.write_str("routes cannot be looked up: netlink is not permitted"),
            Self::Remote => f.write_str("the peer is another host"),
            Self::NotNamed => f.write_str("no rule names the protocol"),
            Self::NotOffered => f.write_str("no program under opsrun listens there on this host"),
            Self::BacklogFull => f.write_str("the listener's queue is full"),
            Self::NoRdma { device: None } => f.write_str("no network device has RDMA"),
            Self::NoRdma {
                device: Some(device),
            } => write!(f, "device {device} has no RDMA"),
            Self::SoftwareDevice { device } => {
                write!(
                    f,
                    "{device} is slower than TCP, and no rule names the protocol"
                )
            }
            Self::Protocol(why) => f.write_str(why),
            Self::PortTaken => f.write_str("uses the port for another socket"),
            Self::PeerAbsent => f.write_str("no program of the peer runs under opsrun"),
            Self::PeerSilent => f.write_str("UDP port 3935 of the peer does not answer"),
            Self::PeerRefused => f.write_str("the peer does not offer this service over RDMA"),
            Self::PeerUntrusted => {
                f.write_str("the peer's mapping of the service cannot be trusted")
            }
            Self::Refused => f.write_str("the peer refused"),
            Self::Version => f.write_str("the peer speaks another version"),
            Self::Late { within } => write!(f, "no connection was made within {within:?}"),
            Self::Failed(errno) => write!(f, "failed: {errno}"),
        }
    }
}
