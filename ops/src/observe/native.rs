//! The records of sockets that stay on TCP.
//!
//! Such a socket has no counters and one state, so its owner keeps one number. Listing it and
//! removing it from the list allocate no memory and take no lock.

use std::fmt::{self, Write as _};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::atomic::Ordering;

use crate::observe::description::{DETAIL_LEN, Kind, encode_tcp, words};
use crate::observe::layout::{REASON_WORDS, RECORDS_MAX};
use crate::observe::state::State;
use crate::observe::writer::Writer;

/// A socket that stays on TCP.
#[derive(Debug, Clone, Copy)]
pub struct Native<'a> {
    /// The purpose of the socket.
    pub kind: Kind,
    /// The address of this end. Unspecified for a connection; `opsrun ss` reads the address from
    /// the kernel's tables.
    pub local: SocketAddr,
    /// The address of the peer; unused for a listener.
    pub remote: SocketAddr,
    /// The reason for which no offload protocol carries it.
    pub reason: &'a ReasonText,
}

/// The record of a socket that stays on TCP. Dropping the record removes the socket from the list.
/// Dropping the copy in the child of a fork has no effect.
#[derive(Debug)]
pub struct NativeRecord {
    writer: &'static Writer,
    number: NonZeroU32,
}

/// The bits of a number for the index of a record, plus one. The other bits hold the number of
/// forks.
const INDEX_BITS: u32 = 15;
const _: () = assert!(RECORDS_MAX < 1 << INDEX_BITS);

impl Writer {
    /// Lists a socket that stays on TCP until its record is dropped. Returns `None` if no record is
    /// free.
    pub fn list_native(&'static self, socket: &Native<'_>) -> Option<NativeRecord> {
        let page = self.make();
        let header = page.header()?;
        let reason = &socket.reason.words;
        if socket.kind == Kind::Connection {
            if reason[0] != 0 {
                page.count_reason(reason);
            }
            header.tcp.fetch_add(1, Ordering::Relaxed);
        }
        let ends = [socket.local, socket.remote];
        let description = encode_tcp(socket.kind, ends, reason);
        let state = match socket.kind {
            Kind::Connection => State::Native,
            Kind::Listener => State::Listening,
        };
        let index = page.claim(&description, state)?;
        let number = NonZeroU32::new(self.forks() << INDEX_BITS | (index + 1))?;
        Some(NativeRecord {
            writer: self,
            number,
        })
    }
}

impl NativeRecord {
    /// Returns the number from which [`NativeRecord::from_number`] makes the record again.
    #[must_use]
    pub fn into_number(self) -> u32 {
        let number = self.number.get();
        std::mem::forget(self);
        number
    }

    /// Returns the record with a number of [`NativeRecord::into_number`]. Each number may be used
    /// once. Returns `None` for 0.
    #[must_use]
    pub fn from_number(writer: &'static Writer, number: u32) -> Option<Self> {
        let number = NonZeroU32::new(number)?;
        Some(Self { writer, number })
    }
}

impl Drop for NativeRecord {
    fn drop(&mut self) {
        let number = self.number.get();
        let is_own = number >> INDEX_BITS == self.writer.forks() << INDEX_BITS >> INDEX_BITS;
        if let Some(page) = self.writer.page().filter(|_| is_own)
            && let Some(index) = (number & ((1 << INDEX_BITS) - 1)).checked_sub(1)
        {
            page.release(index);
        }
    }
}

const _: () = assert!(DETAIL_LEN == REASON_WORDS * 8);

/// The text of a reason as a record holds it. Text that is too long is truncated.
///
/// Formatting a reason takes longer than listing the socket, so a rule keeps the text of its own
/// reason.
#[derive(Debug, Clone, Copy)]
pub struct ReasonText {
    words: [u64; REASON_WORDS],
}

impl ReasonText {
    /// Formats a reason.
    #[must_use]
    pub fn of(reason: impl fmt::Display) -> Self {
        let mut text = Text {
            bytes: [0; DETAIL_LEN],
            len: 0,
        };
        // An error means that the rest of the text does not fit.
        let _ = write!(text, "{reason}");
        Self {
            words: words(&text.bytes),
        }
    }
}

/// Collects text. The bytes after it are zeros.
struct Text {
    bytes: [u8; DETAIL_LEN],
    len: usize,
}

impl fmt::Write for Text {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        let room = self.bytes.len() - self.len;
        let fitting = &more.as_bytes()[..more.floor_char_boundary(room)];
        self.bytes[self.len..][..fitting.len()].copy_from_slice(fitting);
        self.len += fitting.len();
        if fitting.len() == more.len() {
            Ok(())
        } else {
            Err(fmt::Error)
        }
    }
}
