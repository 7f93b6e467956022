//! Errors as error numbers.

use rnic::{Resource, RnicError};
use rustix::io::Errno;

/// An error number of the operating system, by which verbs report failures.
pub(crate) type Fault = Errno;

/// Returns the error number that rdma-core's providers return for a refused call.
pub(crate) fn errno_of(error: &RnicError) -> Errno {
    match error {
        RnicError::NoDevice(_) => Errno::NODEV,
        RnicError::NoResources(Resource::Descriptor) => Errno::MFILE,
        RnicError::NoResources(_) => Errno::NOMEM,
        RnicError::BadConfig(_)
        | RnicError::InvalidArgument(_)
        | RnicError::Length(_)
        | RnicError::InvalidState(_)
        | RnicError::BadAddress(_) => Errno::INVAL,
        RnicError::AddressInUse => Errno::ADDRINUSE,
        RnicError::NotPermitted(_) => Errno::PERM,
        RnicError::NotSupported(_) => Errno::OPNOTSUPP,
        RnicError::Os(error) => Errno::from_io_error(error).unwrap_or(Errno::IO),
    }
}

/// The result of a function that returns an error number: 0 or the number. As in rdma-core,
/// `errno` is the number too, because some programs report that.
pub(crate) fn code(result: Result<(), Fault>) -> libc::c_int {
    match result {
        Ok(()) => 0,
        Err(fault) => {
            set_errno(fault);
            fault.raw_os_error()
        }
    }
}

/// The result of a function that returns a pointer: null with `errno`.
pub(crate) fn pointer<T>(result: Result<*mut T, Fault>) -> *mut T {
    result.unwrap_or_else(|fault| {
        set_errno(fault);
        std::ptr::null_mut()
    })
}

/// The result of a function that returns -1 with `errno`.
pub(crate) fn minus_one(result: Result<(), Fault>) -> libc::c_int {
    match result {
        Ok(()) => 0,
        Err(fault) => {
            set_errno(fault);
            -1
        }
    }
}

/// The error number that a function of this library has stored in `errno`.
pub(crate) fn errno() -> Fault {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

pub(crate) fn set_errno(fault: Fault) {
    // SAFETY: the C library returns the address of this thread's `errno`.
    unsafe { *libc::__errno_location() = fault.raw_os_error() };
}
