//! The errors of requests to the network stack.

use std::io;

use rustix::io::Errno;

/// The reason for which the network stack gives no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The kernel refuses the request. For a route, this is the error that `connect` would return.
    #[error("the network stack answers: {0}")]
    Refused(Errno),
    /// A netlink socket cannot be opened or used.
    #[error("netlink cannot be used here: {0}")]
    Socket(Errno),
    /// The answer is malformed or not the expected one.
    #[error("the network stack's answer cannot be understood")]
    Garbled,
    /// The table changed during each of several reads.
    #[error("the network stack's tables change too fast to be read; try again")]
    Unsteady,
}

impl Error {
    /// Returns the error number for a socket call.
    #[must_use]
    pub fn errno(self) -> Errno {
        match self {
            Self::Refused(errno) | Self::Socket(errno) => errno,
            Self::Garbled => Errno::PROTO,
            Self::Unsteady => Errno::AGAIN,
        }
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        error.errno().into()
    }
}
