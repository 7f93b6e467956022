//! The offload protocol switch: which stack carries this socket?
//!
//! A stream socket spans every stack until `bind`, `listen` or `connect` tells enough to decide.
//! Offload protocols register with what they can do; the switch knows none of them by name.
//!
//! | File | What |
//! |---|---|
//! | `family` | which sockets come here: AF_INET and AF_INET6, and the families of their own |
//! | `protosw` | what an offload protocol is: a handful of traits |
//! | `registry` | those that are registered, by priority |
//! | `decision` | policy, route, device: who may carry a connection, and why nobody else |
//! | `reason` | why a socket stays on TCP, or a protocol is passed over |
//! | `trace`, `explain` | how a decision was made, and how one would be |
//! | `connect` | asks the peer, tries the protocols, falls back before the first byte |
//! | `stage` | how far an attempt to connect is |
//! | `listen` | one port and one accept queue over all stacks |
//! | `local` | where a service listens |
//! | `socket`, `state` | one socket; its states and nothing else |
//! | `switch` | what they share: rules, routes, answers of peers, the port mapper |
//!
//! What the switch gives back for TCP is the program's own kernel socket: nothing of this crate is
//! on its way afterwards. No call here waits longer than the bound of [`Switch`], and every system
//! call is made directly, because the crate lives in a library that replaces those of libc.

#![forbid(unsafe_code)]

mod connect;
mod decision;
mod explain;
mod family;
mod listen;
mod local;
mod protosw;
mod reason;
mod registry;
mod socket;
mod stage;
mod state;
mod switch;
mod trace;

pub use connect::{Connecting, Outcome, Reserve};
pub use decision::{Intent, Offer, Plan};
pub use family::{
    AF_INET_DIRECT, AF_INET_OFFLOAD, AF_INET6_DIRECT, AF_INET6_OFFLOAD, Choice, StackRequest,
    choose,
};
pub use listen::{Accepted, Listening};
pub use local::Local;
pub use ops_netlink::RdmaPort;
pub use ops_rules::{Known, Setting};
pub use protosw::{
    Capabilities, ConnectFailure, Half, KernelConnection, KernelSockets, KernelTarget,
    OffloadBound, OffloadConnecting, OffloadListener, OffloadProtocol, OffloadStream, Readiness,
    Target, Terms, Watch, Way,
};
pub use reason::Reason;
pub use registry::{NameTaken, Registration, Registry};
pub use socket::Socket;
pub use stage::Stage;
pub use state::{Event, SocketState};
pub use switch::{PortMapperLock, PortMapperService, Program, Switch, WITHIN};
pub use trace::{DecisionTrace, Step, Subject};
