//! What a connection tells its engine.

use crate::{AdvertId, Failure};

/// News, in the order in which they happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Both sides know of each other; data may flow.
    Established,
    /// An urgent byte is on its way or here.
    UrgentComing,
    /// The peer's half ended; nothing follows what was received.
    EndOfStream,
    /// The connection no longer needs this advertisement. Its memory may be let go as soon as the
    /// Sends that were posted from it have completed. Without this event before
    /// [`Event::Failed`], that is when the transport is gone.
    AdvertDone {
        /// Which.
        id: AdvertId,
        /// Bytes of it that went to the peer, from the front: all, unless it was taken back.
        taken: u32,
    },
    /// The transport is to be disconnected.
    Disconnect,
    /// The connection ended by fault. The first one counts.
    Failed(Failure),
    /// The transport is gone after both halves had ended.
    Closed,
}
