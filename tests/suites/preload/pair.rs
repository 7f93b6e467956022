//! A connected pair of sockets, made by the calls that every program makes.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, RawFd};

use anyhow::{Context, Result, ensure};

/// The two ends of a connection; the client's is 0, the server's 1.
pub(crate) struct Pair {
    ends: [Option<TcpStream>; 2],
}

impl Pair {
    /// Connects over an address, and checks whether the kernel sees a TCP socket there.
    pub(crate) fn over(address: &str, offloaded: bool) -> Result<Self> {
        let listener = TcpListener::bind((address, 0)).context("listening")?;
        let client = TcpStream::connect(listener.local_addr()?).context("connecting")?;
        let (server, peer) = listener.accept().context("accepting")?;
        ensure!(peer == client.local_addr()?, "the client has two names");
        for end in [&client, &server] {
            let domain = domain_in_the_kernel(end.as_raw_fd())?;
            ensure!(
                offloaded == (domain == libc::AF_UNIX),
                "{address}: the kernel sees family {domain}"
            );
        }
        Ok(Self {
            ends: [Some(client), Some(server)],
        })
    }

    /// The number of an end.
    pub(crate) fn fd(&self, end: usize) -> RawFd {
        self.ends[end].as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }

    /// An end as Rust has it.
    pub(crate) fn end(&self, end: usize) -> Option<&TcpStream> {
        self.ends[end].as_ref()
    }

    /// Closes an end.
    pub(crate) fn close(&mut self, end: usize) {
        self.ends[end] = None;
    }

    /// Puts a duplicate in the place of an end, and closes the original.
    pub(crate) fn duplicate(&mut self, end: usize) -> io::Result<()> {
        if let Some(stream) = &self.ends[end] {
            self.ends[end] = Some(stream.try_clone()?);
        }
        Ok(())
    }
}

/// What the kernel itself calls the socket: by number, so that no hook answers.
fn domain_in_the_kernel(fd: RawFd) -> Result<i32> {
    let mut domain: libc::c_int = 0;
    let mut len: libc::socklen_t = 4;
    // SAFETY: room for an integer, whose size is told.
    let result = unsafe {
        libc::syscall(
            libc::SYS_getsockopt,
            fd,
            libc::SOL_SOCKET,
            libc::SO_DOMAIN,
            &raw mut domain,
            &raw mut len,
        )
    };
    ensure!(result == 0, io::Error::last_os_error());
    Ok(domain)
}
