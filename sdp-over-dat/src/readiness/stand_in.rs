//! A descriptor whose poll state follows a socket's: a pair of [`host::stand_in`] of which this
//! library keeps both ends.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::Mutex,
};

use host::{
    descriptors::OwnDescriptor,
    locks::lock,
    stand_in::{self, Flags, LibraryEnd, Signals},
};
use rustix::net::{RecvFlags, recv};

use super::{Readiness, Watch};

/// The descriptor, and the end that controls its state.
#[derive(Debug)]
pub struct StandIn {
    program: OwnDescriptor,
    signals: Signals,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The end that controls the descriptor; closed to show a reset.
    library: Option<LibraryEnd>,
    shown: Readiness,
}

impl StandIn {
    /// Creates a pair whose descriptor is neither readable nor writable.
    pub fn new() -> io::Result<Self> {
        let flags = Flags {
            nonblocking: true,
            close_on_exec: true,
        };
        let (program, library) = stand_in::established(flags).map_err(|why| why.errno())?;
        let signals = Signals::new();
        stand_in::close_window(&program, &signals)?;
        let state = State {
            library: Some(library),
            shown: Readiness::default(),
        };
        Ok(Self {
            program: program.into(),
            signals,
            state: Mutex::new(state),
        })
    }

    fn follow(&self, state: &mut State, now: Readiness, arrived: bool) -> io::Result<()> {
        let Some(library) = &state.library else {
            return Ok(());
        };
        let before = std::mem::replace(&mut state.shown, now);
        if now.readable && (arrived || !before.readable) {
            // The new announcement is sent before the old one is read, because the descriptor must
            // not look empty in between. It fails after the end of the stream, which shows `IN` by
            // itself.
            let _ = library.announce(&self.signals);
        }
        if before.readable {
            stand_in::consume(&self.program, &self.signals, !now.readable)?;
        }
        if now.urgent && !before.urgent {
            library.announce_urgent()?;
        } else if !now.urgent && before.urgent {
            self.take_urgent(now.readable);
        }
        if now.writable {
            library.open_window(&self.signals)?;
        } else if !now.write_closed {
            stand_in::close_window(&self.program, &self.signals)?;
        }
        if now.failed {
            if let Some(library) = state.library.take() {
                library.reset();
            }
            return Ok(());
        }
        if now.read_closed && !before.read_closed {
            library.half_close()?;
        }
        if now.read_closed && now.write_closed && !(before.read_closed && before.write_closed) {
            library.end()?;
        }
        Ok(())
    }

    /// Removes the urgent byte, which is gone already if a byte after it was taken.
    fn take_urgent(&self, is_readable: bool) {
        let byte = &mut [0_u8; 1];
        let urgent = RecvFlags::OOB | RecvFlags::DONTWAIT;
        let _ = recv(&self.program, &mut byte[..], urgent);
        if !is_readable {
            // Some kernels keep the emptied message, which shows as readable.
            let _ = recv(&self.program, &mut byte[..], RecvFlags::DONTWAIT);
        }
    }
}

impl AsFd for StandIn {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }
}

impl Watch for StandIn {
    fn show(&self, now: Readiness, arrived: bool) {
        let mut state = lock(&self.state);
        if let Err(error) = self.follow(&mut state, now, arrived) {
            tracing::warn!(%error, "a descriptor does not show what its socket is ready for");
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    fn polled(stand_in: &StandIn) -> PollFlags {
        let interest = PollFlags::IN | PollFlags::OUT | PollFlags::PRI | PollFlags::RDHUP;
        let mut set = [PollFd::new(stand_in, interest)];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        poll(&mut set, Some(&now)).expect("a descriptor");
        set[0].revents()
    }

    const OPEN: Readiness = Readiness {
        readable: false,
        writable: true,
        urgent: false,
        read_closed: false,
        peer_ended: false,
        write_closed: false,
        all_sent: false,
        failed: false,
        errno: None,
    };

    #[test]
    fn a_descriptor_shows_each_state_of_a_tcp_socket() {
        let stand_in = StandIn::new().expect("a pair");
        assert_eq!(polled(&stand_in), PollFlags::empty(), "connecting");
        let readable = Readiness {
            readable: true,
            ..OPEN
        };
        let full = Readiness {
            writable: false,
            ..readable
        };
        let half = Readiness {
            read_closed: true,
            ..readable
        };
        let both = Readiness {
            write_closed: true,
            ..half
        };
        let rows = [
            (OPEN, PollFlags::OUT),
            (readable, PollFlags::IN | PollFlags::OUT),
            (full, PollFlags::IN),
            (OPEN, PollFlags::OUT),
            (half, PollFlags::IN | PollFlags::OUT | PollFlags::RDHUP),
            (
                both,
                PollFlags::IN | PollFlags::OUT | PollFlags::RDHUP | PollFlags::HUP,
            ),
        ];
        for (state, expected) in rows {
            stand_in.show(state, false);
            assert_eq!(polled(&stand_in), expected, "{state:?}");
        }
    }

    #[test]
    fn a_descriptor_shows_a_reset_and_an_urgent_byte() {
        let stand_in = StandIn::new().expect("a pair");
        let urgent = Readiness {
            urgent: true,
            ..OPEN
        };
        stand_in.show(urgent, false);
        assert!(polled(&stand_in).contains(PollFlags::PRI));
        stand_in.show(OPEN, false);
        assert_eq!(polled(&stand_in), PollFlags::OUT, "the byte was read");
        stand_in.show(urgent, false);
        assert!(polled(&stand_in).contains(PollFlags::PRI), "a second byte");
        let failed = Readiness {
            failed: true,
            ..OPEN
        };
        stand_in.show(failed, false);
        let reset = PollFlags::ERR | PollFlags::HUP | PollFlags::RDHUP;
        assert!(polled(&stand_in).contains(reset));
    }

    #[test]
    fn bytes_that_arrive_at_a_readable_socket_add_an_edge_and_no_bytes() {
        let stand_in = StandIn::new().expect("a pair");
        let readable = Readiness {
            readable: true,
            ..OPEN
        };
        for _ in 0..10_000 {
            stand_in.show(readable, true);
        }
        assert_eq!(polled(&stand_in), PollFlags::IN | PollFlags::OUT);
        stand_in.show(OPEN, false);
        assert_eq!(polled(&stand_in), PollFlags::OUT);
    }
}
