//! Sockets of the kernel's TCP: addresses and options, and the sockets that stand in for the ones
//! that this library carries.
//!
//! | File | What |
//! |---|---|
//! | [`names`] | addresses, as the kernel and C have them |
//! | [`options`] | options in force, and answers to `getsockopt` and `setsockopt` |
//! | [`inherited`] | the options that an accepted socket inherits from its listener |
//! | [`carried`] | the options that a connection within the host takes over from a TCP socket |
//! | [`kept`] | options of TCP and IP that are kept for a socket of `AF_UNIX` |
//! | [`tcp_only`] | options that keep a socket on TCP |

pub(crate) mod carried;
pub(crate) mod inherited;
pub(crate) mod kept;
pub(crate) mod names;
pub(crate) mod options;
pub(crate) mod tcp_only;
