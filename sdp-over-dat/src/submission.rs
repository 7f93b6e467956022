//! Writes that are submitted, and complete later.

use std::fmt;
use std::io;
use std::sync::Arc;

use sdp_proto::AdvertId;

use crate::{SdpStream, Stack, socket::Socket};

/// A write in progress, whose bytes stay where they are: they are not copied at this end.
///
/// The write makes progress in the calls of the stream and of its submissions, and on the stack's
/// thread if the stream has a watch. Several submissions may be in progress. Their bytes, and those
/// of other writes, are in the stream in the order of the calls.
///
/// A submission that is dropped continues, and its memory is freed when it ends.
///
/// ```no_run
/// use sdp_over_dat::{SdpStream, Stack};
///
/// fn send_both(stream: &SdpStream, first: Vec<u8>, second: Vec<u8>) -> std::io::Result<()> {
///     let mut writes = [stream.submit(first)?, stream.submit(second)?];
///     while writes.iter_mut().any(|write| write.poll().is_none()) {
///         // Something else, or `wait`.
///     }
///     Ok(())
/// }
/// ```
pub struct Submission {
    socket: Arc<Socket>,
    id: AdvertId,
    /// The number of bytes that the peer receives, and the memory, once nothing uses it any more.
    done: Option<(usize, Vec<u8>)>,
    // Declared last: the stack outlives its sockets.
    _stack: Stack,
}

impl SdpStream {
    /// Submits a write of `bytes`, whatever the options say, and does not wait for it.
    ///
    /// # Errors
    /// The pending error, or `BrokenPipe` if the direction has ended; `InvalidInput` for no bytes,
    /// and for more than 1 GiB; the error of the provider if the memory cannot be registered.
    pub fn submit(&self, bytes: Vec<u8>) -> io::Result<Submission> {
        let id = self.shared_socket().submit(bytes)?;
        Ok(Submission {
            socket: Arc::clone(self.shared_socket()),
            id,
            done: None,
            _stack: self.stack().clone(),
        })
    }
}

impl Submission {
    /// Makes progress without waiting. Returns the number of bytes that the peer receives, once
    /// nothing uses the memory any more.
    pub fn poll(&mut self) -> Option<usize> {
        if self.done.is_none() {
            self.done = self.socket.poll_submission(self.id);
        }
        self.done.as_ref().map(|(written, _)| *written)
    }

    /// Takes back the bytes that were not transferred. [`Self::poll`] returns the number of the
    /// others when the peer has answered.
    pub fn cancel(&self) {
        self.socket.cancel_submission(self.id);
    }

    /// Waits until nothing uses the memory any more. Returns the number of bytes that the peer
    /// receives, and the memory.
    pub fn wait(mut self) -> (usize, Vec<u8>) {
        let done = self.done.take();
        done.unwrap_or_else(|| self.socket.wait_submission(self.id))
    }
}

impl Drop for Submission {
    fn drop(&mut self) {
        self.socket.abandon_submission(self.id);
    }
}

impl fmt::Debug for Submission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Submission")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}
