//! What can go wrong with a question.

use rustix::io::Errno;

/// Why the network stack has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The kernel refuses; for a route this is what `connect` would say.
    #[error("the network stack answers: {0}")]
    Refused(Errno),
    /// A netlink socket cannot be had or used.
    #[error("netlink cannot be used here: {0}")]
    Socket(Errno),
    /// An answer that is none.
    #[error("the network stack's answer cannot be understood")]
    Garbled,
    /// A table changed during each of several readings.
    #[error("the network stack's tables change too fast to be read; try again")]
    Unsteady,
}

impl Error {
    /// The number that a socket call would fail with.
    #[must_use]
    pub fn errno(self) -> Errno {
        match self {
            Self::Refused(errno) | Self::Socket(errno) => errno,
            Self::Garbled => Errno::PROTO,
            Self::Unsteady => Errno::AGAIN,
        }
    }
}
