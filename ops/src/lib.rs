//! The offload protocol switch, which decides for each stream socket which stack carries it.
//!
//! `listen` or `connect` gives the switch enough facts to decide. Offload protocols register with a
//! description of their capabilities; no protocol is named in the switch.
//!
//! | File | Contents |
//! |---|---|
//! | [`rules`] | the rule file, which selects the sockets that may leave TCP |
//! | [`netlink`] | the queries to the network stack: routes, next hops, MTUs, RDMA devices |
//! | [`portmap`] | the port mapper: does a peer offer a service over RDMA? |
//! | [`log`] | the log, by the rule file's `log` lines |
//! | [`observe`] | the sockets of all processes, in shared pages that a tool reads |
//! | `protosw` | the traits that an offload protocol implements |
//! | `registry` | the registered protocols, by priority |
//! | `decision` | policy, route, device: the protocols that may carry a connection, and the reasons against all other protocols |
//! | `reason` | the reasons why a socket stays on TCP, or a protocol is not used |
//! | `trace`, `explain` | the steps of a decision, and a decision without a connection |
//! | `connect` | asks the peer, tries the protocols, falls back before the first byte |
//! | `destination` | the forms of addresses to which a socket can connect |
//! | `local` | the address at which a service listens |
//! | `user` | user ids that the kernel reports |
//! | `switch` | the state that all sockets share: rules, routes, answers of peers, the port mapper |
//!
//! A socket that stays on TCP is the program's own kernel socket: no code of this crate runs on its
//! data path. No call here waits longer than the bound of [`Switch`]. Every system call is made
//! directly, because the crate is part of a library that replaces the functions of libc.

#![deny(unsafe_code)]

mod connect;
mod decision;
mod destination;
mod explain;
mod local;
pub mod log;
pub mod netlink;
#[allow(unsafe_code, reason = "a page is memory that processes share")]
pub mod observe;
pub mod portmap;
mod protosw;
mod reason;
mod registry;
pub mod rules;
mod switch;
mod trace;
mod user;

host::hold_during_forks! {
    observe::writer::BEGINNING,
}

pub use connect::{Connecting, Outcome, Reserve};
pub use decision::{Intent, Offer, Plan, Wish};
pub use destination::is_destination;
pub use host::readiness::Readiness;
pub use local::Local;
pub use netlink::RdmaPort;
pub use protosw::{
    Capabilities, ConnectFailure, Half, KernelConnection, KernelService, KernelSockets,
    KernelTarget, MemoryDecision, OffloadBound, OffloadConnecting, OffloadListener,
    OffloadProtocol, OffloadStream, Sockets, StreamSockets, Target, Terms, Watch, Way,
};
pub use reason::Reason;
pub use registry::{NameTaken, Registration, Registry};
pub use rules::{Known, Setting};
pub use switch::{PortMapperLock, PortMapperService, Program, Switch, WITHIN};
pub use trace::{DecisionTrace, Step, Subject};
pub use user::is_one_user;
