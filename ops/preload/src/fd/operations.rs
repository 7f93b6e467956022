//! The objects behind the program's descriptors, and the operations that differ among them.
//!
//! A call on a descriptor with an entry asks the object first, as the kernel asks the protocol of a
//! socket (`struct proto_ops`). By default the C library's function answers. Arguments of the
//! program that the caller has not checked are passed as the program's pointers: null, or what the
//! C function demands.

use std::any::Any;
use std::ffi::{c_int, c_ulong, c_void};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use libc::{sockaddr, socklen_t};
use rustix::io::Errno;

use crate::process::real;

/// The kind of object behind a descriptor: the part of its entry that calls read without a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// No entry: the kernel alone answers all calls.
    Native = 0,
    /// A connection that an offload protocol carries; the kernel sees one end of a pair.
    Socket = 1,
    /// A listening kernel socket that accepts offloaded connections as well.
    Listener = 2,
    /// A connection whose bytes a relay moves, in this process or in another process; the kernel
    /// sees one end of a pair that carries these bytes.
    RelayClient = 3,
    /// A kernel TCP socket that is listed with the reason for it; no call uses the entry.
    Listed = 4,
    /// A connection within the host, which is a kernel socket of another family.
    Local = 5,
    /// A socket that connects, by a protocol or by TCP; the kernel sees one end of a pair.
    Connecting = 6,
}

impl Kind {
    #[inline]
    pub(super) fn from_number(number: u8) -> Self {
        match number {
            1 => Self::Socket,
            2 => Self::Listener,
            3 => Self::RelayClient,
            4 => Self::Listed,
            5 => Self::Local,
            6 => Self::Connecting,
            _ => Self::Native,
        }
    }

    /// Returns true for an offloaded connection: the kernel sees one end of a pair.
    #[inline]
    pub(super) fn is_offloaded(self) -> bool {
        matches!(self, Self::Socket | Self::RelayClient | Self::Connecting)
    }
}

/// The answer of an object to a call.
pub(crate) enum Answer<T> {
    /// The result of the call.
    Is(Result<T, Errno>),
    /// The caller calls the C library's function for the descriptor.
    Native,
    /// The descriptor has got another object, which the caller asks next.
    Again,
}

impl<T> From<Result<T, Errno>> for Answer<T> {
    fn from(result: Result<T, Errno>) -> Self {
        Self::Is(result)
    }
}

/// The end of a connection that a name belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Local,
    Peer,
}

/// The pointers to which a call writes an address.
#[derive(Clone, Copy)]
pub(crate) struct AddressRoom {
    pub(crate) address: *mut sockaddr,
    pub(crate) len: *mut socklen_t,
}

/// An option, and the pointers to which a call writes its value.
#[derive(Clone, Copy)]
pub(crate) struct OptionRoom {
    pub(crate) level: c_int,
    pub(crate) name: c_int,
    pub(crate) value: *mut c_void,
    pub(crate) len: *mut socklen_t,
}

/// An option, and the pointer to its new value.
#[derive(Clone, Copy)]
pub(crate) struct OptionValue {
    pub(crate) level: c_int,
    pub(crate) name: c_int,
    pub(crate) value: *const c_void,
    pub(crate) len: socklen_t,
}

impl AddressRoom {
    /// Calls the C library for a socket.
    ///
    /// # Safety
    /// The pointers are null or what the C function demands.
    pub(crate) unsafe fn native(self, fd: c_int, end: End) -> c_int {
        let Self { address, len } = self;
        // SAFETY: the caller guarantees the pointers.
        unsafe {
            match end {
                End::Local => real::getsockname(fd, address, len),
                End::Peer => real::getpeername(fd, address, len),
            }
        }
    }
}

impl OptionRoom {
    /// Calls the C library for a socket.
    ///
    /// # Safety
    /// The pointers are null or what the C function demands.
    pub(crate) unsafe fn native(self, fd: c_int) -> c_int {
        // SAFETY: the caller guarantees the pointers.
        unsafe { real::getsockopt(fd, self.level, self.name, self.value, self.len) }
    }

    /// Returns true for an option of a level.
    pub(crate) fn is(self, level: c_int, name: c_int) -> bool {
        (self.level, self.name) == (level, name)
    }
}

impl OptionValue {
    /// Calls the C library for a socket.
    ///
    /// # Safety
    /// The pointer is null or what the C function demands.
    pub(crate) unsafe fn native(self, fd: c_int) -> c_int {
        // SAFETY: the caller guarantees the pointer.
        unsafe { real::setsockopt(fd, self.level, self.name, self.value, self.len) }
    }
}

/// The operations of an object behind descriptors of the program.
pub(crate) trait Operations: Any + Send + Sync {
    fn kind(&self) -> Kind;

    /// Performs `getsockname` or `getpeername`.
    ///
    /// # Safety
    /// The pointers are the program's.
    unsafe fn name(&self, _fd: BorrowedFd<'_>, _end: End, _room: AddressRoom) -> Answer<()> {
        Answer::Native
    }

    /// Performs `getsockopt`.
    ///
    /// # Safety
    /// The pointers are the program's.
    unsafe fn get_option(&self, _fd: BorrowedFd<'_>, _option: OptionRoom) -> Answer<()> {
        Answer::Native
    }

    /// Performs `setsockopt`.
    ///
    /// # Safety
    /// The pointers are the program's.
    unsafe fn set_option(&self, _fd: BorrowedFd<'_>, _option: OptionValue) -> Answer<()> {
        Answer::Native
    }

    /// Performs an `ioctl` about the bytes of a socket.
    ///
    /// # Safety
    /// The argument is the program's.
    unsafe fn request(
        &self,
        _fd: BorrowedFd<'_>,
        _request: c_ulong,
        _argument: usize,
    ) -> Answer<()> {
        Answer::Native
    }

    /// Performs an `ioctl` that the kernel object behind the descriptor does not know, but a TCP
    /// socket does.
    ///
    /// # Safety
    /// The argument is the program's.
    unsafe fn request_of_tcp(
        &self,
        _fd: BorrowedFd<'_>,
        _request: c_ulong,
        _argument: usize,
    ) -> Answer<c_int> {
        Answer::Is(Err(Errno::NOTTY))
    }

    /// Calls `work`, which moves bytes, if this process moves the bytes of the connection.
    fn transfer(&self, _fd: BorrowedFd<'_>, _work: &mut dyn FnMut()) -> Answer<()> {
        Answer::Native
    }

    fn shut_down(&self, _fd: BorrowedFd<'_>, _how: c_int) -> Answer<()> {
        Answer::Native
    }

    /// Performs `connect` to an address.
    fn connect(&self, _fd: BorrowedFd<'_>) -> Answer<()> {
        Answer::Native
    }

    /// Makes the TCP socket that the descriptor gets by a `connect` to no address, with the options
    /// of this object. `None`: the object is no connection.
    fn disconnected(&self, _fd: BorrowedFd<'_>) -> Option<Result<OwnedFd, Errno>> {
        None
    }

    /// Returns false for a copy that a fork made of an object of the parent.
    fn is_of_this_process(&self) -> bool {
        true
    }

    /// Calls `insert`, which makes an entry of the object for one more descriptor. Returns false
    /// without having called it if the descriptors of this object get another object.
    fn duplicate(&self, insert: &mut dyn FnMut()) -> bool {
        insert();
        true
    }

    /// Does the work of a closed descriptor. Returns the deadline of an object that lingers:
    /// `close` then calls [`await_delivery`](Self::await_delivery), the end of the process does
    /// not.
    fn on_closed(self: Arc<Self>) -> Option<Instant> {
        None
    }

    /// Waits until all written bytes are delivered, a signal handler has run, or the deadline has
    /// passed.
    fn await_delivery(&self, _until: Instant) {}

    /// Does the work of the last close in a process that has copies of the descriptors.
    fn on_copies_closed(&self) {}

    /// Waits until a socket that connects without blocking has its final kernel object and entry.
    fn settle(&self) {}
}

/// Returns the address that identifies an object.
pub(super) fn address_of<T: ?Sized>(object: &T) -> usize {
    std::ptr::from_ref(object).cast::<()>().addr()
}
