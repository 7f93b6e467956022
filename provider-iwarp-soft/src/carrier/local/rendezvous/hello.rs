//! The two messages of a rendezvous.
//!
//! ```text
//! Hello     "dat-ring" (8) | version (4) | ring_len (4) | token (8)     little-endian
//! Answer    reason (1); 0 means acceptance
//! ```
//!
//! A hello carries one descriptor (SCM_RIGHTS), that of the shared memory.

use std::io;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};

use crate::engine::io::{Received, Sent};

const MAGIC: [u8; 8] = *b"dat-ring";
/// Bytes of a hello.
const HELLO_LEN: usize = 24;
/// The number of descriptors for which a receive has room: one more than the one that is accepted,
/// so that a second descriptor is detected.
const DESCRIPTORS_MAX: usize = 2;

/// The first message of the connecting process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hello {
    /// The version of the ring's layout.
    pub(crate) version: u32,
    /// Bytes of each data area of the shared memory.
    pub(crate) ring_len: u32,
    /// The secret that identifies the connection to the listening process.
    pub(crate) token: u64,
}

impl Hello {
    fn emit(&self) -> [u8; HELLO_LEN] {
        let mut bytes = [0; HELLO_LEN];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&self.version.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.ring_len.to_le_bytes());
        bytes[16..].copy_from_slice(&self.token.to_le_bytes());
        bytes
    }

    fn parse(bytes: &[u8; HELLO_LEN]) -> Option<Self> {
        let word = |at| u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        (bytes[..8] == MAGIC).then(|| Self {
            version: word(8),
            ring_len: word(12),
            token: u64::from(word(16)) | u64::from(word(20)) << 32,
        })
    }
}

/// The reason for a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The version is unknown.
    Version,
    /// No connection has the token, or the token has been used.
    Token,
    /// The shared memory is not acceptable.
    Memory,
    /// Memory or descriptors are short.
    Resources,
    /// A reason that this version does not define.
    Other(u8),
}

/// The reply of the listening process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    Yes,
    No(Refusal),
}

impl Answer {
    fn emit(self) -> u8 {
        match self {
            Self::Yes => 0,
            Self::No(Refusal::Version) => 1,
            Self::No(Refusal::Token) => 2,
            Self::No(Refusal::Memory) => 3,
            Self::No(Refusal::Resources) => 4,
            // Never one of the codes above.
            Self::No(Refusal::Other(code)) => code.max(5),
        }
    }

    fn parse(byte: u8) -> Self {
        match byte {
            0 => Self::Yes,
            1 => Self::No(Refusal::Version),
            2 => Self::No(Refusal::Token),
            3 => Self::No(Refusal::Memory),
            4 => Self::No(Refusal::Resources),
            code => Self::No(Refusal::Other(code)),
        }
    }
}

/// Sends a hello with a descriptor. A new connection always has room for a hello.
pub(crate) fn send_hello(conn: impl AsFd, hello: &Hello, fd: BorrowedFd<'_>) -> io::Result<()> {
    let bytes = hello.emit();
    let descriptors = [fd];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(Errno::NOBUFS.into());
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let pieces = [IoSlice::new(&bytes)];
    loop {
        match rustix::net::sendmsg(conn.as_fd(), &pieces, &mut control, flags) {
            Ok(HELLO_LEN) => return Ok(()),
            Ok(_) => return Err(Errno::MSGSIZE.into()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// The state of a hello that is being received.
#[derive(Debug)]
pub(crate) enum ReceivedHello {
    /// More bytes must be received.
    Incomplete,
    Complete(Hello, OwnedFd),
    /// The peer has sent other data, or has closed.
    Bad,
}

/// Receives one hello, in whatever pieces an untrusted peer sends it.
#[derive(Debug, Default)]
pub(crate) struct HelloReceiver {
    bytes: [u8; HELLO_LEN],
    filled: usize,
    descriptor: Option<OwnedFd>,
}

impl HelloReceiver {
    /// Receives once, and takes no bytes after the hello.
    pub(crate) fn receive(&mut self, conn: impl AsFd) -> ReceivedHello {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut pieces = [IoSliceMut::new(&mut self.bytes[self.filled..])];
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let result = rustix::net::recvmsg(conn.as_fd(), &mut pieces, &mut control, flags);
        let message = match result {
            Ok(message) => message,
            Err(Errno::AGAIN | Errno::INTR) => return ReceivedHello::Incomplete,
            Err(_) => return ReceivedHello::Bad,
        };
        let is_valid = self.take_descriptors(&mut control);
        // The kernel has closed the descriptors for which there was no room.
        let is_truncated = message.flags.contains(ReturnFlags::CTRUNC);
        if message.bytes == 0 || !is_valid || is_truncated {
            return ReceivedHello::Bad;
        }
        self.filled += message.bytes;
        if self.filled < HELLO_LEN {
            return ReceivedHello::Incomplete;
        }
        match (Hello::parse(&self.bytes), self.descriptor.take()) {
            (Some(hello), Some(descriptor)) => ReceivedHello::Complete(hello, descriptor),
            _ => ReceivedHello::Bad,
        }
    }

    /// Keeps the first descriptor and closes all others. Returns false if there were others.
    fn take_descriptors(&mut self, control: &mut RecvAncillaryBuffer<'_>) -> bool {
        let mut is_valid = true;
        for message in control.drain() {
            let RecvAncillaryMessage::ScmRights(descriptors) = message else {
                is_valid = false;
                continue;
            };
            for descriptor in descriptors {
                is_valid &= self.descriptor.is_none();
                self.descriptor.get_or_insert(descriptor);
            }
        }
        is_valid
    }
}

/// Sends the answer to a hello. Returns false if the peer has closed.
pub(crate) fn send_answer(conn: impl AsFd, answer: Answer) -> bool {
    let sent = crate::engine::io::send(conn.as_fd(), &[answer.emit()]);
    matches!(sent, Sent::Bytes(1))
}

/// Receives the answer to a hello, and takes no bytes after it. `Ok(None)` means that there is no
/// answer yet.
pub(crate) fn receive_answer(conn: impl AsFd) -> io::Result<Option<Answer>> {
    let mut byte = [0];
    match crate::engine::io::receive(conn.as_fd(), &mut byte) {
        Received::Bytes(_) => Ok(Some(Answer::parse(byte[0]))),
        Received::WouldBlock => Ok(None),
        Received::Eof => Err(Errno::CONNRESET.into()),
        Received::Failed(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
#[path = "hello/tests.rs"]
mod tests;
