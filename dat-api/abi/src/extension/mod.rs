//! Operations of `dat_extension_op`.

pub mod ib;
pub mod iw;

use crate::DatExtendedOp;

constants! { DatExtendedOp:
    /// Bit of operations that load a provider by name; the first argument after the number is the
    /// name.
    DAT_OPEN_EXTENSION_BASE = 0x1000,
    /// Bit of operations that release the provider that an open operation loaded.
    DAT_CLOSE_EXTENSION_BASE = 0x2000,
}
