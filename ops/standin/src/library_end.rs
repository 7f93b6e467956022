//! The library's end of a pair.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};

use crate::signals::Signals;

/// The library's end of a pair.
///
/// It becomes readable with a hang-up when the last duplicate of the program's end is closed.
#[derive(Debug)]
pub struct LibraryEnd {
    socket: OwnedFd,
}

impl LibraryEnd {
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self { socket }
    }

    /// The same end under another number, which `to` chooses.
    pub fn moved<E>(self, to: impl FnOnce(OwnedFd) -> Result<OwnedFd, E>) -> Result<Self, E> {
        to(self.socket).map(Self::new)
    }

    /// Shows that something arrived: `IN`, and an edge even when the last one is still unread.
    ///
    /// Call it after the bytes can be read. Past a bound of unread announcements it does nothing.
    pub fn announce(&self, signals: &Signals) -> io::Result<()> {
        if !signals.take_announcement() {
            return Ok(());
        }
        self.signal(SendFlags::empty()).inspect_err(|_| {
            signals.give_back(1);
        })
    }

    /// Shows that urgent data arrived: `PRI`, with `IN`.
    pub fn announce_urgent(&self) -> io::Result<()> {
        self.signal(SendFlags::OOB)
    }

    /// Shows that there is room to write: `OUT`, and an edge. Nothing when it is shown already.
    pub fn open_window(&self, signals: &Signals) -> io::Result<()> {
        if !signals.open_window() {
            return Ok(());
        }
        let mut byte = [0];
        match recv(&self.socket, &mut byte[..], RecvFlags::DONTWAIT) {
            // When the program's thread has claimed the window and not sent its byte yet, this
            // takes the byte that is never read, and the late one takes its place.
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Shows that the peer sends no more: `IN RDHUP`.
    pub fn half_close(&self) -> io::Result<()> {
        Ok(shutdown(&self.socket, Shutdown::Write)?)
    }

    /// Shows that neither side sends any more: `HUP` as well.
    pub fn end(&self) -> io::Result<()> {
        // Not receiving here is what stops the program's end from sending.
        Ok(shutdown(&self.socket, Shutdown::Both)?)
    }

    /// Shows a reset or a refusal: everything, with `ERR`.
    ///
    /// The kernel reports `ECONNRESET` once at the program's end; the library answers `SO_ERROR`
    /// itself, with the error that it knows.
    pub fn reset(self) {
        // Closing with a byte unread is what the kernel reports as a reset, and there is always
        // one: the pair is born with it.
        drop(self.socket);
    }

    /// Behind [`end`](Self::end): closing it, or the end of the process, shows no reset. Programs
    /// that hold the other end yet read what the peer's end is.
    pub fn discard_unread(&self) {
        let mut bytes = [0; 64];
        while matches!(
            recv(&self.socket, &mut bytes[..], RecvFlags::DONTWAIT),
            Ok((_, 1..))
        ) {}
    }

    fn signal(&self, flags: SendFlags) -> io::Result<()> {
        let flags = flags | SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match send(&self.socket, &[0], flags) {
            // Full: plenty of announcements lie there.
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for LibraryEnd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl From<LibraryEnd> for OwnedFd {
    fn from(end: LibraryEnd) -> Self {
        end.socket
    }
}

impl From<OwnedFd> for LibraryEnd {
    /// An end that came over `fork` or `exec`.
    fn from(socket: OwnedFd) -> Self {
        Self { socket }
    }
}
