//! The verbs API over the software RNIC: `libibverbs.so.1` and `librdmacm.so.1` for unmodified
//! programs.
//!
//! A program finds one device for each network device that has an address, `dat_eth0` for `eth0`.
//! The device has the properties of a RoCE device (link layer Ethernet, GIDs that are addresses of
//! the host), because most programs connect reliable queue pairs by GID and QP number. The
//! transport is that of [`provider_iwarp_soft`]: shared memory within a host, iWARP over TCP
//! between hosts.
//!
//! | Module | Contents |
//! |---|---|
//! | `unsupported` | the remaining functions of the library, which fail as on a device that lacks them |
//! | `rsocket` | the socket calls of `librdmacm.so.1` |
//! | `cm` | `librdmacm.so.1`: connections by address |
//! | `text` | names of statuses, events and states; rates |
//! | `device` | the list of devices |
//! | `context` | an open device, its attributes, and the table of operations that the header calls |
//! | `pairs` | queue pairs as the program sees them; the extended interface of their requests |
//! | `ud` | datagram queue pairs and address handles |
//! | `qp` | connected queue pairs: states, connecting by number, posting |
//! | `states` | which transitions and attributes of queue pairs are permitted |
//! | `completions` | the functions of completion queues |
//! | `polling` | the extended interface of completion queues |
//! | `srq` | shared receive queues |
//! | `windows` | memory windows |
//! | `memory` | memory regions |
//! | `domains` | protection domains, parent domains, thread domains |
//! | `adapter` | the RNIC of an open device, its events, and the numbers of its queue pairs |
//! | `work` | work requests and completions, converted |
//! | `cq` | completion queues |
//! | `channel` | completion channels |
//! | `watch` | the thread that waits for datagrams and timers |
//! | `users` | which objects cannot be destroyed yet |
//! | `events` | a queue of events behind a descriptor that a program polls |
//! | `interface` | attributes of a network device |
//! | `object` | a structure of the C header followed by our own data |
//! | `fault` | errors as error numbers |
//! | `abi` | the structures of the header that `verbs-dl` does not declare |
//!
//! A module uses only modules below it in this table. `cargo xtask tidy` checks that.
//!
//! # Which function calls which
//!
//! The header calls the data path (`post_send`, `post_recv`, `poll_cq`, `req_notify_cq`) through
//! the operations of [`context`]; all other functions are exported. Both convert arguments and call
//! [`Rnic`](rnic::Rnic). Events come up through `adapter`, which finds the queue pair or the
//! completion queue by its token. The token of a queue pair is its number.
//!
//! # How two numbers find each other
//!
//! The upper 16 bits of a number are the TCP port of a listener of the process, the lower 8 bits
//! the index of the queue pair at this listener. The GID of the peer is its address, so that GID
//! and number name a listener and a queue pair without a daemon. When a queue pair enters the state
//! RTR, the end with the smaller pair of GID and number connects. Its private data names both
//! queue pairs, and the other end accepts only the peer that its program has named.
//! `qp::meeting` is the state machine.
//!
//! # Differences between verbs and the RNIC, and where they are resolved
//!
//! | verbs | RNIC | where |
//! |---|---|---|
//! | sends may be posted in RTS | only once the connection is established | `qp::early` |
//! | a peer that vanishes is noticed by the next send, after retries | the end of the connection flushes all work | `qp::ending`, `qp::retries` |
//! | inline payload needs no registration | every payload has a key | `qp::inline` |
//! | a request completes when the peer has executed it | when a transport has it, unless asked otherwise | `QpAttr::acknowledged` |
//! | a queue pair may be its own peer | a connection has two ends | `Qp::sender` |
//! | messages are repeated for a peer without a receive | they wait for a receive | `set_receive_waits` |
//!
//! # System calls, copies, locks and allocations of one small Send
//!
//! Those of [`provider_iwarp_soft`]; in addition one lock for each poll of a completion queue and,
//! for an inline Send, one lock and one copy. No allocations once connected.
//!
//! A signalled Send or Write of a reliable queue pair is acknowledged. In shared memory that costs
//! no message: the peer's index shows it. Over TCP an empty Read follows the request, usually in
//! the same `send`; its answer is one more `send` of the peer and one more `recv` of this end.

mod abi;
mod adapter;
mod channel;
mod cm;
mod completions;
mod context;
mod cq;
mod device;
mod domains;
mod events;
mod fault;
mod interface;
mod memory;
mod object;
mod pairs;
mod polling;
mod qp;
mod rsocket;
mod srq;
mod states;
mod text;
mod ud;
mod unsupported;
mod users;
mod watch;
mod windows;
mod work;
