//! Connection management: from TCP to full operation of a queue pair.
//!
//! * [`connect`]: the connecting end, over a socket of the provider or of the consumer.
//! * [`listen`]: services, and inbound connections that have not sent their complete request.
//! * [`request`]: a request that was received and waits for `accept` or `reject`.
//! * [`handoff`]: requests that move to another process.
//! * [`armed`]: a consumer's socket that waits for a request (Socket Service Point).

pub(crate) mod armed;
pub(crate) mod connect;
pub(crate) mod handoff;
pub(crate) mod listen;
pub(crate) mod request;
