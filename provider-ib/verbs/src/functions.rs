//! Structures with the functions of a library.

/// Declares a structure with the functions of a library, from their prototypes. Each function is a
/// method of the structure.
macro_rules! functions {
    ($table:ident: $(pub fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $result:ty)?;)+) => {
        pub struct $table {
            $(pub $name: unsafe extern "C" fn($($arg: $ty),*) $(-> $result)?,)+
            /// Keeps the library loaded, because the functions belong to it.
            _library: Option<libloading::os::unix::Library>,
        }

        impl $table {
            /// Looks up every function.
            ///
            /// # Safety
            /// The functions of the library have these prototypes.
            pub unsafe fn from_library(
                library: libloading::os::unix::Library,
            ) -> Result<Self, libloading::Error> {
                $(
                    let name = concat!(stringify!($name), "\0").as_bytes();
                    // SAFETY: the caller guarantees the prototypes.
                    let $name = *unsafe { library.get(name) }?;
                )+
                Ok(Self { $($name,)+ _library: Some(library) })
            }

            /// Returns functions that end the process, for tests that replace the ones they need.
            pub fn stub() -> Self {
                $(unsafe extern "C" fn $name($(_: $ty),*) $(-> $result)? { std::process::abort() })+
                Self { $($name,)+ _library: None }
            }

            $(
                #[inline]
                pub unsafe fn $name(&self $(, $arg: $ty)*) $(-> $result)? {
                    // SAFETY: the caller guarantees what the C function requires.
                    unsafe { (self.$name)($($arg),*) }
                }
            )+
        }
    };
}
