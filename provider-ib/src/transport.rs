//! The transport of a device.

/// The transport of a device. Each difference between transports has a name, by which the code
/// queries it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    /// InfiniBand and RoCE.
    InfiniBand,
    /// MPA over TCP.
    Iwarp,
}
