//! What an offload protocol offers to the sockets of a program.

use std::net::SocketAddr;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Instant;

use rustix::io::Errno;

use crate::socket::observer::Observer;
use crate::socket::stream::Stream;

/// A connection that a peer made and that nobody has accepted.
pub(crate) struct Arrival {
    /// Its stream, not yet observed.
    pub(crate) stream: Box<dyn Unobserved>,
    /// What it is called where sockets are listed.
    pub(crate) protocol: &'static str,
    /// Our side.
    pub(crate) local: SocketAddr,
    /// The peer's side.
    pub(crate) peer: SocketAddr,
}

/// A stream whose news nobody hears yet.
pub(crate) trait Unobserved: Send {
    /// From now on `observer` hears what comes about, beginning with what has already.
    fn observed_by(self: Box<Self>, observer: Arc<Observer>) -> Result<Box<dyn Stream>, Errno>;
}

/// Takes connections for one listening socket of the program. Dropping it stops listening.
pub(crate) trait Listening: Send + Sync {
    /// The next arrival, if there is one.
    fn accept(&self) -> Option<Arrival>;

    /// Descriptors that must be open in this process alone.
    fn descriptors(&self) -> Vec<RawFd>;
}

/// A protocol that can carry the program's sockets.
pub(crate) trait Protocol: Send + Sync {
    /// What it is called where sockets are listed.
    fn name(&self) -> &'static str;

    /// Connects, or says by the deadline why not; then the program's socket connects over TCP.
    fn connect(
        &self,
        local: SocketAddr,
        remote: SocketAddr,
        deadline: Instant,
    ) -> Result<Box<dyn Unobserved>, Errno>;

    /// Listens where the program's socket does. `pending` is an `eventfd` semaphore that counts
    /// arrivals.
    fn listen(&self, local: SocketAddr, pending: OwnedFd) -> Result<Box<dyn Listening>, Errno>;
}
