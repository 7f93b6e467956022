//! Macros that declare and assert facts about C types: values, sizes, offsets, the all-zero value.

/// Declares constants of one type under their C names.
macro_rules! constants {
    ($ty:ty: $($(#[$meta:meta])* $name:ident = $value:expr),+ $(,)?) => {
        $($(#[$meta])* pub const $name: $ty = $value;)+
    };
}

/// Declares constants of one type under C names that need no explanation. The documentation of each
/// names the type. Text that is written above a constant follows.
macro_rules! named_constants {
    ($ty:ident: $($(#[$meta:meta])* $name:ident = $value:expr),+ $(,)?) => {
        constants! { $ty: $(
            #[doc = concat!("A value of [`", stringify!($ty), "`].")] $(#[$meta])* $name = $value
        ),+ }
    };
}

/// Declares structures of C with the size of each and the offset of each member, and defines the
/// all-zero value of each. A member whose name says everything has no documentation.
macro_rules! c_structs {
    ($(
        $(#[$meta:meta])*
        pub struct $name:ident, size $size:literal {
            $($(#[$member_meta:meta])* $member:ident @ $offset:literal: $ty:ty,)+
        }
    )+) => {$(
        $(#[$meta])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug)]
        #[allow(missing_docs, reason = "the members have the names of DAT")]
        pub struct $name {
            $($(#[$member_meta])* pub $member: $ty,)+
        }

        assert_layout!($name, size $size $(, $member @ $offset)+);
        impl_zeroed!($name);
    )+};
}

/// Asserts the size of a `repr(C)` type and the offsets of its members when the crate is compiled.
macro_rules! assert_layout {
    ($ty:ty, size $size:literal $(, $field:ident @ $offset:literal)* $(,)?) => {
        const _: () = {
            assert!(core::mem::size_of::<$ty>() == $size);
            $(assert!(core::mem::offset_of!($ty, $field) == $offset);)*
        };
    };
}

/// Defines the all-zero value, which C consumers pass after `memset`, for types that consist of
/// integers, raw pointers, optional function pointers and unions of those.
macro_rules! impl_zeroed {
    ($($ty:ty),+ $(,)?) => {$(
        impl $ty {
            /// Returns the value with every byte zero, as after `memset` in C.
            #[must_use]
            pub const fn zeroed() -> Self {
                // SAFETY: every member is an integer, a raw pointer, an optional function pointer
                // or an array, structure or union of those; all of them are valid when all bytes
                // are zero.
                unsafe { core::mem::zeroed() }
            }
        }

        impl Default for $ty {
            fn default() -> Self {
                Self::zeroed()
            }
        }
    )+};
}
