//! Sockets of the kernel's TCP: addresses and options, and sockets that keep the options of
//! offloaded connections.
//!
//! | File | Contents |
//! |---|---|
//! | [`names`] | addresses, in the forms of the kernel and of C |
//! | [`options`] | the options in force, and answers to `getsockopt` and `setsockopt` |
//! | [`buffers`] | the buffer sizes that a program has set |
//! | [`inherited`] | the options that an accepted socket inherits from its listener |
//! | [`carried`] | the options that a local connection copies from a TCP socket |
//! | [`kept`] | options of TCP and IP that are kept for a socket of `AF_UNIX` |
//! | [`families`] | the address families of OFED's SDP, which programs may name |
//! | [`namespaces`] | the network namespaces of sockets and threads |
//! | [`tcp_only`] | options that keep a socket on TCP |

pub(crate) mod buffers;
pub(crate) mod carried;
pub(crate) mod families;
pub(crate) mod inherited;
pub(crate) mod kept;
pub(crate) mod names;
pub(crate) mod namespaces;
pub(crate) mod options;
pub(crate) mod tcp_only;
