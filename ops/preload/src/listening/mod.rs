//! Listening sockets of the program, and the offload protocols that listen beside them.
//!
//! The program's descriptor stays the kernel's TCP listener, backlog and all. Beside it stand up to
//! two descriptors, each of which is readable while there are offloaded connections to accept: a
//! listener of the kernel ([`kernel_listener`]) and the counter of a service of a protocol
//! ([`service`]). A thread that waits for the TCP listener waits for them too, under the same name.
//! So workers that inherited the listener, `EPOLLEXCLUSIVE` and edge-triggered sets keep the
//! kernel's meaning.
//!
//! | File | What |
//! |---|---|
//! | [`offer`] | `listen`: which protocols listen beside a socket; and anew where their process ended |
//! | [`accept`] | `accept`: one queue for the connections of TCP and of all protocols |
//! | [`exec`] | listeners that leave by `exec` or `SCM_RIGHTS`, and those that came over an `exec` |
//! | [`listener`] | a listening socket, and what stands beside it |
//! | [`kernel_listener`] | a listener of the kernel, whose connections are sockets of the kernel |
//! | [`service`] | a service of a protocol, in the process that listens and in those that inherited it |
//! | [`room`] | the descriptors of a connection, made before it leaves the queue |
//! | [`accept_lock`] | one at a time takes a connection out of the kernel's queue |

pub(crate) mod accept;
pub(crate) mod accept_lock;
pub(crate) mod exec;
pub(crate) mod kernel_listener;
pub(crate) mod listener;
pub(crate) mod offer;
pub(crate) mod room;
pub(crate) mod service;
