//! The exported C functions: 74 of OFA's library, and ten of DAT 2.0 that OFA's library lacks.
//!
//! Entries check only their handle; the provider checks arguments and states. The subtype of a
//! handle error names the kind of handle that the call takes; for EVDs this is the request EVD, as
//! in OFA's library. An empty slot of a provider causes `DAT_NOT_IMPLEMENTED`.

pub mod calls;
pub mod extension;
mod guard;
pub mod ia;
pub mod registry;
pub mod strerror;

use dat_abi::{DAT_NO_SUBTYPE, DAT_NOT_IMPLEMENTED, DatReturn};

/// The provider has no function for the call.
const NO_SUCH_SLOT: DatReturn = DatReturn::error(DAT_NOT_IMPLEMENTED, DAT_NO_SUBTYPE);
