//! `DAT_EVENT`: numbers, data of each kind, statuses of completions (DAT 2.0 chapter 6).

use crate::*;
use core::fmt;

/// `DAT_EVENT_NUMBER`.
pub type DatEventNumber = u32;

constants! { DatEventNumber:
    /// A data transfer is done; see `dto_completion_event_data`.
    DAT_DTO_COMPLETION_EVENT = 0x0_0001,
    /// A bind is done; see `rmr_completion_event_data`.
    DAT_RMR_BIND_COMPLETION_EVENT = 0x0_1001,
    /// A peer requests a connection; see `cr_arrival_event_data`.
    DAT_CONNECTION_REQUEST_EVENT = 0x0_2001,
    /// The connection is established; for this and the following seven see `connect_event_data`.
    DAT_CONNECTION_EVENT_ESTABLISHED = 0x0_4001,
    /// The peer's consumer rejected the request.
    DAT_CONNECTION_EVENT_PEER_REJECTED = 0x0_4002,
    /// The request did not reach the peer's consumer: no listener, full backlog, protocol mismatch.
    DAT_CONNECTION_EVENT_NON_PEER_REJECTED = 0x0_4003,
    /// An accepted connection could not be established.
    DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR = 0x0_4004,
    /// The connection was closed by either side.
    DAT_CONNECTION_EVENT_DISCONNECTED = 0x0_4005,
    /// The connection failed.
    DAT_CONNECTION_EVENT_BROKEN = 0x0_4006,
    /// The timeout of the attempt expired.
    DAT_CONNECTION_EVENT_TIMED_OUT = 0x0_4007,
    /// No route to the peer.
    DAT_CONNECTION_EVENT_UNREACHABLE = 0x0_4008,
    /// An EVD lost events; for this and the following four see `asynch_error_event_data`.
    DAT_ASYNC_ERROR_EVD_OVERFLOW = 0x0_8001,
    /// The IA is unusable.
    DAT_ASYNC_ERROR_IA_CATASTROPHIC = 0x0_8002,
    /// An EP is broken, or was removed from its shared receive queue.
    DAT_ASYNC_ERROR_EP_BROKEN = 0x0_8003,
    /// A timeout inside the provider.
    DAT_ASYNC_ERROR_TIMED_OUT = 0x0_8004,
    /// A fault inside the provider.
    DAT_ASYNC_ERROR_PROVIDER_INTERNAL_ERROR = 0x0_8005,
    /// A multi-path connection is down to one path.
    DAT_HA_DOWN_TO_1 = 0x0_8101,
    /// A multi-path connection has several paths again.
    DAT_HA_UP_TO_MULTI_PATH = 0x0_8102,
    /// Posted by the consumer; see `software_event_data`.
    DAT_SOFTWARE_EVENT = 0x1_0001,
    /// First number of extension events of no particular family.
    DAT_EXTENSION_EVENT = 0x2_0000,
    /// First number of IB extension events.
    DAT_IB_EXTENSION_RANGE_BASE = 0x4_0000,
    /// First number of iWARP extension events.
    DAT_IW_EXTENSION_RANGE_BASE = 0x8_0000,
}

/// `DAT_DTOS`: the operation that completed.
pub type DatDtos = u32;

named_constants! { DatDtos:
    DAT_DTO_SEND = 0,
    DAT_DTO_RDMA_WRITE = 1,
    DAT_DTO_RDMA_READ = 2,
    DAT_DTO_RECEIVE = 3,
    /// Receive of a message that invalidated a memory window.
    DAT_DTO_RECEIVE_WITH_INVALIDATE = 4,
    /// Bind of a memory window.
    DAT_DTO_BIND_MW = 5,
    /// Fast memory registration.
    DAT_DTO_LMR_FMR = 6,
    DAT_DTO_LMR_INVALIDATE = 7,
    /// First number reserved for extensions.
    DAT_DTO_EXTENSION_BASE = 8,
}

/// `DAT_DTO_COMPLETION_STATUS`.
pub type DatDtoCompletionStatus = u32;
/// `DAT_RMR_BIND_COMPLETION_STATUS`, which uses the numbers of [`DatDtoCompletionStatus`].
pub type DatRmrBindCompletionStatus = DatDtoCompletionStatus;

constants! { DatDtoCompletionStatus:
    /// The operation was done.
    DAT_DTO_SUCCESS = 0,
    /// Not done, because the connection ended first.
    DAT_DTO_ERR_FLUSHED = 1,
    /// The message does not fit the local buffer.
    DAT_DTO_ERR_LOCAL_LENGTH = 2,
    /// The local endpoint failed.
    DAT_DTO_ERR_LOCAL_EP = 3,
    /// The local memory does not allow this access.
    DAT_DTO_ERR_LOCAL_PROTECTION = 4,
    /// The peer's answer is invalid.
    DAT_DTO_ERR_BAD_RESPONSE = 5,
    /// The remote memory does not allow this access.
    DAT_DTO_ERR_REMOTE_ACCESS = 6,
    /// The peer could not complete the operation.
    DAT_DTO_ERR_REMOTE_RESPONDER = 7,
    /// The transport failed.
    DAT_DTO_ERR_TRANSPORT = 8,
    /// The peer had no receive posted.
    DAT_DTO_ERR_RECEIVER_NOT_READY = 9,
    /// Only a part of a message was received.
    DAT_DTO_ERR_PARTIAL_PACKET = 10,
    /// The bind failed.
    DAT_RMR_OPERATION_FAILED = 11,
    /// Memory management failed locally.
    DAT_DTO_ERR_LOCAL_MM_ERROR = 12,
    /// Older name of [`DAT_DTO_ERR_FLUSHED`].
    DAT_DTO_FAILURE = 1,
    /// Older name of [`DAT_DTO_ERR_LOCAL_LENGTH`].
    DAT_DTO_LENGTH_ERROR = 2,
    /// A bind is done.
    DAT_RMR_BIND_SUCCESS = 0,
    /// Older name of [`DAT_DTO_ERR_FLUSHED`] for binds.
    DAT_RMR_BIND_FAILURE = 1,
}

/// `reason` of an asynchronous error. The numbers start again for each kind of object.
pub type DatAsyncErrorReason = u32;

constants! { DatAsyncErrorReason:
    /// IA: unusable.
    DAT_IA_CATASTROPHIC_ERROR = 0,
    /// IA: something else.
    DAT_IA_OTHER_ERROR = 1,
    /// EP: moved to the error state.
    DAT_EP_TRANSFER_TO_ERROR = 0,
    /// EP: something else.
    DAT_EP_OTHER_ERROR = 1,
    /// EP: took more receives from its SRQ than the soft watermark allows.
    DAT_SRQ_SOFT_HIGH_WATERMARK_EVENT = 2,
    /// EVD: overflowed.
    DAT_EVD_OVERFLOW_ERROR = 0,
    /// EVD: something else.
    DAT_EVD_OTHER_ERROR = 1,
    /// SRQ: moved to the error state.
    DAT_SRQ_TRANSFER_TO_ERROR = 0,
    /// SRQ: something else.
    DAT_SRQ_OTHER_ERROR = 1,
    /// SRQ: fewer receives are posted than the low watermark.
    DAT_SRQ_LOW_WATERMARK_EVENT = 2,
    /// LMR: any error.
    DAT_LMR_OTHER_ERROR = 0,
    /// RMR: any error.
    DAT_RMR_OTHER_ERROR = 0,
    /// PZ: any error.
    DAT_PZ_OTHER_ERROR = 0,
}

c_structs! {
    /// `DAT_DTO_COMPLETION_EVENT_DATA`.
    pub struct DatDtoCompletionEventData, size 32 {
        ep_handle @ 0: DatEpHandle,
        /// Cookie given when posting.
        user_cookie @ 8: DatDtoCookie,
        status @ 16: DatDtoCompletionStatus,
        /// Bytes moved; spelt as in the C header.
        transfered_length @ 20: DatSegLength,
        operation @ 24: DatDtos,
        /// Window invalidated by the peer, for [`DAT_DTO_RECEIVE_WITH_INVALIDATE`].
        rmr_context @ 28: DatRmrContext,
    }

    /// `DAT_RMR_BIND_COMPLETION_EVENT_DATA`.
    pub struct DatRmrBindCompletionEventData, size 24 {
        rmr_handle @ 0: DatRmrHandle,
        /// Cookie given when binding.
        user_cookie @ 8: DatRmrCookie,
        status @ 16: DatRmrBindCompletionStatus,
    }
}

/// `DAT_SP_HANDLE`: the service point of a connection request, of whatever kind.
#[repr(C)]
#[derive(Clone, Copy)]
pub union DatSpHandle {
    /// As a reserved service point.
    pub rsp_handle: DatRspHandle,
    /// As a public service point.
    pub psp_handle: DatPspHandle,
    /// As a common service point.
    pub csp_handle: DatCspHandle,
}

impl DatSpHandle {
    /// Wraps the handle of a service point of any kind.
    #[must_use]
    pub const fn new(handle: DatHandle) -> Self {
        Self { psp_handle: handle }
    }

    /// Returns the handle. All members of the union are the same pointer type.
    #[must_use]
    pub fn as_handle(self) -> DatHandle {
        // SAFETY: all members are the same pointer type at the same offset.
        unsafe { self.psp_handle }
    }
}

impl fmt::Debug for DatSpHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DatSpHandle({:p})", self.as_handle())
    }
}

c_structs! {
    /// `DAT_CR_ARRIVAL_EVENT_DATA`.
    pub struct DatCrArrivalEventData, size 40 {
        /// Service point that received the request.
        sp_handle @ 0: DatSpHandle,
        /// Local address that received the request.
        local_ia_address_ptr @ 8: DatIaAddressPtr,
        /// Service asked for: the value given when the service point was created.
        conn_qual @ 16: DatConnQual,
        /// The request, to be accepted or rejected.
        cr_handle @ 24: DatCrHandle,
        /// True if private data was truncated.
        truncate_flag @ 32: DatBoolean,
    }

    /// `DAT_CONNECTION_EVENT_DATA`.
    pub struct DatConnectionEventData, size 24 {
        ep_handle @ 0: DatEpHandle,
        private_data_size @ 8: DatCount,
        /// Private data of the peer's consumer; owned by the provider.
        private_data @ 16: DatPvoid,
    }

    /// `DAT_ASYNCH_ERROR_EVENT_DATA`.
    pub struct DatAsynchErrorEventData, size 16 {
        /// The object that is concerned.
        dat_handle @ 0: DatHandle,
        /// Reason; its meaning depends on the kind of object.
        reason @ 8: DatAsyncErrorReason,
    }

    /// `DAT_SOFTWARE_EVENT_DATA`.
    pub struct DatSoftwareEventData, size 8 {
        /// Value that the consumer passed.
        pointer @ 0: DatPvoid,
    }
}

/// `DAT_EVENT_DATA`; the event number selects the member.
#[repr(C)]
#[derive(Clone, Copy)]
pub union DatEventData {
    /// For data transfers.
    pub dto_completion_event_data: DatDtoCompletionEventData,
    /// For binds.
    pub rmr_completion_event_data: DatRmrBindCompletionEventData,
    /// For connection requests.
    pub cr_arrival_event_data: DatCrArrivalEventData,
    /// For connection events.
    pub connect_event_data: DatConnectionEventData,
    /// For asynchronous errors.
    pub asynch_error_event_data: DatAsynchErrorEventData,
    /// For software events.
    pub software_event_data: DatSoftwareEventData,
}

impl fmt::Debug for DatEventData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The event number, which is not part of the union, selects the initialised member.
        f.write_str("DatEventData(..)")
    }
}

c_structs! {
    /// `DAT_EVENT`.
    pub struct DatEvent, size 120 {
        event_number @ 0: DatEventNumber,
        evd_handle @ 8: DatEvdHandle,
        event_data @ 16: DatEventData,
        event_extension_data @ 56: [DatUint64; 8],
    }
}

assert_layout!(DatSpHandle, size 8);
assert_layout!(DatEventData, size 40);

impl_zeroed!(DatSpHandle, DatEventData);
