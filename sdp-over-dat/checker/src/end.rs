//! The frames that one end has sent and received.

use crate::{
    Broken,
    frame::{Body, Frame, HelloParams},
};

/// Modes, as numbers on the wire.
const BUFFERED: u8 = 0;
const COMBINED: u8 = 1;
const PIPELINED: u8 = 2;

/// An advertisement, as one end sees it.
#[derive(Clone, Copy, Debug)]
struct Offer {
    seq: u32,
    /// Bytes that were not inline and not reported as read.
    open: u32,
    cancelled: bool,
}

#[derive(Debug)]
pub(crate) struct End {
    peer: HelloParams,
    sent: u32,
    received: u32,
    /// The last received Bufs and MSeqAck.
    received_bufs: u32,
    received_ack: u32,
    /// The last sent Bufs and MSeqAck.
    sent_bufs: u32,
    sent_ack: u32,
    sent_fin: bool,
    sent_abort: bool,
    announced: bool,
    /// The modes of the half in which this end is the source, and of the half in which it is the
    /// sink.
    source_mode: u8,
    sink_mode: u8,
    /// This end's own advertisement.
    own: Option<Offer>,
    /// The peer's advertisement.
    theirs: Option<Offer>,
    resize_asked: u32,
    suspend_asked: u32,
    /// Bytes of the stream that were transferred to the peer: sent in messages, or read by the
    /// peer.
    pub(crate) streamed: u64,
}

impl End {
    pub(crate) fn new(hello: HelloParams, peer: HelloParams) -> Self {
        Self {
            peer,
            sent: 0,
            received: 0,
            received_bufs: peer.bufs,
            received_ack: 0,
            sent_bufs: hello.bufs,
            sent_ack: 0,
            sent_fin: false,
            sent_abort: false,
            announced: false,
            source_mode: COMBINED,
            sink_mode: COMBINED,
            own: None,
            theirs: None,
            resize_asked: 0,
            suspend_asked: 0,
            streamed: 0,
        }
    }

    /// Checks a frame that this end sends against the rules.
    pub(crate) fn send(&mut self, frame: &Frame) -> Result<(), Broken> {
        if self.sent_abort {
            return Err(Broken::Abort);
        }
        if frame.seq != self.sent.wrapping_add(1) {
            return Err(Broken::Sequence);
        }
        let acked = frame.ack.wrapping_sub(self.sent_ack);
        if acked > self.received.wrapping_sub(self.sent_ack) {
            return Err(Broken::Acknowledgement);
        }
        if frame.total > self.peer.size {
            return Err(Broken::TooLong);
        }
        self.check_credit(frame)?;
        self.check_urgent(frame)?;
        self.sent = frame.seq;
        self.sent_ack = frame.ack;
        self.sent_bufs = frame.bufs;
        self.streamed += u64::from(frame.payload);
        self.send_body(frame)
    }

    fn check_credit(&self, frame: &Frame) -> Result<(), Broken> {
        let under_way = self.sent.wrapping_sub(self.received_ack);
        match self.received_bufs.saturating_sub(under_way) {
            0 => return Err(Broken::NoCredit),
            1 => (),
            _ => return Ok(()),
        }
        let told = |bufs: u32, ack: u32| bufs.saturating_sub(self.received.wrapping_sub(ack));
        let before = told(self.sent_bufs, self.sent_ack);
        let after = told(frame.bufs, frame.ack);
        if frame.payload > 0 || after <= before {
            return Err(Broken::LastCredit);
        }
        Ok(())
    }

    fn check_urgent(&mut self, frame: &Frame) -> Result<(), Broken> {
        self.announced |= frame.pend;
        if frame.pres && !self.announced {
            return Err(Broken::UrgentUnannounced);
        }
        if frame.pres {
            self.announced = false;
        }
        Ok(())
    }

    fn send_body(&mut self, frame: &Frame) -> Result<(), Broken> {
        match frame.body {
            Body::Data if frame.is_bare() => Ok(()),
            Body::Data if self.sent_fin => Err(Broken::AfterDisConn),
            Body::Data if self.own.is_some() => Err(Broken::DataBehindAdvert),
            Body::Data => Ok(()),
            Body::SourceAvail { advertised } => self.send_advert(frame, advertised),
            Body::ReadDone(bytes) => self.send_read(bytes),
            Body::SendSm => self.theirs.take().map(drop).ok_or(Broken::SendSm),
            Body::SourceCancel => match &mut self.own {
                Some(offer) if !offer.cancelled => {
                    offer.cancelled = true;
                    Ok(())
                }
                _ => Err(Broken::Cancel),
            },
            Body::DisConn if self.sent_fin => Err(Broken::AfterDisConn),
            Body::DisConn if self.own.is_some() => Err(Broken::DisConnTooEarly),
            Body::DisConn => {
                self.sent_fin = true;
                Ok(())
            }
            Body::AbortConn if !self.sent_fin => Err(Broken::Abort),
            Body::AbortConn => {
                self.sent_abort = true;
                Ok(())
            }
            Body::Mode(byte) => self.send_mode(byte),
            Body::ResizeAck => answer(&mut self.resize_asked),
            Body::SuspendAck => answer(&mut self.suspend_asked),
            Body::Resize | Body::Suspend => Ok(()),
            Body::SinkAvail if self.sink_mode == PIPELINED => Ok(()),
            Body::SinkAvail => Err(Broken::SinkAvail),
            Body::SinkCancel | Body::WriteDone | Body::SinkCancelAck => Err(Broken::Unasked),
        }
    }

    fn send_advert(&mut self, frame: &Frame, advertised: u32) -> Result<(), Broken> {
        if self.sent_fin {
            return Err(Broken::AfterDisConn);
        }
        let form = match self.source_mode {
            COMBINED => frame.payload > 0 && advertised > frame.payload,
            PIPELINED => frame.payload == 0 && advertised > 0,
            _ => false,
        };
        if !form {
            return Err(Broken::AdvertForm);
        }
        // This checker follows one advertisement at a time; no end here permits more.
        if self.own.is_some() || self.peer.adverts == 0 {
            return Err(Broken::AdvertLimit);
        }
        self.own = Some(Offer {
            seq: frame.seq,
            open: advertised - frame.payload,
            cancelled: false,
        });
        Ok(())
    }

    fn send_read(&mut self, bytes: u32) -> Result<(), Broken> {
        let Some(offer) = &mut self.theirs else {
            return Err(Broken::ReadDone);
        };
        if bytes == 0 || bytes > offer.open {
            return Err(Broken::ReadDone);
        }
        offer.open -= bytes;
        if offer.open == 0 {
            self.theirs = None;
        }
        Ok(())
    }

    fn send_mode(&mut self, byte: u8) -> Result<(), Broken> {
        let mode = byte >> 4 & 0x07;
        // Bit 7 names the half of the receiver: 0 is its receiving half, which this end feeds.
        if byte & 0x80 != 0 {
            if (self.sink_mode, mode) != (BUFFERED, COMBINED) {
                return Err(Broken::ModeChange);
            }
            self.sink_mode = mode;
            return Ok(());
        }
        let is_legal = matches!(
            (self.source_mode, mode),
            (COMBINED, BUFFERED) | (COMBINED, PIPELINED) | (PIPELINED, COMBINED)
        );
        if !is_legal || (mode == BUFFERED && self.own.is_some()) {
            return Err(Broken::ModeChange);
        }
        self.source_mode = mode;
        Ok(())
    }

    /// Records a frame of the peer.
    pub(crate) fn receive(&mut self, frame: &Frame) {
        self.received = frame.seq;
        self.received_bufs = frame.bufs;
        self.received_ack = frame.ack;
        match frame.body {
            Body::SourceAvail { advertised } => {
                self.theirs = Some(Offer {
                    seq: frame.seq,
                    open: advertised.saturating_sub(frame.payload),
                    cancelled: false,
                });
            }
            Body::ReadDone(bytes) => self.receive_read(bytes),
            Body::SendSm => self.receive_send_sm(frame.ack),
            Body::Mode(byte) if byte & 0x80 != 0 => self.source_mode = byte >> 4 & 0x07,
            Body::Mode(byte) => self.sink_mode = byte >> 4 & 0x07,
            Body::Resize => self.resize_asked += 1,
            Body::Suspend => self.suspend_asked += 1,
            _ => (),
        }
    }

    fn receive_read(&mut self, bytes: u32) {
        self.streamed += u64::from(bytes);
        if let Some(offer) = &mut self.own {
            offer.open = offer.open.saturating_sub(bytes);
            if offer.open == 0 {
                self.own = None;
            }
        }
    }

    /// A SendSm is about the advertisement only if it acknowledges it.
    fn receive_send_sm(&mut self, ack: u32) {
        let knows = |offer: &Offer| ack.wrapping_sub(offer.seq) < 1 << 31;
        if self.own.as_ref().is_some_and(knows) {
            self.own = None;
        }
    }

    /// True if nothing waits for an answer.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.own.is_none() && self.theirs.is_none() && self.resize_asked == 0
    }
}

fn answer(asked: &mut u32) -> Result<(), Broken> {
    *asked = asked.checked_sub(1).ok_or(Broken::Unasked)?;
    Ok(())
}
