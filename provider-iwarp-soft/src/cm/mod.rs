//! Connection management: from TCP to full operation of a queue pair.
//!
//! * [`connect`]: the side that connects, over a socket of ours or of the consumer.
//! * [`listen`]: services, and inbound connections that have not sent their whole request.
//! * [`half_open`]: how many of those there may be.
//! * [`request`]: a request between its arrival and `accept` or `reject`.
//! * [`armed`]: a consumer's socket that waits for a request (Socket Service Point).

pub(crate) mod armed;
pub(crate) mod connect;
mod half_open;
pub(crate) mod listen;
pub(crate) mod request;
