//! Operations of dat-rs: sleeping on a CNO and on the consumer's descriptors at once.
//!
//! `dat_cno_fd_create` lets a consumer poll for triggers together with other descriptors. But a
//! thread of the provider raises that descriptor, and the kernel must wake that thread first. With
//! the operations here the calling thread makes progress for the provider, as in `dat_cno_wait`
//! (DAT 2.0 section 6.3.3.4), while the caller does the sleep itself: it can sleep on further
//! descriptors, with a signal mask of its choice. Providers without these operations return
//! `DAT_NOT_IMPLEMENTED`, and so does a registry before an adapter with extensions is opened.

use crate::*;

constants! { DatExtendedOp:
    /// Announces that the caller is about to sleep. Handle: CNO. Arguments: `struct pollfd*`, u32
    /// length of that array, `u32*` number of entries filled in, on which the caller must sleep; 0
    /// when a dispatcher has triggered already.
    DAT_RS_CNO_BEGIN_SLEEP_OP = 0x480,
    /// Announces that the caller is awake. Handle: CNO. No arguments. Events that occurred
    /// meanwhile have triggered when the call returns. Without a sleep that has begun the call has
    /// no effect.
    DAT_RS_CNO_END_SLEEP_OP = 0x481,
}
