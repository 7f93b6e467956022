//! `struct dat_provider` for an `R: Rnic`.

use std::ffi::{c_char, c_void};
use std::ptr;

use dat_abi::*;

use crate::extension::handle_extendedop;
use crate::rnic::Rnic;
use crate::thunk::guard::guard;
use crate::thunk::*;

/// Defines the table, with an entry for every slot. No slot is empty, because registry libraries do
/// not check.
macro_rules! define_table {
    ($($group:ident {$(
        $(#[$meta:meta])*
        $call:ident => $slot:ident: $ty:ident $found:tt ($($arg:ident: $arg_ty:ty),* $(,)?);
    )+})+) => {
        /// Returns the table of entry points under a device name.
        pub const fn table<R: Rnic>(device_name: *const c_char) -> DatProvider {
            DatProvider {
                device_name,
                extension: ptr::null_mut(),
                $($($slot: Some({
                    unsafe extern "C" fn entry<R: Rnic>($($arg: $arg_ty),*) -> DatReturn {
                        // SAFETY: the contract of the thunk is that of the C call.
                        guard(stringify!($slot), || unsafe { $slot::<R>($($arg),*) })
                    }
                    entry::<R>
                }),)+)+
            }
        }
    };
}

for_each_slot! { define_table }
