//! What one end has said and heard.

use crate::{
    Broken,
    frame::{Frame, Greeting, Word},
};

/// Modes, in the numbers of the wire.
const BUFFERED: u8 = 0;
const COMBINED: u8 = 1;
const PIPELINED: u8 = 2;

/// An advertisement in one end's eyes.
#[derive(Clone, Copy, Debug)]
struct Offer {
    seq: u32,
    /// Bytes that were not inline and not reported as read.
    open: u32,
    cancelled: bool,
}

#[derive(Debug)]
pub(crate) struct End {
    greeting: Greeting,
    peer: Greeting,
    said: u32,
    heard: u32,
    /// Bufs and MSeqAck last heard.
    heard_bufs: u32,
    heard_ack: u32,
    /// The same last said.
    said_bufs: u32,
    said_ack: u32,
    said_fin: bool,
    said_abort: bool,
    announced: bool,
    /// Modes of the half in which this end is the source, and the sink.
    source_mode: u8,
    sink_mode: u8,
    /// Its own advertisement.
    own: Option<Offer>,
    /// The peer's.
    theirs: Option<Offer>,
    resize_asked: u32,
    suspend_asked: u32,
    /// Bytes of the stream that left: in messages, and read by the peer.
    pub(crate) streamed: u64,
}

impl End {
    pub(crate) fn new(greeting: Greeting, peer: Greeting) -> Self {
        Self {
            greeting,
            peer,
            said: 0,
            heard: 0,
            heard_bufs: peer.bufs,
            heard_ack: 0,
            said_bufs: greeting.bufs,
            said_ack: 0,
            said_fin: false,
            said_abort: false,
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

    /// Holds a frame that this end sends against the rules.
    pub(crate) fn say(&mut self, frame: &Frame) -> Result<(), Broken> {
        if self.said_abort {
            return Err(Broken::Abort);
        }
        if frame.seq != self.said.wrapping_add(1) {
            return Err(Broken::Sequence);
        }
        let acked = frame.ack.wrapping_sub(self.said_ack);
        if acked > self.heard.wrapping_sub(self.said_ack) {
            return Err(Broken::Acknowledgement);
        }
        if frame.bufs > self.greeting.bufs {
            return Err(Broken::MoreBuffers);
        }
        if frame.total > self.peer.size {
            return Err(Broken::TooLong);
        }
        self.check_credit(frame)?;
        self.check_urgent(frame)?;
        self.said = frame.seq;
        self.said_ack = frame.ack;
        self.said_bufs = frame.bufs;
        self.streamed += u64::from(frame.payload);
        self.say_word(frame)
    }

    fn check_credit(&self, frame: &Frame) -> Result<(), Broken> {
        let under_way = self.said.wrapping_sub(self.heard_ack);
        match self.heard_bufs.saturating_sub(under_way) {
            0 => return Err(Broken::NoCredit),
            1 => (),
            _ => return Ok(()),
        }
        let told = |bufs: u32, ack: u32| bufs.saturating_sub(self.heard.wrapping_sub(ack));
        let before = told(self.said_bufs, self.said_ack);
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

    fn say_word(&mut self, frame: &Frame) -> Result<(), Broken> {
        match frame.word {
            Word::Data if frame.is_bare() => Ok(()),
            Word::Data if self.said_fin => Err(Broken::AfterDisConn),
            Word::Data if self.own.is_some() => Err(Broken::DataBehindAdvert),
            Word::Data => Ok(()),
            Word::SourceAvail { advertised } => self.say_advert(frame, advertised),
            Word::ReadDone(bytes) => self.say_read(bytes),
            Word::SendSm => self.theirs.take().map(drop).ok_or(Broken::SendSm),
            Word::SourceCancel => match &mut self.own {
                Some(offer) if !offer.cancelled => {
                    offer.cancelled = true;
                    Ok(())
                }
                _ => Err(Broken::Cancel),
            },
            Word::DisConn if self.said_fin => Err(Broken::AfterDisConn),
            Word::DisConn if self.own.is_some() => Err(Broken::DisConnTooEarly),
            Word::DisConn => {
                self.said_fin = true;
                Ok(())
            }
            Word::AbortConn if !self.said_fin => Err(Broken::Abort),
            Word::AbortConn => {
                self.said_abort = true;
                Ok(())
            }
            Word::Mode(byte) => self.say_mode(byte),
            Word::ResizeAck => answer(&mut self.resize_asked),
            Word::SuspendAck => answer(&mut self.suspend_asked),
            Word::Resize | Word::Suspend => Ok(()),
            Word::SinkAvail if self.sink_mode == PIPELINED => Ok(()),
            Word::SinkAvail => Err(Broken::SinkAvail),
            Word::SinkCancel | Word::WriteDone | Word::SinkCancelAck => Err(Broken::Unasked),
        }
    }

    fn say_advert(&mut self, frame: &Frame, advertised: u32) -> Result<(), Broken> {
        if self.said_fin {
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
        // One at a time is all that this checker follows; nobody here allows more.
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

    fn say_read(&mut self, bytes: u32) -> Result<(), Broken> {
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

    fn say_mode(&mut self, byte: u8) -> Result<(), Broken> {
        let mode = byte >> 4 & 0x07;
        // Bit 7 names the half of the receiver: 0 its receiving one, which this end feeds.
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

    /// Takes note of a frame of the peer.
    pub(crate) fn hear(&mut self, frame: &Frame) {
        self.heard = frame.seq;
        self.heard_bufs = frame.bufs;
        self.heard_ack = frame.ack;
        match frame.word {
            Word::SourceAvail { advertised } => {
                self.theirs = Some(Offer {
                    seq: frame.seq,
                    open: advertised.saturating_sub(frame.payload),
                    cancelled: false,
                });
            }
            Word::ReadDone(bytes) => self.hear_read(bytes),
            Word::SendSm => self.hear_send_sm(frame.ack),
            Word::Mode(byte) if byte & 0x80 != 0 => self.source_mode = byte >> 4 & 0x07,
            Word::Mode(byte) => self.sink_mode = byte >> 4 & 0x07,
            Word::Resize => self.resize_asked += 1,
            Word::Suspend => self.suspend_asked += 1,
            _ => (),
        }
    }

    fn hear_read(&mut self, bytes: u32) {
        self.streamed += u64::from(bytes);
        if let Some(offer) = &mut self.own {
            offer.open = offer.open.saturating_sub(bytes);
            if offer.open == 0 {
                self.own = None;
            }
        }
    }

    /// A SendSm means the advertisement if it knows of it.
    fn hear_send_sm(&mut self, ack: u32) {
        let knows = |offer: &Offer| ack.wrapping_sub(offer.seq) < 1 << 31;
        if self.own.as_ref().is_some_and(knows) {
            self.own = None;
        }
    }

    /// Whether nothing waits for an answer.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.own.is_none() && self.theirs.is_none() && self.resize_asked == 0
    }
}

fn answer(asked: &mut u32) -> Result<(), Broken> {
    *asked = asked.checked_sub(1).ok_or(Broken::Unasked)?;
    Ok(())
}
