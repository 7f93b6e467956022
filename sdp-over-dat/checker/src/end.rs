//! The frames that one end has sent and received.

use crate::{
    Broken,
    frame::{Body, Frame, ModeChange, Role},
    half::{Sink, Source},
    hello::HelloParams,
    sizes::Sizes,
};

/// The state of one end of a connection, according to the frames that this end has sent and
/// received.
#[derive(Clone, Debug)]
pub(crate) struct End {
    numbers: Numbers,
    sizes: Sizes,
    /// The number of advertisements that the peer accepts at a time.
    adverts_max: u32,
    sent_fin: bool,
    sent_abort: bool,
    /// True after OOB_PEND, until the urgent byte is sent.
    is_urgent_due: bool,
    /// The half in which this end sends the data.
    source: Source,
    /// The half in which this end receives the data.
    sink: Sink,
    suspend: Suspend,
    /// Bytes of the stream that were transferred to the peer: sent in messages, read by the peer,
    /// or written to the peer's memory.
    pub(crate) streamed: u64,
}

/// The sequence numbers and the receive buffers that both ends have announced.
#[derive(Clone, Copy, Debug)]
struct Numbers {
    /// The MSeq of the last sent frame, and of the last received frame.
    sent: u32,
    received: u32,
    /// The last received Bufs and MSeqAck.
    received_bufs: u32,
    received_ack: u32,
    /// The last sent Bufs and MSeqAck.
    sent_bufs: u32,
    sent_ack: u32,
}

/// The suspension of the connection.
#[derive(Clone, Copy, Debug, Default)]
struct Suspend {
    /// This end has sent SuspComm, which is unanswered.
    is_requesting: bool,
    /// The peer has sent SuspComm, which is unanswered.
    is_requested: bool,
    /// SuspCommAck was sent or received, so this end may not send data.
    is_stopped: bool,
}

impl End {
    pub(crate) fn new(hello: HelloParams, peer: HelloParams) -> Self {
        Self {
            numbers: Numbers {
                sent: 0,
                received: 0,
                received_bufs: peer.bufs,
                received_ack: 0,
                sent_bufs: hello.bufs,
                sent_ack: 0,
            },
            sizes: Sizes::new(hello.size, peer.size),
            adverts_max: peer.adverts,
            sent_fin: false,
            sent_abort: false,
            is_urgent_due: false,
            source: Source::new(),
            sink: Sink::new(),
            suspend: Suspend::default(),
            streamed: 0,
        }
    }

    /// Checks a frame that this end sends against the rules.
    pub(crate) fn send(&mut self, frame: &Frame) -> Result<(), Broken> {
        if self.sent_abort {
            return Err(Broken::Abort);
        }
        self.numbers.check_sequence(frame)?;
        if frame.total > self.sizes.peer() {
            return Err(Broken::TooLong);
        }
        self.numbers.check_credit(frame)?;
        self.check_urgent(frame)?;
        self.check_stopped(frame)?;
        self.numbers.send(frame);
        self.send_body(frame)?;
        self.streamed += u64::from(frame.payload);
        Ok(())
    }

    fn check_urgent(&mut self, frame: &Frame) -> Result<(), Broken> {
        self.is_urgent_due |= frame.pend;
        if frame.pres && !self.is_urgent_due {
            return Err(Broken::UrgentUnannounced);
        }
        self.is_urgent_due &= !frame.pres;
        let has_ended = self.sent_fin || frame.body == Body::DisConn;
        if self.is_urgent_due && has_ended {
            return Err(Broken::UrgentMissing);
        }
        Ok(())
    }

    fn check_stopped(&self, frame: &Frame) -> Result<(), Broken> {
        let moves_data = match frame.body {
            Body::Data => frame.payload > 0,
            Body::SourceAvail { .. } | Body::SinkAvail { .. } | Body::WriteDone(_) => true,
            _ => false,
        };
        if self.suspend.is_stopped && moves_data {
            return Err(Broken::AfterSuspend);
        }
        Ok(())
    }

    fn send_body(&mut self, frame: &Frame) -> Result<(), Broken> {
        match frame.body {
            Body::Data if frame.is_bare() => Ok(()),
            Body::Data | Body::SourceAvail { .. } | Body::WriteDone(_) | Body::DisConn
                if self.sent_fin =>
            {
                Err(Broken::AfterDisConn)
            }
            Body::Data => self.source.send_data(),
            Body::SourceAvail { len } => {
                self.source.send_advert(frame, len)?;
                self.check_limit()
            }
            Body::WriteDone(bytes) => {
                self.source.send_write_done(bytes)?;
                self.streamed += u64::from(bytes);
                Ok(())
            }
            Body::DisConn => {
                self.source.send_fin()?;
                self.sent_fin = true;
                Ok(())
            }
            Body::AbortConn if !self.sent_fin => Err(Broken::Abort),
            Body::AbortConn => {
                self.sent_abort = true;
                Ok(())
            }
            Body::SourceCancel => self.source.send_cancel(frame.seq),
            Body::SinkCancelAck => self.source.send_sink_cancel_ack(),
            Body::ReadDone(bytes) => self.sink.send_read(bytes),
            Body::SendSm => self.sink.send_send_sm(frame),
            Body::SinkAvail { len, non_discards } => self.send_sink(frame, len, non_discards),
            Body::SinkCancel => self.sink.send_sink_cancel(),
            Body::Mode(ModeChange { by, mode }) => match by {
                Role::Source => self.source.send_mode(mode, frame.seq),
                Role::Sink => self.sink.send_mode(mode),
            },
            Body::Resize(size) => self.sizes.send_request(size),
            Body::ResizeAck(size) => self.sizes.send_answer(size),
            Body::Suspend => self.suspend.send_request(),
            Body::SuspendAck => self.suspend.send_answer(),
        }
    }

    /// Checks a SinkAvail. Its payload belongs to the half in which this end is the source.
    fn send_sink(&mut self, frame: &Frame, len: u32, non_discards: u32) -> Result<(), Broken> {
        if frame.payload > 0 {
            if self.sent_fin {
                return Err(Broken::AfterDisConn);
            }
            self.source.check_position()?;
        }
        self.sink
            .send_sink(len, non_discards, self.sizes.own_payload())?;
        self.check_limit()
    }

    /// Checks the number of this end's advertisements, after one was added.
    fn check_limit(&self) -> Result<(), Broken> {
        let outstanding = self.source.outstanding() + self.sink.outstanding();
        if outstanding > self.adverts_max as usize {
            return Err(Broken::AdvertLimit);
        }
        Ok(())
    }

    /// Records a frame of the peer.
    pub(crate) fn receive(&mut self, frame: &Frame) {
        self.numbers.receive(frame);
        match frame.body {
            Body::Data if frame.is_bare() => (),
            Body::Data => self.sink.receive_data(),
            Body::SourceAvail { len } => self.sink.receive_advert(frame, len),
            Body::SourceCancel => self.sink.receive_cancel(frame.seq),
            Body::WriteDone(_) => self.sink.receive_write_done(),
            Body::SinkCancelAck => self.sink.receive_sink_cancel_ack(),
            Body::DisConn => self.sink.receive_fin(),
            Body::ReadDone(bytes) => {
                self.streamed += u64::from(bytes);
                self.source.receive_read(bytes, frame.ack);
            }
            Body::SendSm => self.source.receive_send_sm(frame.ack),
            Body::SinkAvail { len, non_discards } => self.source.receive_sink(len, non_discards),
            Body::SinkCancel => self.source.receive_sink_cancel(),
            Body::Mode(ModeChange { by, mode }) => match by {
                Role::Source => self.sink.receive_mode(mode),
                Role::Sink => self.source.receive_mode(mode),
            },
            Body::Resize(size) => self.sizes.receive_request(size),
            Body::ResizeAck(size) => self.sizes.receive_answer(size),
            Body::Suspend => self.suspend.is_requested = true,
            Body::SuspendAck => self.suspend.receive_answer(),
            Body::AbortConn => (),
        }
    }

    /// True if no advertisement and no request of this end or of the peer is unanswered.
    pub(crate) fn has_nothing_pending(&self) -> bool {
        self.source.has_nothing_pending()
            && self.sink.has_nothing_pending()
            && self.sizes.has_nothing_pending()
            && self.suspend.has_nothing_pending()
    }
}

impl Numbers {
    fn check_sequence(&self, frame: &Frame) -> Result<(), Broken> {
        if frame.seq != self.sent.wrapping_add(1) {
            return Err(Broken::Sequence);
        }
        let acked = frame.ack.wrapping_sub(self.sent_ack);
        if acked > self.received.wrapping_sub(self.sent_ack) {
            return Err(Broken::Acknowledgement);
        }
        Ok(())
    }

    fn check_credit(&self, frame: &Frame) -> Result<(), Broken> {
        let in_flight = self.sent.wrapping_sub(self.received_ack);
        match self.received_bufs.saturating_sub(in_flight) {
            0 => return Err(Broken::NoCredit),
            1 => (),
            _ => return Ok(()),
        }
        // The credits that a message with these values gives to the peer.
        let credits = |bufs: u32, ack: u32| bufs.saturating_sub(self.received.wrapping_sub(ack));
        let before = credits(self.sent_bufs, self.sent_ack);
        if frame.payload > 0 || credits(frame.bufs, frame.ack) <= before {
            return Err(Broken::LastCredit);
        }
        Ok(())
    }

    fn send(&mut self, frame: &Frame) {
        self.sent = frame.seq;
        self.sent_ack = frame.ack;
        self.sent_bufs = frame.bufs;
    }

    fn receive(&mut self, frame: &Frame) {
        self.received = frame.seq;
        self.received_bufs = frame.bufs;
        self.received_ack = frame.ack;
    }
}

impl Suspend {
    fn send_request(&mut self) -> Result<(), Broken> {
        if self.is_requesting || self.is_stopped {
            return Err(Broken::Suspend);
        }
        self.is_requesting = true;
        Ok(())
    }

    fn send_answer(&mut self) -> Result<(), Broken> {
        if !self.is_requested {
            return Err(Broken::Unasked);
        }
        self.is_requested = false;
        self.is_stopped = true;
        Ok(())
    }

    fn receive_answer(&mut self) {
        self.is_requesting = false;
        self.is_stopped = true;
    }

    const fn has_nothing_pending(&self) -> bool {
        !self.is_requesting && !self.is_requested
    }
}
