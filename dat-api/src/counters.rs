//! Counters of adapters, endpoints and dispatchers (`dat_ib_query_counters` of the IB extension).

use std::ffi::c_int;

use dat_abi::*;

use crate::error::{Result, check};
use crate::library::Library;

/// Returns the counters from number `first` on of an object. `all` is the number after the
/// last counter, which requests all of them.
pub(crate) fn query(
    library: &Library,
    handle: DatHandle,
    first: u32,
    all: u32,
    reset: bool,
) -> Result<Vec<u64>> {
    let mut values = vec![0_u64; (all - first) as usize];
    // SAFETY: the handle is live and the variadic arguments are those of the operation: int, a
    // pointer to space for the requested number of values, int.
    let code = unsafe {
        (library.dat_extension_op)(
            handle,
            DAT_IB_QUERY_COUNTERS_OP,
            all as c_int,
            values.as_mut_ptr(),
            c_int::from(reset),
        )
    };
    check("dat_ib_query_counters", code)?;
    Ok(values)
}
