//! The queries of the offload protocol switch to the network stack.
//!
//! | Need | Answer |
//! |---|---|
//! | the local addresses that reach a destination, the best first | [`NetStack::sources_to`] |
//! | the next hop toward a destination, and its link-layer address | [`Route::next_hop`], [`NetStack::link_address`] |
//! | the MTU, and a notification of its changes | [`NetStack::mtu_to`], [`Change::Mtu`] |
//! | the sockets that listen at a TCP address | [`ListeningSocket::at`] |
//! | the receiver of a connection request within the host | [`NetStack::local_request`] |
//! | has a program accepted a connection? | [`NetStack::accepting_end`] |
//! | the devices that can do RDMA | [`NetStack::rdma`], [`NetStack::mark_rdma`] |
//!
//! Routes are cached until the kernel reports a change of links, addresses, routes or rules. The
//! removal of a link removes IPv4 routes without a notification about them, so each of these events
//! drops every cached route.
//!
//! Everything here is synchronous, starts no thread and makes direct system calls, because it is
//! loaded into other programs, ahead of their C library.
//!
//! - [`NetStack`] is the entry point; `events` receives notifications
//! - `route`, `device`, `address`, `neighbour`, `rdma`, `listening`, `request` and `accepting`
//!   cover one subject each

#![forbid(unsafe_code)]

mod accepting;
mod address;
mod device;
mod events;
mod listening;
mod neighbour;
mod rdma;
mod request;
mod route;
mod stack;

pub use accepting::AcceptingEnd;
pub use address::LocalAddress;
pub use device::Device;
pub use events::Change;
pub use listening::ListeningSocket;
pub use neighbour::LinkAddress;
pub use rdma::{RdmaDevices, RdmaPort};
pub use request::{LocalRequest, Receiver};
pub use route::{Reach, Route, RouteQuery};
pub use stack::{NetStack, Source};
