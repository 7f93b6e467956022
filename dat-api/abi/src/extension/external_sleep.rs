//! Operations of our own: sleeping on a CNO and on the consumer's descriptors at once.
//!
//! `dat_cno_fd_create` lets a consumer poll for triggers beside other descriptors, but what raises
//! that descriptor is a thread of the provider, which the kernel has woken before. These operations
//! lend the calling thread to the provider, as `dat_cno_wait` does (DAT 2.0 section 6.3.3.4), and
//! leave the sleep to the caller, who sleeps on further descriptors with a signal mask of his
//! choice. Providers without them answer `DAT_NOT_IMPLEMENTED`, and so does a registry before an
//! adapter with extensions is opened.

use crate::*;

constants! { DatExtendedOp:
    /// The caller is about to sleep. Handle: CNO. Arguments: `struct pollfd*`, u32 room there,
    /// `u32*`: how many were filled in, to be slept on; 0 when something has triggered already.
    DAT_RS_CNO_BEGIN_SLEEP_OP = 0x480,
    /// It has woken. Handle: CNO. No arguments. What has come about has triggered when it returns;
    /// without a sleep it does nothing.
    DAT_RS_CNO_END_SLEEP_OP = 0x481,
}
