//! Both ends and the wire between them.

use std::collections::VecDeque;

use crate::{
    Broken,
    end::End,
    frame::{Body, Frame, covers},
    hello::HelloParams,
};

/// The two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// The side that sent Hello.
    Active,
    /// The side that sent HelloAck.
    Passive,
}

impl Side {
    /// The other side.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Active => Self::Passive,
            Self::Passive => Self::Active,
        }
    }
}

/// The checker of one connection.
#[derive(Clone, Debug, Default)]
pub struct Checker {
    hello: Option<HelloParams>,
    ends: Option<Ends>,
    frames: u64,
}

#[derive(Clone, Debug)]
struct Ends {
    active: End,
    passive: End,
    /// Frames in flight to the active side, and to the passive side.
    to_active: VecDeque<Frame>,
    to_passive: VecDeque<Frame>,
}

impl Ends {
    fn end(&mut self, side: Side) -> &mut End {
        match side {
            Side::Active => &mut self.active,
            Side::Passive => &mut self.passive,
        }
    }

    fn wire_to(&mut self, side: Side) -> &mut VecDeque<Frame> {
        match side {
            Side::Active => &mut self.to_active,
            Side::Passive => &mut self.to_passive,
        }
    }

    /// Delivers to `side` the messages up to the number `ack`.
    fn deliver_acknowledged(&mut self, side: Side, ack: u32) {
        let is_covered = |frame: &mut Frame| covers(ack, frame.seq);
        while let Some(frame) = self.wire_to(side).pop_front_if(is_covered) {
            self.end(side).receive(&frame);
        }
    }

    /// Checks a message that `side` sends. Before that, `side` may have received messages that it
    /// does not acknowledge because of a SrcAvailCancel. Delivers the smallest number of such
    /// messages after which the message breaks no rule.
    fn send_with_held_back(&mut self, side: Side, frame: &Frame) -> Result<(), Broken> {
        let front = self.wire_to(side).front().map(|first| first.body);
        if front != Some(Body::SourceCancel) {
            return self.end(side).send(frame);
        }
        let held_back: Vec<Frame> = self.wire_to(side).iter().copied().collect();
        let mut receiver = self.end(side).clone();
        let mut result = Ok(());
        for count in 0..=held_back.len() {
            let mut sender = receiver.clone();
            let sent = sender.send(frame);
            if sent.is_ok() {
                *self.end(side) = sender;
                self.wire_to(side).drain(..count);
                return Ok(());
            }
            // The first violation is reported, because the cancel is seldom the cause.
            result = result.and(sent);
            if let Some(next) = held_back.get(count) {
                receiver.receive(next);
            }
        }
        result
    }
}

impl Checker {
    /// A checker of a connection on which nothing has been sent.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads the private data of the connection request.
    pub fn hello(&mut self, bytes: &[u8]) -> Result<(), Broken> {
        self.hello = Some(HelloParams::read(bytes, true)?);
        Ok(())
    }

    /// Reads the private data of the connection reply.
    pub fn hello_ack(&mut self, bytes: &[u8]) -> Result<(), Broken> {
        let active = self.hello.ok_or(Broken::BeforeHello)?;
        let passive = HelloParams::read(bytes, false)?;
        self.ends = Some(Ends {
            active: End::new(active, passive),
            passive: End::new(passive, active),
            to_active: VecDeque::new(),
            to_passive: VecDeque::new(),
        });
        Ok(())
    }

    /// Checks a message of `len` bytes that `by` sends. `head` is the beginning of the message,
    /// with at least the headers.
    pub fn sent(&mut self, by: Side, head: &[u8], len: usize) -> Result<(), Broken> {
        let frame = Frame::read(head, len)?;
        let ends = self.ends.as_mut().ok_or(Broken::BeforeHello)?;
        ends.end(by).send(&frame)?;
        ends.wire_to(by.other()).push_back(frame);
        self.frames += 1;
        Ok(())
    }

    /// Delivers to `by` the oldest message in flight to that side.
    pub fn received(&mut self, by: Side) {
        if let Some(ends) = &mut self.ends
            && let Some(frame) = ends.wire_to(by).pop_front()
        {
            ends.end(by).receive(&frame);
        }
    }

    /// Checks a message that the traced end received from `from`, the other end. For traces that
    /// were recorded at one end.
    ///
    /// The trace does not show what `from` had received when it sent the message, but MSeqAck does:
    /// every message acknowledges all messages that its sender has processed. The only exception is
    /// SrcAvailCancel, which is not acknowledged while the sink still reads. If MSeqAck stops
    /// before a SrcAvailCancel, `from` may have received later messages as well, and the message
    /// must break no rule after one of these numbers of received messages.
    pub fn arrived(&mut self, from: Side, head: &[u8], len: usize) -> Result<(), Broken> {
        let frame = Frame::read(head, len)?;
        let ends = self.ends.as_mut().ok_or(Broken::BeforeHello)?;
        ends.deliver_acknowledged(from, frame.ack);
        ends.send_with_held_back(from, &frame)?;
        ends.end(from.other()).receive(&frame);
        self.frames += 1;
        Ok(())
    }

    /// The number of frames checked.
    #[must_use]
    pub const fn frames(&self) -> u64 {
        self.frames
    }

    /// The number of bytes of the stream that `side` has transferred, as far as messages show it.
    #[must_use]
    pub fn streamed(&self, side: Side) -> u64 {
        self.ends.as_ref().map_or(0, |ends| match side {
            Side::Active => ends.active.streamed,
            Side::Passive => ends.passive.streamed,
        })
    }

    /// Checks that no message is in flight, and that no source advertisement, cancel or request is
    /// unanswered. A sink advertisement needs no answer.
    pub fn check_complete(&self) -> Result<(), Broken> {
        let Some(ends) = &self.ends else {
            return Ok(());
        };
        if !ends.to_active.is_empty() || !ends.to_passive.is_empty() {
            return Err(Broken::UnderWay);
        }
        if ends.active.has_nothing_pending() && ends.passive.has_nothing_pending() {
            Ok(())
        } else {
            Err(Broken::Unanswered)
        }
    }
}

#[cfg(test)]
mod tests;
