//! What the offload protocol switch needs from the network stack.
//!
//! | Need | Answer |
//! |---|---|
//! | which local addresses reach a destination, the best first | [`NetStack::sources_to`] |
//! | which is the next hop toward it, and its link-layer address | [`Route::next_hop`], [`NetStack::link_address`] |
//! | a port number that TCP and an offload protocol share | [`PortReservation`] |
//! | the MTU, and news when it changes | [`NetStack::mtu_to`], [`Change::Mtu`] |
//! | who listens at a TCP address | [`ListeningSocket::at`] |
//! | which devices can do RDMA | [`NetStack::rdma`], [`NetStack::mark_rdma`] |
//!
//! Routes are cached until the kernel reports a change of links, addresses, routes or rules. A
//! removed link takes IPv4 routes away without a word about them, so any of these events drops
//! every cached route.
//!
//! All of it is synchronous, starts no thread and makes its system calls itself: it is loaded into
//! other people's programs, ahead of their C library.
//!
//! - [`NetStack`] is where to begin; `channel` asks questions, `events` listens
//! - `route`, `device`, `address`, `neighbour`, `port`, `rdma`, `listening` are one subject
//!   each

#![forbid(unsafe_code)]

mod address;
mod channel;
mod device;
mod error;
mod events;
mod listening;
mod neighbour;
mod port;
mod rdma;
mod route;
mod stack;

pub use address::LocalAddress;
pub use device::Device;
pub use error::Error;
pub use events::Change;
pub use listening::ListeningSocket;
pub use neighbour::LinkAddress;
pub use port::PortReservation;
pub use rdma::{RdmaDevices, RdmaPort};
pub use route::{Reach, Route, RouteQuery};
pub use stack::{NetStack, Source};
