//! `TcpStream` and `TcpListener` with the methods of `std::net`, over SDP.
//!
//! A program that changes its `use` line has its connections over RDMA:
//!
//! ```no_run
//! use sdp_over_dat::net::{TcpListener, TcpStream};
//! ```
//!
//! The adapter is the one that has the local address: that of the listener, or the source address
//! of the route to the peer. All sockets of a process on an adapter share one [`Stack`].

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::{Options, SdpListener, SdpStream, Stack};

/// A stream with the methods of [`std::net::TcpStream`]. Clones share one connection.
#[derive(Debug, Clone)]
pub struct TcpStream(Arc<SdpStream>);

/// A listener with the methods of [`std::net::TcpListener`].
#[derive(Debug, Clone)]
pub struct TcpListener(Arc<Listening>);

#[derive(Debug)]
struct Listening {
    listener: SdpListener,
    is_nonblocking: AtomicBool,
}

/// The connections of a [`TcpListener`], without end.
#[derive(Debug)]
pub struct Incoming<'a>(&'a TcpListener);

/// Calls `attempt` for each address until one succeeds, and returns the last error.
fn each<T>(
    addresses: impl ToSocketAddrs,
    mut attempt: impl FnMut(SocketAddr) -> io::Result<T>,
) -> io::Result<T> {
    let mut result = Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        "could not resolve to any addresses",
    ));
    for address in addresses.to_socket_addrs()? {
        result = attempt(address);
        if result.is_ok() {
            break;
        }
    }
    result
}

impl TcpStream {
    /// Connects to the first of the addresses that accepts.
    pub fn connect(addresses: impl ToSocketAddrs) -> io::Result<Self> {
        each(addresses, |peer| {
            let stack = Stack::toward(peer)?;
            SdpStream::connect(&stack, peer).map(Self::from)
        })
    }

    /// Connects within a time limit.
    pub fn connect_timeout(peer: &SocketAddr, timeout: Duration) -> io::Result<Self> {
        if timeout.is_zero() {
            let text = "cannot set a 0 duration timeout";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let stack = Stack::toward(*peer)?;
        let deadline = Instant::now().checked_add(timeout);
        let stream = SdpStream::start_connect(&stack, *peer)?;
        stream.socket().wait_connected(deadline)?;
        Ok(stream.into())
    }

    /// The peer's address.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.0.peer_addr())
    }

    /// This end's address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let unknown = || io::Error::from(io::ErrorKind::AddrNotAvailable);
        self.0.local_addr().ok_or_else(unknown)
    }

    /// Ends one direction or both.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.0.shutdown(how)
    }

    /// Returns another handle of the same connection. It does not fail.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(self.clone())
    }

    /// Reads bytes without removing them.
    pub fn peek(&self, into: &mut [u8]) -> io::Result<usize> {
        self.0.peek(into)
    }

    /// Sets the time that a read waits; `None` sets no limit.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        let read_timeout = checked(timeout)?;
        self.set(|options| Options {
            read_timeout,
            ..options
        })
    }

    /// The time that a read waits.
    pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.0.options().read_timeout)
    }

    /// Sets the time that a write waits; `None` sets no limit.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        let write_timeout = checked(timeout)?;
        self.set(|options| Options {
            write_timeout,
            ..options
        })
    }

    /// The time that a write waits.
    pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.0.options().write_timeout)
    }

    /// Stored only: bytes are sent at once in any case.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.set(|options| Options { nodelay, ..options })
    }

    /// The value of [`set_nodelay`](Self::set_nodelay).
    pub fn nodelay(&self) -> io::Result<bool> {
        Ok(self.0.options().nodelay)
    }

    /// Sets whether calls return `WouldBlock` instead of waiting, for all clones.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.set(|options| Options {
            nonblocking,
            ..options
        })
    }

    /// Returns the pending error, once.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(self.0.take_error())
    }

    fn set(&self, change: impl FnOnce(Options) -> Options) -> io::Result<()> {
        self.0.set_options(change(self.0.options()));
        Ok(())
    }
}

/// A timeout of zero is an error, as in `std::net`.
fn checked(timeout: Option<Duration>) -> io::Result<Option<Duration>> {
    match timeout {
        Some(Duration::ZERO) => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "cannot set a 0 duration timeout",
        )),
        timeout => Ok(timeout),
    }
}

impl From<SdpStream> for TcpStream {
    fn from(stream: SdpStream) -> Self {
        Self(Arc::new(stream))
    }
}

impl AsRef<SdpStream> for TcpStream {
    fn as_ref(&self) -> &SdpStream {
        &self.0
    }
}

impl AsFd for TcpStream {
    /// A descriptor for `poll` alone; see the same of [`SdpStream`].
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Implements a trait for the stream and for references to it, by those of [`SdpStream`].
macro_rules! forward {
    ($($type:ty),+) => {$(
        impl Read for $type {
            fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
                (&*self.0).read(into)
            }
        }

        impl Write for $type {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                (&*self.0).write(bytes)
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
    )+};
}

forward!(TcpStream, &TcpStream);

impl TcpListener {
    /// Listens at the first of the addresses that is free. The address is that of an adapter.
    pub fn bind(addresses: impl ToSocketAddrs) -> io::Result<Self> {
        each(addresses, |address| {
            let listener = SdpListener::bind(&Stack::at(address.ip())?, address)?;
            Ok(Self(Arc::new(Listening {
                listener,
                is_nonblocking: AtomicBool::new(false),
            })))
        })
    }

    /// The address at which the listener accepts connections.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.0.listener.local_addr())
    }

    /// Accepts the next connection.
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let is_nonblocking = self.0.is_nonblocking.load(Ordering::Relaxed);
        let timeout = is_nonblocking.then_some(Duration::ZERO);
        let (stream, peer) = self.0.listener.accept_timeout(timeout)?;
        Ok((stream.into(), peer))
    }

    /// Returns an iterator over the connections.
    #[must_use]
    pub const fn incoming(&self) -> Incoming<'_> {
        Incoming(self)
    }

    /// Returns another handle of the same listener. It does not fail.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(self.clone())
    }

    /// Sets whether [`accept`](Self::accept) returns `WouldBlock` instead of waiting.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.0.is_nonblocking.store(nonblocking, Ordering::Relaxed);
        Ok(())
    }
}

impl Iterator for Incoming<'_> {
    type Item = io::Result<TcpStream>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.0.accept().map(|(stream, _)| stream))
    }
}
