//! An established connection.

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard};

use host::locks::lock;
use ops::{Half, OffloadStream, Readiness, Watch};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::unix_protocol::wire::{self, Control, MESSAGE_MAX, Message};

/// The maximum number of bytes that are queued for the program. More bytes stay in the kernel, then
/// at the peer.
const UNREAD_MAX: usize = 256 * 1024;

/// A byte stream over an `AF_UNIX` socket.
#[derive(Debug)]
pub(super) struct UnixStream {
    socket: OwnedFd,
    local: SocketAddr,
    peer: SocketAddr,
    inbound: Mutex<Inbound>,
    /// Control messages that could not be sent yet for lack of room.
    waiting: Mutex<VecDeque<Control>>,
    watch: Mutex<Option<Arc<dyn Watch>>>,
}

#[derive(Debug, Default)]
struct Inbound {
    bytes: VecDeque<u8>,
    /// The urgent byte, and the number of unread bytes before its place.
    urgent: Option<(u8, usize)>,
    taken: bool,
    /// True if the urgent byte is received at its place in the stream.
    inline: bool,
    ended: bool,
    refused: bool,
    we_ended: bool,
    /// True if the peer has closed the socket.
    closed: bool,
    broken: Option<Errno>,
}

/// The event that a message causes.
enum MessageEvent {
    Bytes,
    Urgent,
    End,
    Broken(Errno),
}

impl UnixStream {
    pub(super) fn new(socket: OwnedFd, local: SocketAddr, peer: SocketAddr) -> Self {
        Self {
            socket,
            local,
            peer,
            inbound: Mutex::default(),
            waiting: Mutex::default(),
            watch: Mutex::default(),
        }
    }

    fn inbound(&self) -> MutexGuard<'_, Inbound> {
        lock(&self.inbound)
    }

    /// Receives all messages that have arrived, and notifies the watch.
    fn pump(&self) {
        let mut message = [0; MESSAGE_MAX];
        loop {
            let mut inbound = self.inbound();
            if inbound.bytes.len() >= UNREAD_MAX || inbound.closed || inbound.broken.is_some() {
                return;
            }
            let received = wire::receive(&self.socket, &mut message);
            let refused = inbound.refused;
            let event = match received {
                Ok(0) => {
                    inbound.closed = true;
                    inbound.ended = true;
                    MessageEvent::End
                }
                Ok(len) => inbound.take(&message[..len]),
                Err(Errno::AGAIN) => return,
                Err(error) => inbound.broke(error),
            };
            if refused && matches!(event, MessageEvent::Broken(_)) {
                self.queue_control(Control::Abort);
            }
            let watch = lock(&self.watch).clone();
            let Some(watch) = watch else { continue };
            // The watch is notified under the lock. Otherwise the program could receive bytes
            // before they are announced: the announcement would be stale, and the program's next
            // receive would find nothing.
            match event {
                MessageEvent::Bytes => watch.arrived(),
                MessageEvent::Urgent => {
                    if inbound.has_urgent_inline() {
                        watch.arrived();
                    }
                    watch.urgent();
                }
                MessageEvent::End => watch.peer_ended(),
                MessageEvent::Broken(error) => watch.broken(error),
            }
        }
    }

    /// Sends a control message, now or as soon as there is room.
    fn queue_control(&self, control: Control) {
        lock(&self.waiting).push_back(control);
        self.send_queued();
    }

    /// Sends the queued control messages. Returns false if there is no room yet.
    fn send_queued(&self) -> bool {
        let mut waiting = lock(&self.waiting);
        while let Some(control) = waiting.front() {
            if wire::send_control(&self.socket, *control) == Err(Errno::AGAIN) {
                return false;
            }
            // The message was sent, or the peer has closed and needs no message.
            waiting.pop_front();
        }
        true
    }

    fn is_writable(&self) -> bool {
        let mut set = [PollFd::new(&self.socket, PollFlags::OUT)];
        poll(&mut set, Some(&Timespec::default())).is_ok_and(|count| count > 0)
    }
}

impl Inbound {
    fn take(&mut self, message: &[u8]) -> MessageEvent {
        match Message::parse(message) {
            Some(Message::Data(_)) if self.refused => self.broke(Errno::CONNRESET),
            Some(Message::Data(bytes)) => {
                self.bytes.extend(bytes);
                MessageEvent::Bytes
            }
            Some(Message::Urgent(byte)) => {
                self.urgent = Some((byte, self.bytes.len()));
                self.taken = false;
                MessageEvent::Urgent
            }
            Some(Message::End) => {
                self.ended = true;
                MessageEvent::End
            }
            Some(Message::Abort) if self.ended => self.broke(Errno::PIPE),
            Some(Message::Abort) => self.broke(Errno::CONNRESET),
            None => self.broke(Errno::PROTO),
        }
    }

    fn broke(&mut self, why: Errno) -> MessageEvent {
        self.broken = Some(why);
        MessageEvent::Broken(why)
    }

    /// The number of bytes that one receive may return: it stops at the place of the urgent byte.
    fn reach(&self) -> usize {
        match self.urgent {
            Some((_, before)) if before > 0 => before,
            _ => self.bytes.len(),
        }
    }

    fn has_urgent_inline(&self) -> bool {
        self.inline && self.urgent.is_some()
    }

    fn unread(&self) -> usize {
        self.bytes.len() + usize::from(self.has_urgent_inline())
    }

    /// Returns the urgent byte, if the next receive returns it.
    fn urgent_next(&self) -> Option<u8> {
        match self.urgent {
            Some((byte, 0)) if self.inline => Some(byte),
            _ => None,
        }
    }

    fn consumed(&mut self, mut count: usize) {
        if count > 0 && self.urgent_next().is_some() {
            self.urgent = None;
            count -= 1;
        }
        self.bytes.drain(..count);
        match &mut self.urgent {
            Some((_, 0)) if count > 0 => self.urgent = None,
            Some((_, before)) => *before -= count.min(*before),
            None => {}
        }
    }
}

impl OffloadStream for UnixStream {
    fn local(&self) -> SocketAddr {
        self.local
    }

    fn peer(&self) -> SocketAddr {
        self.peer
    }

    fn send(&self, from: &[IoSlice<'_>]) -> Result<usize, Errno> {
        if let Some(error) = self.inbound().broken {
            return Err(error);
        }
        if !self.send_queued() {
            return Err(Errno::AGAIN);
        }
        match wire::send_data(&self.socket, from) {
            Err(Errno::PIPE | Errno::CONNRESET) => {
                // TCP accepts the first send to a peer that has closed, and gets a reset for it.
                // Earlier messages of the peer are received first.
                self.pump();
                self.inbound().broke(Errno::PIPE);
                if let Some(watch) = lock(&self.watch).clone() {
                    watch.broken(Errno::PIPE);
                }
                Ok(from.iter().map(|part| part.len()).sum())
            }
            sent => sent,
        }
    }

    fn send_urgent(&self, byte: u8) -> Result<(), Errno> {
        if !self.send_queued() {
            return Err(Errno::AGAIN);
        }
        match wire::send_control(&self.socket, Control::Urgent(byte)) {
            // The peer has closed, which is reported elsewhere.
            Ok(()) | Err(Errno::PIPE | Errno::CONNRESET) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn receive(&self, into: &mut [IoSliceMut<'_>], peek: bool) -> Result<usize, Errno> {
        let is_watched = lock(&self.watch).is_some();
        if !is_watched {
            self.pump();
        }
        let mut inbound = self.inbound();
        let first = inbound.urgent_next();
        let reach = inbound.reach() + usize::from(first.is_some());
        let mut done = 0;
        let mut bytes = first.into_iter().chain(inbound.bytes.iter().copied());
        for part in into {
            let len = part.len().min(reach - done);
            part[..len]
                .iter_mut()
                .zip(&mut bytes)
                .for_each(|(to, from)| *to = from);
            done += len;
        }
        drop(bytes);
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
                // Messages that waited in the kernel cause no further edge.
                self.pump();
            }
        }
        Ok(done)
    }

    fn receive_urgent(&self, peek: bool) -> Result<u8, Errno> {
        let mut inbound = self.inbound();
        match inbound.urgent {
            Some((byte, _)) if !inbound.taken => {
                inbound.taken = !peek;
                Ok(byte)
            }
            _ => Err(Errno::INVAL),
        }
    }

    fn set_send_bound(&self, _bytes: usize) {}

    fn set_urgent_inline(&self, inline: bool) {
        self.inbound().inline = inline;
    }

    fn shutdown(&self, half: Half) -> Result<(), Errno> {
        if half != Half::Write {
            self.inbound().refused = true;
        }
        if half != Half::Read {
            self.inbound().we_ended = true;
            self.queue_control(Control::End);
        }
        Ok(())
    }

    fn abort(&self) {
        self.queue_control(Control::Abort);
    }

    fn readiness(&self) -> Readiness {
        if lock(&self.watch).is_none() {
            self.pump();
        }
        let inbound = self.inbound();
        let failed = inbound.broken.is_some();
        Readiness {
            readable: inbound.unread() > 0 || inbound.ended || failed,
            writable: failed || self.is_writable(),
            peer_ended: inbound.ended || inbound.closed,
            write_closed: inbound.we_ended || inbound.closed,
            failed,
            ..Readiness::default()
        }
    }

    fn unread(&self) -> usize {
        self.inbound().unread()
    }

    fn unread_before_mark(&self) -> usize {
        let inbound = self.inbound();
        match inbound.urgent {
            Some((_, before)) if !inbound.inline => before,
            _ => inbound.unread(),
        }
    }

    #[allow(unsafe_code, reason = "the one request that rustix has no name for")]
    fn unsent(&self) -> usize {
        /// `TIOCOUTQ`: the bytes that the other end has not read, messages and their overhead
        /// included.
        const UNSENT: rustix::ioctl::Opcode = 0x5411;
        // SAFETY: `TIOCOUTQ` writes one integer, which is the type of this getter.
        let asked = unsafe { rustix::ioctl::Getter::<UNSENT, i32>::new() };
        // SAFETY: the getter has the type of the request, and the socket is open.
        let count = unsafe { rustix::ioctl::ioctl(&self.socket, asked) };
        count.map_or(0, |count| usize::try_from(count).unwrap_or(0))
    }

    fn is_at_mark(&self) -> bool {
        matches!(self.inbound().urgent, Some((_, 0)))
    }

    fn watch(&self, watch: Arc<dyn Watch>) {
        *lock(&self.watch) = Some(watch);
        self.pump();
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn drive(&self) {
        self.pump();
        if self.is_writable()
            && self.send_queued()
            && let Some(watch) = lock(&self.watch).clone()
        {
            watch.room();
        }
    }
}
