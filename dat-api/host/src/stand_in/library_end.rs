//! The library's end of a pair.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::{Errno, ioctl_fionread};
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};

use crate::descriptors::OwnDescriptor;
use crate::stand_in::signals::Signals;

/// The library's end of a pair.
///
/// The end becomes readable with a hang-up when the last duplicate of the program's end is closed.
#[derive(Debug)]
pub struct LibraryEnd {
    socket: OwnDescriptor,
}

impl LibraryEnd {
    pub(super) fn new(socket: impl Into<OwnDescriptor>) -> Self {
        let socket = socket.into();
        Self { socket }
    }

    /// Moves the end to another descriptor number, which `to` chooses.
    pub fn moved(self, to: impl FnOnce(OwnedFd) -> Result<OwnedFd, Errno>) -> Result<Self, Errno> {
        to(self.socket.into_owned()?).map(Self::new)
    }

    /// Shows that data was received: `IN`, and an edge even if the last announcement is still
    /// unread.
    ///
    /// Call this after the bytes can be read. The call does nothing while many announcements are
    /// unread, because the pair shows `IN` then anyway.
    pub fn announce(&self, signals: &Signals) -> io::Result<()> {
        if !signals.take_announcement() {
            return Ok(());
        }
        self.signal(SendFlags::empty()).inspect_err(|_| {
            signals.subtract_announcements(1);
        })
    }

    /// Shows that urgent data was received: `PRI`, with `IN`.
    pub fn announce_urgent(&self) -> io::Result<()> {
        self.signal(SendFlags::OOB)
    }

    /// Shows that there is room to write: `OUT`, and an edge. Does nothing if this is shown
    /// already.
    pub fn open_window(&self, signals: &Signals) -> io::Result<()> {
        if !signals.open_window() {
            return Ok(());
        }
        let mut byte = [0];
        // The window is open already, so one signal remains besides the byte to take here.
        if self.unread() > signals.at_library_end() + 1 {
            // Bytes that were sent past the library: the signals keep their places before them.
            signals.close_window();
            return Ok(());
        }
        match recv(&self.socket, &mut byte[..], RecvFlags::DONTWAIT) {
            // If the program's thread has closed the window but not sent its byte yet, this call
            // takes the byte that is never read, and the late byte replaces it.
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
        // Shutting down the receiving side here makes sends on the program's end fail.
        Ok(shutdown(&self.socket, Shutdown::Both)?)
    }

    /// Returns true if the pair holds bytes of the program's end that are no signals: they were
    /// sent past the library, for example by io_uring. [`Carrier::with_bytes`] keeps them.
    ///
    /// [`Carrier::with_bytes`]: crate::stand_in::Carrier::with_bytes
    #[must_use]
    pub fn has_bytes(&self, signals: &Signals) -> bool {
        self.unread() > signals.at_library_end()
    }

    fn unread(&self) -> usize {
        let unread = ioctl_fionread(&self.socket).unwrap_or(0);
        usize::try_from(unread).unwrap_or(usize::MAX)
    }

    /// Shows a reset or a refusal: all events, with `ERR`.
    ///
    /// The kernel reports `ECONNRESET` once at the program's end. The library itself answers
    /// `SO_ERROR`, with the error of the connection.
    pub fn reset(self) {
        // The kernel reports a close with a byte unread as a reset. There always is an unread byte:
        // the pair gets it when it is made.
        drop(self.socket);
    }

    /// Discards the unread bytes after [`end`](Self::end), so that closing this end, or the end of
    /// the process, shows no reset. Programs that still hold the other end read the end of file.
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
            // The buffer is full, so many announcements are unread already.
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

impl From<LibraryEnd> for OwnDescriptor {
    fn from(end: LibraryEnd) -> Self {
        end.socket
    }
}

impl From<OwnedFd> for LibraryEnd {
    /// Takes an end that was inherited over `fork` or `exec`.
    fn from(socket: OwnedFd) -> Self {
        Self::new(socket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stand_in::carrier::{Carrier, Taken};
    use crate::stand_in::program_end::{Flags, close_window, established};

    #[test]
    fn signals_are_distinguished_from_bytes_sent_past_the_library() {
        let (program, end) = established(Flags::default()).unwrap();
        let signals = Signals::new();
        assert!(!end.has_bytes(&signals));
        close_window(&program, &signals).unwrap();
        assert!(!end.has_bytes(&signals));
        send(&program, b"x", SendFlags::DONTWAIT).unwrap();
        assert!(end.has_bytes(&signals));
        end.open_window(&signals).unwrap();
        assert!(
            end.has_bytes(&signals),
            "the window takes no byte of the program"
        );
        let mut carrier = Carrier::with_bytes(end, &signals).unwrap();
        assert_eq!(carrier.receive(&mut [0; 9], false), Ok(Taken::Bytes(1)));
    }

    #[test]
    fn one_byte_past_the_library_is_no_signal() {
        let (program, end) = established(Flags::default()).unwrap();
        let signals = Signals::new();
        send(&program, b"x", SendFlags::DONTWAIT).unwrap();
        assert!(end.has_bytes(&signals));
        let mut carrier = Carrier::with_bytes(end, &signals).unwrap();
        let mut room = [0; 9];
        assert_eq!(carrier.receive(&mut room, false), Ok(Taken::Bytes(1)));
        assert_eq!(room[0], b'x');
    }
}
