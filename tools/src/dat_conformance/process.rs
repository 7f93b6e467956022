//! Child processes of this program: how they end, and their end when the parent process ends.

use std::fmt;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};

use nix::sys::signal::Signal;

use crate::watchdog::{PEER_GONE, TOO_LONG};

/// The way in which a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    Normally,
    TooLong,
    PeerGone,
    Killed(i32),
    Status(i32),
}

impl Ended {
    pub(crate) fn of(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(0), _) => Self::Normally,
            (Some(TOO_LONG), _) => Self::TooLong,
            (Some(PEER_GONE), _) => Self::PeerGone,
            (Some(code), _) => Self::Status(code),
            (None, signal) => Self::Killed(signal.unwrap_or_default()),
        }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Normally => f.write_str("ended normally"),
            Self::TooLong => f.write_str("did not finish in time"),
            Self::PeerGone => f.write_str("lost its peer process"),
            Self::Killed(number) => match Signal::try_from(*number) {
                Ok(signal) => write!(f, "was killed by {signal}"),
                Err(_) => write!(f, "was killed by signal {number}"),
            },
            Self::Status(code) => write!(f, "ended with status {code}"),
        }
    }
}

/// Makes the kernel kill the process when the thread that starts it ends.
pub(crate) fn kill_with_parent(command: &mut Command) {
    // SAFETY: between fork and exec the closure makes one async-signal-safe call and allocates
    // nothing.
    unsafe {
        command.pre_exec(|| {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) == 0 {
                Ok(())
            } else {
                Err(io::Error::last_os_error())
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings_are_distinguished() {
        let of = |raw| Ended::of(ExitStatus::from_raw(raw));
        assert_eq!(of(0), Ended::Normally);
        assert_eq!(of(TOO_LONG << 8), Ended::TooLong);
        assert_eq!(of(PEER_GONE << 8), Ended::PeerGone);
        assert_eq!(of(3 << 8), Ended::Status(3));
        assert_eq!(of(11).to_string(), "was killed by SIGSEGV");
    }
}
