//! The listening side: evaluates the Request and makes the Reply.

use crate::Peer;
use crate::wire::mpa::{
    DEPTH_MAX, DEPTH_UNSPECIFIED, ENHANCED_LEN, Enhanced, FrameKind, Header, PD_LENGTH_MAX,
    RtrKind, RtrKinds, StartupFrame,
};

use super::{Malformed, Negotiated, Progress, StartupError, find_frame};

/// The configuration of Replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponderConfig {
    /// Use CRC even if the Request does not ask for it.
    pub crc: bool,
    /// True if we can insert markers when the Request asks for them.
    pub can_insert_markers: bool,
    /// Ask for markers in the stream that the initiator sends.
    pub markers: bool,
    /// The kinds of first FPDU we understand.
    pub rtr_kinds: RtrKinds,
    /// The largest PD_Length to send. RFC 5044 allows 512; a peer may accept less.
    pub pd_length_max: u16,
    /// The implementation of the initiators, if it is known.
    pub peer: Peer,
}

impl Default for ResponderConfig {
    fn default() -> Self {
        Self {
            crc: true,
            can_insert_markers: true,
            markers: false,
            rtr_kinds: RtrKinds {
                send: true,
                write: true,
                read: true,
            },
            pd_length_max: 256,
            peer: Peer::Unknown,
        }
    }
}

/// The answering side. It keeps no state of a connection: every Reply is made from the Request that
/// the caller passes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Responder {
    config: ResponderConfig,
}

/// A valid Request; proof that one was received, needed for every Reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestInfo {
    /// The revision, 1 or 2.
    pub rev: u8,
    /// The initiator wants CRC.
    pub crc: bool,
    /// The initiator wants markers in the stream that we send.
    pub markers: bool,
    /// IRD, ORD and peer-to-peer flags; `None` for an unenhanced Request.
    pub enhanced: Option<Enhanced>,
    /// The initiator's implementation, as far as the Request shows it.
    pub peer: Peer,
}

/// The parameters that the consumer of the responder chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct AcceptParams {
    /// The number of the initiator's reads and atomics that we hold. Peers round up to powers of
    /// two, so announce a power of two.
    pub ird: u16,
    /// The number of reads and atomics that we want to have outstanding; lowered to the initiator's
    /// IRD.
    pub ord: u16,
    /// The limit to which `ird` is raised when the Request announces a higher ORD. Equal to `ird`
    /// if it may not be raised.
    pub ird_max: u16,
}

impl Responder {
    /// Creates a responder with this configuration.
    #[must_use]
    pub const fn new(config: ResponderConfig) -> Self {
        Self { config }
    }

    /// Evaluates the bytes at the front of the stream.
    #[must_use]
    pub fn handle_input(&self, front: &[u8]) -> Progress<RequestInfo> {
        let found = match find_frame(front, FrameKind::Request) {
            Ok(found) => found,
            Err(progress) => return progress,
        };
        let header = found.header;
        if !(1..=2).contains(&header.rev) {
            return Progress::Malformed(Malformed::Revision(header.rev));
        }
        // Flag S is a reserved bit of revision 1, and the private data is then raw.
        let is_enhanced = header.rev >= 2 && header.enhanced;
        let enhanced = found.words.filter(|_| is_enhanced);
        if is_enhanced && enhanced.is_none() {
            return Progress::Malformed(Malformed::NoEnhancedWords(header.pd_length));
        }
        let info = RequestInfo {
            rev: header.rev,
            crc: header.crc,
            markers: header.markers,
            enhanced,
            peer: (self.config.peer).of_request(header.rev, header.crc, header.markers, enhanced),
        };
        found.with(is_enhanced, info)
    }

    /// The largest private data that a Reply to `request` may carry, in bytes.
    #[must_use]
    pub fn private_data_max(&self, request: &RequestInfo) -> usize {
        let words = if request.enhanced.is_some() {
            ENHANCED_LEN
        } else {
            0
        };
        let max = request.peer.reply_pd_length_max();
        usize::from(self.config.pd_length_max.min(max))
            .min(PD_LENGTH_MAX)
            .saturating_sub(words)
    }

    /// Makes the accepting Reply. Nothing else may be sent until the first FPDU of the initiator
    /// was received; [`crate::Connection`] enforces that.
    pub fn accept(
        &self,
        request: &RequestInfo,
        params: AcceptParams,
        private_data: &[u8],
    ) -> Result<(StartupFrame, Negotiated), StartupError> {
        if request.markers && !self.config.can_insert_markers {
            return Err(StartupError::MarkersRequired);
        }
        let mut negotiated = Negotiated {
            rev: request.rev,
            crc: self.config.crc || request.crc,
            markers_tx: request.markers,
            markers_rx: self.config.markers,
            ird: params.ird.min(DEPTH_MAX),
            ord: params.ord.min(DEPTH_MAX),
            rtr: None,
            peer: request.peer,
        };
        let words = request
            .enhanced
            .map(|peer| self.agree(&mut negotiated, &peer, params.ird_max.min(DEPTH_MAX)));
        let frame = self.reply(request, false, negotiated.crc, words, private_data)?;
        Ok((frame, negotiated))
    }

    /// Makes the rejecting Reply. `params` inform the initiator of the values that would have been
    /// accepted.
    pub fn reject(
        &self,
        request: &RequestInfo,
        params: AcceptParams,
        private_data: &[u8],
    ) -> Result<StartupFrame, StartupError> {
        let words = request.enhanced.map(|peer| Enhanced {
            peer_to_peer: peer
                .peer_to_peer
                .map(|offered| RtrKinds::only(self.choose(offered))),
            ird: params.ird.min(DEPTH_MAX),
            ord: params.ord.min(DEPTH_MAX),
        });
        let crc = self.config.crc || request.crc;
        self.reply(request, true, crc, words, private_data)
    }

    fn reply(
        &self,
        request: &RequestInfo,
        reject: bool,
        crc: bool,
        words: Option<Enhanced>,
        private_data: &[u8],
    ) -> Result<StartupFrame, StartupError> {
        let max = self.private_data_max(request);
        let too_long = StartupError::PrivateDataTooLong {
            len: private_data.len(),
            max,
        };
        if private_data.len() > max {
            return Err(too_long);
        }
        let header = Header {
            markers: self.config.markers,
            crc,
            reject,
            enhanced: words.is_some(),
            rev: request.rev,
            pd_length: 0,
        };
        StartupFrame::build(FrameKind::Reply, header, words, private_data).ok_or(too_long)
    }

    /// RFC 6581 section 9.1: the responder lowers its ORD to the initiator's IRD, and raises its
    /// IRD to the initiator's ORD, up to `ird_max`. 0x3FFF is answered by 0x3FFF and does not
    /// change the value on our side.
    fn agree(&self, negotiated: &mut Negotiated, peer: &Enhanced, ird_max: u16) -> Enhanced {
        negotiated.rtr = peer.peer_to_peer.map(|offered| self.choose(offered));
        // A Read as the first FPDU needs an IRD of at least 1 (same section).
        if negotiated.rtr == Some(RtrKind::Read) {
            negotiated.ird = negotiated.ird.max(1);
        }
        if peer.ord != DEPTH_UNSPECIFIED {
            negotiated.ird = negotiated.ird.max(peer.ord.min(ird_max));
        }
        if peer.ird != DEPTH_UNSPECIFIED {
            negotiated.ord = negotiated.ord.min(peer.ird);
        }
        let announced = |peer_value, own| {
            if peer_value == DEPTH_UNSPECIFIED {
                DEPTH_UNSPECIFIED
            } else {
                own
            }
        };
        Enhanced {
            peer_to_peer: negotiated.rtr.map(RtrKinds::only),
            ird: announced(peer.ord, negotiated.ird),
            ord: announced(peer.ird, negotiated.ord),
        }
    }

    /// Chooses the Read if it is offered, because some hardware sends nothing else; otherwise the
    /// Write. If no kind is in common, the Reply names one kind that we support, and the initiator
    /// ends the connection with error 7.
    fn choose(&self, offered: RtrKinds) -> RtrKind {
        let preference = [RtrKind::Read, RtrKind::Write, RtrKind::Send];
        let supported = self.config.rtr_kinds;
        offered
            .intersection(supported)
            .first_of(&preference)
            .or_else(|| supported.first_of(&preference))
            .unwrap_or(RtrKind::Write)
    }
}
