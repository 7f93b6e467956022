//! The process at the other end of a Unix socket.

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;

/// The credentials of a process when it connected or listened (`SO_PEERCRED`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerCredentials {
    /// The process id; `None` for a process that is not visible in this PID namespace.
    pub pid: Option<i32>,
    /// The effective user id.
    pub uid: u32,
}

impl PeerCredentials {
    /// Reads the credentials of the peer.
    ///
    /// The kernel reports process 0 for a process of another PID namespace, which a type for
    /// process ids cannot hold. So the option is not read by `rustix`.
    ///
    /// # Errors
    /// The error of `getsockopt`.
    pub fn of(socket: BorrowedFd<'_>) -> Result<Self, Errno> {
        let mut found = libc::ucred {
            pid: 0,
            uid: 0,
            gid: 0,
        };
        let mut len = size_of::<libc::ucred>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `len` bytes, the size of `found`, of which every value
        // is valid. The system call does not enter a hook of this project.
        let result = unsafe {
            libc::syscall(
                libc::SYS_getsockopt,
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                &raw mut found,
                &raw mut len,
            )
        };
        if result != 0 {
            return Err(
                Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)
            );
        }
        Ok(Self {
            pid: Some(found.pid).filter(|pid| *pid != 0),
            uid: found.uid,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn the_other_end_of_a_pair_is_this_process() {
        let (own, _other) = UnixStream::pair().unwrap();
        let found = PeerCredentials::of(own.as_fd()).unwrap();
        assert_eq!(found.pid, i32::try_from(std::process::id()).ok());
        assert_eq!(found.uid, rustix::process::geteuid().as_raw());
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(PeerCredentials::of(file.as_fd()), Err(Errno::NOTSOCK));
    }
}
