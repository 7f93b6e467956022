//! What an offload protocol's connection must be able to do.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::RawFd;

use rustix::io::Errno;

/// What a connection is ready for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Readiness {
    /// `receive` gives bytes, the end of the stream or an error.
    pub(crate) readable: bool,
    /// `send` takes at least a byte, or fails with an error.
    pub(crate) writable: bool,
}

/// A connected byte stream that never blocks. Methods are called from any thread.
///
/// What comes about is told to the [`Observer`](super::observer::Observer) that the stream was
/// given, after it can be seen by these methods.
pub(crate) trait Stream: Send + Sync {
    /// Takes bytes; `peek` leaves them there. `Ok(0)`: the peer sends no more. `AGAIN`: nothing
    /// yet.
    fn receive(&self, into: &mut [IoSliceMut<'_>], peek: bool) -> Result<usize, Errno>;

    /// Takes the urgent byte. `AGAIN`: it has been announced and is not here; `INVAL`: there is
    /// none.
    fn receive_urgent(&self, peek: bool) -> Result<u8, Errno>;

    /// Gives bytes. `AGAIN`: no room.
    fn send(&self, from: &[IoSlice<'_>]) -> Result<usize, Errno>;

    /// Gives one urgent byte, behind what has been given.
    fn send_urgent(&self, byte: u8) -> Result<(), Errno>;

    /// Says that we send no more, behind what has been given.
    fn shut_down_sending(&self) -> Result<(), Errno>;

    /// We neither send nor receive any more: what still arrives is answered with a reset.
    fn refuse_input(&self);

    /// What it is ready for now.
    fn readiness(&self) -> Readiness;

    /// Bytes that can be received at once.
    fn unread(&self) -> usize;

    /// Bytes that were given and that the peer has not taken.
    fn unsent(&self) -> usize;

    /// Whether the next byte to receive is the one behind the urgent byte.
    fn is_at_mark(&self) -> bool;

    /// Descriptors that must be open in this process alone.
    fn descriptors(&self) -> Vec<RawFd>;

    /// Ends the connection at once; what was given may be lost, and the peer sees a reset.
    fn abort(&self);
}
