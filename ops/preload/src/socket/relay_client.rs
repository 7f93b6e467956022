//! A shared connection in a process that does not own it. The descriptor carries bytes, at the
//! latest from its first use on.

use std::ffi::{c_int, c_ulong};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use host::stand_in::{Move, Stage};
use libc::{SO_ERROR, SOL_SOCKET};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::SendFlags;

use crate::fd::{AddressRoom, Answer, End, Kind, Operations, OptionRoom, OptionValue};
use crate::process::signals_blocked::SignalsBlocked;
use crate::process::{self, restrictions};
use crate::socket::identity::Identity;
use crate::socket::shared_state::SharedStateRef;

/// The interval at which a user that waits for the owner checks that the owner is alive.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// A connection that another process owns, or an own connection that other processes use as well.
pub(crate) struct RelayClient {
    identity: Arc<Identity>,
    /// The shared state. A connection that another process accepted and passed on has none.
    shared_state: Option<SharedStateRef>,
    /// True once the descriptors carry bytes, which never changes back.
    is_carrying: AtomicBool,
}

impl RelayClient {
    /// Makes a connection whose pair may still carry signals.
    pub(crate) fn inherited(identity: Arc<Identity>, shared_state: Option<SharedStateRef>) -> Self {
        Self {
            identity,
            shared_state,
            is_carrying: AtomicBool::new(shared_state.is_none()),
        }
    }

    /// Makes a connection whose pair carries bytes.
    pub(crate) fn carrying(identity: Arc<Identity>, shared_state: Option<SharedStateRef>) -> Self {
        Self {
            identity,
            shared_state,
            is_carrying: AtomicBool::new(true),
        }
    }

    pub(crate) fn identity(&self) -> &Arc<Identity> {
        &self.identity
    }

    /// The shared state, if there is one.
    pub(crate) fn shared_state(&self) -> Option<SharedStateRef> {
        self.shared_state
    }

    /// Applies options that the program has set to the descriptor and the shared state.
    fn apply_options(&self, fd: BorrowedFd<'_>) {
        self.identity.apply_timeouts(fd);
        let linger = self.identity.options().linger;
        if let Some(shared_state) = self.shared_state {
            shared_state.set_linger(linger.map(|linger| linger.as_secs()));
        }
    }

    /// Makes the descriptor carry bytes. Must be called before bytes are read from it or written to
    /// it.
    pub(crate) fn use_bytes(&self, fd: BorrowedFd<'_>) {
        if self.is_carrying.load(Ordering::Acquire) {
            return;
        }
        if let Some(shared_state) = self.shared_state
            && obtain(fd, shared_state)
        {
            self.identity.apply_timeouts(fd);
        }
        self.is_carrying.store(true, Ordering::Release);
    }
}

// The kernel counts the holders of a pair, so a close needs no work. `SAFETY` comments in this
// implementation call the contract of the trait *the caller's contract*.
impl Operations for RelayClient {
    fn kind(&self) -> Kind {
        Kind::RelayClient
    }

    unsafe fn name(&self, fd: BorrowedFd<'_>, end: End, room: AddressRoom) -> Answer<()> {
        // SAFETY: the caller's contract.
        unsafe { self.identity.write_name(fd, end, room) }.into()
    }

    unsafe fn get_option(&self, fd: BorrowedFd<'_>, option: OptionRoom) -> Answer<()> {
        if option.is(SOL_SOCKET, SO_ERROR) {
            // A descriptor that carries bytes reports its own error.
            self.use_bytes(fd);
            return Answer::Native;
        }
        // SAFETY: the caller's contract.
        unsafe { self.identity.get_option(option) }.into()
    }

    unsafe fn set_option(&self, fd: BorrowedFd<'_>, option: OptionValue) -> Answer<()> {
        // SAFETY: the caller's contract.
        let set = unsafe { self.identity.set_option(option) };
        set.map(|()| self.apply_options(fd)).into()
    }

    unsafe fn request(&self, fd: BorrowedFd<'_>, _: c_ulong, _: usize) -> Answer<()> {
        self.use_bytes(fd);
        Answer::Native
    }

    unsafe fn request_of_tcp(
        &self,
        _fd: BorrowedFd<'_>,
        request: c_ulong,
        argument: usize,
    ) -> Answer<c_int> {
        // SAFETY: the caller's contract.
        unsafe { self.identity.request_of_tcp(request, argument) }.into()
    }

    fn transfer(&self, fd: BorrowedFd<'_>, _work: &mut dyn FnMut()) -> Answer<()> {
        self.use_bytes(fd);
        Answer::Native
    }

    /// The kernel permits a `shutdown` of a Unix socket whose connection has ended, but not of a
    /// TCP socket. A program that has restricted its system calls gets the kernel's result.
    fn shut_down(&self, fd: BorrowedFd<'_>, _how: c_int) -> Answer<()> {
        self.use_bytes(fd);
        match !restrictions::is_restricted() && process::has_hung_up(fd) {
            true => Answer::Is(Err(Errno::NOTCONN)),
            false => Answer::Native,
        }
    }

    fn connect(&self, _fd: BorrowedFd<'_>) -> Answer<()> {
        Answer::Is(Err(Errno::ISCONN))
    }

    fn disconnected(&self, _fd: BorrowedFd<'_>) -> Option<Result<OwnedFd, Errno>> {
        Some(self.identity.disconnected())
    }
}

/// Requests bytes from the owner, and returns when the pair carries bytes or the connection has
/// ended. Returns true if this call took the signals out of the pair.
pub(crate) fn obtain(fd: BorrowedFd<'_>, shared_state: SharedStateRef) -> bool {
    let mut ours = false;
    loop {
        let stage = shared_state.stage();
        match stage {
            Stage::Steered => request_bytes(fd, shared_state),
            Stage::SignalsStopped => {
                if shared_state.make(Move::Drain) {
                    // An error means that the pair can no longer be read, and has no signals to
                    // remove.
                    let _ = host::stand_in::surrender(fd);
                    ours = shared_state.make(Move::FinishDraining);
                }
            }
            Stage::Carrying | Stage::Ended => return ours,
            Stage::Dropped => {
                // The program must not read signals as data.
                let _ = host::stand_in::surrender(fd);
                return false;
            }
            Stage::Waking | Stage::Asked | Stage::Claimed | Stage::Draining | Stage::Drained => {
                if shared_state.wait(stage, CHECK_INTERVAL) {
                    continue;
                }
                if is_hung_up(fd) {
                    let _ = host::stand_in::surrender(fd);
                    return false;
                }
                match stage {
                    Stage::Waking => shared_state.complete_wake(),
                    Stage::Asked => request_bytes(fd, shared_state),
                    _ => {}
                }
            }
        }
    }
}

/// Wakes the owner by a byte in the pair, which the owner discards.
fn request_bytes(fd: BorrowedFd<'_>, shared_state: SharedStateRef) {
    let _signals_blocked = SignalsBlocked::begin();
    shared_state.ask(|| {
        // If the pair is full, bytes that the owner has not read wake it.
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let _ = rustix::net::send(fd, &[0], flags);
    });
}

/// Returns true if the owner has closed its end of the pair or has died.
fn is_hung_up(fd: impl AsFd) -> bool {
    let mut set = [PollFd::new(&fd, PollFlags::empty())];
    let polled = poll(&mut set, Some(&Timespec::default()));
    polled.is_err() || set[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
}
