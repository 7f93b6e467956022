//! Counters of the IB extension: the index of each counter in the arrays that
//! [`DAT_IB_QUERY_COUNTERS_OP`](crate::DAT_IB_QUERY_COUNTERS_OP) copies out.
//!
//! Each counter is a u64. A name that ends with `_DATA` counts bytes, and every other name events.
//! The `ALL` index requests the whole array and is its length.

/// Declares constants from a number on, and a list of their names in the order of the numbers.
macro_rules! counters {
    (
        $ty:ident, $names:ident, from $first:literal:
        $($(#[$meta:meta])* $name:ident = $value:expr),+ $(,)?
    ) => {
        named_constants! { $ty: $($(#[$meta])* $name = $value),+ }

        /// The names of these counters in the order of their numbers; the last one is for all
        /// counters.
        pub const $names: &[&str] = &[$(stringify!($name)),+];

        const _: () = {
            let mut number = $first;
            $(
                assert!($value == number, "a gap in the numbers");
                number += 1;
            )+
            assert!((number - $first) as usize == $names.len());
        };
    };
}

/// Counters of an IA.
pub type DatIaCounters = u32;

counters! { DatIaCounters, DAT_IA_COUNTER_NAMES, from 0:
    DCNT_IA_PZ_CREATE = 0,
    DCNT_IA_PZ_FREE = 1,
    DCNT_IA_LMR_CREATE = 2,
    DCNT_IA_LMR_FREE = 3,
    DCNT_IA_RMR_CREATE = 4,
    DCNT_IA_RMR_FREE = 5,
    DCNT_IA_PSP_CREATE = 6,
    DCNT_IA_PSP_CREATE_ANY = 7,
    DCNT_IA_PSP_FREE = 8,
    DCNT_IA_RSP_CREATE = 9,
    DCNT_IA_RSP_FREE = 10,
    DCNT_IA_EVD_CREATE = 11,
    DCNT_IA_EVD_FREE = 12,
    DCNT_IA_EP_CREATE = 13,
    DCNT_IA_EP_FREE = 14,
    DCNT_IA_SRQ_CREATE = 15,
    DCNT_IA_SRQ_FREE = 16,
    DCNT_IA_SP_CR = 17,
    DCNT_IA_SP_CR_ACCEPTED = 18,
    DCNT_IA_SP_CR_REJECTED = 19,
    DCNT_IA_MEM_ALLOC = 20,
    DCNT_IA_MEM_ALLOC_DATA = 21,
    DCNT_IA_MEM_FREE = 22,
    DCNT_IA_ASYNC_ERROR = 23,
    DCNT_IA_ASYNC_QP_ERROR = 24,
    DCNT_IA_ASYNC_CQ_ERROR = 25,
    DCNT_IA_CM_LISTEN = 26,
    DCNT_IA_CM_REQ_TX = 27,
    DCNT_IA_CM_REQ_RX = 28,
    DCNT_IA_CM_REP_TX = 29,
    DCNT_IA_CM_REP_RX = 30,
    DCNT_IA_CM_RTU_TX = 31,
    DCNT_IA_CM_RTU_RX = 32,
    DCNT_IA_CM_USER_REJ_TX = 33,
    DCNT_IA_CM_USER_REJ_RX = 34,
    DCNT_IA_CM_ACTIVE_EST = 35,
    DCNT_IA_CM_PASSIVE_EST = 36,
    DCNT_IA_CM_AH_REQ_TX = 37,
    DCNT_IA_CM_AH_REQ_RX = 38,
    DCNT_IA_CM_AH_RESOLVED = 39,
    DCNT_IA_CM_DREQ_TX = 40,
    DCNT_IA_CM_DREQ_RX = 41,
    DCNT_IA_CM_DREP_TX = 42,
    DCNT_IA_CM_DREP_RX = 43,
    DCNT_IA_CM_MRA_TX = 44,
    DCNT_IA_CM_MRA_RX = 45,
    DCNT_IA_CM_REQ_FULLQ_POLL = 46,
    DCNT_IA_CM_ERR = 47,
    DCNT_IA_CM_ERR_REQ_FULLQ = 48,
    DCNT_IA_CM_ERR_REQ_DUP = 49,
    DCNT_IA_CM_ERR_REQ_RETRY = 50,
    DCNT_IA_CM_ERR_REP_DUP = 51,
    DCNT_IA_CM_ERR_REP_RETRY = 52,
    DCNT_IA_CM_ERR_RTU_DUP = 53,
    DCNT_IA_CM_ERR_RTU_RETRY = 54,
    DCNT_IA_CM_ERR_REFUSED = 55,
    DCNT_IA_CM_ERR_RESET = 56,
    DCNT_IA_CM_ERR_TIMEOUT = 57,
    DCNT_IA_CM_ERR_REJ_TX = 58,
    DCNT_IA_CM_ERR_REJ_RX = 59,
    DCNT_IA_CM_ERR_DREQ_DUP = 60,
    DCNT_IA_CM_ERR_DREQ_RETRY = 61,
    DCNT_IA_CM_ERR_DREP_DUP = 62,
    DCNT_IA_CM_ERR_DREP_RETRY = 63,
    DCNT_IA_CM_ERR_MRA_DUP = 0x40,
    DCNT_IA_CM_ERR_MRA_RETRY = 0x41,
    DCNT_IA_CM_ERR_UNEXPECTED = 0x42,
    DCNT_IA_LNK_ERR_RCV = 0x43,
    DCNT_IA_LNK_ERR_RCV_REM_PHYS = 0x44,
    DCNT_IA_LNK_ERR_RCV_CONSTRAINT = 0x45,
    DCNT_IA_LNK_ERR_XMT_DISCARDS = 0x46,
    DCNT_IA_LNK_ERR_XMT_CONTRAINT = 0x47,
    DCNT_IA_LNK_ERR_INTEGRITY = 0x48,
    DCNT_IA_LNK_ERR_EXC_BUF_OVERRUN = 0x49,
    DCNT_IA_LNK_WARN_RCV_SW_RELAY = 0x4A,
    DCNT_IA_LNK_WARN_XMT_WAIT = 0x4B,
    DCNT_IA_DIAG_ERR_RQ_RAE = 0x4C,
    DCNT_IA_DIAG_ERR_RQ_OOS = 0x4D,
    DCNT_IA_DIAG_ERR_RQ_RIRE = 0x4E,
    DCNT_IA_DIAG_ERR_RQ_UDSDPRD = 0x4F,
    DCNT_IA_DIAG_ERR_SQ_RAE = 0x50,
    DCNT_IA_DIAG_ERR_SQ_OOS = 0x51,
    DCNT_IA_DIAG_ERR_SQ_RIRE = 0x52,
    DCNT_IA_DIAG_ERR_SQ_RREE = 0x53,
    DCNT_IA_DIAG_ERR_SQ_TREE = 0x54,
    DCNT_IA_ALL_COUNTERS = 0x55,
}

/// Counters of an endpoint.
pub type DatEpCounters = u32;

counters! { DatEpCounters, DAT_EP_COUNTER_NAMES, from 0:
    DCNT_EP_CONNECT = 0,
    DCNT_EP_DISCONNECT = 1,
    DCNT_EP_POST_SEND = 2,
    DCNT_EP_POST_SEND_DATA = 3,
    DCNT_EP_POST_SEND_UD = 4,
    DCNT_EP_POST_SEND_UD_DATA = 5,
    DCNT_EP_POST_RECV = 6,
    DCNT_EP_POST_RECV_DATA = 7,
    DCNT_EP_POST_WRITE = 8,
    DCNT_EP_POST_WRITE_DATA = 9,
    DCNT_EP_POST_WRITE_IMM = 10,
    DCNT_EP_POST_WRITE_IMM_DATA = 11,
    DCNT_EP_POST_READ = 12,
    DCNT_EP_POST_READ_DATA = 13,
    DCNT_EP_POST_CMP_SWAP = 14,
    DCNT_EP_POST_FETCH_ADD = 15,
    DCNT_EP_RECV = 16,
    DCNT_EP_RECV_DATA = 17,
    DCNT_EP_RECV_UD = 18,
    DCNT_EP_RECV_UD_DATA = 19,
    DCNT_EP_RECV_IMM = 20,
    DCNT_EP_RECV_IMM_DATA = 21,
    DCNT_EP_RECV_RDMA_IMM = 22,
    DCNT_EP_RECV_RDMA_IMM_DATA = 23,
    DCNT_EP_ALL_COUNTERS = 24,
}

/// Counters of an event dispatcher.
pub type DatEvdCounters = u32;

counters! { DatEvdCounters, DAT_EVD_COUNTER_NAMES, from 0:
    DCNT_EVD_WAIT = 0,
    DCNT_EVD_WAIT_BLOCKED = 1,
    DCNT_EVD_WAIT_NOTIFY = 2,
    DCNT_EVD_DEQUEUE = 3,
    DCNT_EVD_DEQUEUE_FOUND = 4,
    DCNT_EVD_DEQUEUE_NOT_FOUND = 5,
    DCNT_EVD_DEQUEUE_POLL = 6,
    DCNT_EVD_DEQUEUE_POLL_FOUND = 7,
    DCNT_EVD_CONN_CALLBACK = 8,
    DCNT_EVD_DTO_CALLBACK = 9,
    DCNT_EVD_ALL_COUNTERS = 10,
}

/// `DAT_IA_COUNTER_TYPE`: family of IA counters to start or stop.
pub type DatIaCounterType = u32;

named_constants! { DatIaCounterType:
    /// Connection management.
    DCNT_IA_CM = 0,
    DCNT_IA_LNK = 1,
    DCNT_IA_DIAG = 2,
}
