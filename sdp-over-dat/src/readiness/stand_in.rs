//! A descriptor whose poll state follows a socket's: one end of an AF_UNIX stream pair.
//!
//! End A belongs to the program, end B to the library. One byte from B to A makes A readable. A's
//! own send buffer is as small as the kernel allows, and always holds one byte that B does not
//! read. A second byte makes A unwritable. When B is closed with the unread byte, A sees a true
//! reset.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Mutex,
};

use host::locks::IgnorePoison as _;
use rustix::net::{
    self, AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, sockopt,
};

use super::{Readiness, Watch};

/// The descriptor, and the end that controls its state.
#[derive(Debug)]
pub struct StandIn {
    program: OwnedFd,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// End B; closed to show a reset.
    library: Option<OwnedFd>,
    shown: Readiness,
    /// Bytes from B that A has not read.
    in_bytes: u32,
    /// True if A's second byte fills the send buffer.
    is_full: bool,
}

impl StandIn {
    /// Creates a pair whose descriptor is neither readable nor writable.
    pub fn new() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let family = AddressFamily::UNIX;
        let (program, library) = net::socketpair(family, SocketType::STREAM, flags, None)?;
        sockopt::set_socket_send_buffer_size(&program, 1)?;
        net::send(&program, b"s", SendFlags::NOSIGNAL)?;
        net::send(&program, b"f", SendFlags::NOSIGNAL)?;
        let state = State {
            library: Some(library),
            shown: Readiness::default(),
            in_bytes: 0,
            is_full: true,
        };
        Ok(Self {
            program,
            state: Mutex::new(state),
        })
    }
}

impl AsFd for StandIn {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }
}

impl Watch for StandIn {
    fn show(&self, now: Readiness, arrived: bool) {
        let mut state = self.state.lock().ignore_poison();
        if let Err(error) = state.follow(&self.program, now, arrived) {
            tracing::warn!(%error, "a descriptor does not show the readiness of its socket");
        }
    }
}

impl State {
    fn follow(&mut self, program: &OwnedFd, now: Readiness, arrived: bool) -> io::Result<()> {
        let Some(library) = &self.library else {
            return Ok(());
        };
        let before = std::mem::replace(&mut self.shown, now);
        if now.readable && (self.in_bytes == 0 || arrived) {
            // The new byte is sent before the old one is read, because the descriptor must not look
            // empty in between.
            if net::send(library, b"r", SendFlags::NOSIGNAL).is_ok() {
                self.in_bytes += 1;
            }
        }
        let wanted = u32::from(now.readable);
        while self.in_bytes > wanted {
            if net::recv(program, &mut [0_u8; 1][..], RecvFlags::DONTWAIT).is_err() {
                break;
            }
            self.in_bytes -= 1;
        }
        if now.urgent && !before.urgent {
            net::send(library, b"!", SendFlags::OOB | SendFlags::NOSIGNAL)?;
        } else if !now.urgent && before.urgent {
            // The urgent byte is gone if a byte after it was read. Some kernels keep the emptied
            // message, and the descriptor stays readable.
            let byte = &mut [0_u8; 1];
            let _ = net::recv(program, &mut byte[..], RecvFlags::OOB | RecvFlags::DONTWAIT);
            if self.in_bytes == 0 {
                let _ = net::recv(program, &mut byte[..], RecvFlags::DONTWAIT);
            }
        }
        if now.writable && self.is_full {
            net::recv(library, &mut [0_u8; 1][..], RecvFlags::DONTWAIT)?;
            self.is_full = false;
        } else if !now.writable && !self.is_full && !now.write_closed {
            net::send(program, b"f", SendFlags::NOSIGNAL)?;
            self.is_full = true;
        }
        if now.failed {
            // B is closed with an unread byte of A, so A sees a reset.
            self.library = None;
            return Ok(());
        }
        if now.read_closed && !before.read_closed {
            net::shutdown(library, Shutdown::Write)?;
        }
        if now.read_closed && now.write_closed && !(before.read_closed && before.write_closed) {
            net::shutdown(program, Shutdown::Write)?;
        }
        Ok(())
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
