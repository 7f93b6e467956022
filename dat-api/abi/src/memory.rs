//! Memory arguments of calls: triplets, region descriptions, wait-proxy agents.

use crate::*;
use core::fmt;

c_structs! {
    /// `DAT_LMR_TRIPLET`: a part of a local memory region, with the layout of a verbs
    /// scatter-gather element.
    #[derive(PartialEq, Eq)]
    pub struct DatLmrTriplet, size 16 {
        /// First byte.
        virtual_address @ 0: DatVaddr,
        /// Length in bytes.
        segment_length @ 8: DatSegLength,
        /// Key of the region.
        lmr_context @ 12: DatLmrContext,
    }

    /// `DAT_RMR_TRIPLET`: a part of remote memory.
    #[derive(PartialEq, Eq)]
    pub struct DatRmrTriplet, size 16 {
        /// First byte, in the remote address space.
        virtual_address @ 0: DatVaddr,
        /// Length in bytes.
        segment_length @ 8: DatSegLength,
        /// Key of the region or window.
        rmr_context @ 12: DatRmrContext,
    }

    /// `DAT_SHARED_MEMORY`: memory that several processes map.
    pub struct DatSharedMemory, size 16 {
        /// Address of the memory in this process.
        virtual_address @ 0: DatPvoid,
        /// Name of the memory, equal for all processes.
        shared_memory_id @ 8: DatLmrCookie,
    }
}

/// `DAT_REGION_DESCRIPTION`; the memory type of the call selects the member.
#[repr(C)]
#[derive(Clone, Copy)]
pub union DatRegionDescription {
    /// For [`DAT_MEM_TYPE_VIRTUAL`].
    pub for_va: DatPvoid,
    /// For [`DAT_MEM_TYPE_LMR`].
    pub for_lmr_handle: DatLmrHandle,
    /// For [`DAT_MEM_TYPE_SHARED_VIRTUAL`].
    pub for_shared_memory: DatSharedMemory,
}

impl fmt::Debug for DatRegionDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Only the first word is defined for every memory type, and its meaning depends on the
        // call.
        f.write_str("DatRegionDescription(..)")
    }
}

/// Function of a wait-proxy agent: receives the agent's data and the EVD that triggered.
pub type DatAgentFunc = unsafe extern "C" fn(instance_data: DatPvoid, evd: DatEvdHandle);

c_structs! {
    /// `DAT_OS_WAIT_PROXY_AGENT`: called by the provider when a CNO triggers. All zero means no
    /// agent.
    pub struct DatOsWaitProxyAgent, size 16 {
        /// First argument of the function.
        instance_data @ 0: DatPvoid,
        /// Called when the CNO triggers.
        proxy_agent_func @ 8: Option<DatAgentFunc>,
    }
}

assert_layout!(DatRegionDescription, size 16,
    for_va @ 0, for_lmr_handle @ 0, for_shared_memory @ 0);

impl_zeroed!(DatRegionDescription);
