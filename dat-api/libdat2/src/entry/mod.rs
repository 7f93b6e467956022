//! The exported C functions: 74 of OFA's library, and ten that DAT 2.0 has and that library lacks.
//!
//! Entries check their handle and nothing else; arguments and states are the provider's business.
//! The handle error of each call names the kind the call takes; for EVDs that is the request EVD,
//! as in OFA's library. A provider that leaves a slot empty gives `DAT_NOT_IMPLEMENTED`.

mod guard;
#[macro_use]
mod forward;

pub mod cno;
pub mod context;
pub mod cr;
pub mod csp;
pub mod ep;
pub mod evd;
pub mod extension;
pub mod ia;
pub mod lmr;
pub mod psp;
pub mod pz;
pub mod registry;
pub mod rmr;
pub mod rsp;
pub mod srq;
pub mod strerror;

use dat_abi::{DAT_NO_SUBTYPE, DAT_NOT_IMPLEMENTED, DatReturn};

/// The provider has no function for the call.
const NO_SUCH_SLOT: DatReturn = DatReturn::error(DAT_NOT_IMPLEMENTED, DAT_NO_SUBTYPE);
