//! Streams for tasks of tokio (feature `tokio`).

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd as _, AsRawFd, RawFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use ::tokio::io::unix::AsyncFd;
use ::tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::{SdpStream, Stack};

/// A stream that implements tokio's traits of a `TcpStream`. Tasks wait for the stream's
/// descriptor; the stream has no thread of its own.
#[derive(Debug)]
pub struct AsyncSdpStream(AsyncFd<Polled>);

/// A stream as the runtime sees it, which uses the descriptor for nothing but readiness.
#[derive(Debug)]
struct Polled(SdpStream);

impl AsRawFd for Polled {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl AsyncSdpStream {
    /// Makes tasks wait for a stream. The caller runs in a runtime whose I/O is enabled.
    pub fn new(stream: SdpStream) -> io::Result<Self> {
        stream.set_nonblocking(true);
        // Made now, so that a lack of descriptors is an error here.
        stream.stand_in()?;
        // SAFETY: the call above has made the descriptor, which is the stream's until it is
        // dropped. The registration owns the stream.
        let registered = unsafe { AsyncFd::register(Polled(stream)) };
        Ok(Self(registered?))
    }

    /// Connects to the service at `peer`.
    pub async fn connect(stack: &Stack, peer: SocketAddr) -> io::Result<Self> {
        let stream = Self::new(SdpStream::start_connect(stack, peer)?)?;
        // The stream becomes writable when it is connected, or has failed.
        stream.0.writable().await?.retain_ready();
        match stream.get_ref().take_error() {
            Some(error) => Err(error),
            None => Ok(stream),
        }
    }

    /// The stream. The program must not make it blocking again.
    #[must_use]
    pub fn get_ref(&self) -> &SdpStream {
        &self.0.get_ref().0
    }
}

impl AsyncRead for AsyncSdpStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut ready = ready!(self.0.poll_read_ready(context))?;
            let bytes = into.initialize_unfilled();
            if let Ok(read) = ready.try_io(|stream| (&stream.get_ref().0).read(bytes)) {
                into.advance(read?);
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl AsyncWrite for AsyncSdpStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(self.0.poll_write_ready(context))?;
            if let Ok(written) = ready.try_io(|stream| (&stream.get_ref().0).write(bytes)) {
                return Poll::Ready(written);
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.get_ref().shutdown(Shutdown::Write))
    }
}
