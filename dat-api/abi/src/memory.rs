//! Memory arguments of calls: triplets, region descriptions, wait-proxy agents.

use crate::*;
use core::fmt;

/// `DAT_LMR_TRIPLET`: a part of a local memory region, with the layout of a verbs scatter-gather
/// element.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatLmrTriplet {
    /// First byte.
    pub virtual_address: DatVaddr,
    /// Length in bytes.
    pub segment_length: DatSegLength,
    /// Key of the region.
    pub lmr_context: DatLmrContext,
}

/// `DAT_RMR_TRIPLET`: a part of remote memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatRmrTriplet {
    /// First byte, in the remote address space.
    pub virtual_address: DatVaddr,
    /// Length in bytes.
    pub segment_length: DatSegLength,
    /// Key of the region or window.
    pub rmr_context: DatRmrContext,
}

/// `DAT_SHARED_MEMORY`: memory that several processes map.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DatSharedMemory {
    /// Address of the memory in this process.
    pub virtual_address: DatPvoid,
    /// Name of the memory, equal for all processes.
    pub shared_memory_id: DatLmrCookie,
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

/// `DAT_OS_WAIT_PROXY_AGENT`: called by the provider when a CNO triggers. All zero means no agent.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DatOsWaitProxyAgent {
    /// First argument of the function.
    pub instance_data: DatPvoid,
    /// Called when the CNO triggers.
    pub proxy_agent_func: Option<DatAgentFunc>,
}

assert_layout!(DatLmrTriplet, size 16, virtual_address @ 0, segment_length @ 8, lmr_context @ 12);
assert_layout!(DatRmrTriplet, size 16, virtual_address @ 0, segment_length @ 8, rmr_context @ 12);
assert_layout!(DatSharedMemory, size 16, virtual_address @ 0, shared_memory_id @ 8);
assert_layout!(DatRegionDescription, size 16,
    for_va @ 0, for_lmr_handle @ 0, for_shared_memory @ 0);
assert_layout!(DatOsWaitProxyAgent, size 16, instance_data @ 0, proxy_agent_func @ 8);

impl_zeroed!(
    DatLmrTriplet,
    DatRmrTriplet,
    DatSharedMemory,
    DatRegionDescription,
    DatOsWaitProxyAgent,
);
