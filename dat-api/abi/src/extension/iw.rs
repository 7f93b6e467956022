//! The iWARP extension: Socket Service Points (iWARP Transport Specific Extensions for DAT 2.0).
//!
//! A connected TCP socket becomes an RDMA connection: at the passive end through a Socket Service
//! Point, at the active end through `dat_iw_socket_connect`. The operation numbers are defined by
//! dat-rs. The only header that ever defined numbers, 0 to 3, collides with IB operations, and its
//! macros do not compile, so no binary uses them. The numbers here do not overlap the open and
//! close bits 0x1000 and 0x2000.

use crate::*;
use core::ffi::{CStr, c_int};

/// Version of the extension, reported in `extension_version` by providers with iWARP extensions
/// only.
pub const DAT_IW_EXTENSION_VERSION: DatCount = 201;

constants! { &CStr:
    /// Named attribute: the extension interface.
    DAT_EXTENSION_ATTR = c"DAT_EXTENSION_INTERFACE",
    /// Named attribute: version of the extension interface.
    DAT_EXTENSION_ATTR_VERSION = c"DAT_EXTENSION_VERSION",
    /// Value of [`DAT_EXTENSION_ATTR_VERSION`].
    DAT_EXTENSION_ATTR_VERSION_VALUE = c"2.0.1",
    /// Named attribute: present if Socket Service Points are supported.
    DAT_IW_ATTR_SSP = c"DAT_IW_ATTR_SSP",
}

/// `DAT_IW_SOCKET`: a socket descriptor.
pub type DatIwSocket = c_int;
/// `DAT_IW_SSP_HANDLE`.
pub type DatIwSspHandle = DatHandle;

constants! { DatExtendedOp:
    /// Creates a Socket Service Point. Handle: IA. Arguments: int socket, EP, EVD, `void*` last
    /// streaming-mode message, int its length, `DatIwSspHandle*`.
    DAT_IW_SSP_CREATE_OP = 0x400,
    /// Frees a Socket Service Point. Handle: SSP. No arguments.
    DAT_IW_SSP_FREE_OP = 0x401,
    /// Queries a Socket Service Point. Handle: SSP. Arguments: mask, `DatIwSspParam*`.
    DAT_IW_SSP_QUERY_OP = 0x402,
    /// Connects an endpoint over a socket. Handle: EP. Arguments: int socket, u32 timeout in
    /// microseconds, int private data size, `const void*` private data.
    DAT_IW_SOCKET_CONNECT_OP = 0x403,
}

/// Handle type of Socket Service Points.
pub const DAT_IW_HANDLE_TYPE_SSP: DatHandleType = DAT_HANDLE_TYPE_EXTENSION_BASE;

/// The socket of a Socket Service Point was lost before a connection request was received over it.
/// Delivered on the EVD of the service point with `cr_arrival_event_data`: `sp_handle` is the
/// service point, `cr_handle` is null.
pub const DAT_CONNECTION_EVENT_SOCKET_DOWN: DatEventNumber = 0x8_0001;

/// `DAT_IW_SSP_STATE`.
pub type DatIwSspState = u32;

constants! { DatIwSspState:
    /// The socket is attached and a connection request may be received.
    DAT_IW_SSP_STATE_OPERATIONAL = 0,
    /// A connection request was received, or the socket was lost.
    DAT_IW_SSP_STATE_NON_OPERATIONAL = 1,
}

/// `DAT_IW_SSP_PARAM_MASK`.
pub type DatIwSspParamMask = u32;

named_constants! { DatIwSspParamMask:
    DAT_IW_SSP_FIELD_IA_HANDLE = 0x01,
    DAT_IW_SSP_FIELD_SOCKET_ID = 0x02,
    DAT_IW_SSP_FIELD_EVD_HANDLE = 0x04,
    DAT_IW_SSP_FIELD_EP_HANDLE = 0x08,
    DAT_IW_SSP_FIELD_SSP_STATE = 0x10,
    DAT_IW_SSP_FIELD_ALL = 0x1F,
}

c_structs! {
    /// `DAT_IW_SSP_PARAM`.
    pub struct DatIwSspParam, size 40 {
        ia_handle @ 0: DatIaHandle,
        socket_id @ 8: DatIwSocket,
        /// EVD that receives the connection request.
        evd_handle @ 16: DatEvdHandle,
        /// The endpoint reserved for the connection.
        ep_handle @ 24: DatEpHandle,
        ssp_state @ 32: DatIwSspState,
    }
}
