//! Calls that take a handle of any kind.

use crate::handle::resolve_any;
use dat_abi::*;

forward! { resolve_any;
    dat_set_consumer_context => set_consumer_context(handle: DatHandle, context: DatContext);
    dat_get_consumer_context => get_consumer_context(handle: DatHandle, context: *mut DatContext);
    dat_get_handle_type => get_handle_type(handle: DatHandle, handle_type: *mut DatHandleType);
}
