//! The C enums of DAT 2.0, except for those of events, handles and return codes and the field masks
//! of queries.
//!
//! Values are plain integers: a consumer or a provider may pass any of them.

/// `DAT_MEM_TYPE`: kind of memory of a region description.
pub type DatMemType = u32;

constants! { DatMemType:
    /// Memory of this process, by address.
    DAT_MEM_TYPE_VIRTUAL = 0,
    /// The memory of another LMR.
    DAT_MEM_TYPE_LMR = 1,
    /// Memory shared between processes.
    DAT_MEM_TYPE_SHARED_VIRTUAL = 2,
}

/// `DAT_VA_TYPE`: meaning of the addresses in triplets.
pub type DatVaType = u32;

constants! { DatVaType:
    /// Virtual addresses.
    DAT_VA_TYPE_VA = 0,
    /// Offsets from the start of the region.
    DAT_VA_TYPE_ZB = 1,
}

/// `DAT_MEM_PRIV_FLAGS`: accesses to a region that are allowed.
pub type DatMemPrivFlags = u32;

named_constants! { DatMemPrivFlags:
    DAT_MEM_PRIV_NONE_FLAG = 0,
    /// The local adapter may read.
    DAT_MEM_PRIV_LOCAL_READ_FLAG = 0x01,
    /// The peer may read.
    DAT_MEM_PRIV_REMOTE_READ_FLAG = 0x02,
    /// Both may read.
    DAT_MEM_PRIV_READ_FLAG = 0x03,
    /// The local adapter may write.
    DAT_MEM_PRIV_LOCAL_WRITE_FLAG = 0x10,
    /// The peer may write.
    DAT_MEM_PRIV_REMOTE_WRITE_FLAG = 0x20,
    /// Both may write.
    DAT_MEM_PRIV_WRITE_FLAG = 0x30,
    /// Everything but extensions.
    DAT_MEM_PRIV_ALL_FLAG = 0x33,
    /// First bit reserved for extensions.
    DAT_MEM_PRIV_EXTENSION_BASE = 0x40,
}

/// `DAT_RMR_SCOPE`: endpoints that may use an RMR context.
pub type DatRmrScope = u32;

named_constants! { DatRmrScope:
    /// One endpoint.
    DAT_RMR_SCOPE_EP = 0,
    /// The endpoints of one protection zone.
    DAT_RMR_SCOPE_PZ = 1,
    DAT_RMR_SCOPE_ANY = 2,
}

/// `DAT_COMPLETION_FLAGS` of a posted operation, or of an endpoint's defaults.
pub type DatCompletionFlags = u32;

constants! { DatCompletionFlags:
    /// A completion that wakes waiters.
    DAT_COMPLETION_DEFAULT_FLAG = 0,
    /// No event on success.
    DAT_COMPLETION_SUPPRESS_FLAG = 0x01,
    /// The peer's matching receive wakes a waiter configured for solicited waits.
    DAT_COMPLETION_SOLICITED_WAIT_FLAG = 0x02,
    /// The event does not wake a waiter.
    DAT_COMPLETION_UNSIGNALLED_FLAG = 0x04,
    /// The operation waits for earlier RDMA reads.
    DAT_COMPLETION_BARRIER_FENCE_FLAG = 0x08,
    /// Waiters are woken by the threshold of their wait.
    DAT_COMPLETION_EVD_THRESHOLD_FLAG = 0x10,
    /// The operation waits for earlier LMR invalidations.
    DAT_COMPLETION_LMR_INVALIDATE_FENCE_FLAG = 0x20,
}

/// An addition of this project to `DAT_COMPLETION_FLAGS`, for Sends: the sender copies the payload
/// where the provider has a choice, as `IBV_SEND_INLINE` does. Without it, the receiver on the same
/// host reads a long payload in the sender's memory. A provider that accepts the flag has it in
/// `completion_flags_supported`.
pub const DAT_RS_COMPLETION_INLINE_FLAG: DatCompletionFlags = 0x4000_0000;

/// `DAT_QOS`.
pub type DatQos = u32;

named_constants! { DatQos:
    DAT_QOS_BEST_EFFORT = 0,
    DAT_QOS_HIGH_THROUGHPUT = 1,
    DAT_QOS_LOW_LATENCY = 2,
    DAT_QOS_ECONOMY = 4,
    DAT_QOS_PREMIUM = 8,
}

/// `DAT_CONNECT_FLAGS`.
pub type DatConnectFlags = u32;

constants! { DatConnectFlags:
    /// One path.
    DAT_CONNECT_DEFAULT_FLAG = 0,
    /// Several paths if possible.
    DAT_CONNECT_MULTIPATH_FLAG = 1,
    /// Same as [`DAT_CONNECT_MULTIPATH_FLAG`].
    DAT_CONNECT_MULTIPATH_REQUESTED_FLAG = 1,
    /// Several paths or failure.
    DAT_CONNECT_MULTIPATH_REQUIRED_FLAG = 2,
}

/// `DAT_CLOSE_FLAGS`.
pub type DatCloseFlags = u32;

constants! { DatCloseFlags:
    /// Immediately.
    DAT_CLOSE_ABRUPT_FLAG = 0,
    /// Same as [`DAT_CLOSE_ABRUPT_FLAG`].
    DAT_CLOSE_DEFAULT = 0,
    /// After posted requests have completed; for an IA, only if no objects are left.
    DAT_CLOSE_GRACEFUL_FLAG = 1,
}

/// `DAT_EVD_FLAGS`: event streams that an EVD accepts.
pub type DatEvdFlags = u32;

named_constants! { DatEvdFlags:
    DAT_EVD_SOFTWARE_FLAG = 0x001,
    /// Connection requests.
    DAT_EVD_CR_FLAG = 0x010,
    /// Completions of data transfers.
    DAT_EVD_DTO_FLAG = 0x020,
    DAT_EVD_CONNECTION_FLAG = 0x040,
    /// Completions of RMR binds.
    DAT_EVD_RMR_BIND_FLAG = 0x080,
    /// Asynchronous errors.
    DAT_EVD_ASYNC_FLAG = 0x100,
    /// Everything but software events.
    DAT_EVD_DEFAULT_FLAG = 0x1F0,
    /// First bit reserved for extensions.
    DAT_EVD_EXTENSION_BASE = 0x200,
}

/// `DAT_EVD_STATE` as bits.
pub type DatEvdState = u32;

constants! { DatEvdState:
    /// Triggers its CNO.
    DAT_EVD_STATE_ENABLED = 0x01,
    /// Does not trigger its CNO.
    DAT_EVD_STATE_DISABLED = 0x02,
    /// `dat_evd_wait` is allowed.
    DAT_EVD_STATE_WAITABLE = 0x04,
    /// `dat_evd_wait` is refused.
    DAT_EVD_STATE_UNWAITABLE = 0x08,
    /// Completions of signalled operations wake waiters.
    DAT_EVD_STATE_CONFIG_NOTIFY = 0x10,
    /// Completions of solicited messages wake waiters.
    DAT_EVD_STATE_CONFIG_SOLICITED = 0x20,
    /// The threshold of the wait wakes waiters.
    DAT_EVD_STATE_CONFIG_THRESHOLD = 0x30,
}

/// `DAT_PSP_FLAGS`: the side that supplies the endpoint of an incoming connection.
pub type DatPspFlags = u32;

constants! { DatPspFlags:
    /// The consumer, with `dat_cr_accept`.
    DAT_PSP_CONSUMER_FLAG = 0,
    /// The provider, with the connection request.
    DAT_PSP_PROVIDER_FLAG = 1,
}

/// `DAT_SERVICE_TYPE` of an endpoint.
pub type DatServiceType = u32;

constants! { DatServiceType:
    /// Reliable connection.
    DAT_SERVICE_TYPE_RC = 0,
    /// First number reserved for extensions.
    DAT_SERVICE_TYPE_EXTENSION_BASE = 1,
}

/// `DAT_EP_STATE`.
pub type DatEpState = u32;

named_constants! { DatEpState:
    /// Ready to connect or to accept.
    DAT_EP_STATE_UNCONNECTED = 0,
    /// Unconnected, attributes not yet set.
    DAT_EP_STATE_UNCONFIGURED_UNCONNECTED = 1,
    /// Reserved by a reserved or socket service point.
    DAT_EP_STATE_RESERVED = 2,
    /// Reserved, attributes not yet set.
    DAT_EP_STATE_UNCONFIGURED_RESERVED = 3,
    /// Belongs to a connection request that the consumer must answer.
    DAT_EP_STATE_PASSIVE_CONNECTION_PENDING = 4,
    /// As above, attributes not yet set.
    DAT_EP_STATE_UNCONFIGURED_PASSIVE = 5,
    /// `dat_ep_connect` is in progress.
    DAT_EP_STATE_ACTIVE_CONNECTION_PENDING = 6,
    /// Created by the provider for a connection request.
    DAT_EP_STATE_TENTATIVE_CONNECTION_PENDING = 7,
    /// As above, attributes not yet set.
    DAT_EP_STATE_UNCONFIGURED_TENTATIVE = 8,
    DAT_EP_STATE_CONNECTED = 9,
    /// `dat_ep_disconnect` is in progress.
    DAT_EP_STATE_DISCONNECT_PENDING = 10,
    /// The connection has ended; `dat_ep_reset` makes the endpoint usable again.
    DAT_EP_STATE_DISCONNECTED = 11,
    /// Older name of [`DAT_EP_STATE_DISCONNECTED`].
    DAT_EP_STATE_ERROR = 11,
    /// Accepted; the handshake is not finished.
    DAT_EP_STATE_COMPLETION_PENDING = 12,
    /// Connected over one path of several.
    DAT_EP_STATE_CONNECTED_SINGLE_PATH = 13,
    /// Connected over several paths.
    DAT_EP_STATE_CONNECTED_MULTI_PATH = 14,
}

/// `DAT_SRQ_STATE`.
pub type DatSrqState = u32;

named_constants! { DatSrqState:
    DAT_SRQ_STATE_ERROR = 0,
    DAT_SRQ_STATE_OPERATIONAL = 1,
    /// Accepts no new endpoints.
    DAT_SRQ_STATE_SHUTDOWN = 2,
}

/// `DAT_IOV_OWNERSHIP`: owner of the segment list of a posted operation after the call.
pub type DatIovOwnership = u32;

named_constants! { DatIovOwnership:
    DAT_IOV_CONSUMER = 0,
    /// The provider until completion; the list is not modified.
    DAT_IOV_PROVIDER_NOMOD = 1,
    /// The provider until completion; the list may be modified.
    DAT_IOV_PROVIDER_MOD = 2,
}

/// `DAT_EP_CREATOR_FOR_PSP`: policy by which the provider creates endpoints for connection
/// requests.
pub type DatEpCreatorForPsp = u32;

named_constants! { DatEpCreatorForPsp:
    DAT_PSP_CREATES_EP_NEVER = 0,
    /// When the service point requests it.
    DAT_PSP_CREATES_EP_IFASKED = 1,
    DAT_PSP_CREATES_EP_ALWAYS = 2,
}

/// `DAT_PZ_SUPPORT`: support for different protection zones of the objects of one connection.
pub type DatPzSupport = u32;

constants! { DatPzSupport:
    /// Each endpoint has its own zone.
    DAT_PZ_UNIQUE = 0,
    /// Endpoints may share a zone.
    DAT_PZ_SHAREABLE = 1,
}

/// `DAT_EXTENSION`: family of extensions of an IA.
pub type DatExtension = u32;

named_constants! { DatExtension:
    DAT_EXTENSION_NONE = 0,
    DAT_EXTENSION_IB = 1,
    DAT_EXTENSION_IW = 2,
    /// Older name of [`DAT_EXTENSION_IB`].
    DAT_IB_EXTENSION = 1,
    /// Older name of [`DAT_EXTENSION_IW`].
    DAT_IW_EXTENSION = 2,
}

/// `DAT_PROXY_TYPE`: notification of the consumer when a CNO triggers.
pub type DatProxyType = u32;

named_constants! { DatProxyType:
    DAT_PROXY_TYPE_NONE = 0,
    /// A call of an agent.
    DAT_PROXY_TYPE_AGENT = 1,
    /// A file descriptor.
    DAT_PROXY_TYPE_FD = 2,
}

/// `DAT_HA_RELATIONSHIP` of two providers.
pub type DatHaRelationship = u32;

named_constants! { DatHaRelationship:
    DAT_HA_FALSE = 0,
    DAT_HA_TRUE = 1,
    DAT_HA_UNKNOWN = 2,
    /// The two providers contradict each other.
    DAT_HA_CONFLICTING = 3,
    /// First number reserved for extensions.
    DAT_HA_EXTENSION_BASE = 4,
}
