//! A connected socket.

use std::{
    fmt,
    io::{self, IoSlice, Read, Write},
    net::{Shutdown, SocketAddr},
    os::fd::{AsFd, BorrowedFd},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicI32, Ordering},
    },
    time::{Duration, Instant},
};

use crate::{
    Decision, Options, Readiness, Stack, StandIn, Watch,
    socket::{Names, ReceiveFlags, Socket, To},
    statistics::Statistics,
};

/// A connected stream socket. Dropping the stream closes the connection as its linger option says.
pub struct SdpStream {
    socket: Arc<Socket>,
    stand_in: OnceLock<Arc<StandIn>>,
    /// The `errno` of a failed creation of the stand-in, until a call has returned it; 0: none.
    without_stand_in: AtomicI32,
    // Declared last: the stack outlives its sockets.
    stack: Stack,
}

/// A connection that this process has suspended and another one continues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suspended {
    /// The peer's address.
    pub peer: SocketAddr,
    /// The bytes that were received and not read. The next byte of the stream follows them.
    pub unread: Vec<u8>,
}

/// A failed [`SdpStream::suspend`].
#[derive(Debug, thiserror::Error)]
pub enum SuspendError {
    /// The provider cannot continue the connection. The stream is unchanged.
    #[error("the provider's private data has no room for the Hello of the continuation")]
    Unsupported(Box<SdpStream>),
    /// The connection has ended.
    #[error(transparent)]
    Ended(#[from] io::Error),
}

impl From<SuspendError> for io::Error {
    fn from(error: SuspendError) -> Self {
        match error {
            SuspendError::Unsupported(_) => {
                Self::new(io::ErrorKind::Unsupported, error.to_string())
            }
            SuspendError::Ended(error) => error,
        }
    }
}

impl SdpStream {
    /// Creates the stream of a new socket, which the stack's thread serves from now on.
    pub(crate) fn new(stack: &Stack, socket: Arc<Socket>) -> Self {
        stack.inner.serve(&socket);
        Self {
            socket,
            stand_in: OnceLock::new(),
            without_stand_in: AtomicI32::new(0),
            stack: stack.clone(),
        }
    }

    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }

    pub(crate) const fn shared_socket(&self) -> &Arc<Socket> {
        &self.socket
    }

    /// Connects to the service at `peer`. Waits at most twice [`crate::Config::connect_timeout`].
    pub fn connect(stack: &Stack, peer: SocketAddr) -> io::Result<Self> {
        let stream = Self::start_connect(stack, peer)?;
        let timeout = stack.config.connect_timeout.saturating_mul(2);
        let deadline = Instant::now().checked_add(timeout);
        stream.socket.wait_connected(deadline)?;
        Ok(stream)
    }

    /// Starts to connect. The stream becomes writable when it is connected, and has an error if the
    /// connect fails.
    pub fn start_connect(stack: &Stack, peer: SocketAddr) -> io::Result<Self> {
        let names = Names { local: None, peer };
        let adapter = &stack.inner.adapter;
        let socket = Socket::connect(adapter, stack.config, names, To::Service)?;
        Ok(Self::new(stack, socket))
    }

    /// The peer's address.
    #[must_use]
    pub fn peer_addr(&self) -> SocketAddr {
        self.socket.peer()
    }

    /// This end's address, if the provider reports it.
    #[must_use]
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.socket.local()
    }

    /// The stack that the stream belongs to.
    #[must_use]
    pub const fn stack(&self) -> &Stack {
        &self.stack
    }

    /// The stream's options.
    #[must_use]
    pub fn options(&self) -> Options {
        self.socket.lock().options
    }

    /// Sets the stream's options.
    pub fn set_options(&self, options: Options) {
        self.socket.set_options(options);
    }

    /// Sets whether calls return `WouldBlock` instead of waiting.
    pub fn set_nonblocking(&self, nonblocking: bool) {
        let options = Options {
            nonblocking,
            ..self.options()
        };
        self.socket.set_options(options);
    }

    /// Reads bytes without removing them (MSG_PEEK).
    pub fn peek(&self, into: &mut [u8]) -> io::Result<usize> {
        let flags = ReceiveFlags {
            peek: true,
            ..ReceiveFlags::default()
        };
        self.receive(into, flags)
    }

    /// Reads until `into` is full or the stream ends (MSG_WAITALL).
    pub fn receive_all(&self, into: &mut [u8]) -> io::Result<usize> {
        let flags = ReceiveFlags {
            wait_all: true,
            ..ReceiveFlags::default()
        };
        self.receive(into, flags)
    }

    /// Reads without waiting, whatever the options say (MSG_DONTWAIT).
    pub fn try_receive(&self, into: &mut [u8]) -> io::Result<usize> {
        let flags = ReceiveFlags {
            dont_wait: true,
            ..ReceiveFlags::default()
        };
        self.receive(into, flags)
    }

    /// Reads with flags.
    pub fn receive(&self, into: &mut [u8], flags: ReceiveFlags) -> io::Result<usize> {
        let received = self.socket.receive(into, flags);
        received.map_err(|error| self.or_without_stand_in(error))
    }

    /// Replaces `WouldBlock`, once, by the error of a failed creation of the stand-in. A caller
    /// that polls the always ready descriptor instead would otherwise retry for ever.
    fn or_without_stand_in(&self, error: io::Error) -> io::Error {
        // A poll that finds nothing only reads the word, without a locked instruction.
        if error.kind() != io::ErrorKind::WouldBlock
            || self.without_stand_in.load(Ordering::Acquire) == 0
        {
            return error;
        }
        match self.without_stand_in.swap(0, Ordering::AcqRel) {
            0 => error,
            errno => io::Error::from_raw_os_error(errno),
        }
    }

    /// Writes as many bytes of `pieces` as fit, without waiting, whatever the options say.
    pub fn try_send_pieces(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.socket.try_send_pieces(pieces)
    }

    /// Writes `bytes` from where they are, without a copy at this end, whatever the options say.
    /// Waits until the peer or the transport has them, or until they are taken back. Returns the
    /// number of bytes that the peer receives, or `None` if the bytes must be copied: they are
    /// below [`Self::in_place_threshold`], or their memory cannot be registered.
    ///
    /// `decide` is called at every event, and at least every few milliseconds, with the number of
    /// bytes that were transferred so far. No lock of the stream is held meanwhile.
    pub fn send_in_place(
        &self,
        bytes: &[u8],
        decide: &mut dyn FnMut(usize) -> Decision,
    ) -> io::Result<Option<usize>> {
        self.socket.send_in_place(bytes, decide)
    }

    /// True if a read that waits for up to `len` bytes, or for all of them (`wait_all`), is to be
    /// made by [`Self::receive_in_place`] now, because bytes need not be copied.
    #[must_use]
    pub fn receives_in_place(&self, len: usize, wait_all: bool) -> bool {
        self.socket.receives_in_place(len, wait_all)
    }

    /// Reads bytes straight from the peer's memory, or lets the peer write them into `into`, or
    /// copies those that have arrived. Waits for the first one, or for all (`wait_all`), whatever
    /// the options say. Returns `WouldBlock` if `decide` has ended the wait before the first byte.
    /// When the call returns, nothing uses the memory any more.
    ///
    /// `decide` is called as for [`Self::send_in_place`], with a number that grows with the bytes
    /// received. The watch is not notified of bytes that this call receives.
    pub fn receive_in_place(
        &self,
        into: &mut [u8],
        wait_all: bool,
        decide: &mut dyn FnMut(usize) -> Decision,
    ) -> io::Result<usize> {
        self.socket.receive_in_place(into, wait_all, decide)
    }

    /// The number of bytes from which on [`Self::send_in_place`] copies nothing. `usize::MAX`:
    /// never.
    #[must_use]
    pub fn in_place_threshold(&self) -> usize {
        let config = &self.socket.config;
        let without_sink = config.zcopy_threshold.min(config.registered_threshold);
        without_sink.min(config.pipelined_threshold)
    }

    /// Writes one urgent byte (MSG_OOB).
    pub fn send_urgent(&self, byte: u8) -> io::Result<()> {
        self.socket.send_urgent(byte)
    }

    /// Reads the urgent byte (MSG_OOB). Returns `WouldBlock` if it was announced and not received,
    /// and `InvalidInput` if there is none.
    pub fn receive_urgent(&self) -> io::Result<u8> {
        self.socket.receive_urgent(false)
    }

    /// Returns the urgent byte and keeps it in the stream (MSG_OOB with MSG_PEEK).
    pub fn peek_urgent(&self) -> io::Result<u8> {
        self.socket.receive_urgent(true)
    }

    /// The number of bytes that were written and not sent, plus 1 while the end of the stream is
    /// not sent (TIOCOUTQ).
    #[must_use]
    pub fn unsent(&self) -> usize {
        self.socket.unsent()
    }

    /// Copies `SO_KEEPALIVE`, the keepalive times and `TCP_USER_TIMEOUT` from the TCP socket
    /// `like`. Does nothing if the stream has no TCP socket: its provider watches the peer.
    pub fn watch_peer_like(&self, like: BorrowedFd<'_>) -> io::Result<()> {
        self.socket.watch_peer_like(like)
    }

    /// Suspends the connection, which another process of this host continues: the peer connects to
    /// `port`, where that process listens already, and its program notices nothing. The process
    /// reads [`Suspended::unread`] first and then from the stream that it accepts. Several clients
    /// may connect to the port; the address in [`Self::peer_addr`] shows which one is the peer.
    ///
    /// Waits until everything that was written is sent and the peer has answered. A peer whose
    /// program makes no call, and does not poll the socket either, does not answer.
    ///
    /// # Errors
    /// [`SuspendError::Unsupported`], with the unchanged stream, if the provider's private data has
    /// less than 64 bytes (rxe). [`SuspendError::Ended`]: `TimedOut` after `timeout`;
    /// `NotConnected` if this end has shut its sending direction or the connection has ended;
    /// `ConnectionReset` if both ends suspend the connection at the same time.
    pub fn suspend(self, port: u16, timeout: Duration) -> Result<Suspended, SuspendError> {
        if !self.socket.can_suspend() {
            return Err(SuspendError::Unsupported(Box::new(self)));
        }
        let unread = self.socket.suspend(port, timeout)?;
        Ok(Suspended {
            peer: self.peer_addr(),
            unread,
        })
    }

    /// Ends the connection at once. The peer's next call reports a reset.
    pub fn abort(&self) {
        self.socket.abort();
    }

    /// True if the stream is at the urgent mark (SIOCATMARK).
    #[must_use]
    pub fn is_at_mark(&self) -> bool {
        self.socket.is_at_mark()
    }

    /// Bytes that can be read now.
    #[must_use]
    pub fn readable(&self) -> usize {
        self.socket.readable()
    }

    /// The number of readable bytes before the urgent mark, as FIONREAD reports for TCP: all if
    /// there is no mark or the urgent byte belongs to the stream, none at the mark.
    #[must_use]
    pub fn readable_before_mark(&self) -> usize {
        self.socket.readable_before_mark()
    }

    /// Ends one direction or both.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.socket.shutdown(how)
    }

    /// Returns the pending error (SO_ERROR), once.
    #[must_use]
    pub fn take_error(&self) -> Option<io::Error> {
        self.socket.take_error()
    }

    /// Polls until the stream is readable, `polls` times at most. Returns true if it is.
    ///
    /// Poll before a sleep: a message is then received on this thread, without a wake-up of the
    /// stack's thread. The watch is not notified of events in between, until
    /// [`SdpStream::end_polling`], or for about 20 ms after the last poll.
    #[must_use]
    pub fn poll_readable(&self, polls: u32) -> bool {
        self.socket.poll_readable(polls)
    }

    /// Reports to the watch what [`SdpStream::poll_readable`] has found.
    pub fn show_polled(&self) {
        self.socket.show_polled();
    }

    /// True if the watch may receive events late, because the stream has been polled.
    #[must_use]
    pub fn is_polled(&self) -> bool {
        self.socket.is_polled()
    }

    /// Reports all events to the watch again. Call this before a thread waits for the watch.
    pub fn end_polling(&self) {
        self.socket.end_polling();
    }

    /// The stream's present readiness.
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        self.socket.readiness()
    }

    /// Reports the readiness to `watch`, now and at every change; `watch` replaces the previous
    /// watch. A layer that owns the program's descriptors uses this call.
    pub fn watch(&self, watch: Arc<dyn Watch>) {
        self.socket.watch(watch);
    }

    /// The stream's counters and buffer sizes.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.socket.statistics()
    }

    /// Returns the descriptor that shows the stream's readiness. The first call creates it.
    pub fn stand_in(&self) -> io::Result<&Arc<StandIn>> {
        if self.stand_in.get().is_none() {
            let created = Arc::new(StandIn::new()?);
            if self.stand_in.set(Arc::clone(&created)).is_ok() {
                self.watch(created);
            }
        }
        self.stand_in
            .get()
            .ok_or_else(|| io::Error::other("no descriptor"))
    }
}

impl Read for SdpStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        (&*self).read(into)
    }
}

impl Read for &SdpStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.receive(into, ReceiveFlags::default())
    }
}

impl Write for SdpStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Write for &SdpStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = self.socket.send(bytes);
        sent.map_err(|error| self.or_without_stand_in(error))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for SdpStream {
    /// A descriptor for `poll`, which shows the stream's readiness. The caller must not read or
    /// write it.
    ///
    /// If the process has no free descriptor, this returns one that is always ready, and the next
    /// read or write that would block reports the error (`EMFILE`), once. A later call may return
    /// the stream's own descriptor. [`SdpStream::stand_in`] returns the error instead.
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self.stand_in() {
            Ok(stand_in) => stand_in.as_fd(),
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or(libc::EMFILE);
                self.without_stand_in.store(errno, Ordering::Release);
                self.stack.inner.always_ready.as_fd()
            }
        }
    }
}

impl Drop for SdpStream {
    fn drop(&mut self) {
        self.socket.close();
    }
}

impl fmt::Debug for SdpStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SdpStream")
            .field("peer", &self.peer_addr())
            .finish_non_exhaustive()
    }
}
