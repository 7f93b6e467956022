//! The connecting side: makes the Request and evaluates the Reply.

use crate::Peer;
use crate::wire::mpa::{
    DEPTH_MAX, DEPTH_UNSPECIFIED, ENHANCED_LEN, Enhanced, FrameKind, Header, PD_LENGTH_MAX,
    RtrKind, RtrKinds, StartupFrame,
};

use super::{Malformed, Negotiated, Progress, StartupError, find_frame};

/// The configuration of Requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InitiatorConfig {
    /// Use the enhanced set-up (revision 2, flag S). Without it IRD and ORD are not sent to the
    /// peer, and the values below are used unchanged.
    pub enhanced: bool,
    /// Ask for CRC. RFC 5044 section 7.1 requires CRC unless both administrators agree to do
    /// without.
    pub crc: bool,
    /// True if we can insert markers when the Reply asks for them.
    pub can_insert_markers: bool,
    /// Ask for markers in the stream that the peer sends. Markers help receivers that see segments
    /// and not a stream; this implementation reads a stream.
    pub markers: bool,
    /// The least number of the peer's reads and atomics that we hold; up to [`DEPTH_MAX`], or
    /// [`DEPTH_UNSPECIFIED`] to leave `ird_max` unnegotiated.
    pub ird: u16,
    /// The limit to which `ird` may be raised when the Reply announces a higher ORD. An ORD above
    /// the limit is answered with error 6. Equal to `ird` if it may not be raised.
    pub ird_max: u16,
    /// Reads and atomics that we want to have outstanding.
    pub ord: u16,
    /// Peer-to-peer mode: the first FPDU is one of these kinds. `None`: the consumer sends first.
    pub peer_to_peer: Option<RtrKinds>,
    /// The largest PD_Length to send. RFC 5044 allows 512; a peer may accept less.
    pub pd_length_max: u16,
    /// The implementation of the responder, if it is known.
    pub peer: Peer,
}

impl Default for InitiatorConfig {
    /// The values that all known hardware accepts: revision 2, CRC, peer-to-peer with a zero-length
    /// Write or Read, short private data.
    fn default() -> Self {
        Self {
            enhanced: true,
            crc: true,
            can_insert_markers: true,
            markers: false,
            ird: 16,
            ird_max: 128,
            ord: 16,
            peer_to_peer: Some(RtrKinds::WRITE_READ),
            pd_length_max: 256,
            peer: Peer::Unknown,
        }
    }
}

/// An initiator that has made its Request and waits for the Reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Initiator {
    config: InitiatorConfig,
}

/// The outcome of a Reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyOutcome {
    /// The connection is in full operation; the initiator sends the first FPDU.
    Accepted {
        /// The agreed parameters.
        negotiated: Negotiated,
        /// IRD and ORD of the peer as it sent them (RFC 6581 section 9.1: for the consumer).
        peer: Option<Enhanced>,
    },
    /// The responder's consumer refused. The stream is left at the end of the Reply.
    Rejected {
        /// IRD and ORD that the peer needs, if it sent them.
        peer: Option<Enhanced>,
    },
    /// The responder accepted, but we cannot continue.
    Refused(Refusal),
}

/// The reason why we cannot use an accepting Reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The responder does not speak the enhanced set-up. Close; a new connection may try without.
    #[error("the responder does not speak enhanced MPA set-up")]
    NotEnhanced,
    /// The responder wants markers and we cannot insert them. Close.
    #[error("the responder requires markers")]
    MarkersRequired,
    /// The responder wants more reads than we can hold. Send the Terminate message for
    /// [`crate::MpaError::InsufficientIrd`], with CRC and markers as given, then close.
    #[error("the responder requires an IRD of {needed}")]
    InsufficientIrd {
        /// The ORD of the responder.
        needed: u16,
        /// CRC was agreed on.
        crc: bool,
        /// The peer wants markers in what we send.
        markers: bool,
    },
    /// No kind of first FPDU remains that both sides support. Send the Terminate message for
    /// [`crate::MpaError::NoMatchingRtr`], with CRC and markers as given, then close.
    #[error("no RTR message in common")]
    NoMatchingRtr {
        /// CRC was agreed on.
        crc: bool,
        /// The peer wants markers in what we send.
        markers: bool,
    },
}

impl Initiator {
    /// Makes the Request with the consumer's private data.
    pub fn request(
        mut config: InitiatorConfig,
        private_data: &[u8],
    ) -> Result<(Self, StartupFrame), StartupError> {
        if !config.peer.may_be_asked_for_rtr() {
            config.peer_to_peer = None;
        }
        let max = config.private_data_max();
        let too_long = StartupError::PrivateDataTooLong {
            len: private_data.len(),
            max,
        };
        if private_data.len() > max {
            return Err(too_long);
        }
        let enhanced = config.enhanced.then_some(Enhanced {
            peer_to_peer: config.peer_to_peer,
            ird: config.ird.min(DEPTH_UNSPECIFIED),
            ord: config.ord.min(DEPTH_UNSPECIFIED),
        });
        let header = Header {
            markers: config.markers,
            crc: config.crc,
            reject: false,
            enhanced: config.enhanced,
            rev: if config.enhanced { 2 } else { 1 },
            pd_length: 0,
        };
        let frame = StartupFrame::build(FrameKind::Request, header, enhanced, private_data)
            .ok_or(too_long)?;
        Ok((Self { config }, frame))
    }

    /// Evaluates the bytes at the front of the stream.
    #[must_use]
    pub fn handle_input(&self, front: &[u8]) -> Progress<ReplyOutcome> {
        let found = match find_frame(front, FrameKind::Reply) {
            Ok(found) => found,
            Err(progress) => return progress,
        };
        let header = found.header;
        let rev_max = if self.config.enhanced { 2 } else { 1 };
        if !header.reject && !(1..=rev_max).contains(&header.rev) {
            return Progress::Malformed(Malformed::Revision(header.rev));
        }
        let is_enhanced = self.config.enhanced && header.rev >= 2 && header.enhanced;
        let peer = found.words.filter(|_| is_enhanced);
        if is_enhanced && peer.is_none() && !header.reject {
            return Progress::Malformed(Malformed::NoEnhancedWords(header.pd_length));
        }
        found.with(peer.is_some(), self.outcome(&header, peer))
    }

    fn outcome(&self, header: &Header, peer: Option<Enhanced>) -> ReplyOutcome {
        if header.reject {
            return ReplyOutcome::Rejected { peer };
        }
        if header.markers && !self.config.can_insert_markers {
            return ReplyOutcome::Refused(Refusal::MarkersRequired);
        }
        let mut negotiated = Negotiated {
            rev: header.rev,
            crc: self.config.crc || header.crc,
            markers_tx: header.markers,
            markers_rx: self.config.markers,
            ird: self.config.local_ird(),
            ord: self.config.ord.min(DEPTH_MAX),
            rtr: None,
            peer: self.config.peer,
        };
        match peer {
            None if self.config.enhanced => ReplyOutcome::Refused(Refusal::NotEnhanced),
            None => ReplyOutcome::Accepted { negotiated, peer },
            Some(words) => match self.agree(&mut negotiated, &words) {
                Ok(()) => ReplyOutcome::Accepted { negotiated, peer },
                Err(refusal) => ReplyOutcome::Refused(refusal),
            },
        }
    }

    /// RFC 6581 section 9.1: the initiator lowers its ORD to the responder's IRD, and raises its
    /// IRD to the responder's ORD. The first FPDU is of a kind that both the Request and the Reply
    /// name.
    fn agree(&self, negotiated: &mut Negotiated, peer: &Enhanced) -> Result<(), Refusal> {
        let (crc, markers) = (negotiated.crc, negotiated.markers_tx);
        if peer.ird != DEPTH_UNSPECIFIED {
            negotiated.ord = negotiated.ord.min(peer.ird);
        }
        if peer.ord != DEPTH_UNSPECIFIED && peer.ord > negotiated.ird {
            if peer.ord > self.config.ird_max {
                return Err(Refusal::InsufficientIrd {
                    needed: peer.ord,
                    crc,
                    markers,
                });
            }
            negotiated.ird = peer.ord;
        }
        // Flag A that we did not ask for has no meaning. A Reply without flag A ends peer-to-peer
        // mode, and the consumer sends first as in revision 1.
        if let (Some(offered), Some(left)) = (self.config.peer_to_peer, peer.peer_to_peer) {
            let common = offered.intersection(left);
            // The Write needs neither an answer nor read resources.
            let preference = [RtrKind::Write, RtrKind::Read, RtrKind::Send];
            let kind = common
                .first_of(&preference)
                .ok_or(Refusal::NoMatchingRtr { crc, markers })?;
            negotiated.rtr = Some(kind);
        }
        Ok(())
    }
}

impl InitiatorConfig {
    /// The largest private data that the consumer may send, in bytes.
    #[must_use]
    pub fn private_data_max(&self) -> usize {
        let words = if self.enhanced { ENHANCED_LEN } else { 0 };
        let max = self.peer.request_pd_length_max(self.enhanced);
        usize::from(self.pd_length_max.min(max))
            .min(PD_LENGTH_MAX)
            .saturating_sub(words)
    }

    fn local_ird(&self) -> u16 {
        if self.ird == DEPTH_UNSPECIFIED {
            self.ird_max.min(DEPTH_MAX)
        } else {
            self.ird
        }
    }
}
