//! The descriptors of a connection that is about to be made.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use host::descriptors::raise;
use host::stand_in::{Flags, LibraryEnd};
use ops::OffloadStream;
use rustix::io::Errno;

use crate::observing;
use crate::process::guard;
use crate::socket::Socket;
use crate::socket::relay::{self, Relay};
use crate::tcp::names::Family;
use crate::tcp::options::Options;

/// The descriptors that a connection takes in this process. They are made before it is accepted or
/// the peer accepts it: where there are none left, it stays in the queue, as in the kernel's, or is
/// not begun.
pub(crate) struct Room {
    options: Options,
    program: OwnedFd,
    end: LibraryEnd,
}

impl Room {
    /// For a connection of this program.
    pub(crate) fn of(options: Options, shown: Flags) -> Result<Self, Errno> {
        let (program, end) = host::stand_in::established(shown).map_err(|why| why.errno())?;
        Ok(Self {
            options,
            program,
            end: end.moved(raise)?,
        })
    }

    /// For a connection that another process accepts.
    pub(crate) fn for_others(family: Family) -> Result<Self, Errno> {
        let shown = Flags {
            nonblocking: false,
            close_on_exec: true,
        };
        Self::of(Options::fresh(family)?, shown)
    }

    /// Makes a socket of a connection, and returns the program's descriptor of it.
    pub(crate) fn establish(
        self,
        family: Family,
        protocol: &str,
        stream: Box<dyn OffloadStream>,
    ) -> Result<(OwnedFd, Arc<Socket>), Errno> {
        let stream = observing::connection(stream, protocol);
        let socket = Arc::new(Socket::new(stream, self.end, family, self.options)?);
        relay::watch(&socket)?;
        Ok((self.program, socket))
    }

    /// Makes a socket of a connection, and returns the descriptor for another process: the pair
    /// carries the bytes.
    pub(crate) fn establish_for_others(
        self,
        family: Family,
        protocol: &str,
        stream: Box<dyn OffloadStream>,
    ) -> Result<OwnedFd, Errno> {
        let _inside = guard::enter();
        let (program, socket) = self.establish(family, protocol, stream)?;
        Relay::carry_for_others(&socket, &program)?;
        Ok(program)
    }
}
