//! Changes of the receive buffer size, see [`crate::resize`].

use super::{Config, Connection};
use crate::{Event, ProtocolError, wire::Mid};

impl Connection {
    /// Asks the peer for receive buffers of `size` bytes, base header included. A smaller size
    /// limits the messages that follow the request. A larger size is used after
    /// [`Event::BuffersAnswered`].
    ///
    /// Returns false while an earlier request is not answered.
    pub fn ask_buffers(&mut self, size: u32) -> bool {
        let size = size.max(Config::BUFFER_SIZE_MIN);
        self.state.is_established() && self.request.on_wanted(size)
    }

    /// Answers [`Event::BuffersAsked`]: all receive buffers have `size` bytes, base header
    /// included, or will have this size after [`Event::BuffersKnown`]. Before it announces a larger
    /// size, the engine must have posted such buffers, and all smaller buffers must have been used.
    pub fn answer_buffers(&mut self, size: u32) {
        self.answer.on_decided(size.max(Config::BUFFER_SIZE_MIN));
    }

    /// Takes the ChRcvBuf that is due, and returns its size.
    pub(super) fn take_request(&mut self) -> Option<u32> {
        let size = self.request.on_sent()?;
        self.peer_buffer_size = self.peer_buffer_size.min(size);
        Some(size)
    }

    /// Called when ChRcvBufAck is sent.
    pub(super) fn on_answer_sent(&mut self, size: u32, seq: crate::Seq) {
        if size > self.config.buffer_size {
            self.config.buffer_size = size;
            // Memory that was to be advertised may be shorter than the messages that may cross it.
            let free = self.write_sink.on_overtaken();
            self.release_sinks(free);
        }
        self.answer.on_sent(seq);
    }

    pub(super) fn on_buffers_asked(&mut self, size: u32) {
        self.answer.on_asked();
        self.events.push_back(Event::BuffersAsked(size));
    }

    pub(super) fn on_buffers_answered(&mut self, size: u32) -> Result<(), ProtocolError> {
        if !self.request.on_answered() {
            return Err(ProtocolError::Unexpected(Mid::ChRcvBufAck));
        }
        if size < Config::BUFFER_SIZE_MIN {
            return Err(ProtocolError::BufferSize(size));
        }
        self.peer_buffer_size = size;
        self.events.push_back(Event::BuffersAnswered(size));
        Ok(())
    }

    /// Called when the peer has acknowledged messages up to `ack`.
    pub(super) fn check_answer_known(&mut self, ack: crate::Seq) {
        if let Some(size) = self.answer.on_acknowledged(ack) {
            self.config.buffer_size = size;
            self.events.push_back(Event::BuffersKnown(size));
        }
    }
}
