//! The answers of a socket that connects without blocking, until its connection is decided.

use std::ffi::{c_int, c_ulong, c_void};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

use libc::{SO_ERROR, SOL_SOCKET, socklen_t};
use rustix::io::Errno;

use crate::fd::{AddressRoom, Answer, End, Kind, Operations, OptionRoom, OptionValue};
use crate::process::{errno, is_nonblocking};
use crate::setup::background::{self, Background};

/// `SAFETY` comments in this implementation call the contract of the trait *the caller's contract*.
impl Operations for Background {
    fn kind(&self) -> Kind {
        Kind::Connecting
    }

    unsafe fn name(&self, _fd: BorrowedFd<'_>, end: End, room: AddressRoom) -> Answer<()> {
        // SAFETY: the caller's contract, for the TCP socket that has the name.
        self.by_tcp(|tcp| unsafe { room.native(tcp, end) })
    }

    unsafe fn get_option(&self, _fd: BorrowedFd<'_>, option: OptionRoom) -> Answer<()> {
        // SAFETY: the caller's contract, for the TCP socket that keeps the options.
        let answer = self.by_tcp(|tcp| unsafe { option.native(tcp) });
        if option.is(SOL_SOCKET, SO_ERROR) && matches!(answer, Answer::Is(Ok(()))) {
            // SAFETY: the kernel has written to the pointers.
            unsafe { self.write_error(option.value, *option.len) };
        }
        answer
    }

    unsafe fn set_option(&self, _fd: BorrowedFd<'_>, option: OptionValue) -> Answer<()> {
        // SAFETY: the caller's contract, for the TCP socket that keeps the options.
        self.by_tcp(|tcp| unsafe { option.native(tcp) })
    }

    unsafe fn request(&self, _fd: BorrowedFd<'_>, _: c_ulong, _: usize) -> Answer<()> {
        self.settle();
        self.on_decided()
    }

    fn transfer(&self, fd: BorrowedFd<'_>, _work: &mut dyn FnMut()) -> Answer<()> {
        if !is_nonblocking(fd) {
            self.settle();
        }
        self.answer(Errno::AGAIN, Errno::NOTCONN)
    }

    fn shut_down(&self, _fd: BorrowedFd<'_>, _how: c_int) -> Answer<()> {
        self.settle();
        self.on_decided()
    }

    fn connect(&self, fd: BorrowedFd<'_>) -> Answer<()> {
        if !is_nonblocking(fd) {
            self.settle();
        }
        match background::take_failed(fd.as_raw_fd()) {
            Some(error) => Answer::Is(Err(error)),
            None => self.answer(Errno::ALREADY, Errno::CONNABORTED),
        }
    }

    fn is_of_this_process(&self) -> bool {
        self.is_own()
    }

    fn on_closed(self: Arc<Self>) -> Option<Instant> {
        self.cancel();
        None
    }

    fn settle(&self) {
        self.await_end();
    }
}

impl Background {
    /// Answers with the pending error of an attempt that has failed, or else with `failed`, and
    /// with `trying` while the attempt is in progress.
    fn answer(&self, trying: Errno, failed: Errno) -> Answer<()> {
        if !self.with_tcp(|_| ()) {
            return self.on_decided();
        }
        Answer::Is(Err(match self.take_error() {
            None => trying,
            Some(0) => failed,
            Some(error) => Errno::from_raw_os_error(error),
        }))
    }

    /// Makes a call about names or options on the TCP socket that keeps them. It fails with `EBADF`
    /// if the program has closed the number of that socket.
    fn by_tcp(&self, call: impl FnOnce(c_int) -> c_int) -> Answer<()> {
        let mut result = Err(Errno::BADF);
        let work = |tcp: BorrowedFd<'_>| result = errno::check(call(tcp.as_raw_fd())).map(drop);
        match self.with_tcp(work) {
            true => Answer::Is(result),
            false => self.on_decided(),
        }
    }

    /// Writes the value of `SO_ERROR`, whose size is `len`.
    ///
    /// # Safety
    /// `value` has `len` bytes.
    unsafe fn write_error(&self, value: *mut c_void, len: socklen_t) {
        if let Some(error) = self.take_error()
            && len as usize >= size_of::<c_int>()
        {
            // SAFETY: there is room for the number, and the write permits any alignment.
            unsafe { value.cast::<c_int>().write_unaligned(error) };
        }
    }
}
