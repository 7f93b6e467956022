//! Pointers among the arguments of a call.
//!
//! C defines which arguments are pointers and what they point to; the program guarantees that a
//! pointer which is not null points to a value of that type (or to as many as the call's length
//! says), and that no other thread uses the value during the call. Only C makes values of these
//! types, so their methods are safe.

use crate::status::{FAULT, Outcome};

/// A pointer through which a call returns a value.
#[repr(transparent)]
#[derive(Debug)]
pub(crate) struct Out<T>(*mut T);

/// A pointer through which a call receives values.
#[repr(transparent)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct In<T>(*const T);

/// Derived implementations would require that the target can be copied.
impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T> Out<T> {
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Refuses a null pointer, before the call has had an effect.
    pub(crate) fn required(self) -> Outcome<Self> {
        (!self.is_null()).then_some(self).ok_or(FAULT)
    }

    /// Stores the value, unless the pointer is null.
    pub(crate) fn write(self, value: T) {
        self.write_at(0, value);
    }

    /// Stores the value number `index`, unless the pointer is null.
    pub(crate) fn write_at(self, index: usize, value: T) {
        if !self.is_null() {
            // SAFETY: see the module: the pointer is that of as many values as the call's length.
            unsafe { self.0.add(index).write_unaligned(value) };
        }
    }

    /// Returns the pointer for a member of a union.
    pub(crate) fn as_member<U>(self) -> Out<U> {
        const { assert!(size_of::<U>() <= size_of::<T>()) };
        Out(self.0.cast())
    }
}

impl<T: Copy> Out<T> {
    /// The present value of an argument that is input and output.
    pub(crate) fn read(self) -> Outcome<T> {
        In(self.0.cast_const()).read()
    }
}

impl<T: Copy> In<T> {
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    pub(crate) fn as_ptr(self) -> *const T {
        self.0
    }

    pub(crate) fn read(self) -> Outcome<T> {
        self.read_at(0)
    }

    /// The value number `index`, which must be below the call's length.
    pub(crate) fn read_at(self, index: usize) -> Outcome<T> {
        if self.is_null() {
            return Err(FAULT);
        }
        // SAFETY: see the module: the pointer is that of as many values as the call's length.
        Ok(unsafe { self.0.add(index).read_unaligned() })
    }
}
