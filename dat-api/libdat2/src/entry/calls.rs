//! The calls that resolve their first argument and pass all arguments to the provider.

use crate::entry::NO_SUCH_SLOT;
use crate::entry::guard::guard;
use crate::handle::{resolve_any, resolve_ia, resolve_object};
use dat_abi::*;
use std::ffi::c_void;

/// Declares the calls of all slots.
macro_rules! calls {
    ($($group:ident {$(
        $(#[$meta:meta])*
        $name:ident => $slot:ident: $ty:ident $found:tt $arguments:tt;
    )+})+) => {
        $($(call! { $found $name $slot $arguments })+)+
    };
}

/// Declares the call of one slot. The word in brackets is the kind of its first argument.
macro_rules! call {
    ([-] $($rest:tt)*) => {};
    ([ia] $($rest:tt)*) => { call! { resolve_ia; $($rest)* } };
    ([any] $($rest:tt)*) => { call! { resolve_any; $($rest)* } };
    ([cno] $($rest:tt)*) => { call! { object DAT_INVALID_HANDLE_CNO; $($rest)* } };
    ([cr] $($rest:tt)*) => { call! { object DAT_INVALID_HANDLE_CR; $($rest)* } };
    ([csp] $($rest:tt)*) => { call! { object DAT_INVALID_HANDLE_CSP; $($rest)* } };
    ([ep] $($rest:tt)*) => { call! { object DAT_INVALID_HANDLE_EP; $($rest)* } };
    ([evd] $($rest:tt)*) => { call! { object DAT_INVALID_HANDLE_EVD_REQUEST; $($rest)* } };
    ([lmr] $($rest:tt)*) => { call! { object DAT_INVALID_HANDLE_LMR; $($rest)* } };
    ([psp] $($rest:tt)*) => { call! { object DAT_INVALID_HANDLE_PSP; $($rest)* } };
    ([pz] $($rest:tt)*) => { call! { object DAT_INVALID_HANDLE_PZ; $($rest)* } };
    ([rmr] $($rest:tt)*) => { call! { object DAT_INVALID_HANDLE_RMR; $($rest)* } };
    ([rsp] $($rest:tt)*) => { call! { object DAT_INVALID_HANDLE_RSP; $($rest)* } };
    ([srq] $($rest:tt)*) => { call! { object DAT_INVALID_HANDLE_SRQ; $($rest)* } };
    (object $subtype:ident; $($rest:tt)*) => {
        call! { |handle| resolve_object(handle, $subtype); $($rest)* }
    };
    (
        $resolve:expr;
        $name:ident $slot:ident ($handle:ident: $handle_ty:ty $(, $arg:ident: $ty:ty)* $(,)?)
    ) => {
        #[doc = concat!(
            "`", stringify!($name), "` of DAT 2.0: calls the provider's `", stringify!($slot), "`."
        )]
        ///
        /// # Safety
        /// The handle may be any value. The provider uses the pointers, so they must be as DAT 2.0
        /// requires.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($handle: $handle_ty $(, $arg: $ty)*) -> DatReturn {
            guard(stringify!($name), || {
                let target = $resolve($handle)?;
                match target.provider.$slot {
                    // SAFETY: the slot belongs to the registered provider whose address is the
                    // first word of the object; the other arguments are the caller's
                    // responsibility.
                    Some(slot) => Ok(unsafe { slot(target.handle $(, $arg)*) }),
                    None => Err(NO_SUCH_SLOT),
                }
            })
        }
    };
}

for_each_slot! { calls }
