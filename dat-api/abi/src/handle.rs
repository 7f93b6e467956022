//! Handles: opaque words that name objects (DAT 2.0 chapter 5).
//!
//! An IA handle of a consumer is a small integer that only the registry library can resolve. Every
//! other handle points at an object of the provider, and the first machine word of that object is
//! the address of the provider's [`DatProvider`](crate::DatProvider). Registry libraries of all
//! vendors rely on that word.

use crate::DatPvoid;
use core::ptr;

/// `DAT_HANDLE`.
pub type DatHandle = DatPvoid;
/// `DAT_IA_HANDLE`: interface adapter.
pub type DatIaHandle = DatHandle;
/// `DAT_EP_HANDLE`: endpoint.
pub type DatEpHandle = DatHandle;
/// `DAT_EVD_HANDLE`: event dispatcher.
pub type DatEvdHandle = DatHandle;
/// `DAT_CNO_HANDLE`: consumer notification object.
pub type DatCnoHandle = DatHandle;
/// `DAT_CR_HANDLE`: connection request.
pub type DatCrHandle = DatHandle;
/// `DAT_LMR_HANDLE`: local memory region.
pub type DatLmrHandle = DatHandle;
/// `DAT_RMR_HANDLE`: remote memory region (a memory window).
pub type DatRmrHandle = DatHandle;
/// `DAT_PZ_HANDLE`: protection zone.
pub type DatPzHandle = DatHandle;
/// `DAT_PSP_HANDLE`: public service point.
pub type DatPspHandle = DatHandle;
/// `DAT_RSP_HANDLE`: reserved service point.
pub type DatRspHandle = DatHandle;
/// `DAT_CSP_HANDLE`: common service point.
pub type DatCspHandle = DatHandle;
/// `DAT_SRQ_HANDLE`: shared receive queue.
pub type DatSrqHandle = DatHandle;

/// The value that refers to no object.
pub const DAT_HANDLE_NULL: DatHandle = ptr::null_mut();
/// Passed to `dat_ia_openv` as the asynchronous EVD: "this process already has one".
pub const DAT_EVD_ASYNC_EXISTS: DatEvdHandle = ptr::without_provenance_mut(1);
/// Returned by `dat_ia_query`: the asynchronous EVD belongs to another instance.
pub const DAT_EVD_OUT_OF_SCOPE: DatEvdHandle = ptr::without_provenance_mut(2);

/// `DAT_HANDLE_TYPE`.
pub type DatHandleType = u32;

constants! { DatHandleType:
    /// Connection request.
    DAT_HANDLE_TYPE_CR = 0,
    /// Endpoint.
    DAT_HANDLE_TYPE_EP = 1,
    /// Event dispatcher.
    DAT_HANDLE_TYPE_EVD = 2,
    /// Interface adapter.
    DAT_HANDLE_TYPE_IA = 3,
    /// Local memory region.
    DAT_HANDLE_TYPE_LMR = 4,
    /// Public service point.
    DAT_HANDLE_TYPE_PSP = 5,
    /// Protection zone.
    DAT_HANDLE_TYPE_PZ = 6,
    /// Remote memory region.
    DAT_HANDLE_TYPE_RMR = 7,
    /// Reserved service point.
    DAT_HANDLE_TYPE_RSP = 8,
    /// Consumer notification object.
    DAT_HANDLE_TYPE_CNO = 9,
    /// Shared receive queue.
    DAT_HANDLE_TYPE_SRQ = 10,
    /// Common service point.
    DAT_HANDLE_TYPE_CSP = 11,
    /// First number reserved for extensions.
    DAT_HANDLE_TYPE_EXTENSION_BASE = 12,
}
