//! The descriptors that a connection needs, reserved before the connection is made.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use host::descriptors::raise;
use host::stand_in::{Flags, LibraryEnd, Signals};
use ops::OffloadStream;
use rustix::io::Errno;

use crate::observing;
use crate::process::guard;
use crate::socket::Socket;
use crate::socket::observer::Observer;
use crate::socket::relay::{self, Relay};
use crate::tcp::names::Family;
use crate::tcp::options::Options;

/// The descriptors and options of a connection in this process. They are made before the connection
/// is accepted or requested: without free descriptors it stays in the accept queue, as in the
/// kernel's, or is not requested.
pub(crate) struct Room {
    options: Options,
    program: OwnedFd,
    end: LibraryEnd,
}

impl Room {
    /// Makes the descriptors of a connection of this program.
    pub(crate) fn of(options: Options, shown: Flags) -> Result<Self, Errno> {
        let (program, end) = host::stand_in::established(shown).map_err(|why| why.errno())?;
        Ok(Self {
            options,
            program,
            end: end.moved(raise)?,
        })
    }

    /// Makes the descriptors of a connection that another process will accept.
    pub(crate) fn for_others(family: Family) -> Result<Self, Errno> {
        let shown = Flags {
            nonblocking: false,
            close_on_exec: true,
        };
        Self::of(Options::fresh(family)?, shown)
    }

    /// Makes the socket of a connected stream, and returns the program's descriptor with the
    /// socket.
    pub(crate) fn establish(
        self,
        family: Family,
        protocol: &str,
        stream: Box<dyn OffloadStream>,
    ) -> Result<(OwnedFd, Arc<Socket>), Errno> {
        let observer = Observer::new(self.end, Signals::new());
        let socket = socket(self.options, observer, family, protocol, stream)?;
        Ok((self.program, socket))
    }

    /// Makes the socket of a connected stream, and returns it with the descriptor for another
    /// process, whose pair carries bytes.
    pub(crate) fn establish_for_others(
        self,
        family: Family,
        protocol: &str,
        stream: Box<dyn OffloadStream>,
    ) -> Result<(OwnedFd, Arc<Socket>), Errno> {
        let _inside = guard::enter();
        let observer = Observer::new(self.end, Signals::new());
        // Before the first event: a pair that shows the end of the peer accepts no more bytes, and
        // the bytes before that end still have to pass through the pair.
        observer.begin_sharing();
        let socket = socket(self.options, observer, family, protocol, stream)?;
        Relay::carry_for_others(&socket, &self.program)?;
        Ok((self.program, socket))
    }
}

/// Makes the socket of a connected stream; see [`Socket::new`].
pub(crate) fn socket(
    options: Options,
    observer: Observer,
    family: Family,
    protocol: &str,
    stream: Box<dyn OffloadStream>,
) -> Result<Arc<Socket>, Errno> {
    let stream = observing::connection(stream, protocol);
    let socket = Arc::new(Socket::new(stream, observer, family, options)?);
    relay::watch(&socket)?;
    Ok(socket)
}
