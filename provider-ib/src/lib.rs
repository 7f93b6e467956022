//! The ibverbs RNIC: InfiniBand, RoCE and iWARP devices through libibverbs and librdmacm.
//!
//! | File | What |
//! |---|---|
//! | [`rnic`] | the trait that the access layer asks |
//! | `objects` | what it hands out |
//! | `qp`, `cq`, `srq`, `memory` | queue pairs, completion queues, regions and windows |
//! | `cm` | listen, connect, accept, reject, disconnect |
//! | `engine` | one thread for what nobody waits for: events of connections, queues and the device |
//! | `config`, `device` | what `dat.conf` names, and the device behind it |
//!
//! The libraries are loaded when an interface is opened (crate `verbs-dl`): this provider builds
//! and loads on a machine that has neither them nor a device.

#![allow(dead_code, reason = "the parts are put in one by one")]

mod cm;
mod config;
mod cq;
mod device;
mod engine;
mod memory;
mod objects;
mod qp;
pub mod rnic;
mod srq;

pub use cm::request::IbRequest;
pub use objects::{IbCq, IbListener, IbMr, IbMw, IbPd, IbQp, IbSrq};
pub use rnic::IbRnic;

/// A process that runs out of memory is told so by the calls that need some.
#[global_allocator]
static ALLOCATOR: reserve::Reserve = reserve::Reserve;

access_layer::export_provider!(IbRnic);
