//! Memory that the engine offers to the peer.

/// The engine's identifier of an advertisement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AdvertId(pub u64);

/// Registered memory with the next bytes of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advert {
    /// The engine's identifier.
    pub id: AdvertId,
    /// Length in bytes; at least 2, because in combined mode one byte is sent with the message.
    pub len: u32,
    /// The R_Key or STag of the memory.
    pub stag: u32,
    /// The virtual address or tagged offset of the memory.
    pub address: u64,
    /// The number of bytes, from the front, to send with the message in combined mode. At least one
    /// is sent. In pipelined mode none are.
    pub inline: u32,
}

/// Registered memory of a reader, into which the peer may write the next bytes of its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SinkAdvert {
    /// The engine's identifier. Advertisements of both kinds share one space of identifiers.
    pub id: AdvertId,
    /// Length in bytes; at least the payload of one receive buffer of this end.
    pub len: u32,
    /// The R_Key or STag of the memory.
    pub stag: u32,
    /// The virtual address or tagged offset of the memory.
    pub address: u64,
}

/// The fate of the bytes of a cancelled advertisement that the peer has not received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OnCancel {
    /// The bytes follow in Sends.
    Send,
    /// The bytes do not belong to the stream: the write returns a shorter length.
    TakeBack,
}
