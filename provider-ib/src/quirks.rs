//! Where devices differ from what verbs say, one name each.
//!
//! A device is known by its driver's name (`siw`, from `siw0` or whatever it was renamed to, by the
//! vendor that it tells). What a quirk weakens, it weakens for that device alone.

use crate::device::Transport;

/// What is to be done differently on one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Quirks {
    /// A queue that is armed for solicited messages hears of them. siw (Linux 6.1 to 7.2) passes
    /// the wrong flag along and never makes that event.
    pub(crate) hears_solicited: bool,
    /// A Send with Invalidate takes its STag from the field that says so. libsiw takes it from that
    /// of the remote key, which verbs leave alone in a Send.
    pub(crate) invalidates_by_its_field: bool,
    /// Regions may begin at offset 0. siw ignores the wish and counts from the address.
    pub(crate) zero_based_regions: bool,
    /// A region that an RDMA Read fills needs to be writable by the peer as well. Of iWARP, where
    /// the peer's response names it (RFC 5040 section 5.3); siw does not ask for it.
    pub(crate) read_sink_is_remote: bool,
    /// An RDMA Read of nothing is answered with nothing. siw answers one that has to wait with the
    /// memory of the answer before it; there a Read of nothing becomes a Write of nothing.
    pub(crate) reads_nothing: bool,
    /// A queue can be mapped wherever the kernel puts it. libsiw maps none at one offset
    /// ([`offset_guard`](crate::offset_guard)).
    pub(crate) maps_any_offset: bool,
    /// A receive may have no segments, for messages of nothing. libsiw refuses it as invalid, and
    /// takes one empty segment instead.
    pub(crate) receives_without_segments: bool,
    /// The requests of a send queue complete in the order of their posts. siw completes a Send or
    /// Write when it is sent, and an RDMA Read when it is answered; there every Read asks to be
    /// told of, and what overtook it waits in our books. A fence would put it right in the device,
    /// but siw has one place for what it sends: a request that waits at the fence keeps the answers
    /// to the peer's Reads from going out, and two ends that read from each other wait for ever.
    pub(crate) completes_in_order: bool,
    /// An RDMA Read may wait for the Reads before it. siw refuses it when its turn comes, and sends
    /// nothing any more. Without the flag the peer still answers Reads in their order (RFC 5040
    /// section 5.5), so that each is placed after those before it; but its request goes out before
    /// they are, so that it may not read by way of the peer what they bring.
    pub(crate) fences_reads: bool,
    /// Depths of 0 in a connection request are what the peer asks for. siw tells 0 and 0 too where
    /// the peer asks in MPA revision 1, which has no word for them.
    pub(crate) knows_asked_depths: bool,
}

/// `ibv_device_attr::vendor_id` of siw: that of the research laboratory it comes from.
const SIW_VENDOR: u32 = 0x0062_6d74;

impl Quirks {
    /// What is known of a device.
    pub(crate) fn of(transport: Transport, vendor: u32) -> Self {
        let is_iwarp = transport == Transport::Iwarp;
        let is_siw = is_iwarp && vendor == SIW_VENDOR;
        Self {
            hears_solicited: !is_siw,
            invalidates_by_its_field: !is_siw,
            zero_based_regions: !is_iwarp,
            read_sink_is_remote: is_iwarp && !is_siw,
            reads_nothing: !is_siw,
            maps_any_offset: !is_siw,
            receives_without_segments: !is_siw,
            completes_in_order: !is_siw,
            fences_reads: !is_siw,
            knows_asked_depths: !is_siw,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quirks_are_those_of_one_device() {
        let siw = Quirks::of(Transport::Iwarp, SIW_VENDOR);
        assert!(!siw.hears_solicited && !siw.invalidates_by_its_field && !siw.zero_based_regions);
        assert!(!siw.read_sink_is_remote && !siw.reads_nothing && !siw.maps_any_offset);
        assert!(!siw.receives_without_segments && !siw.knows_asked_depths);
        assert!(!siw.completes_in_order && !siw.fences_reads);
        let other = Quirks::of(Transport::Iwarp, 0x1425);
        assert!(other.hears_solicited && other.invalidates_by_its_field);
        assert!(other.read_sink_is_remote && !other.zero_based_regions && other.reads_nothing);
        let rxe = Quirks::of(Transport::InfiniBand, 0);
        assert!(rxe.maps_any_offset && other.maps_any_offset);
        assert!(rxe.receives_without_segments && other.receives_without_segments);
        assert!(rxe.knows_asked_depths && other.knows_asked_depths);
        assert!(rxe.completes_in_order && other.completes_in_order);
        assert!(rxe.fences_reads && other.fences_reads);
        assert!(rxe.hears_solicited && rxe.zero_based_regions && !rxe.read_sink_is_remote);
    }
}
