//! The ibverbs RNIC: InfiniBand, RoCE and iWARP devices through libibverbs and librdmacm.
//!
//! | File | What |
//! |---|---|
//! | [`rnic`] | the trait that the access layer asks |
//! | `objects` | what it hands out |
//! | `qp`, `cq`, `srq` | queue pairs, completion queues, shared receive queues |
//! | `memory`, `regions`, `window` | domains and regions, where regions lie, memory windows |
//! | `work`, `segments` | work requests that the device has, and their segments |
//! | `cm` | listen, connect, accept, reject, disconnect |
//! | `channel` | the one descriptor for the events of all completion queues, and which thread reads it |
//! | `engine` | one thread for what nobody waits for: events of connections, queues and the device |
//! | `events` | asynchronous events of the device |
//! | `config`, `device`, `quirks` | what `dat.conf` names, the device behind it, its peculiarities |
//! | `lock` | locks that a panic elsewhere does not spoil |
//! | `offset_guard` | keeps queues away from where libsiw cannot map them |
//!
//! The libraries are loaded when an interface is opened (crate `verbs-dl`): this provider builds
//! and loads on a machine that has neither them nor a device.
//!
//! # System calls, copies, locks and allocations of one small Send
//!
//! What the device's own library does comes on top: adapters are driven without system calls, siw
//! and rxe take one for each post that sends.
//!
//! | | sender | receiver |
//! |---|---|---|
//! | system calls, polled | none | none |
//! | system calls, waited for | `ppoll` and one `read` | `ppoll` and one `read` |
//! | copies | 1 into the work request, up to the key `inline` | none |
//! | locks taken, uncontended | send queue, table of regions; completion queue | receive queue; completion queue |
//! | allocations | none | none |

mod channel;
mod cm;
mod config;
mod cq;
mod device;
mod engine;
mod events;
mod lock;
mod memory;
mod objects;
mod offset_guard;
mod qp;
mod quirks;
mod regions;
pub mod rnic;
mod segments;
mod srq;
mod window;
mod work;

pub use cm::request::IbRequest;
pub use objects::{IbCq, IbListener, IbMr, IbMw, IbPd, IbQp, IbSrq};
pub use rnic::IbRnic;

/// A process that runs out of memory is told so by the calls that need some.
#[global_allocator]
static ALLOCATOR: reserve::Reserve = reserve::Reserve;

access_layer::export_provider!(IbRnic);
