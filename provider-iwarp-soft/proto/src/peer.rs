//! The implementation of a peer, and the rules that follow from it: rules that no RFC requires.
//!
//! Linux's software iWARP, `siw`, has defects that a peer can trigger, some of which crash its
//! kernel. Each defect is one rule here, so that no other code depends on it. The behaviour was
//! measured against Linux 6.1 and is unchanged in the sources of 7.2.
//!
//! | Rule | Behaviour of siw without it | Applies to |
//! |---|---|---|
//! | [`Peer::reply_pd_length_max`] | a Reply with a PD_Length above 256 makes its kernel follow a null pointer | siw |
//! | [`Peer::request_pd_length_max`] | it resets the connection if a Request's PD_Length exceeds 256 | siw |
//! | [`Peer::may_be_asked_for_rtr`] | a reset between its Reply and our first FPDU is a BUG in its kernel's connection manager | siw |
//! | [`Peer::answers_empty_reads`] | an empty Read after other work is answered with the bytes of that work | siw |
//! | [`Peer::names_what_it_invalidates`] | its library puts 0 into Sends with Invalidate | siw |
//! | [`small_read_cut`] | up to 32 bytes that cross a page are corrupted in a Read Response | every peer |
//! | [`repeats_first_frame`] | it misses a first frame that it receives before it is prepared for one; then nothing happens until the next frame, and a close is a BUG in its connection manager | all but our own implementation |
//! | [`awaits_acknowledgement_before_fin`] | our FIN makes it drop the data that it received just before | all but our own implementation |
//!
//! Three more rules are followed elsewhere for every peer, because they are correct in any case: an
//! enhanced Reply always contains its four bytes of IRD and ORD, no FPDU follows a Reply before the
//! initiator's first one ([`crate::StreamState::AwaitFirstFpdu`]), and an announced IRD counts as
//! the next power of two ([`crate::Config::ird`]).
//!
//! # How siw is recognised
//!
//! An initiator that runs siw is recognised by its Request, which no other known implementation
//! sends: revision 2 without CRC, markers and peer-to-peer mode, and no more than 128 reads either
//! way. A Reply of siw cannot be distinguished from the Reply of hardware that prefers the Write as
//! first FPDU as well. So rules that restrict other implementations apply to an initiator only if
//! its administrator configured that peers are siw ([`Peer::Siw`]). None of these rules is needed
//! for a connection to work.

use crate::Role;
use crate::wire::mpa::{Enhanced, PD_LENGTH_MAX, RtrKind};

/// The implementation of a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Peer {
    /// Any implementation of iWARP.
    #[default]
    Unknown,
    /// Linux's siw driver.
    Siw,
}

/// siw's largest IRD and ORD.
const SIW_DEPTH_MAX: u16 = 128;
/// The longest PD_Length that siw accepts: its own length of private data has eight bits, and 256
/// becomes 0.
const SIW_PD_LENGTH_MAX: u16 = 256;
/// The longest PD_Length in revision 1, where siw reports that 0 to its consumer.
const SIW_PD_LENGTH_MAX_REV1: u16 = 255;
/// siw sends payloads up to this length from a copy, and it copies from one page only.
const SMALL_READ_MAX: u32 = 32;
/// The smallest page; a boundary of larger pages is a boundary of these too.
const PAGE_LEN: u64 = 4096;

impl Peer {
    /// Returns the implementation that sends a Request with these values. A configured
    /// implementation is not changed.
    #[must_use]
    pub const fn of_request(
        self,
        rev: u8,
        crc: bool,
        markers: bool,
        enhanced: Option<Enhanced>,
    ) -> Self {
        match (self, enhanced) {
            (Self::Unknown, Some(words))
                if rev == 2
                    && !crc
                    && !markers
                    && words.peer_to_peer.is_none()
                    && words.ird <= SIW_DEPTH_MAX
                    && words.ord <= SIW_DEPTH_MAX =>
            {
                Self::Siw
            }
            _ => self,
        }
    }

    /// The largest PD_Length of a Reply.
    #[must_use]
    pub const fn reply_pd_length_max(self) -> u16 {
        match self {
            Self::Unknown => PD_LENGTH_MAX as u16,
            Self::Siw => SIW_PD_LENGTH_MAX,
        }
    }

    /// The largest PD_Length of a Request, enhanced or not.
    #[must_use]
    pub const fn request_pd_length_max(self, is_enhanced: bool) -> u16 {
        match self {
            Self::Unknown => PD_LENGTH_MAX as u16,
            Self::Siw if is_enhanced => SIW_PD_LENGTH_MAX,
            Self::Siw => SIW_PD_LENGTH_MAX_REV1,
        }
    }

    /// True if a Request may ask for peer-to-peer mode.
    #[must_use]
    pub const fn may_be_asked_for_rtr(self) -> bool {
        matches!(self, Self::Unknown)
    }

    /// True if an RDMA Read of no bytes may be sent. If not, such a read completes when everything
    /// before it is complete, reads included.
    #[must_use]
    pub const fn answers_empty_reads(self) -> bool {
        matches!(self, Self::Unknown)
    }

    /// True if a Send with Invalidate of STag 0, which is never valid, is a fault. If not, it is
    /// delivered as a Send.
    #[must_use]
    pub const fn names_what_it_invalidates(self) -> bool {
        matches!(self, Self::Unknown)
    }
}

/// Returns the length of the first of two Read Requests, if a read of `len` bytes at `source_to`
/// must be split in two.
#[must_use]
pub const fn small_read_cut(source_to: u64, len: u32) -> Option<u32> {
    let to_boundary = (PAGE_LEN - source_to % PAGE_LEN) as u32;
    if len <= SMALL_READ_MAX && to_boundary < len {
        Some(to_boundary)
    } else {
        None
    }
}

/// True if an initiator that receives nothing sends an empty Write after its first FPDU. Until
/// then it does not close either. An empty Write has no effect at its receiver (RFC 5041 section
/// 5.2). A peer that has received an empty Read shows that by its answer.
#[must_use]
pub const fn repeats_first_frame(role: Role, rtr: Option<RtrKind>) -> bool {
    matches!(role, Role::Initiator) && !matches!(rtr, Some(RtrKind::Send))
}

/// True if our FIN waits until the peer has acknowledged everything before it.
#[must_use]
pub const fn awaits_acknowledgement_before_fin(is_ours: bool) -> bool {
    !is_ours
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::mpa::RtrKinds;

    fn words(ird: u16, ord: u16, peer_to_peer: Option<RtrKinds>) -> Option<Enhanced> {
        Some(Enhanced {
            peer_to_peer,
            ird,
            ord,
        })
    }

    #[test]
    fn siw_is_recognised_by_its_request() {
        let of =
            |rev, crc, markers, enhanced| Peer::Unknown.of_request(rev, crc, markers, enhanced);
        assert_eq!(of(2, false, false, words(4, 4, None)), Peer::Siw);
        assert_eq!(of(2, false, false, words(0, 128, None)), Peer::Siw);
        let others = [
            of(1, false, false, None),
            of(2, false, false, None),
            of(2, true, false, words(4, 4, None)),
            of(2, false, true, words(4, 4, None)),
            of(2, false, false, words(4, 4, Some(RtrKinds::WRITE_READ))),
            of(2, false, false, words(129, 4, None)),
            of(2, false, false, words(4, 0x3fff, None)),
        ];
        assert!(others.into_iter().all(|peer| peer == Peer::Unknown));
    }

    #[test]
    fn a_configured_implementation_is_not_changed() {
        assert_eq!(Peer::Siw.of_request(1, true, true, None), Peer::Siw);
    }

    #[test]
    fn a_peer_that_is_not_siw_is_not_restricted() {
        let peer = Peer::Unknown;
        assert_eq!(peer.reply_pd_length_max(), 512);
        assert_eq!(peer.request_pd_length_max(true), 512);
        assert_eq!(peer.request_pd_length_max(false), 512);
        assert!(peer.may_be_asked_for_rtr());
        assert!(peer.answers_empty_reads());
        assert!(peer.names_what_it_invalidates());
        assert!(!repeats_first_frame(Role::Initiator, Some(RtrKind::Send)));
        assert!(!repeats_first_frame(Role::Responder, None));
        assert!(!awaits_acknowledgement_before_fin(true));
    }

    #[test]
    fn limits_that_protect_the_kernel_of_siw() {
        let peer = Peer::Siw;
        assert_eq!(peer.reply_pd_length_max(), 256);
        assert_eq!(peer.request_pd_length_max(true), 256);
        assert_eq!(peer.request_pd_length_max(false), 255);
        assert!(!peer.may_be_asked_for_rtr());
        assert!(!peer.answers_empty_reads());
        assert!(!peer.names_what_it_invalidates());
        assert!(repeats_first_frame(Role::Initiator, Some(RtrKind::Write)));
        assert!(repeats_first_frame(Role::Initiator, Some(RtrKind::Read)));
        assert!(repeats_first_frame(Role::Initiator, None));
        assert!(awaits_acknowledgement_before_fin(false));
    }

    #[test]
    fn small_reads_are_cut_where_a_page_ends() {
        assert_eq!(small_read_cut(4090, 16), Some(6));
        assert_eq!(small_read_cut(4095, 2), Some(1));
        assert_eq!(small_read_cut(u64::MAX - 5, 16), Some(6));
        for (to, len) in [(4090, 6), (4096, 32), (4090, 33), (0, 0), (4095, 1)] {
            assert_eq!(small_read_cut(to, len), None, "{len} bytes at {to}");
        }
    }
}
