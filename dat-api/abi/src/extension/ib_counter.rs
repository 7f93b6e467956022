//! Counters of the IB extension: the index of each counter in the arrays that
//! [`DAT_IB_QUERY_COUNTERS_OP`](crate::DAT_IB_QUERY_COUNTERS_OP) copies out.
//!
//! Each counter is a u64. The `ALL` index requests the whole array and is its length.

/// Declares constants from a number on, and a list of their names in the order of the numbers.
macro_rules! counters {
    (
        $ty:ty, $names:ident, from $first:literal:
        $($(#[$meta:meta])* $name:ident = $value:expr),+ $(,)?
    ) => {
        constants! { $ty: $($(#[$meta])* $name = $value),+ }

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
    /// Number of `pz_create`.
    DCNT_IA_PZ_CREATE = 0,
    /// Number of `pz_free`.
    DCNT_IA_PZ_FREE = 1,
    /// Number of `lmr_create`.
    DCNT_IA_LMR_CREATE = 2,
    /// Number of `lmr_free`.
    DCNT_IA_LMR_FREE = 3,
    /// Number of `rmr_create`.
    DCNT_IA_RMR_CREATE = 4,
    /// Number of `rmr_free`.
    DCNT_IA_RMR_FREE = 5,
    /// Number of `psp_create`.
    DCNT_IA_PSP_CREATE = 6,
    /// Number of `psp_create_any`.
    DCNT_IA_PSP_CREATE_ANY = 7,
    /// Number of `psp_free`.
    DCNT_IA_PSP_FREE = 8,
    /// Number of `rsp_create`.
    DCNT_IA_RSP_CREATE = 9,
    /// Number of `rsp_free`.
    DCNT_IA_RSP_FREE = 10,
    /// Number of `evd_create`.
    DCNT_IA_EVD_CREATE = 11,
    /// Number of `evd_free`.
    DCNT_IA_EVD_FREE = 12,
    /// Number of `ep_create`.
    DCNT_IA_EP_CREATE = 13,
    /// Number of `ep_free`.
    DCNT_IA_EP_FREE = 14,
    /// Number of `srq_create`.
    DCNT_IA_SRQ_CREATE = 15,
    /// Number of `srq_free`.
    DCNT_IA_SRQ_FREE = 16,
    /// Number of `sp_cr`.
    DCNT_IA_SP_CR = 17,
    /// Number of `sp_cr_accepted`.
    DCNT_IA_SP_CR_ACCEPTED = 18,
    /// Number of `sp_cr_rejected`.
    DCNT_IA_SP_CR_REJECTED = 19,
    /// Number of `mem_alloc`.
    DCNT_IA_MEM_ALLOC = 20,
    /// Bytes of `mem_alloc`.
    DCNT_IA_MEM_ALLOC_DATA = 21,
    /// Number of `mem_free`.
    DCNT_IA_MEM_FREE = 22,
    /// Number of `async_error`.
    DCNT_IA_ASYNC_ERROR = 23,
    /// Number of `async_qp_error`.
    DCNT_IA_ASYNC_QP_ERROR = 24,
    /// Number of `async_cq_error`.
    DCNT_IA_ASYNC_CQ_ERROR = 25,
    /// Number of `cm_listen`.
    DCNT_IA_CM_LISTEN = 26,
    /// Number of `cm_req_tx`.
    DCNT_IA_CM_REQ_TX = 27,
    /// Number of `cm_req_rx`.
    DCNT_IA_CM_REQ_RX = 28,
    /// Number of `cm_rep_tx`.
    DCNT_IA_CM_REP_TX = 29,
    /// Number of `cm_rep_rx`.
    DCNT_IA_CM_REP_RX = 30,
    /// Number of `cm_rtu_tx`.
    DCNT_IA_CM_RTU_TX = 31,
    /// Number of `cm_rtu_rx`.
    DCNT_IA_CM_RTU_RX = 32,
    /// Number of `cm_user_rej_tx`.
    DCNT_IA_CM_USER_REJ_TX = 33,
    /// Number of `cm_user_rej_rx`.
    DCNT_IA_CM_USER_REJ_RX = 34,
    /// Number of `cm_active_est`.
    DCNT_IA_CM_ACTIVE_EST = 35,
    /// Number of `cm_passive_est`.
    DCNT_IA_CM_PASSIVE_EST = 36,
    /// Number of `cm_ah_req_tx`.
    DCNT_IA_CM_AH_REQ_TX = 37,
    /// Number of `cm_ah_req_rx`.
    DCNT_IA_CM_AH_REQ_RX = 38,
    /// Number of `cm_ah_resolved`.
    DCNT_IA_CM_AH_RESOLVED = 39,
    /// Number of `cm_dreq_tx`.
    DCNT_IA_CM_DREQ_TX = 40,
    /// Number of `cm_dreq_rx`.
    DCNT_IA_CM_DREQ_RX = 41,
    /// Number of `cm_drep_tx`.
    DCNT_IA_CM_DREP_TX = 42,
    /// Number of `cm_drep_rx`.
    DCNT_IA_CM_DREP_RX = 43,
    /// Number of `cm_mra_tx`.
    DCNT_IA_CM_MRA_TX = 44,
    /// Number of `cm_mra_rx`.
    DCNT_IA_CM_MRA_RX = 45,
    /// Number of `cm_req_fullq_poll`.
    DCNT_IA_CM_REQ_FULLQ_POLL = 46,
    /// Number of `cm_err`.
    DCNT_IA_CM_ERR = 47,
    /// Number of `cm_err_req_fullq`.
    DCNT_IA_CM_ERR_REQ_FULLQ = 48,
    /// Number of `cm_err_req_dup`.
    DCNT_IA_CM_ERR_REQ_DUP = 49,
    /// Number of `cm_err_req_retry`.
    DCNT_IA_CM_ERR_REQ_RETRY = 50,
    /// Number of `cm_err_rep_dup`.
    DCNT_IA_CM_ERR_REP_DUP = 51,
    /// Number of `cm_err_rep_retry`.
    DCNT_IA_CM_ERR_REP_RETRY = 52,
    /// Number of `cm_err_rtu_dup`.
    DCNT_IA_CM_ERR_RTU_DUP = 53,
    /// Number of `cm_err_rtu_retry`.
    DCNT_IA_CM_ERR_RTU_RETRY = 54,
    /// Number of `cm_err_refused`.
    DCNT_IA_CM_ERR_REFUSED = 55,
    /// Number of `cm_err_reset`.
    DCNT_IA_CM_ERR_RESET = 56,
    /// Number of `cm_err_timeout`.
    DCNT_IA_CM_ERR_TIMEOUT = 57,
    /// Number of `cm_err_rej_tx`.
    DCNT_IA_CM_ERR_REJ_TX = 58,
    /// Number of `cm_err_rej_rx`.
    DCNT_IA_CM_ERR_REJ_RX = 59,
    /// Number of `cm_err_dreq_dup`.
    DCNT_IA_CM_ERR_DREQ_DUP = 60,
    /// Number of `cm_err_dreq_retry`.
    DCNT_IA_CM_ERR_DREQ_RETRY = 61,
    /// Number of `cm_err_drep_dup`.
    DCNT_IA_CM_ERR_DREP_DUP = 62,
    /// Number of `cm_err_drep_retry`.
    DCNT_IA_CM_ERR_DREP_RETRY = 63,
    /// Number of `cm_err_mra_dup`.
    DCNT_IA_CM_ERR_MRA_DUP = 0x40,
    /// Number of `cm_err_mra_retry`.
    DCNT_IA_CM_ERR_MRA_RETRY = 0x41,
    /// Number of `cm_err_unexpected`.
    DCNT_IA_CM_ERR_UNEXPECTED = 0x42,
    /// Number of `lnk_err_rcv`.
    DCNT_IA_LNK_ERR_RCV = 0x43,
    /// Number of `lnk_err_rcv_rem_phys`.
    DCNT_IA_LNK_ERR_RCV_REM_PHYS = 0x44,
    /// Number of `lnk_err_rcv_constraint`.
    DCNT_IA_LNK_ERR_RCV_CONSTRAINT = 0x45,
    /// Number of `lnk_err_xmt_discards`.
    DCNT_IA_LNK_ERR_XMT_DISCARDS = 0x46,
    /// Number of `lnk_err_xmt_contraint`.
    DCNT_IA_LNK_ERR_XMT_CONTRAINT = 0x47,
    /// Number of `lnk_err_integrity`.
    DCNT_IA_LNK_ERR_INTEGRITY = 0x48,
    /// Number of `lnk_err_exc_buf_overrun`.
    DCNT_IA_LNK_ERR_EXC_BUF_OVERRUN = 0x49,
    /// Number of `lnk_warn_rcv_sw_relay`.
    DCNT_IA_LNK_WARN_RCV_SW_RELAY = 0x4A,
    /// Number of `lnk_warn_xmt_wait`.
    DCNT_IA_LNK_WARN_XMT_WAIT = 0x4B,
    /// Number of `diag_err_rq_rae`.
    DCNT_IA_DIAG_ERR_RQ_RAE = 0x4C,
    /// Number of `diag_err_rq_oos`.
    DCNT_IA_DIAG_ERR_RQ_OOS = 0x4D,
    /// Number of `diag_err_rq_rire`.
    DCNT_IA_DIAG_ERR_RQ_RIRE = 0x4E,
    /// Number of `diag_err_rq_udsdprd`.
    DCNT_IA_DIAG_ERR_RQ_UDSDPRD = 0x4F,
    /// Number of `diag_err_sq_rae`.
    DCNT_IA_DIAG_ERR_SQ_RAE = 0x50,
    /// Number of `diag_err_sq_oos`.
    DCNT_IA_DIAG_ERR_SQ_OOS = 0x51,
    /// Number of `diag_err_sq_rire`.
    DCNT_IA_DIAG_ERR_SQ_RIRE = 0x52,
    /// Number of `diag_err_sq_rree`.
    DCNT_IA_DIAG_ERR_SQ_RREE = 0x53,
    /// Number of `diag_err_sq_tree`.
    DCNT_IA_DIAG_ERR_SQ_TREE = 0x54,
    /// All counters.
    DCNT_IA_ALL_COUNTERS = 0x55,
}

/// Counters of an endpoint.
pub type DatEpCounters = u32;

counters! { DatEpCounters, DAT_EP_COUNTER_NAMES, from 0:
    /// Number of `connect`.
    DCNT_EP_CONNECT = 0,
    /// Number of `disconnect`.
    DCNT_EP_DISCONNECT = 1,
    /// Number of `post_send`.
    DCNT_EP_POST_SEND = 2,
    /// Bytes of `post_send`.
    DCNT_EP_POST_SEND_DATA = 3,
    /// Number of `post_send_ud`.
    DCNT_EP_POST_SEND_UD = 4,
    /// Bytes of `post_send_ud`.
    DCNT_EP_POST_SEND_UD_DATA = 5,
    /// Number of `post_recv`.
    DCNT_EP_POST_RECV = 6,
    /// Bytes of `post_recv`.
    DCNT_EP_POST_RECV_DATA = 7,
    /// Number of `post_write`.
    DCNT_EP_POST_WRITE = 8,
    /// Bytes of `post_write`.
    DCNT_EP_POST_WRITE_DATA = 9,
    /// Number of `post_write_imm`.
    DCNT_EP_POST_WRITE_IMM = 10,
    /// Bytes of `post_write_imm`.
    DCNT_EP_POST_WRITE_IMM_DATA = 11,
    /// Number of `post_read`.
    DCNT_EP_POST_READ = 12,
    /// Bytes of `post_read`.
    DCNT_EP_POST_READ_DATA = 13,
    /// Number of `post_cmp_swap`.
    DCNT_EP_POST_CMP_SWAP = 14,
    /// Number of `post_fetch_add`.
    DCNT_EP_POST_FETCH_ADD = 15,
    /// Number of `recv`.
    DCNT_EP_RECV = 16,
    /// Bytes of `recv`.
    DCNT_EP_RECV_DATA = 17,
    /// Number of `recv_ud`.
    DCNT_EP_RECV_UD = 18,
    /// Bytes of `recv_ud`.
    DCNT_EP_RECV_UD_DATA = 19,
    /// Number of `recv_imm`.
    DCNT_EP_RECV_IMM = 20,
    /// Bytes of `recv_imm`.
    DCNT_EP_RECV_IMM_DATA = 21,
    /// Number of `recv_rdma_imm`.
    DCNT_EP_RECV_RDMA_IMM = 22,
    /// Bytes of `recv_rdma_imm`.
    DCNT_EP_RECV_RDMA_IMM_DATA = 23,
    /// All counters.
    DCNT_EP_ALL_COUNTERS = 24,
}

/// Counters of an event dispatcher.
pub type DatEvdCounters = u32;

counters! { DatEvdCounters, DAT_EVD_COUNTER_NAMES, from 0:
    /// Number of `wait`.
    DCNT_EVD_WAIT = 0,
    /// Number of `wait_blocked`.
    DCNT_EVD_WAIT_BLOCKED = 1,
    /// Number of `wait_notify`.
    DCNT_EVD_WAIT_NOTIFY = 2,
    /// Number of `dequeue`.
    DCNT_EVD_DEQUEUE = 3,
    /// Number of `dequeue_found`.
    DCNT_EVD_DEQUEUE_FOUND = 4,
    /// Number of `dequeue_not_found`.
    DCNT_EVD_DEQUEUE_NOT_FOUND = 5,
    /// Number of `dequeue_poll`.
    DCNT_EVD_DEQUEUE_POLL = 6,
    /// Number of `dequeue_poll_found`.
    DCNT_EVD_DEQUEUE_POLL_FOUND = 7,
    /// Number of `conn_callback`.
    DCNT_EVD_CONN_CALLBACK = 8,
    /// Number of `dto_callback`.
    DCNT_EVD_DTO_CALLBACK = 9,
    /// All counters.
    DCNT_EVD_ALL_COUNTERS = 10,
}

/// `DAT_IA_COUNTER_TYPE`: family of IA counters to start or stop.
pub type DatIaCounterType = u32;

constants! { DatIaCounterType:
    /// Connection management.
    DCNT_IA_CM = 0,
    /// Link.
    DCNT_IA_LNK = 1,
    /// Diagnosis.
    DCNT_IA_DIAG = 2,
}
