//! The bytes of a shared connection, which the owner moves between the pair and the stream.

use std::cell::RefCell;
use std::io::{IoSlice, IoSliceMut};

use host::stand_in::{Carrier, Taken};
use ops::{Half, OffloadStream};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;

/// The number of bytes that are moved at a time.
const CHUNK: usize = 64 * 1024;
/// The chunks that are moved for one connection before the next connection has its turn.
const ROUNDS: usize = 16;

thread_local! {
    static CHUNK_BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; CHUNK]);
}

/// The state of the flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// No byte can be moved now.
    Waiting,
    /// More can be moved; other connections have their turn first.
    Busy,
    /// Both sides have ended, and all bytes were moved.
    Finished,
    /// No process holds the program's end any more, and the peer has all that was sent.
    Unheld,
    /// No process holds the program's end any more, and one closed it with bytes unread.
    Discarded,
    /// The connection broke.
    Broken,
}

/// Both directions of one connection.
#[derive(Debug)]
pub(crate) struct Flow {
    carrier: Carrier,
    to_program: Pending,
    to_peer: Pending,
    /// An urgent byte for which the peer has no room yet.
    urgent_to_peer: Option<u8>,
    peer_ended: bool,
    program_ended: bool,
    /// True once the program reads no more.
    deaf: bool,
    /// True once bytes were dropped that the program had not read.
    lost: bool,
    resets: bool,
    seen: EventFlags,
}

/// Bytes that found no room.
#[derive(Debug, Default)]
struct Pending {
    bytes: Vec<u8>,
    given: usize,
}

impl Pending {
    fn put(&mut self, bytes: &[u8]) {
        self.bytes.clear();
        self.bytes.extend_from_slice(bytes);
        self.given = 0;
    }

    fn rest(&self) -> &[u8] {
        &self.bytes[self.given..]
    }

    fn is_empty(&self) -> bool {
        self.given == self.bytes.len()
    }
}

/// True if bytes were moved; `Err`: the flow has ended.
type Moved = Result<bool, State>;

impl Flow {
    /// Begins with a pair at rest, whose program may have ended its directions already.
    pub(crate) fn new(carrier: Carrier, writing_ended: bool, reading_ended: bool) -> Self {
        if writing_ended {
            carrier.end_of_program();
        }
        if reading_ended {
            carrier.end_of_peer();
        }
        Self {
            carrier,
            to_program: Pending::default(),
            to_peer: Pending::default(),
            urgent_to_peer: None,
            peer_ended: reading_ended,
            program_ended: writing_ended,
            deaf: reading_ended,
            lost: false,
            resets: false,
            seen: EventFlags::empty(),
        }
    }

    /// Sets whether the program's last close is to be a reset.
    pub(crate) fn resets(&mut self, reset: bool) {
        self.resets = reset;
    }

    /// Moves what can be moved. `seen` is what the pair is ready for; `broken` says that the
    /// connection broke, which the stream does not report behind the peer's end.
    pub(crate) fn run(
        &mut self,
        stream: &dyn OffloadStream,
        seen: EventFlags,
        broken: bool,
    ) -> State {
        self.seen |= seen;
        CHUNK_BUFFER.with_borrow_mut(|buffer| {
            for _ in 0..ROUNDS {
                match self.round(stream, buffer) {
                    Ok(true) => {}
                    Ok(false) if broken && self.peer_ended => return State::Broken,
                    Ok(false) => return State::Waiting,
                    Err(state) => return state,
                }
            }
            State::Busy
        })
    }

    fn round(&mut self, stream: &dyn OffloadStream, buffer: &mut [u8]) -> Moved {
        if self.seen.contains(EventFlags::ERR) {
            return Err(State::Discarded);
        }
        self.urgent(stream);
        let outward = self.outward(stream, buffer)?;
        let inward = self.inward(stream, buffer)?;
        let all_given = self.to_peer.is_empty() && self.to_program.is_empty();
        if self.program_ended && self.peer_ended && all_given {
            return Err(State::Finished);
        }
        Ok(outward || inward)
    }

    fn urgent(&mut self, stream: &dyn OffloadStream) {
        if self.seen.contains(EventFlags::PRI) {
            self.seen.remove(EventFlags::PRI);
            self.urgent_to_peer = self.carrier.receive_urgent().or(self.urgent_to_peer);
        }
        if let Some(byte) = self.urgent_to_peer
            && stream.send_urgent(byte) != Err(Errno::AGAIN)
        {
            // A broken connection reports that when bytes are sent.
            self.urgent_to_peer = None;
        }
        if let Ok(byte) = stream.receive_urgent(false) {
            // A program that reads no more misses the byte, as it does with TCP.
            let _ = self.carrier.send_urgent(byte);
        }
    }

    /// Moves bytes from the program to the peer.
    fn outward(&mut self, stream: &dyn OffloadStream, buffer: &mut [u8]) -> Moved {
        if !self.to_peer.is_empty() {
            return give_to_peer(stream, &mut self.to_peer);
        }
        if self.urgent_to_peer.is_some() {
            return Ok(false);
        }
        if self.program_ended {
            // The program may have shut its direction down first and closed later.
            let is_closed = self.seen.contains(EventFlags::HUP) && !self.peer_ended;
            return if is_closed {
                Err(State::Unheld)
            } else {
                Ok(false)
            };
        }
        let hung_up = self.seen.intersects(EventFlags::RDHUP | EventFlags::HUP);
        match self.carrier.receive(buffer, hung_up) {
            Ok(Taken::Bytes(count)) => {
                self.to_peer.put(&buffer[..count]);
                give_to_peer(stream, &mut self.to_peer)?;
                Ok(true)
            }
            Ok(Taken::Nothing) => Ok(false),
            // A program that has shut down both directions receives nothing, so it needs the flow
            // no more than one that has closed.
            Ok(Taken::Ended) if self.seen.contains(EventFlags::HUP) && !self.peer_ended => {
                Err(State::Unheld)
            }
            // Behind the peer's end, a close looks like a shutdown; a program that wants a reset
            // has closed.
            Ok(Taken::Ended) if self.seen.contains(EventFlags::HUP) && self.resets => {
                Err(State::Discarded)
            }
            Ok(Taken::Ended) => {
                self.program_ended = true;
                stream.shutdown(Half::Write).map_err(|_| State::Broken)?;
                Ok(true)
            }
            Err(_) => Err(State::Discarded),
        }
    }

    /// Moves bytes from the peer to the program.
    fn inward(&mut self, stream: &dyn OffloadStream, buffer: &mut [u8]) -> Moved {
        if self.deaf {
            return Ok(false);
        }
        if !self.to_program.is_empty() {
            return self.give_to_program();
        }
        if self.peer_ended {
            return Ok(false);
        }
        match stream.receive(&mut [IoSliceMut::new(buffer)], false) {
            Ok(0) => {
                self.peer_ended = true;
                self.carrier.end_of_peer();
                Ok(true)
            }
            Ok(count) => {
                self.to_program.put(&buffer[..count]);
                self.give_to_program()?;
                Ok(true)
            }
            Err(Errno::AGAIN) => Ok(false),
            Err(_) => Err(State::Broken),
        }
    }

    fn give_to_program(&mut self) -> Moved {
        match self.carrier.send(self.to_program.rest()) {
            Ok(count) => {
                self.to_program.given += count;
                Ok(count > 0)
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            // The other direction finds out whether the program's end is closed.
            Err(_) => {
                self.deaf = true;
                self.lost = true;
                self.to_program = Pending::default();
                Ok(false)
            }
        }
    }

    /// Returns true if there are bytes that the program will not have read.
    pub(crate) fn has_unread(&self) -> bool {
        self.lost || !self.to_program.is_empty()
    }

    /// Ends the pair: the program reads the bytes that it was given, and then an end.
    pub(crate) fn finish(self) {
        self.carrier.finish();
    }

    /// Ends the pair: the program reads the bytes that it was given, and then a reset.
    pub(crate) fn reset(self) {
        self.carrier.reset();
    }
}

fn give_to_peer(stream: &dyn OffloadStream, pending: &mut Pending) -> Moved {
    match stream.send(&[IoSlice::new(pending.rest())]) {
        Ok(count) => {
            pending.given += count;
            Ok(count > 0)
        }
        Err(Errno::AGAIN) => Ok(false),
        Err(_) => Err(State::Broken),
    }
}
