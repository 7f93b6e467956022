//! The ibverbs RNIC: InfiniBand, RoCE and iWARP devices through libibverbs and librdmacm.
//!
//! | File | Contents |
//! |---|---|
//! | [`rnic`] | the implementation of the trait `Rnic` of the access layer |
//! | `objects` | the objects that the RNIC creates for the access layer |
//! | `qp`, `cq`, `srq` | queue pairs and memory windows, completion queues, shared receive queues |
//! | `memory`, `regions` | domains and regions, address ranges of regions |
//! | `work`, `segments` | posted work requests and their segments |
//! | `cm` | listen, connect, accept, reject, disconnect |
//! | `adapter`, `shared` | the parts of an RNIC, and those that each of its objects can reach |
//! | `channel`, `reader` | the descriptor for events of completion queues, and the thread that reads it |
//! | `engine`, `thread` | events for which no consumer waits, and the thread that serves them |
//! | `events` | asynchronous events of the device |
//! | `config`, `device` | settings in `dat.conf`, and the device that they name |
//! | `quirks` | the transport of a device, and deviations of devices |
//! | `fake_device` | a device for tests |
//! | `offset_guard` | keeps queues away from an offset that libsiw cannot map |
//!
//! The libraries are loaded when an interface is opened (crate `verbs-dl`), so this provider builds
//! and loads on a machine that has neither the libraries nor a device.
//!
//! # System calls, copies, locks and allocations of one small Send
//!
//! The calls of the device's own library are not counted here: the libraries of adapters make no
//! system call, those of siw and rxe make one for each post to the send queue.
//!
//! | | sender | receiver |
//! |---|---|---|
//! | system calls, polled | none | none |
//! | system calls, waited for | `ppoll` and one `read` | `ppoll` and one `read` |
//! | copies | 1 into the work request, up to the key `inline` | none |
//! | locks taken, uncontended | send queue, table of regions; completion queue | receive queue; completion queue |
//! | allocations | none | none |

mod adapter;
mod channel;
mod cm;
mod config;
mod cq;
mod device;
mod engine;
mod events;
#[cfg(test)]
mod fake_device;
mod memory;
mod objects;
mod offset_guard;
mod qp;
mod quirks;
mod reader;
mod regions;
pub mod rnic;
mod segments;
mod shared;
mod srq;
mod thread;
mod work;

pub use cm::armed::IbArmed;
pub use cm::listen::IbListener;
pub use cm::request::IbRequest;
pub use objects::IbQp;
pub use rnic::IbRnic;

// An allocator with a reserve. If a process runs out of memory, the calls that need memory return
// an error.
host::allocate_with_reserve!();

access_layer::export_provider!(IbRnic);
