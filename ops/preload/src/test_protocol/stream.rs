//! A connection.

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::epoll::EventFlags;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::wire::{self, Control, MESSAGE_MAX, Message};
use crate::protocol::Unobserved;
use crate::socket::observer::Observer;
use crate::socket::stream::{Readiness, Stream};
use crate::steward::{Ward, steward};

/// Bytes that wait for the program; more wait in the kernel, and then at the peer.
const UNREAD_MAX: usize = 256 * 1024;

/// A connection whose news nobody hears yet.
pub(super) struct Fresh {
    socket: OwnedFd,
}

impl Fresh {
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self { socket }
    }
}

impl Unobserved for Fresh {
    fn observed_by(self: Box<Self>, observer: Arc<Observer>) -> Result<Box<dyn Stream>, Errno> {
        let connection = Arc::new(Connection {
            socket: self.socket,
            observer,
            inbound: Mutex::new(Inbound::default()),
            waiting: Mutex::new(VecDeque::new()),
        });
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP;
        steward()?.watch(&connection.socket, flags, connection.clone())?;
        Ok(Box::new(Handle { connection }))
    }
}

/// The program's side of a connection; its drop ends the connection.
struct Handle {
    connection: Arc<Connection>,
}

struct Connection {
    socket: OwnedFd,
    observer: Arc<Observer>,
    inbound: Mutex<Inbound>,
    /// What found no room.
    waiting: Mutex<VecDeque<Control>>,
}

#[derive(Default)]
struct Inbound {
    bytes: VecDeque<u8>,
    /// The urgent byte, and how many unread bytes lie before its place.
    urgent: Option<(u8, usize)>,
    taken: bool,
    ended: bool,
    refused: bool,
    /// The peer has closed.
    closed: bool,
    broken: Option<Errno>,
}

impl Connection {
    fn inbound(&self) -> MutexGuard<'_, Inbound> {
        self.inbound.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in what has arrived, and tells of it.
    fn pump(&self) {
        let mut message = [0; MESSAGE_MAX];
        loop {
            let mut inbound = self.inbound();
            if inbound.bytes.len() >= UNREAD_MAX || inbound.closed || inbound.broken.is_some() {
                return;
            }
            let received = recv(&self.socket, &mut message[..], RecvFlags::DONTWAIT);
            let refused = inbound.refused;
            let news = match received {
                Ok((_, 0)) => {
                    inbound.closed = true;
                    inbound.ended = true;
                    News::End
                }
                Ok((_, len)) => inbound.take(&message[..len]),
                Err(Errno::AGAIN) => return,
                Err(error) => inbound.broke(error),
            };
            // Told under the lock: bytes that the program takes before they are announced would
            // leave an announcement of nothing, and its next receive would find none.
            match news {
                News::Broken(error) if refused => {
                    self.tell(Control::Abort);
                    self.observer.broken(error);
                }
                News::Bytes => self.observer.arrived(),
                News::Urgent => self.observer.urgent(),
                News::End => self.observer.peer_has_shut_down(),
                News::Broken(error) => self.observer.broken(error),
            }
            drop(inbound);
        }
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<Control>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends it, or as soon as there is room.
    fn tell(&self, control: Control) {
        self.waiting().push_back(control);
        self.tell_waiting();
    }

    /// `false`: there is no room yet.
    fn tell_waiting(&self) -> bool {
        let mut waiting = self.waiting();
        while let Some(control) = waiting.front() {
            if wire::send_control(&self.socket, *control) == Err(Errno::AGAIN) {
                return false;
            }
            // Sent, or the peer is gone and needs no telling.
            waiting.pop_front();
        }
        true
    }

    fn is_writable(&self) -> bool {
        let mut set = [PollFd::new(&self.socket, PollFlags::OUT)];
        poll(&mut set, Some(&Timespec::default())).is_ok_and(|count| count > 0)
    }
}

/// What a message brought.
enum News {
    Bytes,
    Urgent,
    End,
    Broken(Errno),
}

impl Inbound {
    fn take(&mut self, message: &[u8]) -> News {
        match Message::parse(message) {
            Some(Message::Data(_)) if self.refused => self.broke(Errno::CONNRESET),
            Some(Message::Data(bytes)) => {
                self.bytes.extend(bytes);
                News::Bytes
            }
            Some(Message::Urgent(byte)) => {
                self.urgent = Some((byte, self.bytes.len()));
                self.taken = false;
                News::Urgent
            }
            Some(Message::End) => {
                self.ended = true;
                News::End
            }
            Some(Message::Abort) if self.ended => self.broke(Errno::PIPE),
            Some(Message::Abort) => self.broke(Errno::CONNRESET),
            Some(Message::Hello(_)) | None => self.broke(Errno::PROTO),
        }
    }

    fn broke(&mut self, why: Errno) -> News {
        self.broken = Some(why);
        News::Broken(why)
    }

    /// Bytes that one receive may take: it stops at the place of the urgent byte.
    fn reach(&self) -> usize {
        match self.urgent {
            Some((_, before)) if before > 0 => before,
            _ => self.bytes.len(),
        }
    }

    fn consumed(&mut self, count: usize) {
        self.bytes.drain(..count);
        match &mut self.urgent {
            Some((_, 0)) if count > 0 => self.urgent = None,
            Some((_, before)) => *before -= count.min(*before),
            None => {}
        }
    }
}

impl Ward for Connection {
    fn ready(&self, flags: EventFlags) {
        self.pump();
        if flags.contains(EventFlags::OUT) && self.tell_waiting() {
            self.observer.room();
        }
    }
}

impl Stream for Handle {
    fn receive(&self, into: &mut [IoSliceMut<'_>], peek: bool) -> Result<usize, Errno> {
        let mut inbound = self.connection.inbound();
        let reach = inbound.reach();
        let mut done = 0;
        for part in into {
            let len = part.len().min(reach - done);
            let bytes = inbound.bytes.iter().skip(done).take(len);
            part.iter_mut()
                .zip(bytes)
                .for_each(|(to, from)| *to = *from);
            done += len;
        }
        if done == 0 && reach == 0 {
            return match inbound.broken {
                _ if inbound.ended => Ok(0),
                Some(error) => Err(error),
                None => Err(Errno::AGAIN),
            };
        }
        if !peek {
            let was_full = inbound.bytes.len() >= UNREAD_MAX;
            inbound.consumed(done);
            drop(inbound);
            if was_full {
                // What waited in the kernel gives no edge of its own.
                self.connection.pump();
            }
        }
        Ok(done)
    }

    fn receive_urgent(&self, peek: bool) -> Result<u8, Errno> {
        let mut inbound = self.connection.inbound();
        match inbound.urgent {
            Some((byte, _)) if !inbound.taken => {
                inbound.taken = !peek;
                Ok(byte)
            }
            _ => Err(Errno::INVAL),
        }
    }

    fn send(&self, from: &[IoSlice<'_>]) -> Result<usize, Errno> {
        if let Some(error) = self.connection.inbound().broken {
            return Err(error);
        }
        if !self.connection.tell_waiting() {
            return Err(Errno::AGAIN);
        }
        match wire::send_data(&self.connection.socket, from) {
            Err(Errno::PIPE | Errno::CONNRESET) => {
                // TCP takes what is sent first to a peer that has closed, and is reset for it. What
                // the peer said before comes first.
                self.connection.pump();
                self.connection.inbound().broke(Errno::PIPE);
                self.connection.observer.broken(Errno::PIPE);
                Ok(from.iter().map(|part| part.len()).sum())
            }
            sent => sent,
        }
    }

    fn send_urgent(&self, byte: u8) -> Result<(), Errno> {
        self.connection.tell(Control::Urgent(byte));
        Ok(())
    }

    fn shut_down_sending(&self) -> Result<(), Errno> {
        self.connection.tell(Control::End);
        Ok(())
    }

    fn refuse_input(&self) {
        self.connection.inbound().refused = true;
    }

    fn readiness(&self) -> Readiness {
        let inbound = self.connection.inbound();
        Readiness {
            readable: !inbound.bytes.is_empty() || inbound.ended || inbound.broken.is_some(),
            writable: inbound.broken.is_some() || self.connection.is_writable(),
        }
    }

    fn unread(&self) -> usize {
        self.connection.inbound().bytes.len()
    }

    fn unsent(&self) -> usize {
        // The kernel's count of what lies in the other end, messages and their overhead included.
        let mut count: libc::c_int = 0;
        let fd = self.connection.socket.as_raw_fd();
        // SAFETY: this request demands a pointer to an integer.
        let result = unsafe { libc::ioctl(fd, libc::TIOCOUTQ, &raw mut count) };
        if result == 0 {
            usize::try_from(count).unwrap_or(0)
        } else {
            0
        }
    }

    fn is_at_mark(&self) -> bool {
        matches!(self.connection.inbound().urgent, Some((_, 0)))
    }

    fn descriptors(&self) -> Vec<RawFd> {
        vec![self.connection.socket.as_raw_fd()]
    }

    fn abort(&self) {
        self.connection.tell(Control::Abort);
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if let Ok(steward) = steward() {
            steward.leave(&self.connection.socket);
        }
    }
}
