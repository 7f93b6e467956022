//! The common form of nearly every entry: resolve the first argument, call the slot.

/// Declares entries that resolve their handle with `$resolve` and pass all arguments to a slot.
macro_rules! forward {
    ($resolve:expr; $(
        $name:ident => $slot:ident ($handle:ident: $handle_ty:ty $(, $arg:ident: $ty:ty)* $(,)?);
    )+) => {$(
        #[doc = concat!(
            "`", stringify!($name), "` of DAT 2.0: calls the provider's `", stringify!($slot), "`."
        )]
        ///
        /// # Safety
        /// The handle may be any value. The provider uses the pointers, so they must be as DAT 2.0
        /// requires.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            $handle: $handle_ty $(, $arg: $ty)*
        ) -> ::dat_abi::DatReturn {
            $crate::entry::guard::guard(stringify!($name), || {
                let target = $resolve($handle)?;
                match target.provider.$slot {
                    // SAFETY: the slot belongs to the registered provider whose address is the
                    // first word of the object; the other arguments are the caller's
                    // responsibility.
                    Some(slot) => Ok(unsafe { slot(target.handle $(, $arg)*) }),
                    None => Err($crate::entry::NO_SUCH_SLOT),
                }
            })
        }
    )+};
}
