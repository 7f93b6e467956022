//! Errors of an RNIC.

/// The exhausted resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    /// Memory or a table.
    Memory,
    /// Protection domains.
    ProtectionDomain,
    /// Memory regions.
    MemoryRegion,
    /// Queue pairs.
    QueuePair,
    /// Completion queues.
    CompletionQueue,
    /// Shared receive queues.
    SharedReceiveQueue,
    /// File descriptors.
    Descriptor,
    /// Local ports for connections to one service.
    Port,
    /// The share that the administrator allows.
    Policy,
    /// Work request slots of one queue.
    WorkRequest,
}

/// Reasons for which an RNIC refused a call. A refused call has changed nothing.
#[derive(Debug, thiserror::Error)]
pub enum RnicError {
    /// The device, address or host that the configuration names does not exist here.
    #[error("no device: {0}")]
    NoDevice(String),
    /// The configuration cannot be parsed.
    #[error("bad ia_params: {0}")]
    BadConfig(String),
    /// A limit was reached.
    #[error("out of resources: {0:?}")]
    NoResources(Resource),
    /// A value is outside the range that this RNIC supports.
    #[error("invalid argument: {0}")]
    InvalidArgument(&'static str),
    /// The segment list or length is outside the queue pair's limits.
    #[error("length: {0}")]
    Length(&'static str),
    /// The state of the object does not allow the call.
    #[error("invalid state: {0}")]
    InvalidState(&'static str),
    /// The port is in use.
    #[error("address in use")]
    AddressInUse,
    /// The address family or address cannot be used.
    #[error("address unusable: {0}")]
    BadAddress(&'static str),
    /// The process lacks the permission.
    #[error("not permitted: {0}")]
    NotPermitted(&'static str),
    /// This RNIC does not support the call.
    #[error("not supported: {0}")]
    NotSupported(&'static str),
    /// The operating system returned an error that no other variant names.
    #[error("system error: {0}")]
    Os(#[from] std::io::Error),
}
