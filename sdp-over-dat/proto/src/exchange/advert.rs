//! Memory that the engine offers to the peer.

/// The engine's name for an advertisement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AdvertId(pub u64);

/// Registered memory whose bytes come next in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advert {
    /// The engine's name for it.
    pub id: AdvertId,
    /// Bytes; at least 2, because one goes with the message.
    pub len: u32,
    /// Its R_Key or STag.
    pub stag: u32,
    /// Its virtual address or tagged offset.
    pub address: u64,
    /// Bytes from its front that should go with the message. At least one does.
    pub inline: u32,
}

/// What becomes of the bytes of a cancelled advertisement that the peer has not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OnCancel {
    /// They follow in Sends.
    Send,
    /// They do not belong to the stream: the write returns short.
    TakeBack,
}
