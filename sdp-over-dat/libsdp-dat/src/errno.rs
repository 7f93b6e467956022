//! Results of calls: the value, or -1 with `errno`.

use std::ffi::c_int;
use std::io::{self, ErrorKind};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The value of a call, or its `errno`.
pub(crate) type Outcome<T = ()> = Result<T, Errno>;

/// An error number of the C library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) c_int);

impl From<io::Error> for Errno {
    fn from(error: io::Error) -> Self {
        let number = error.raw_os_error().unwrap_or(match error.kind() {
            ErrorKind::WouldBlock => libc::EAGAIN,
            ErrorKind::TimedOut => libc::ETIMEDOUT,
            ErrorKind::Interrupted => libc::EINTR,
            ErrorKind::InvalidInput => libc::EINVAL,
            ErrorKind::NotConnected => libc::ENOTCONN,
            ErrorKind::BrokenPipe => libc::EPIPE,
            ErrorKind::ConnectionReset => libc::ECONNRESET,
            ErrorKind::ConnectionRefused => libc::ECONNREFUSED,
            ErrorKind::ConnectionAborted => libc::ECONNABORTED,
            ErrorKind::AddrInUse => libc::EADDRINUSE,
            ErrorKind::AddrNotAvailable => libc::EADDRNOTAVAIL,
            ErrorKind::Unsupported => libc::EOPNOTSUPP,
            ErrorKind::OutOfMemory => libc::ENOMEM,
            _ => libc::EIO,
        });
        Self(number)
    }
}

/// Runs the body of a call. A panic becomes `EIO`, because it must not unwind into C.
pub(crate) fn answer<T: From<i8>>(body: impl FnOnce() -> Outcome<T>) -> T {
    let outcome = catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(Errno(libc::EIO)));
    outcome.unwrap_or_else(|Errno(number)| {
        // SAFETY: the C library returns the address of this thread's `errno`.
        unsafe { *libc::__errno_location() = number };
        T::from(-1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errno() -> c_int {
        io::Error::last_os_error().raw_os_error().unwrap_or(0)
    }

    #[test]
    fn a_failure_and_a_panic_are_minus_one_with_errno() {
        assert_eq!(answer::<i64>(|| Ok(7)), 7);
        assert_eq!(answer::<c_int>(|| Err(Errno(libc::EPIPE))), -1);
        assert_eq!(errno(), libc::EPIPE);
        assert_eq!(answer::<c_int>(|| panic!("for the test")), -1);
        assert_eq!(errno(), libc::EIO);
    }

    #[test]
    fn errors_without_a_number_are_those_of_their_kind() {
        let of = |kind| Errno::from(io::Error::new(kind, "text"));
        assert_eq!(of(ErrorKind::Unsupported), Errno(libc::EOPNOTSUPP));
        assert_eq!(of(ErrorKind::Other), Errno(libc::EIO));
        let numbered = io::Error::from_raw_os_error(libc::EMFILE);
        assert_eq!(Errno::from(numbered), Errno(libc::EMFILE));
    }
}
