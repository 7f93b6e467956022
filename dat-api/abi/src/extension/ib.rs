//! The IB extension, version 209: immediate data, atomics, UD, counters, collectives.
//!
//! Immediate data is in host order at both ends. After an error only the status of a completion is
//! defined, but its event number is still [`DAT_IB_DTO_EVENT`].

use crate::*;
use core::ffi::{CStr, c_void};
use core::fmt;

#[path = "ib_collective.rs"]
mod collective;
#[macro_use]
#[path = "ib_counter.rs"]
mod counter;
#[path = "rs_counter.rs"]
mod rs_counter;

pub use collective::*;
pub use counter::*;
pub use rs_counter::*;

/// Version of the extension, reported in `extension_version`.
pub const DAT_IB_EXTENSION_VERSION: DatCount = 209;

constants! { &CStr:
    /// Named attribute: "TRUE" if counters are kept, else "FALSE".
    DAT_IB_ATTR_COUNTERS = c"DAT_COUNTERS",
    /// Named attribute: "TRUE" if fetch-and-add is supported, else "FALSE".
    DAT_IB_ATTR_FETCH_AND_ADD = c"DAT_IB_FETCH_AND_ADD",
    /// Named attribute: "TRUE" if compare-and-swap is supported, else "FALSE".
    DAT_IB_ATTR_CMP_AND_SWAP = c"DAT_IB_CMP_AND_SWAP",
    /// Named attribute: "TRUE" if writes may contain immediate data, else "FALSE".
    DAT_IB_ATTR_IMMED_DATA = c"DAT_IB_IMMED_DATA",
    /// Named attribute: "TRUE" if unreliable datagrams are supported, else "FALSE".
    DAT_IB_ATTR_UD = c"DAT_IB_UD",
}

// Operations. Each comment lists the arguments that follow handle and number.
constants! { DatExtendedOp:
    /// u64 add, `DatLmrTriplet*`, cookie, `DatRmrTriplet*`, completion flags.
    DAT_IB_FETCH_AND_ADD_OP = 0,
    /// u64 compare, u64 swap, `DatLmrTriplet*`, cookie, `DatRmrTriplet*`, completion flags.
    DAT_IB_CMP_AND_SWAP_OP = 1,
    /// Count, `DatLmrTriplet*`, cookie, `DatRmrTriplet*`, u32 immediate, completion flags.
    DAT_IB_RDMA_WRITE_IMMED_OP = 2,
    /// Count, `DatLmrTriplet*`, `DatIbAddrHandle*`, cookie, completion flags.
    DAT_IB_UD_SEND_OP = 3,
    /// int counter, u64* out, int reset.
    DAT_IB_QUERY_COUNTERS_OP = 4,
    /// int counter, int reset.
    DAT_IB_PRINT_COUNTERS_OP = 5,
}

// Collective operations.
named_constants! { DatExtendedOp:
    DAT_IB_COLLECTIVE_CREATE_MEMBER_OP = 6,
    DAT_IB_COLLECTIVE_FREE_MEMBER_OP = 7,
    DAT_IB_COLLECTIVE_CREATE_GROUP_OP = 8,
    DAT_IB_COLLECTIVE_FREE_GROUP_OP = 9,
    DAT_IB_COLLECTIVE_SET_CLOCK_OP = 10,
    DAT_IB_COLLECTIVE_READ_CLOCK_OP = 11,
    DAT_IB_COLLECTIVE_SCATTER_OP = 12,
    DAT_IB_COLLECTIVE_SCATTERV_OP = 13,
    DAT_IB_COLLECTIVE_GATHER_OP = 14,
    DAT_IB_COLLECTIVE_GATHERV_OP = 15,
    DAT_IB_COLLECTIVE_ALLGATHER_OP = 16,
    DAT_IB_COLLECTIVE_ALLGATHERV_OP = 17,
    DAT_IB_COLLECTIVE_ALLTOALL_OP = 18,
    DAT_IB_COLLECTIVE_ALLTOALLV_OP = 19,
    DAT_IB_COLLECTIVE_REDUCE_OP = 20,
    DAT_IB_COLLECTIVE_ALLREDUCE_OP = 21,
    DAT_IB_COLLECTIVE_REDUCE_SCATTER_OP = 22,
    DAT_IB_COLLECTIVE_SCAN_OP = 23,
    DAT_IB_COLLECTIVE_BROADCAST_OP = 24,
    DAT_IB_COLLECTIVE_BARRIER_OP = 25,
}

constants! { DatExtendedOp:
    /// int counter type.
    DAT_IB_START_COUNTERS_OP = 26,
    /// int counter type.
    DAT_IB_STOP_COUNTERS_OP = 27,
    /// Eight-byte context of a UD connection event.
    DAT_IB_UD_CM_FREE_OP = 28,
    /// `DatIbAddrHandle*`.
    DAT_IB_UD_AH_FREE_OP = 29,
    /// Name, `DatIaHandle*`, IA mask, `DatIaAttr*`, provider mask, `DatProviderAttr*`; null handle.
    DAT_IB_OPEN_QUERY_OP = 0x1000,
    /// No arguments; the handle is the one that the open query returned.
    DAT_IB_CLOSE_QUERY_OP = 0x2000,
}

constants! { DatEventNumber:
    /// An extension operation is done; see `dto_completion_event_data` and the extension data.
    DAT_IB_DTO_EVENT = 0x0004_0000,
    /// A UD connection request; see `cr_arrival_event_data`.
    DAT_IB_UD_CONNECTION_REQUEST_EVENT = 0x0004_0001,
    /// A UD peer can be addressed; see `connect_event_data` and `remote_ah`.
    DAT_IB_UD_CONNECTION_EVENT_ESTABLISHED = 0x0004_0002,
    /// A UD peer rejected the request.
    DAT_IB_UD_CONNECTION_REJECT_EVENT = 0x0004_0003,
    /// A UD connection failed.
    DAT_IB_UD_CONNECTION_ERROR_EVENT = 0x0004_0004,
    /// A collective operation is done.
    DAT_IB_COLLECTIVE_EVENT = 0x0004_0005,
}

/// `DAT_IB_EXT_TYPE`: kind of the extension data of an event.
pub type DatIbExtType = u32;

named_constants! { DatIbExtType:
    DAT_IB_FETCH_AND_ADD = 0,
    DAT_IB_CMP_AND_SWAP = 1,
    /// RDMA write with immediate data, at the requester.
    DAT_IB_RDMA_WRITE_IMMED = 2,
    /// Immediate data of an RDMA write, at the target.
    DAT_IB_RDMA_WRITE_IMMED_DATA = 3,
    /// Immediate data of a send, at the receiver.
    DAT_IB_RECV_IMMED_DATA = 4,
    DAT_IB_UD_CONNECT_REQUEST = 5,
    /// Address handle of the peer, on the active side.
    DAT_IB_UD_REMOTE_AH = 6,
    /// Address handle of the peer, on the passive side.
    DAT_IB_UD_PASSIVE_REMOTE_AH = 7,
    DAT_IB_UD_SEND = 8,
    DAT_IB_UD_RECV = 9,
    DAT_IB_UD_CONNECT_REJECT = 10,
    DAT_IB_UD_CONNECT_ERROR = 11,
}

// Collective operations.
named_constants! { DatIbExtType:
    DAT_IB_COLLECTIVE_CREATE_STATUS = 12,
    DAT_IB_COLLECTIVE_CREATE_DATA = 13,
    DAT_IB_COLLECTIVE_CLOCK_SET_STATUS = 14,
    DAT_IB_COLLECTIVE_SCATTER_STATUS = 15,
    DAT_IB_COLLECTIVE_SCATTERV_STATUS = 16,
    DAT_IB_COLLECTIVE_GATHER_STATUS = 17,
    DAT_IB_COLLECTIVE_GATHERV_STATUS = 18,
    DAT_IB_COLLECTIVE_ALLGATHER_STATUS = 19,
    DAT_IB_COLLECTIVE_ALLGATHERV_STATUS = 20,
    DAT_IB_COLLECTIVE_ALLTOALL_STATUS = 21,
    DAT_IB_COLLECTIVE_ALLTOALLV_STATUS = 22,
    DAT_IB_COLLECTIVE_REDUCE_STATUS = 23,
    DAT_IB_COLLECTIVE_ALLREDUCE_STATUS = 24,
    DAT_IB_COLLECTIVE_REDUCE_SCATTER_STATUS = 25,
    DAT_IB_COLLECTIVE_SCAN_STATUS = 26,
    DAT_IB_COLLECTIVE_BROADCAST_STATUS = 27,
    DAT_IB_COLLECTIVE_BARRIER_STATUS = 28,
}

/// `DAT_IB_STATUS` of an extension event.
pub type DatIbStatus = u32;

named_constants! { DatIbStatus:
    DAT_OP_SUCCESS = 0,
    /// The operation failed.
    DAT_IB_OP_ERR = 1,
    /// The collective operation failed.
    DAT_IB_COLL_COMP_ERR = 2,
}

constants! { DatReturnType:
    /// Return type: an IB error.
    DAT_IB_ERR = DatReturnType(0x1000_0000),
}

/// Complete return value: an error of the collective operations. As in the C header, it is in the
/// subtype bits of [`DAT_IB_ERR`].
pub const DAT_IB_COLLECTIVE_ERR: DatReturn = DatReturn(0x1000_0001);

named_constants! { DatDtos:
    /// RDMA write with immediate data, at the requester.
    DAT_IB_DTO_RDMA_WRITE_IMMED = 8,
    /// RDMA write with immediate data, at the target; consumed a posted receive.
    DAT_IB_DTO_RECV_IMMED = 9,
    DAT_IB_DTO_FETCH_ADD = 10,
    DAT_IB_DTO_CMP_SWAP = 11,
    /// Receive of a send with immediate data.
    DAT_IB_DTO_RECV_MSG_IMMED = 12,
    DAT_IB_DTO_SEND_UD = 13,
    DAT_IB_DTO_RECV_UD = 14,
    DAT_IB_DTO_RECV_UD_IMMED = 15,
    DAT_IB_DTO_COLLECTIVES = 16,
}

constants! { DatHandleType:
    /// Handle type of extension objects.
    DAT_IB_HANDLE_TYPE_EXT = 12,
    /// Handle type of collective groups.
    DAT_IB_HANDLE_TYPE_COLLECTIVE = 13,
}

/// EVD flag of extension events. EVDs for DTO, connection requests or connection events deliver the
/// extension events of those streams without this flag.
pub const DAT_IB_EVD_EXTENSION_FLAG: DatEvdFlags = DAT_EVD_EXTENSION_BASE;
/// Memory privilege: the peer may use atomic operations.
pub const DAT_IB_MEM_PRIV_REMOTE_ATOMIC: DatMemPrivFlags = DAT_MEM_PRIV_EXTENSION_BASE;
/// Service type: unreliable datagrams.
pub const DAT_IB_SERVICE_TYPE_UD: DatServiceType = DAT_SERVICE_TYPE_EXTENSION_BASE;

c_structs! {
    /// `DAT_IB_ADDR_HANDLE`: address of a UD peer.
    pub struct DatIbAddrHandle, size 40 {
        /// Address handle of the verbs library.
        ah @ 0: *mut c_void,
        qpn @ 8: DatUint32,
        /// Address of the peer's IA.
        ia_addr @ 12: DatSockAddr6,
    }

    /// `DAT_IB_IMMED_DATA`.
    pub struct DatIbImmedData, size 4 {
        /// The four bytes, in host order.
        data @ 0: DatUint32,
    }

    /// `DAT_IB_COLLECTIVE_EVENT_DATA`.
    pub struct DatIbCollectiveEventData, size 16 {
        handle @ 0: DatHandle,
        /// Context passed with the operation.
        context @ 8: DatContext,
    }
}

/// The address or group of an extension event; its type selects the member.
#[repr(C)]
#[derive(Clone, Copy)]
pub union DatIbExtensionPeer {
    /// For UD connections and receives.
    pub remote_ah: DatIbAddrHandle,
    /// For collective operations.
    pub coll: DatIbCollectiveEventData,
}

impl fmt::Debug for DatIbExtensionPeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The type of the event, which is not part of the union, selects the initialised member.
        f.write_str("DatIbExtensionPeer(..)")
    }
}

c_structs! {
    /// `DAT_IB_EXTENSION_EVENT_DATA`: content of `event_extension_data` of a [`DatEvent`].
    pub struct DatIbExtensionEventData, size 64 {
        r#type @ 0: DatIbExtType,
        /// Completion status; for transfers the DTO status.
        status @ 4: DatIbStatus,
        /// Immediate data (the C member `val.immed`).
        immed @ 8: DatIbImmedData,
        /// Address or group (an unnamed union in C).
        peer @ 16: DatIbExtensionPeer,
        /// Context of UD connections.
        context @ 56: DatContext,
    }
}

assert_layout!(DatIbExtensionPeer, size 40);

impl_zeroed!(DatIbExtensionPeer);
