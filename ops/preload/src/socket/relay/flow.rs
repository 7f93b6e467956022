//! Moves the bytes of a shared connection between the pair and the stream, in the owner's process.

use std::cell::RefCell;
use std::io::{IoSlice, IoSliceMut};

use host::stand_in::{Carrier, Taken};
use ops::{Half, OffloadStream};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;

/// The size of one chunk, in bytes.
const CHUNK: usize = 64 * 1024;
/// The number of chunks that are moved for one connection before the next connection is served.
const ROUNDS: usize = 16;

thread_local! {
    static CHUNK_BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; CHUNK]);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// No byte can be moved now.
    Waiting,
    /// More bytes can be moved, after other connections were served.
    Busy,
    /// Both directions have ended, and all bytes were moved.
    Finished,
    /// No process holds the program's end any more, and all its bytes were passed to the stream.
    Unheld,
    /// No process holds the program's end any more, and the last one closed it with unread bytes.
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
    has_peer_ended: bool,
    has_program_ended: bool,
    /// True once the program has ended its reading half.
    has_reading_ended: bool,
    /// True once bytes for the program were dropped.
    has_lost_bytes: bool,
    has_reset: bool,
    seen: EventFlags,
}

/// Bytes for which the destination has no room yet.
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

/// True if bytes were moved. `Err`: the flow has ended.
type Moved = Result<bool, State>;

impl Flow {
    /// Begins with a pair that has no signals. The program may have ended one or both directions
    /// already.
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
            has_peer_ended: reading_ended,
            has_program_ended: writing_ended,
            has_reading_ended: reading_ended,
            has_lost_bytes: false,
            has_reset: false,
            seen: EventFlags::empty(),
        }
    }

    /// If `reset` is true, the program's last close resets the connection.
    pub(crate) fn set_reset(&mut self, reset: bool) {
        self.has_reset = reset;
    }

    /// Moves bytes in both directions. `seen` has the new events of the pair. `is_broken`: the
    /// connection broke, which the stream does not report after the peer's end.
    pub(crate) fn run(
        &mut self,
        stream: &dyn OffloadStream,
        seen: EventFlags,
        is_broken: bool,
    ) -> State {
        self.seen |= seen;
        CHUNK_BUFFER.with_borrow_mut(|buffer| {
            for _ in 0..ROUNDS {
                match self.round(stream, buffer) {
                    Ok(true) => {}
                    Ok(false) if is_broken && self.has_peer_ended => return State::Broken,
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
        if self.has_program_ended && self.has_peer_ended && all_given {
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
            // If the connection broke, the next send of bytes fails.
            self.urgent_to_peer = None;
        }
        if let Ok(byte) = stream.receive_urgent(false) {
            // A program that has ended its reading half does not receive the byte, as with TCP.
            let _ = self.carrier.send_urgent(byte);
        }
    }

    /// Moves bytes from the program to the peer.
    fn outward(&mut self, stream: &dyn OffloadStream, buffer: &mut [u8]) -> Moved {
        if !self.to_peer.is_empty() {
            return send_to_peer(stream, &mut self.to_peer);
        }
        if self.urgent_to_peer.is_some() {
            return Ok(false);
        }
        if self.has_program_ended {
            // The program may have closed the descriptor some time after its shutdown.
            let is_closed = self.seen.contains(EventFlags::HUP) && !self.has_peer_ended;
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
                send_to_peer(stream, &mut self.to_peer)?;
                Ok(true)
            }
            Ok(Taken::Nothing) => Ok(false),
            // A program that has shut down both directions receives nothing, so the flow ends as
            // after a close.
            Ok(Taken::Ended) if self.seen.contains(EventFlags::HUP) && !self.has_peer_ended => {
                Err(State::Unheld)
            }
            // After the peer's end, a close looks like a shutdown. If the program has set a reset,
            // the end counts as a close.
            Ok(Taken::Ended) if self.seen.contains(EventFlags::HUP) && self.has_reset => {
                Err(State::Discarded)
            }
            Ok(Taken::Ended) => {
                self.has_program_ended = true;
                stream.shutdown(Half::Write).map_err(|_| State::Broken)?;
                Ok(true)
            }
            Err(_) => Err(State::Discarded),
        }
    }

    /// Moves bytes from the peer to the program.
    fn inward(&mut self, stream: &dyn OffloadStream, buffer: &mut [u8]) -> Moved {
        if self.has_reading_ended {
            return Ok(false);
        }
        if !self.to_program.is_empty() {
            return self.send_to_program();
        }
        if self.has_peer_ended {
            return Ok(false);
        }
        match stream.receive(&mut [IoSliceMut::new(buffer)], false) {
            Ok(0) => {
                self.has_peer_ended = true;
                self.carrier.end_of_peer();
                Ok(true)
            }
            Ok(count) => {
                self.to_program.put(&buffer[..count]);
                self.send_to_program()?;
                Ok(true)
            }
            Err(Errno::AGAIN) => Ok(false),
            Err(_) => Err(State::Broken),
        }
    }

    fn send_to_program(&mut self) -> Moved {
        match self.carrier.send(self.to_program.rest()) {
            Ok(count) => {
                self.to_program.given += count;
                Ok(count > 0)
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            // Whether the program's end is closed is detected by the other direction.
            Err(_) => {
                self.has_reading_ended = true;
                self.has_lost_bytes = true;
                self.to_program = Pending::default();
                Ok(false)
            }
        }
    }

    /// Returns true if there are bytes that the program will never read.
    pub(crate) fn has_unread(&self) -> bool {
        self.has_lost_bytes || !self.to_program.is_empty()
    }

    /// Closes the pair. The program reads the bytes that are in the pair, and then the end.
    pub(crate) fn finish(self) {
        self.carrier.finish();
    }

    /// Closes the pair. The program reads the bytes that are in the pair, and then a reset.
    pub(crate) fn reset(self) {
        self.carrier.reset();
    }
}

fn send_to_peer(stream: &dyn OffloadStream, pending: &mut Pending) -> Moved {
    match stream.send(&[IoSlice::new(pending.rest())]) {
        Ok(count) => {
            pending.given += count;
            Ok(count > 0)
        }
        Err(Errno::AGAIN) => Ok(false),
        Err(_) => Err(State::Broken),
    }
}
