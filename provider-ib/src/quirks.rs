//! The transports, and deviations of devices from the verbs specification, one name each.
//!
//! A device is identified by its driver's name (`siw`), through the vendor id, because a device can
//! be renamed. A quirk relaxes a rule for that device alone.

/// The transport of a device. Each difference between transports has a name, by which the code
/// queries it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    /// InfiniBand and RoCE.
    InfiniBand,
    /// MPA over TCP.
    Iwarp,
}

/// The deviations of one device. Each field is true if its statement holds for the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Quirks {
    /// A queue that is armed for solicited messages receives events for them. siw (Linux 6.1 to
    /// 7.2) passes the wrong flag along and never creates that event.
    pub(crate) reports_solicited: bool,
    /// A Send with Invalidate takes its STag from `invalidate_rkey`. libsiw takes it from the field
    /// of the remote key, which verbs do not use in a Send.
    pub(crate) invalidates_by_its_field: bool,
    /// Regions may begin at offset 0. siw ignores the request and counts from the address.
    pub(crate) zero_based_regions: bool,
    /// A region that an RDMA Read fills must also be writable by the peer. This holds for iWARP,
    /// where the peer's response names the region (RFC 5040 section 5.3); siw does not require it.
    pub(crate) read_sink_is_remote: bool,
    /// A zero-length RDMA Read is answered with zero bytes. siw answers a Read that has to wait
    /// with the memory of the previous answer. For siw a zero-length Read is therefore posted as a
    /// zero-length Write.
    pub(crate) answers_empty_reads: bool,
    /// A queue can be mapped at any offset that the kernel chooses. libsiw cannot map a queue at
    /// one offset ([`offset_guard`](crate::offset_guard)).
    pub(crate) maps_any_offset: bool,
    /// A receive for empty messages may have no segments. libsiw refuses it as invalid and accepts
    /// one empty segment instead.
    pub(crate) receives_without_segments: bool,
    /// The requests of a send queue complete in the order of their posts. siw completes a Send or
    /// Write when it is sent, and an RDMA Read when it is answered. For siw every Read therefore
    /// requests a completion, and [`Ring`](crate::work::Ring) keeps the outcomes of the requests
    /// that overtook the Read. A fence would restore the order in the device, but siw has one slot
    /// for outgoing data: a request that waits at the fence blocks the answers to the peer's Reads,
    /// and two ends that read from each other wait for ever.
    pub(crate) completes_in_order: bool,
    /// An RDMA Read may wait at a fence for the Reads before it. siw refuses a fenced Read when its
    /// turn comes, and transmits nothing after that. Without the fence flag the peer still answers
    /// Reads in order (RFC 5040 section 5.5), so each is placed after the Reads before it. But the
    /// request is sent before those are placed, so it must not read, through the peer, the data
    /// that they bring.
    pub(crate) fences_reads: bool,
    /// The reject of a peer's consumer is reported as `ECONNREFUSED`, and a TCP connection that was
    /// refused or reset as `ECONNRESET`. siw reports a reject and a reset as `ECONNRESET`; if TCP
    /// was refused, the call that connects fails.
    pub(crate) refuses_for_consumers: bool,
}

/// `ibv_device_attr::vendor_id` of siw, which is that of the research laboratory where siw was
/// written.
pub(crate) const SIW_VENDOR: u32 = 0x0062_6d74;

impl Quirks {
    pub(crate) fn of(transport: Transport, vendor: u32) -> Self {
        let is_iwarp = transport == Transport::Iwarp;
        let is_siw = is_iwarp && vendor == SIW_VENDOR;
        Self {
            reports_solicited: !is_siw,
            invalidates_by_its_field: !is_siw,
            zero_based_regions: !is_iwarp,
            read_sink_is_remote: is_iwarp && !is_siw,
            answers_empty_reads: !is_siw,
            maps_any_offset: !is_siw,
            receives_without_segments: !is_siw,
            completes_in_order: !is_siw,
            fences_reads: !is_siw,
            refuses_for_consumers: is_iwarp && !is_siw,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quirks_are_those_of_one_device() {
        let siw = Quirks::of(Transport::Iwarp, SIW_VENDOR);
        assert!(!siw.reports_solicited && !siw.invalidates_by_its_field && !siw.zero_based_regions);
        assert!(!siw.read_sink_is_remote && !siw.answers_empty_reads && !siw.maps_any_offset);
        assert!(!siw.receives_without_segments);
        assert!(!siw.completes_in_order && !siw.fences_reads && !siw.refuses_for_consumers);
        let other = Quirks::of(Transport::Iwarp, 0x1425);
        assert!(other.reports_solicited && other.invalidates_by_its_field);
        assert!(other.refuses_for_consumers);
        assert!(
            other.read_sink_is_remote && !other.zero_based_regions && other.answers_empty_reads
        );
        let rxe = Quirks::of(Transport::InfiniBand, 0);
        assert!(rxe.maps_any_offset && other.maps_any_offset);
        assert!(rxe.receives_without_segments && other.receives_without_segments);
        assert!(rxe.completes_in_order && other.completes_in_order);
        assert!(rxe.fences_reads && other.fences_reads);
        assert!(rxe.reports_solicited && rxe.zero_based_regions && !rxe.read_sink_is_remote);
    }
}
