//! Types of the collective operations of the IB extension. Providers in the field return "not
//! implemented" for all of these operations; the types are here so that the interface is complete.

use crate::{DatHandle, DatPvoid};
use core::ffi::{CStr, c_int, c_uint};

/// `DAT_IB_COLLECTIVE_HANDLE`.
pub type DatIbCollectiveHandle = DatHandle;
/// `DAT_IB_COLLECTIVE_RANK`.
pub type DatIbCollectiveRank = c_uint;
/// `DAT_IB_COLLECTIVE_ID`.
pub type DatIbCollectiveId = c_uint;
/// `DAT_IB_COLLECTIVE_MEMBER`.
pub type DatIbCollectiveMember = DatPvoid;
/// `DAT_IB_COLLECTIVE_DATA_TYPE`.
pub type DatIbCollectiveDataType = u32;
/// `DAT_IB_COLLECTIVE_REDUCE_DATA_OP`.
pub type DatIbCollectiveReduceDataOp = u32;

constants! { &CStr:
    /// Named attribute: support of set clock.
    DAT_IB_COLL_SET_CLOCK = c"DAT_COLL_SET_CLOCK",
    /// Named attribute: support of read clock.
    DAT_IB_COLL_READ_CLOCK = c"DAT_COLL_READ_CLOCK",
    /// Named attribute: support of broadcast.
    DAT_IB_COLL_BROADCAST = c"DAT_COLL_BROADCAST",
    /// Named attribute: support of barrier.
    DAT_IB_COLL_BARRIER = c"DAT_COLL_BARRIER",
    /// Named attribute: support of scatter.
    DAT_IB_COLL_SCATTER = c"DAT_COLL_SCATTER",
    /// Named attribute: support of scatterv.
    DAT_IB_COLL_SCATTERV = c"DAT_COLL_SCATTERV",
    /// Named attribute: support of gather.
    DAT_IB_COLL_GATHER = c"DAT_COLL_GATHER",
    /// Named attribute: support of gatherv.
    DAT_IB_COLL_GATHERV = c"DAT_COLL_GATHERV",
    /// Named attribute: support of allgather.
    DAT_IB_COLL_ALLGATHER = c"DAT_COLL_ALLGATHER",
    /// Named attribute: support of allgatherv.
    DAT_IB_COLL_ALLGATHERV = c"DAT_COLL_ALLGATHERV",
    /// Named attribute: support of alltoall.
    DAT_IB_COLL_ALLTOALL = c"DAT_COLL_ALLTOALL",
    /// Named attribute: support of alltoallv.
    DAT_IB_COLL_ALLTOALLV = c"DAT_COLL_ALLTOALLV",
    /// Named attribute: support of reduce.
    DAT_IB_COLL_REDUCE = c"DAT_COLL_REDUCE",
    /// Named attribute: support of allreduce.
    DAT_IB_COLL_ALLREDUCE = c"DAT_COLL_ALLREDUCE",
    /// Named attribute: support of reduce scatter.
    DAT_IB_COLL_REDUCE_SCATTER = c"DAT_COLL_REDUCE_SCATTER",
    /// Named attribute: support of scan.
    DAT_IB_COLL_SCAN = c"DAT_COLL_SCAN",
}

named_constants! { DatIbCollectiveDataType:
    DAT_IB_COLLECTIVE_TYPE_INT8 = 0,
    DAT_IB_COLLECTIVE_TYPE_UINT8 = 1,
    DAT_IB_COLLECTIVE_TYPE_INT16 = 2,
    DAT_IB_COLLECTIVE_TYPE_UINT16 = 3,
    DAT_IB_COLLECTIVE_TYPE_INT32 = 4,
    DAT_IB_COLLECTIVE_TYPE_UINT32 = 5,
    DAT_IB_COLLECTIVE_TYPE_INT64 = 6,
    DAT_IB_COLLECTIVE_TYPE_UINT64 = 7,
    DAT_IB_COLLECTIVE_TYPE_FLOAT = 8,
    DAT_IB_COLLECTIVE_TYPE_DOUBLE = 9,
    DAT_IB_COLLECTIVE_TYPE_LONG_DOUBLE = 10,
    DAT_IB_COLLECTIVE_TYPE_SHORT_INT = 11,
    DAT_IB_COLLECTIVE_TYPE_2INT = 12,
    DAT_IB_COLLECTIVE_TYPE_FLOAT_INT = 13,
    DAT_IB_COLLECTIVE_TYPE_LONG_INT = 14,
    DAT_IB_COLLECTIVE_TYPE_DOUBLE_INT = 15,
}

named_constants! { DatIbCollectiveReduceDataOp:
    DAT_IB_COLLECTIVE_REDUCE_OP_MAX = 0,
    DAT_IB_COLLECTIVE_REDUCE_OP_MIN = 1,
    DAT_IB_COLLECTIVE_REDUCE_OP_SUM = 2,
    DAT_IB_COLLECTIVE_REDUCE_OP_PROD = 3,
    DAT_IB_COLLECTIVE_REDUCE_OP_LAND = 4,
    DAT_IB_COLLECTIVE_REDUCE_OP_BAND = 5,
    DAT_IB_COLLECTIVE_REDUCE_OP_LOR = 6,
    DAT_IB_COLLECTIVE_REDUCE_OP_BOR = 7,
    DAT_IB_COLLECTIVE_REDUCE_OP_LXOR = 8,
    DAT_IB_COLLECTIVE_REDUCE_OP_BXOR = 9,
    DAT_IB_COLLECTIVE_REDUCE_OP_MAXLOC = 10,
    DAT_IB_COLLECTIVE_REDUCE_OP_MINLOC = 11,
}

c_structs! {
    /// `DAT_IB_COLLECTIVE_GROUP`.
    pub struct DatIbCollectiveGroup, size 56 {
        /// Members on this node.
        local_size @ 0: c_int,
        /// This member's rank on this node.
        local_rank @ 4: c_int,
        local_ranks @ 8: *mut c_int,
        external_size @ 16: c_int,
        /// This node's rank.
        external_rank @ 20: c_int,
        external_ranks @ 24: *mut c_int,
        intranode_table @ 32: *mut c_int,
        internode_table @ 40: *mut c_int,
        /// True if this is the group of all members.
        is_comm_world @ 48: c_int,
    }
}
