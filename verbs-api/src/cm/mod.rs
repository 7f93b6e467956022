//! `librdmacm.so.1`: connections by address and port.
//!
//! | Module | Contents |
//! |---|---|
//! | `endpoints` | queue pairs of identifiers, and calls that combine several steps |
//! | `exported` | the functions of identifiers |
//! | `synchronous` | identifiers whose calls wait for their events |
//! | `info` | names of events, and `rdma_getaddrinfo` |
//! | `events` | the functions of event channels |
//! | `id` | identifiers, their connections, listeners and events |
//! | `sidr` | questions for the queue pair of a datagram service |
//! | `route` | addresses, and the devices that lead to them |
//!
//! The loader finds these functions in `libibverbs.so.1`: `librdmacm.so.1` is a filter
//! (`DT_FILTER`) with their names and no code. So both libraries share their objects.
//!
//! A connection is one of the RNIC, with the program's private data and nothing of ours. Peers that
//! run another implementation of iWARP, and programs that use DAT, can be at the other end.

mod endpoints;
mod events;
mod exported;
mod id;
mod info;
mod route;
mod sidr;
mod synchronous;

pub(crate) use self::endpoints::{rdma_create_qp, rdma_destroy_qp, rdma_migrate_id};
pub(crate) use self::events::{
    rdma_ack_cm_event, rdma_create_event_channel, rdma_destroy_event_channel, take_event,
};
pub(crate) use self::exported::{
    rdma_accept, rdma_bind_addr, rdma_connect, rdma_create_id, rdma_destroy_id, rdma_disconnect,
    rdma_listen, rdma_reject, rdma_resolve_addr, rdma_resolve_route,
};
pub(crate) use self::route::{addresses_of, storage};
