//! A question to a peer, with its socket.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use host::descriptors::OwnDescriptor;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use crate::portmap::PORT;
use crate::portmap::message::Message;
use crate::portmap::question::{Answer, Question};

/// The maximum number of datagrams that one step receives.
const BATCH: u32 = 64;

/// A question under way. A caller that waits for other events too polls the descriptor for input
/// until [`Asking::deadline`] and calls [`Asking::step`]. Any other caller calls [`Asking::wait`].
#[derive(Debug)]
pub struct Asking {
    socket: OwnDescriptor,
    question: Question,
    deadline: Instant,
}

impl Asking {
    /// Asks the host of `service` whether it offers the service over RDMA. The answer is `Silent`
    /// after `within`.
    ///
    /// # Errors
    /// Fails if no socket can be made, or there is no route to the host.
    pub fn begin(service: SocketAddr, within: Duration) -> Result<Self, Errno> {
        Self::begin_with(service, within, |question| question)
    }

    /// Asks as [`Asking::begin`] does, and asks again after each denial until `within` has passed
    /// ([`Question::persistent`]).
    ///
    /// # Errors
    /// As [`Asking::begin`].
    pub fn begin_persistent(service: SocketAddr, within: Duration) -> Result<Self, Errno> {
        Self::begin_with(service, within, Question::persistent)
    }

    fn begin_with(
        service: SocketAddr,
        within: Duration,
        make: impl FnOnce(Question) -> Question,
    ) -> Result<Self, Errno> {
        let family = match service {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(family, SocketType::DGRAM, flags, None)?;
        let socket = host::descriptors::raise(socket)?;
        let mut mapper = service;
        mapper.set_port(PORT);
        // The socket is connected, so that the ICMP message of a host without a port mapper is
        // reported at once.
        rustix::net::connect(&socket, &mapper)?;
        let own: SocketAddr = rustix::net::getsockname(&socket)?.try_into()?;
        let request = Message::request(service, own, random()?).ok_or(Errno::AFNOSUPPORT)?;
        let now = Instant::now();
        let mut asking = Self {
            socket: socket.into(),
            question: make(Question::new(request, now, within)),
            deadline: now + within,
        };
        asking.send(now);
        Ok(asking)
    }

    /// Returns the latest time at which [`Asking::step`] must be called.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.question.poll_timeout().unwrap_or(self.deadline)
    }

    /// Receives the datagrams that the socket has queued. Returns the answer, once there is one.
    /// Never waits.
    pub fn step(&mut self) -> Option<Answer> {
        let mut bytes = [0; 128];
        // A flood of datagrams must not keep the caller here.
        for _ in 0..BATCH {
            match rustix::net::recv(&self.socket, &mut bytes, RecvFlags::TRUNC) {
                Ok((len, whole)) if len == whole => {
                    let now = Instant::now();
                    self.question.handle_datagram(&bytes[..len], now);
                }
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => {
                    self.question.on_absent(Instant::now());
                    break;
                }
            }
        }
        let now = Instant::now();
        self.send(now);
        self.question.on_time(now);
        self.question.answer()
    }

    /// Waits for the answer until the time limit. A signal does not end the wait.
    pub fn wait(mut self) -> Answer {
        loop {
            if let Some(answer) = self.step() {
                return answer;
            }
            let left = self.deadline().saturating_duration_since(Instant::now());
            // Waking up a nanosecond too early would cost one more step without effect.
            let timeout = Timespec::try_from(left + Duration::from_nanos(1)).ok();
            let mut polled = [PollFd::new(&self.socket, PollFlags::IN)];
            // The result of poll does not matter: the step checks the socket itself.
            let _ = rustix::event::poll(&mut polled, timeout.as_ref());
        }
    }

    fn send(&mut self, now: Instant) {
        while let Some(datagram) = self.question.poll_transmit(now) {
            match rustix::net::send(&self.socket, &datagram, SendFlags::NOSIGNAL) {
                // A full queue loses the datagram as the network may; the request is sent again.
                Ok(_) | Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS) => {}
                Err(_) => return self.question.on_absent(now),
            }
        }
    }
}

impl AsFd for Asking {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Returns a random handle, which no other host can guess.
fn random() -> Result<u64, Errno> {
    let mut bytes = [0; 8];
    let len = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    if len == bytes.len() {
        Ok(u64::from_ne_bytes(bytes))
    } else {
        Err(Errno::IO)
    }
}
