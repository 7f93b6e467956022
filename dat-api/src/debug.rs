//! `Debug` of objects that contain functions or pointers of the library.

/// Implements `Debug` for a type, with the given values as its fields.
macro_rules! opaque_debug {
    ($type:ident, |$object:pat_param| [$($field:ident: $value:expr),*]) => {
        impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let $object = self;
                f.debug_struct(stringify!($type))
                    $(.field(stringify!($field), &$value))*
                    .finish_non_exhaustive()
            }
        }
    };
}
