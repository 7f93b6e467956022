//! A structure of the C header, followed by our own data.

/// The program holds a pointer to `c`, which is the first member. `c` is written before the pointer
/// is returned; afterwards the program may read it at any time.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Object<C, T> {
    pub(crate) c: C,
    pub(crate) own: T,
}

impl<C, T> Object<C, T> {
    /// Creates an object, and returns the pointer that the program uses.
    pub(crate) fn create(c: C, own: T) -> *mut C {
        Box::into_raw(Box::new(Self { c, own })).cast()
    }

    /// Returns our data of an object.
    ///
    /// # Safety
    /// [`create`](Self::create) returned `c`, and [`destroy`](Self::destroy) was not called with it
    /// before the last use of the result. The program guarantees this for every object that it
    /// passes to a call.
    pub(crate) unsafe fn own<'a>(c: *mut C) -> &'a T {
        // SAFETY: the caller guarantees that `c` points to the first member of a live `Self`. Only
        // `own` is borrowed, because the program may access `c` at the same time.
        unsafe { &(*c.cast::<Self>()).own }
    }

    /// Exchanges the contents of two objects, and frees `other`.
    ///
    /// # Safety
    /// As for [`destroy`](Self::destroy), for both objects, except that `c` lives on.
    pub(crate) unsafe fn exchange(c: *mut C, other: *mut C) {
        // SAFETY: both are live objects (caller).
        unsafe {
            std::ptr::swap(c.cast::<Self>(), other.cast::<Self>());
            Self::destroy(other);
        }
    }

    /// Frees an object.
    ///
    /// # Safety
    /// As for [`own`](Self::own), and no other call uses the object now or later.
    pub(crate) unsafe fn destroy(c: *mut C) {
        // SAFETY: `create` made the pointer from a box of this type, and the caller gives it up.
        drop(unsafe { Box::from_raw(c.cast::<Self>()) });
    }
}
