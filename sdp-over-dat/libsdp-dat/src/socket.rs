//! A socket: fresh, listening, or one end of a connection.

use std::ffi::c_int;
use std::io::{IoSlice, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd as _, AsRawFd as _, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::Duration;

use sdp_over_dat::{Config, Options, ReceiveFlags, SdpListener, SdpStream, Stack};

use crate::address::Family;
use crate::errno::{Errno, Outcome};

/// A socket of the program.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) family: Family,
    /// The address of `bind`. The lock is held while the socket leaves the fresh state.
    bound: Mutex<Option<SocketAddr>>,
    /// The options; those of a connection are in its stream.
    options: Mutex<Options>,
    end: OnceLock<End>,
}

/// The object of a socket that is no longer fresh.
#[derive(Debug)]
enum End {
    Listener(SdpListener),
    Stream(SdpStream),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Socket {
    pub(crate) fn new(family: Family, nonblocking: bool) -> Self {
        Self {
            family,
            bound: Mutex::new(None),
            options: Mutex::new(Options {
                nonblocking,
                ..Options::default()
            }),
            end: OnceLock::new(),
        }
    }

    fn stream(&self) -> Outcome<&SdpStream> {
        match self.end.get() {
            Some(End::Stream(stream)) => Ok(stream),
            _ => Err(Errno(libc::ENOTCONN)),
        }
    }

    fn listener(&self) -> Outcome<&SdpListener> {
        match self.end.get() {
            Some(End::Listener(listener)) => Ok(listener),
            _ => Err(Errno(libc::EINVAL)),
        }
    }

    pub(crate) fn is_listening(&self) -> bool {
        self.listener().is_ok()
    }

    pub(crate) fn options(&self) -> Options {
        match self.end.get() {
            Some(End::Stream(stream)) => stream.options(),
            _ => *lock(&self.options),
        }
    }

    pub(crate) fn set_options(&self, options: Options) {
        *lock(&self.options) = options;
        if let Ok(stream) = self.stream() {
            stream.set_options(options);
        }
    }

    /// The lock of a transition. `EALREADY`: another thread connects the socket.
    fn fresh(&self) -> Outcome<MutexGuard<'_, Option<SocketAddr>>> {
        match self.bound.try_lock() {
            Ok(bound) => Ok(bound),
            Err(TryLockError::Poisoned(bound)) => Ok(bound.into_inner()),
            Err(TryLockError::WouldBlock) => Err(Errno(libc::EALREADY)),
        }
    }

    pub(crate) fn bind(&self, address: SocketAddr) -> Outcome {
        let mut bound = self.fresh()?;
        if self.end.get().is_some() || bound.is_some() {
            return Err(Errno(libc::EINVAL));
        }
        if !address.ip().is_unspecified() {
            stack_at(address)?;
        }
        *bound = Some(address);
        Ok(())
    }

    pub(crate) fn listen(&self, backlog: c_int) -> Outcome {
        let bound = self.fresh()?;
        match self.end.get() {
            // The service point keeps its first backlog.
            Some(End::Listener(_)) => return Ok(()),
            Some(End::Stream(_)) => return Err(Errno(libc::EINVAL)),
            None => {}
        }
        let address = bound.unwrap_or_else(|| self.family.any());
        let stack = stack_at(address)?;
        let backlog = u32::try_from(backlog).unwrap_or(0).clamp(1, BACKLOG_MAX);
        let stack = stack.with_config(Config {
            backlog,
            ..stack.config()
        })?;
        let listener = SdpListener::bind(&stack, address)?;
        // The lock is held, so no other thread has set it.
        let _ = self.end.set(End::Listener(listener));
        Ok(())
    }

    pub(crate) fn accept(&self) -> Outcome<(Self, SocketAddr)> {
        let listener = self.listener()?;
        let options = self.options();
        let timeout = if options.nonblocking {
            Some(Duration::ZERO)
        } else {
            options.read_timeout
        };
        let (stream, peer) = listener.accept_timeout(timeout)?;
        let accepted = Self::new(self.family, false);
        let _ = accepted.end.set(End::Stream(stream));
        accepted.set_options(Options {
            nonblocking: false,
            ..options
        });
        Ok((accepted, peer))
    }

    pub(crate) fn connect(&self, peer: SocketAddr) -> Outcome {
        let bound = self.fresh()?;
        match self.end.get() {
            Some(End::Listener(_)) => return Err(Errno(libc::EISCONN)),
            Some(End::Stream(stream)) => return Err(again(stream)),
            None => {}
        }
        let stack = match *bound {
            // A provider chooses the port of a connection.
            Some(bound) if bound.port() != 0 => return Err(Errno(libc::EINVAL)),
            Some(bound) if !bound.ip().is_unspecified() => stack_at(bound)?,
            _ => Stack::toward(peer).map_err(|_| Errno(libc::ENETUNREACH))?,
        };
        let options = self.options();
        let stream = if options.nonblocking {
            SdpStream::start_connect(&stack, peer)
        } else {
            SdpStream::connect(&stack, peer)
        }?;
        stream.set_options(options);
        let _ = self.end.set(End::Stream(stream));
        if options.nonblocking {
            return Err(Errno(libc::EINPROGRESS));
        }
        Ok(())
    }

    pub(crate) fn send(&self, bytes: &[u8], flags: c_int) -> Outcome<usize> {
        let known = libc::MSG_DONTWAIT | libc::MSG_OOB | libc::MSG_NOSIGNAL | libc::MSG_MORE;
        if flags & !known != 0 {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        let mut stream = self.stream()?;
        let mut plain = |bytes: &[u8]| match flags & libc::MSG_DONTWAIT {
            0 => stream.write(bytes),
            _ => stream.try_send_pieces(&[IoSlice::new(bytes)]),
        };
        let [before @ .., last] = bytes else {
            return Ok(0);
        };
        if flags & libc::MSG_OOB == 0 {
            return Ok(plain(bytes)?);
        }
        let sent = if before.is_empty() { 0 } else { plain(before)? };
        if sent < before.len() {
            return Ok(sent);
        }
        match stream.send_urgent(*last) {
            Ok(()) => Ok(sent + 1),
            Err(_) if sent > 0 => Ok(sent),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn receive(&self, into: &mut [u8], flags: c_int) -> Outcome<usize> {
        let known = libc::MSG_DONTWAIT | libc::MSG_OOB | libc::MSG_PEEK | libc::MSG_WAITALL;
        if flags & !known != 0 {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        let has = |flag| flags & flag != 0;
        let mut stream = self.stream()?;
        let Some(first) = into.first_mut() else {
            return Ok(0);
        };
        if has(libc::MSG_OOB) {
            *first = if has(libc::MSG_PEEK) {
                stream.peek_urgent()?
            } else {
                stream.receive_urgent()?
            };
            return Ok(1);
        }
        if flags == 0 {
            return Ok(stream.read(into)?);
        }
        let flags = ReceiveFlags {
            peek: has(libc::MSG_PEEK),
            wait_all: has(libc::MSG_WAITALL),
            dont_wait: has(libc::MSG_DONTWAIT),
        };
        Ok(stream.receive(into, flags)?)
    }

    pub(crate) fn shutdown(&self, how: c_int) -> Outcome {
        let how = match how {
            libc::SHUT_RD => Shutdown::Read,
            libc::SHUT_WR => Shutdown::Write,
            libc::SHUT_RDWR => Shutdown::Both,
            _ => return Err(Errno(libc::EINVAL)),
        };
        Ok(self.stream()?.shutdown(how)?)
    }

    pub(crate) fn local(&self) -> SocketAddr {
        let local = match self.end.get() {
            Some(End::Listener(listener)) => Some(listener.local_addr()),
            Some(End::Stream(stream)) => stream.local_addr(),
            None => None,
        };
        local
            .or_else(|| *lock(&self.bound))
            .unwrap_or_else(|| self.family.any())
    }

    pub(crate) fn peer(&self) -> Outcome<SocketAddr> {
        Ok(self.stream()?.peer_addr())
    }

    /// The pending error (`SO_ERROR`), once.
    pub(crate) fn take_error(&self) -> c_int {
        let error = self.stream().ok().and_then(SdpStream::take_error);
        error.map_or(0, |error| Errno::from(error).0)
    }

    pub(crate) fn descriptor(&self) -> Outcome<RawFd> {
        match self.end.get() {
            Some(End::Listener(listener)) => Ok(listener.as_fd().as_raw_fd()),
            Some(End::Stream(stream)) => {
                let stand_in = Arc::clone(stream.stand_in()?);
                Ok(stand_in.as_fd().as_raw_fd())
            }
            None => Err(Errno(libc::ENOTCONN)),
        }
    }
}

/// The most connection requests that may wait for an accept, as in the kernel (`somaxconn`).
const BACKLOG_MAX: u32 = 4096;

/// The stack of the adapter with this address.
fn stack_at(address: SocketAddr) -> Outcome<Stack> {
    Stack::at(address.ip()).map_err(|_| Errno(libc::EADDRNOTAVAIL))
}

/// The error of a second `connect`.
fn again(stream: &SdpStream) -> Errno {
    let state = stream.readiness();
    match stream.take_error() {
        Some(error) => error.into(),
        None if state.failed => Errno(libc::ECONNABORTED),
        None if state.writable => Errno(libc::EISCONN),
        None => Errno(libc::EALREADY),
    }
}
