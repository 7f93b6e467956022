//! A half, as its sink sees it.

use std::collections::VecDeque;

use crate::{
    Broken,
    frame::{Frame, Mode, covers},
};

/// A source advertisement of the peer.
#[derive(Clone, Copy, Debug)]
struct Offer {
    /// Bytes that were neither received with the message nor reported as read.
    open: u32,
    /// True if the peer made the advertisement before it received the last SendSm.
    crossed_send_sm: bool,
}

/// A half, as its sink sees it.
#[derive(Clone, Debug)]
pub(crate) struct Sink {
    mode: Mode,
    /// Advertisements of the peer, oldest first.
    offers: VecDeque<Offer>,
    /// The MSeq of the SrcAvailCancel that has to be answered.
    cancel: Option<u32>,
    /// The MSeq of the last SendSm.
    send_sm: Option<u32>,
    /// The lengths of this end's outstanding sink advertisements, oldest first.
    sinks: VecDeque<u32>,
    /// True while SinkAvailCancel is unanswered.
    is_cancelling: bool,
    /// The number of data messages received and not discarded.
    non_discards: u32,
    /// True after the peer's DisConn.
    has_ended: bool,
}

impl Sink {
    pub(crate) fn new() -> Self {
        Self {
            mode: Mode::Combined,
            offers: VecDeque::new(),
            cancel: None,
            send_sm: None,
            sinks: VecDeque::new(),
            is_cancelling: false,
            non_discards: 0,
            has_ended: false,
        }
    }

    /// The number of sink advertisements that count against the peer's limit.
    pub(crate) fn outstanding(&self) -> usize {
        self.sinks.len()
    }

    /// True if this end owes no answer and waits for none. Sink advertisements wait for data and
    /// not for an answer.
    pub(crate) fn has_nothing_pending(&self) -> bool {
        !self.has_unanswered_offer() && !self.is_cancelling
    }

    fn has_unanswered_offer(&self) -> bool {
        self.offers.iter().any(|offer| !offer.crossed_send_sm)
    }

    /// RdmaRdCompl for `bytes` bytes.
    pub(crate) fn send_read(&mut self, bytes: u32) -> Result<(), Broken> {
        let offer = self.offers.front_mut().ok_or(Broken::ReadDone)?;
        if offer.crossed_send_sm {
            return Err(Broken::ReadOfCrossed);
        }
        if bytes == 0 || bytes > offer.open {
            return Err(Broken::ReadDone);
        }
        offer.open -= bytes;
        if offer.open == 0 {
            self.offers.pop_front();
        }
        self.end_cancel_of_nothing();
        Ok(())
    }

    pub(crate) fn send_send_sm(&mut self, frame: &Frame) -> Result<(), Broken> {
        if self.offers.is_empty() {
            return Err(Broken::SendSm);
        }
        if self.cancel.is_some_and(|cancel| !covers(frame.ack, cancel)) {
            return Err(Broken::CancelAck);
        }
        self.offers.clear();
        self.cancel = None;
        self.send_sm = Some(frame.seq);
        Ok(())
    }

    /// SinkAvail for `len` bytes; `payload_max` is the payload of this end's receive buffers.
    pub(crate) fn send_sink(
        &mut self,
        len: u32,
        non_discards: u32,
        payload_max: u32,
    ) -> Result<(), Broken> {
        if self.mode != Mode::Pipelined || self.has_ended {
            return Err(Broken::SinkAvail);
        }
        if self.is_cancelling {
            return Err(Broken::AdvertLimit);
        }
        if self.has_unanswered_offer() {
            return Err(Broken::SinkBehindSource);
        }
        if len < payload_max {
            return Err(Broken::SinkLength);
        }
        if non_discards != self.non_discards {
            return Err(Broken::NonDiscards);
        }
        self.sinks.push_back(len);
        Ok(())
    }

    pub(crate) fn send_sink_cancel(&mut self) -> Result<(), Broken> {
        if self.sinks.is_empty() || self.is_cancelling {
            return Err(Broken::Cancel);
        }
        self.is_cancelling = true;
        Ok(())
    }

    pub(crate) fn send_mode(&mut self, mode: Mode) -> Result<(), Broken> {
        if (self.mode, mode) != (Mode::Buffered, Mode::Combined) {
            return Err(Broken::ModeChange);
        }
        self.mode = mode;
        Ok(())
    }

    /// Data with payload.
    pub(crate) fn receive_data(&mut self) {
        self.offers.retain(|offer| !offer.crossed_send_sm);
        self.end_cancel_of_nothing();
        if !self.use_up_sink() {
            self.non_discards = self.non_discards.wrapping_add(1);
        }
    }

    /// SrcAvail for `len` bytes.
    pub(crate) fn receive_advert(&mut self, frame: &Frame, len: u32) {
        if frame.payload > 0 {
            self.receive_data();
        }
        if !self.sinks.is_empty() {
            return;
        }
        // In combined mode there is one advertisement at a time, and a SrcAvail may leave SendSm
        // unacknowledged for another reason: the acknowledgement of a SrcAvailCancel is held back.
        let crossed_send_sm =
            self.mode == Mode::Pipelined && self.send_sm.is_some_and(|seq| !covers(frame.ack, seq));
        if !crossed_send_sm {
            self.offers.retain(|offer| !offer.crossed_send_sm);
        }
        self.offers.push_back(Offer {
            open: len.saturating_sub(frame.payload),
            crossed_send_sm,
        });
    }

    /// SrcAvailCancel with the number `seq`. A cancel of nothing is ignored.
    pub(crate) fn receive_cancel(&mut self, seq: u32) {
        if !self.offers.is_empty() {
            self.cancel = Some(seq);
        }
    }

    /// RdmaWrCompl.
    pub(crate) fn receive_write_done(&mut self) {
        self.use_up_sink();
    }

    pub(crate) fn receive_sink_cancel_ack(&mut self) {
        self.sinks.clear();
        self.is_cancelling = false;
    }

    /// ModeChange by the source, which withdraws all source advertisements when it leaves pipelined
    /// mode.
    pub(crate) fn receive_mode(&mut self, mode: Mode) {
        if self.mode == Mode::Pipelined {
            self.offers.clear();
            self.cancel = None;
        }
        self.mode = mode;
    }

    /// DisConn, which retires sink advertisements and is the last answer to a cancel.
    pub(crate) fn receive_fin(&mut self) {
        self.offers.clear();
        self.cancel = None;
        self.sinks.clear();
        self.is_cancelling = false;
        self.has_ended = true;
    }

    /// Removes the oldest sink advertisement. Returns false if there is none.
    fn use_up_sink(&mut self) -> bool {
        let is_used = self.sinks.pop_front().is_some();
        self.is_cancelling &= !self.sinks.is_empty();
        is_used
    }

    fn end_cancel_of_nothing(&mut self) {
        if self.offers.is_empty() {
            self.cancel = None;
        }
    }
}
