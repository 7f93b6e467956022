//! `Debug` of objects.

/// Implements `Debug` for an object, and shows only the given fields. `<R>` declares a parameter
/// `R: Rnic`; the objects of the RNIC need not implement `Debug`.
#[macro_export]
macro_rules! opaque_debug {
    ($ty:ident $(<$rnic:ident>)? { $($field:ident),* $(,)? }) => {
        impl $(<$rnic: $crate::Rnic>)? ::std::fmt::Debug for $ty $(<$rnic>)? {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.debug_struct(stringify!($ty))
                    $(.field(stringify!($field), &self.$field))*
                    .finish_non_exhaustive()
            }
        }
    };
}
