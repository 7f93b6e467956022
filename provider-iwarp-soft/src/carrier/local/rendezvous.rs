//! The rendezvous of two processes of one host.
//!
//! Each adapter listens at an `AF_UNIX` address with 128 random bits in its name. A peer that has
//! received the name over the TCP connection and can connect to it is on this host. Abstract
//! addresses belong to a network namespace. Processes of several namespaces use a directory that is
//! visible to all of them.
//!
//! ```text
//!   the connecting process                     the listening process
//!   Hello, with the descriptor of a memfd  ──>
//!                                          <──  Answer
//!   doorbells                              <──> doorbells
//! ```

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::rand::{GetRandomFlags, getrandom};

use rnic::socket::NotInherited;

#[path = "rendezvous/directory.rs"]
mod directory;
#[path = "rendezvous/hello.rs"]
mod hello;

pub(crate) use hello::{Answer, Hello, HelloReceiver, ReceivedHello, Refusal};
pub(crate) use hello::{receive_answer, send_answer, send_hello};

/// Maximum number of connections that wait to be accepted.
const BACKLOG: i32 = 1024;
/// The common prefix of all names.
const PREFIX: &str = "dat-rs-";

/// The random part of the name of a rendezvous.
pub(crate) type Name = [u8; 16];

/// The reason why a name cannot be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DialError {
    /// No process listens at the name on this host, in this namespace, in this directory.
    NotHere,
    /// Too many connections wait to be accepted. A later attempt may succeed.
    Busy,
    /// This process lacks the permission.
    Denied,
    /// Another error of the kernel.
    Failed(Errno),
}

impl From<Errno> for DialError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::CONNREFUSED | Errno::NOENT | Errno::NOTDIR => Self::NotHere,
            Errno::AGAIN => Self::Busy,
            Errno::ACCESS | Errno::PERM => Self::Denied,
            errno => Self::Failed(errno),
        }
    }
}

/// An `AF_UNIX` stream connection to a process of this host. It never blocks, and the child of a
/// fork does not inherit it.
#[derive(Debug)]
pub(crate) struct UnixConn(NotInherited);

impl UnixConn {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self(NotInherited::new(fd))
    }
}

impl AsFd for UnixConn {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A listening socket.
#[derive(Debug)]
pub(crate) struct Rendezvous {
    listener: NotInherited,
    name: Name,
    /// The file of the socket, if it has one.
    path: Option<PathBuf>,
}

impl Rendezvous {
    /// Listens at an abstract address, for peers of this network namespace.
    pub(crate) fn open() -> io::Result<Self> {
        let name = random_name()?;
        let listener = socket()?;
        rustix::net::bind(&listener, &abstract_address(&name)?)?;
        rustix::net::listen(&listener, BACKLOG)?;
        Ok(Self::new(listener, name, None))
    }

    /// Listens at a file in a directory, for peers that see this directory. Removes files in it
    /// whose listener has ended.
    pub(crate) fn open_in(dir: &Path) -> io::Result<Self> {
        directory::sweep(dir);
        let name = random_name()?;
        let path = directory::path(dir, &name);
        let listener = socket()?;
        rustix::net::bind(&listener, &SocketAddrUnix::new(&path)?)?;
        // From here on `Drop` removes the file, also if the next step fails.
        let rendezvous = Self::new(listener, name, Some(path.clone()));
        directory::open_to_all(&path);
        rustix::net::listen(&rendezvous.listener, BACKLOG)?;
        Ok(rendezvous)
    }

    fn new(listener: OwnedFd, name: Name, path: Option<PathBuf>) -> Self {
        Self {
            listener: NotInherited::new(listener),
            name,
            path,
        }
    }

    /// Returns the name for [`dial`] or [`dial_in`].
    pub(crate) fn name(&self) -> Name {
        self.name
    }

    /// Accepts one connection; `None` if none waits.
    pub(crate) fn accept(&self) -> io::Result<Option<UnixConn>> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        match rustix::net::accept_with(&self.listener, flags) {
            Ok(fd) => Ok(Some(UnixConn::new(fd))),
            // Level-triggered readiness makes the caller try again.
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl AsFd for Rendezvous {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for Rendezvous {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // A failure means that the file was removed already, which is harmless.
            let _ = rustix::fs::unlink(path);
        }
    }
}

/// Connects to a rendezvous of this network namespace.
pub(crate) fn dial(name: &Name) -> Result<UnixConn, DialError> {
    connect(&abstract_address(name)?)
}

/// Connects to a rendezvous in a directory.
pub(crate) fn dial_in(dir: &Path, name: &Name) -> Result<UnixConn, DialError> {
    connect(&SocketAddrUnix::new(directory::path(dir, name))?)
}

/// Connects. An `AF_UNIX` socket connects at once or not at all.
fn connect(address: &SocketAddrUnix) -> Result<UnixConn, DialError> {
    let socket = socket()?;
    rustix::net::connect(&socket, address)?;
    Ok(UnixConn::new(socket))
}

fn socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

fn random_name() -> Result<Name, Errno> {
    let mut name = Name::default();
    // Requests of up to 256 bytes are filled completely (getrandom(2)).
    getrandom(&mut name, GetRandomFlags::empty())?;
    Ok(name)
}

fn abstract_address(name: &Name) -> Result<SocketAddrUnix, Errno> {
    SocketAddrUnix::new_abstract_name(file_name(name).as_bytes())
}

/// The readable form of a name.
fn file_name(name: &Name) -> String {
    format!("{PREFIX}{:032x}", u128::from_be_bytes(*name))
}

/// The identity of the process at the other end of a connection, from the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Credentials {
    /// 0 if the process has no number in the PID namespace of this process.
    pub(crate) pid: i32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// Returns the identity of the process that has connected, or that has called `listen`.
pub(crate) fn peer_credentials(conn: impl AsFd) -> io::Result<Credentials> {
    // rustix is not used here, because its type cannot represent process number 0.
    let mut found = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: value and length are of this frame and agree.
    let done = unsafe {
        libc::getsockopt(
            conn.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut found).cast(),
            &raw mut len,
        )
    };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Credentials {
        pid: found.pid,
        uid: found.uid,
        gid: found.gid,
    })
}

#[cfg(test)]
#[path = "rendezvous/tests.rs"]
mod tests;
