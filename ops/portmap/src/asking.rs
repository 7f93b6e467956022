//! A question with its socket.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use crate::PORT;
use crate::message::Message;
use crate::question::{Answer, Question};

/// A question under way. Whoever waits for other things too polls its descriptor for input until
/// [`Asking::deadline`] and calls [`Asking::step`]; whoever does not calls [`Asking::wait`].
#[derive(Debug)]
pub struct Asking {
    socket: OwnedFd,
    question: Question,
    deadline: Instant,
}

impl Asking {
    /// Asks the host of `service` whether it is offered over RDMA, and gives it until `within` has
    /// passed.
    ///
    /// # Errors
    /// When the system has no socket, or no way to the host.
    pub fn begin(service: SocketAddr, within: Duration) -> Result<Self, Errno> {
        let family = match service {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(family, SocketType::DGRAM, flags, None)?;
        let socket = host::descriptors::raise(socket)?;
        let mut mapper = service;
        mapper.set_port(PORT);
        // Connected, so that a host without port mapper is told by its ICMP message at once.
        rustix::net::connect(&socket, &mapper)?;
        let own: SocketAddr = rustix::net::getsockname(&socket)?.try_into()?;
        let request = Message::request(service, own, random()?).ok_or(Errno::AFNOSUPPORT)?;
        let now = Instant::now();
        let mut asking = Self {
            socket,
            question: Question::new(request, now, within),
            deadline: now + within,
        };
        asking.send(now);
        Ok(asking)
    }

    /// When to call [`Asking::step`] at the latest.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.question.poll_timeout().unwrap_or(self.deadline)
    }

    /// Takes what has arrived; the answer, once there is one. Never waits.
    pub fn step(&mut self) -> Option<Answer> {
        let mut bytes = [0; 128];
        loop {
            match rustix::net::recv(&self.socket, &mut bytes, RecvFlags::TRUNC) {
                Ok((len, whole)) if len == whole => self.question.handle_datagram(&bytes[..len]),
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => {
                    self.question.on_absent();
                    break;
                }
            }
        }
        let now = Instant::now();
        self.send(now);
        self.question.on_time(now);
        self.question.answer()
    }

    /// Waits for the answer, at most until the bound. A signal does not end the waiting.
    pub fn wait(mut self) -> Answer {
        loop {
            if let Some(answer) = self.step() {
                return answer;
            }
            let left = self.deadline().saturating_duration_since(Instant::now());
            // A nanosecond too early would be one look more for nothing.
            let timeout = Timespec::try_from(left + Duration::from_nanos(1)).ok();
            let mut polled = [PollFd::new(&self.socket, PollFlags::IN)];
            // What poll says is seen by the step as well.
            let _ = rustix::event::poll(&mut polled, timeout.as_ref());
        }
    }

    fn send(&mut self, now: Instant) {
        while let Some(datagram) = self.question.poll_transmit(now) {
            match rustix::net::send(&self.socket, &datagram, SendFlags::NOSIGNAL) {
                // A full queue loses the datagram as the network may; it is sent again.
                Ok(_) | Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS) => {}
                Err(_) => return self.question.on_absent(),
            }
        }
    }
}

impl AsFd for Asking {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A handle that nobody can guess.
fn random() -> Result<u64, Errno> {
    let mut bytes = [0; 8];
    let len = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    if len == bytes.len() {
        Ok(u64::from_ne_bytes(bytes))
    } else {
        Err(Errno::IO)
    }
}
