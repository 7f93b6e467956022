//! The socket calls of `librdmacm.so.1`: `rsocket(7)`.
//!
//! | Module | Contents |
//! |---|---|
//! | `transfer` | the functions that send and receive |
//! | `exported` | the functions that make, connect and end sockets, and those of their options |
//! | `polling` | `rpoll` and `rselect` |
//! | `table` | the sockets of the process, by their descriptors |
//! | `socket` | a socket: its states, the events of its connection, sleeping threads |
//! | `options` | the options of sockets |
//! | `stream` | the queue pair and the buffers of a connection |
//! | `flow` | how much each end may send |
//! | `region` | registered memory |
//! | `wire` | the data that both ends exchange besides the stream |
//!
//! The protocol is the one that rdma-core describes in `librdmacm/docs/rsocket`. The receiver names
//! halves of its buffer, the sender fills them by RDMA Writes, and the immediate data of each Write
//! is their length. rdma-core uses Sends in place of immediate data over iWARP
//! devices, so a peer of rdma-core would have to find a device with immediate data.
//!
//! A descriptor of a socket is an epoll set of everything that wakes its threads. A call makes
//! progress on the calling thread; a socket has no thread of its own.
//!
//! System calls, copies, locks and allocations of one `rsend` of a short message: those of an RDMA
//! Write, one lock, one copy. Two copies for a message that is longer than the inline limit.

mod exported;
mod flow;
mod options;
mod polling;
mod region;
mod socket;
mod stream;
mod table;
mod transfer;
mod wire;
