//! A half, as its source sees it.

use std::collections::VecDeque;

use crate::{
    Broken,
    frame::{Frame, Mode, covers},
};

/// A source advertisement of this end.
#[derive(Clone, Copy, Debug)]
struct Advert {
    /// The MSeq of its SrcAvail.
    seq: u32,
    /// Bytes that were neither sent with the message nor reported as read.
    open: u32,
    /// True after a SendSm that does not acknowledge this advertisement.
    is_doubtful: bool,
}

/// Source advertisements that a change to combined mode has withdrawn.
#[derive(Clone, Debug, Default)]
struct Withdrawn {
    adverts: VecDeque<Advert>,
    /// The MSeq of the last such change.
    change: u32,
}

/// A half, as its source sees it.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    mode: Mode,
    /// Advertisements of this end, oldest first.
    adverts: VecDeque<Advert>,
    /// The MSeq of the unanswered SrcAvailCancel.
    cancel: Option<u32>,
    withdrawn: Withdrawn,
    /// The lengths of the peer's valid sink advertisements, oldest first.
    sinks: VecDeque<u32>,
    /// True if SinkAvailCancel was received and `sinks` are not yet dropped.
    is_sink_cancelled: bool,
    /// The number of data messages that NonDiscards should have counted.
    data_messages: u32,
}

impl Source {
    pub(crate) fn new() -> Self {
        Self {
            mode: Mode::Combined,
            adverts: VecDeque::new(),
            cancel: None,
            withdrawn: Withdrawn::default(),
            sinks: VecDeque::new(),
            is_sink_cancelled: false,
            data_messages: 0,
        }
    }

    /// The number of advertisements that count against the peer's limit.
    pub(crate) fn outstanding(&self) -> usize {
        self.adverts.iter().filter(|it| !it.is_doubtful).count()
    }

    /// True if nothing waits for an answer of the peer.
    pub(crate) fn has_nothing_pending(&self) -> bool {
        self.outstanding() == 0 && self.cancel.is_none()
    }

    /// Checks payload that may not overtake source advertisements.
    pub(crate) fn check_position(&self) -> Result<(), Broken> {
        if self.outstanding() > 0 {
            return Err(Broken::DataBehindAdvert);
        }
        Ok(())
    }

    /// Data with payload.
    pub(crate) fn send_data(&mut self) -> Result<(), Broken> {
        self.check_position()?;
        self.drop_doubtful();
        self.count_data();
        Ok(())
    }

    /// SrcAvail for `len` bytes.
    pub(crate) fn send_advert(&mut self, frame: &Frame, len: u32) -> Result<(), Broken> {
        let has_form = match self.mode {
            Mode::Buffered => false,
            Mode::Combined => frame.payload > 0 && len > frame.payload,
            Mode::Pipelined => frame.payload == 0 && len > 0,
        };
        if !has_form {
            return Err(Broken::AdvertForm);
        }
        if self.cancel.is_some() || (self.mode == Mode::Combined && self.outstanding() > 0) {
            return Err(Broken::AdvertLimit);
        }
        // The payload may use up a sink advertisement that crossed the change to combined mode.
        let used = usize::from(frame.payload > 0);
        if self.sinks.len() > used {
            return Err(Broken::SourceBehindSink);
        }
        if frame.payload > 0 {
            self.count_data();
        }
        self.drop_doubtful();
        self.adverts.push_back(Advert {
            seq: frame.seq,
            open: len - frame.payload,
            is_doubtful: false,
        });
        Ok(())
    }

    /// SrcAvailCancel with the number `seq`.
    pub(crate) fn send_cancel(&mut self, seq: u32) -> Result<(), Broken> {
        if self.adverts.is_empty() || self.cancel.is_some() {
            return Err(Broken::Cancel);
        }
        self.cancel = Some(seq);
        Ok(())
    }

    /// RdmaWrCompl for `bytes` bytes.
    pub(crate) fn send_write_done(&mut self, bytes: u32) -> Result<(), Broken> {
        match self.sinks.front() {
            Some(len) if bytes > 0 && bytes <= *len => {
                self.use_up_sink();
                Ok(())
            }
            _ => Err(Broken::WriteDone),
        }
    }

    pub(crate) fn send_sink_cancel_ack(&mut self) -> Result<(), Broken> {
        if !self.is_sink_cancelled {
            return Err(Broken::SinkCancelAck);
        }
        self.is_sink_cancelled = false;
        self.sinks.clear();
        Ok(())
    }

    /// ModeChange with the number `seq`.
    pub(crate) fn send_mode(&mut self, mode: Mode, seq: u32) -> Result<(), Broken> {
        match (self.mode, mode) {
            (Mode::Combined, Mode::Buffered) if self.outstanding() == 0 => self.drop_doubtful(),
            (Mode::Combined, Mode::Pipelined) => (),
            (Mode::Pipelined, Mode::Combined) if self.sinks.is_empty() => {
                self.withdrawn.adverts.append(&mut self.adverts);
                self.withdrawn.change = seq;
                self.cancel = None;
            }
            _ => return Err(Broken::ModeChange),
        }
        self.mode = mode;
        Ok(())
    }

    /// DisConn.
    pub(crate) fn send_fin(&mut self) -> Result<(), Broken> {
        if self.outstanding() > 0 {
            return Err(Broken::DisConnTooEarly);
        }
        self.drop_doubtful();
        Ok(())
    }

    /// RdmaRdCompl, with its MSeqAck.
    pub(crate) fn receive_read(&mut self, bytes: u32, ack: u32) {
        let is_withdrawn =
            !self.withdrawn.adverts.is_empty() && !covers(ack, self.withdrawn.change);
        let adverts = if is_withdrawn {
            &mut self.withdrawn.adverts
        } else {
            self.withdrawn.adverts.clear();
            &mut self.adverts
        };
        if let Some(advert) = adverts.front_mut() {
            advert.open = advert.open.saturating_sub(bytes);
            if advert.open == 0 {
                adverts.pop_front();
            }
        }
        self.end_cancel_of_nothing();
    }

    /// SendSm, with its MSeqAck.
    pub(crate) fn receive_send_sm(&mut self, ack: u32) {
        if self.cancel.is_some_and(|cancel| covers(ack, cancel)) {
            self.adverts.clear();
        }
        self.adverts.retain(|advert| !covers(ack, advert.seq));
        for advert in &mut self.adverts {
            advert.is_doubtful = true;
        }
        self.end_cancel_of_nothing();
    }

    /// SinkAvail.
    pub(crate) fn receive_sink(&mut self, len: u32, non_discards: u32) {
        if non_discards == self.data_messages {
            self.sinks.push_back(len);
            self.adverts.clear();
            self.cancel = None;
        } else {
            // The advertisement crossed a data message of this end and was used up by it, so the
            // sink does not count that message.
            self.data_messages = self.data_messages.wrapping_sub(1);
        }
    }

    pub(crate) fn receive_sink_cancel(&mut self) {
        self.is_sink_cancelled = !self.sinks.is_empty();
    }

    /// ModeChange by the sink.
    pub(crate) fn receive_mode(&mut self, mode: Mode) {
        self.mode = mode;
    }

    /// Counts a data message, or uses up a sink advertisement for it.
    fn count_data(&mut self) {
        if !self.use_up_sink() {
            self.data_messages = self.data_messages.wrapping_add(1);
        }
    }

    /// Removes the oldest sink advertisement. Returns false if there is none.
    fn use_up_sink(&mut self) -> bool {
        let is_used = self.sinks.pop_front().is_some();
        self.is_sink_cancelled &= !self.sinks.is_empty();
        is_used
    }

    /// Removes doubtful advertisements: the message being sent shows that this end dropped them.
    fn drop_doubtful(&mut self) {
        self.adverts.retain(|advert| !advert.is_doubtful);
        self.end_cancel_of_nothing();
    }

    fn end_cancel_of_nothing(&mut self) {
        if self.adverts.is_empty() {
            self.cancel = None;
        }
    }
}
