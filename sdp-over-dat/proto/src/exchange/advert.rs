//! Memory that the engine offers to the peer.

/// The engine's identifier of an advertisement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AdvertId(pub u64);

/// Registered memory with the next bytes of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advert {
    /// The engine's identifier.
    pub id: AdvertId,
    /// Length in bytes; at least 2, because one byte is sent with the message.
    pub len: u32,
    /// The R_Key or STag of the memory.
    pub stag: u32,
    /// The virtual address or tagged offset of the memory.
    pub address: u64,
    /// The number of bytes, from the front, to send with the message. At least one is sent.
    pub inline: u32,
}

/// The fate of the bytes of a cancelled advertisement that the peer has not received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OnCancel {
    /// They follow in Sends.
    Send,
    /// They do not belong to the stream: the write returns short.
    TakeBack,
}
