//! The users' side of a shared connection: a descriptor that carries bytes, or will as soon as it
//! is used.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use host::stand_in::{Move, Stage};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::SendFlags;

use crate::process::undisturbed::Undisturbed;
use crate::socket::identity::Identity;
use crate::socket::shared_state::Place;

/// The interval at which a user that waits for the owner checks that the owner lives.
const LOOK: Duration = Duration::from_millis(20);

/// A connection of another process, or one of ours that others use as well.
pub(crate) struct Relayed {
    identity: Arc<Identity>,
    /// Its place in shared memory; those that were accepted from elsewhere have none.
    place: Option<Place>,
    /// Its descriptors carry bytes. It never changes back.
    carries: AtomicBool,
}

impl Relayed {
    /// A connection whose pair may carry signals still.
    pub(crate) fn inherited(identity: Arc<Identity>, place: Option<Place>) -> Self {
        Self {
            identity,
            place,
            carries: AtomicBool::new(place.is_none()),
        }
    }

    /// A connection whose pair carries bytes.
    pub(crate) fn carrying(identity: Arc<Identity>, place: Option<Place>) -> Self {
        Self {
            identity,
            place,
            carries: AtomicBool::new(true),
        }
    }

    /// The addresses and options.
    pub(crate) fn identity(&self) -> &Arc<Identity> {
        &self.identity
    }

    /// Its place in shared memory.
    pub(crate) fn place(&self) -> Option<Place> {
        self.place
    }

    /// The program has set options, some of which concern the descriptor.
    pub(crate) fn has_options_set(&self, fd: BorrowedFd<'_>) {
        self.identity.apply_timeouts(fd);
        let linger = self.identity.options().linger;
        if let Some(place) = self.place {
            place.set_linger(linger.map(|linger| linger.as_secs()));
        }
    }

    /// To be called before bytes are read from a descriptor of it, or written to one.
    pub(crate) fn use_bytes(&self, fd: BorrowedFd<'_>) {
        if self.carries.load(Ordering::Acquire) {
            return;
        }
        if let Some(place) = self.place
            && obtain(fd, place)
        {
            self.identity.apply_timeouts(fd);
        }
        self.carries.store(true, Ordering::Release);
    }
}

/// Has the owner carry bytes, and returns when it does, or when the connection has ended. Returns
/// true if this call brought it about.
pub(crate) fn obtain(fd: BorrowedFd<'_>, place: Place) -> bool {
    let mut ours = false;
    loop {
        let stage = place.stage();
        match stage {
            Stage::Steered => ask(fd, place),
            Stage::AtRest => {
                if place.make(Move::Drain) {
                    // A pair that cannot be read any more has nothing to be taken out of.
                    let _ = host::stand_in::surrender(fd);
                    ours = place.make(Move::FinishDraining);
                }
            }
            Stage::Carrying | Stage::Ended => return ours,
            Stage::Dropped => {
                // The program must not take signals for bytes.
                let _ = host::stand_in::surrender(fd);
                return false;
            }
            Stage::Waking | Stage::Asked | Stage::Draining | Stage::Drained => {
                if place.wait(stage, LOOK) {
                    continue;
                }
                if is_hung_up(fd) {
                    let _ = host::stand_in::surrender(fd);
                    return false;
                }
                match stage {
                    Stage::Waking => place.wake_for_the_dead(),
                    Stage::Asked => ask(fd, place),
                    _ => {}
                }
            }
        }
    }
}

/// A byte in the pair wakes the owner, which throws it away with the signals.
fn ask(fd: BorrowedFd<'_>, place: Place) {
    let _undisturbed = Undisturbed::begin();
    place.ask(|| {
        // Full: there are bytes that the owner has not read.
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let _ = rustix::net::send(fd, &[0], flags);
    });
}

/// Returns true if the owner has closed its end, or died.
fn is_hung_up(fd: impl AsFd) -> bool {
    let mut set = [PollFd::new(&fd, PollFlags::empty())];
    let looked = poll(&mut set, Some(&Timespec::default()));
    looked.is_err() || set[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
}
