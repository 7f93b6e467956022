//! Attributes of an endpoint: defaults, limits, and the attributes of its queue pair.

use dat_abi::*;

use crate::error::{DatError, DatResult};
use crate::rnic::{QpAttr, RnicAttr};

/// Work requests of each queue if the consumer passes no attributes.
const DEFAULT_DTOS: u32 = 16;
/// Segments of a work request if the consumer passes no attributes; dapltest relies on four.
const DEFAULT_IOV: u32 = 4;
/// RDMA Reads in each direction if the consumer passes no attributes.
const DEFAULT_READS: u32 = 4;
/// Largest message and RDMA operation if the consumer passes no attributes, in bytes.
const DEFAULT_SIZE: u32 = 0x8000_0000;

/// Attributes as the consumer set them, or the defaults.
///
/// Sizes are stored for `dat_ep_query` only: consumers set smaller sizes than they transfer. The
/// completion flags determine how the EVDs wake waiters
/// ([`Evd::attach`](crate::evd::Evd::attach)); each work request has flags of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EpAttrs {
    service_type: DatServiceType,
    max_message_size: u32,
    max_rdma_size: u32,
    qos: DatQos,
    pub(crate) recv_completion_flags: DatCompletionFlags,
    pub(crate) request_completion_flags: DatCompletionFlags,
    max_recv_dtos: u32,
    max_request_dtos: u32,
    max_recv_iov: u32,
    max_request_iov: u32,
    max_rdma_read_in: u32,
    max_rdma_read_out: u32,
    /// Soft watermark for receives of a shared receive queue; see
    /// [`soft_watermark`](Self::soft_watermark).
    pub(crate) srq_soft_hw: DatCount,
    max_rdma_read_iov: u32,
    max_rdma_write_iov: u32,
    read_depth_is_consumers: bool,
    /// True if the consumer passed no attributes.
    defaulted: bool,
}

/// Maximum number of segments of one work request of each kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentLimits {
    pub(crate) recv: u32,
    pub(crate) send: u32,
    pub(crate) write: u32,
    pub(crate) read: u32,
}

impl EpAttrs {
    /// Returns the attributes of an endpoint for which the consumer passes none.
    pub(crate) fn defaults(limits: &RnicAttr, has_recv_evd: bool, has_request_evd: bool) -> Self {
        let count = |requested: u32, limit: u32, wanted: bool| {
            if wanted { requested.min(limit) } else { 0 }
        };
        Self {
            service_type: DAT_SERVICE_TYPE_RC,
            max_message_size: limits.message_len_max.min(DEFAULT_SIZE),
            max_rdma_size: limits.message_len_max.min(DEFAULT_SIZE),
            qos: DAT_QOS_BEST_EFFORT,
            recv_completion_flags: DAT_COMPLETION_EVD_THRESHOLD_FLAG,
            request_completion_flags: DAT_COMPLETION_EVD_THRESHOLD_FLAG,
            max_recv_dtos: count(DEFAULT_DTOS, limits.wr_max, has_recv_evd),
            max_request_dtos: count(DEFAULT_DTOS, limits.wr_max, has_request_evd),
            max_recv_iov: count(DEFAULT_IOV, limits.sge_max, has_recv_evd),
            max_request_iov: count(DEFAULT_IOV, limits.sge_max, has_request_evd),
            max_rdma_read_in: DEFAULT_READS.min(limits.ird_max),
            max_rdma_read_out: DEFAULT_READS.min(limits.ord_max),
            srq_soft_hw: DAT_HW_DEFAULT,
            max_rdma_read_iov: count(DEFAULT_IOV, limits.read_sge_max, has_request_evd),
            max_rdma_write_iov: count(DEFAULT_IOV, limits.sge_max, has_request_evd),
            read_depth_is_consumers: false,
            defaulted: true,
        }
    }

    /// Sets the default counts of a side that had no EVD when the defaults were created and now has
    /// one.
    pub(crate) fn fill_defaults(&mut self, has_recv: bool, has_request: bool, limits: &RnicAttr) {
        if !self.defaulted {
            return;
        }
        let defaults = Self::defaults(limits, true, true);
        // A consumer may set a segment limit before the EVD.
        let fill = |place: &mut u32, default| {
            if *place == 0 {
                *place = default;
            }
        };
        if has_recv && self.max_recv_dtos == 0 {
            self.max_recv_dtos = defaults.max_recv_dtos;
            fill(&mut self.max_recv_iov, defaults.max_recv_iov);
        }
        if has_request && self.max_request_dtos == 0 {
            self.max_request_dtos = defaults.max_request_dtos;
            fill(&mut self.max_request_iov, defaults.max_request_iov);
            fill(&mut self.max_rdma_read_iov, defaults.max_rdma_read_iov);
            fill(&mut self.max_rdma_write_iov, defaults.max_rdma_write_iov);
        }
    }

    /// Checks the consumer's attributes against the RNIC's limits; zero is always valid.
    pub(crate) fn from_dat(attr: &DatEpAttr, limits: &RnicAttr) -> Option<Self> {
        let mut this = Self::defaults(limits, true, true);
        this.apply(DAT_EP_FIELD_EP_ATTR_ALL, attr, limits)?;
        this.defaulted = false;
        Some(this)
    }

    /// Applies the attributes that `mask` names. Returns `None`, and changes nothing, if one of
    /// them is outside the limits.
    pub(crate) fn apply(
        &mut self,
        mask: DatEpParamMask,
        attr: &DatEpAttr,
        limits: &RnicAttr,
    ) -> Option<()> {
        let mut next = *self;
        next.apply_counts(mask, attr, limits)?;
        next.apply_read_depths(mask, attr, limits)?;
        let has = |bit: DatEpParamMask| mask & bit != 0;
        if has(DAT_EP_FIELD_EP_ATTR_SERVICE_TYPE) {
            if attr.service_type != DAT_SERVICE_TYPE_RC {
                return None;
            }
            next.service_type = attr.service_type;
        }
        if has(DAT_EP_FIELD_EP_ATTR_MAX_MESSAGE_SIZE) {
            next.max_message_size = size(attr.max_message_size, limits)?;
        }
        if has(DAT_EP_FIELD_EP_ATTR_MAX_RDMA_SIZE) {
            next.max_rdma_size = size(attr.max_rdma_size, limits)?;
        }
        if has(DAT_EP_FIELD_EP_ATTR_QOS) {
            next.qos = attr.qos;
        }
        if has(DAT_EP_FIELD_EP_ATTR_RECV_COMPLETION_FLAGS) {
            next.recv_completion_flags = attr.recv_completion_flags;
        }
        if has(DAT_EP_FIELD_EP_ATTR_REQUEST_COMPLETION_FLAGS) {
            next.request_completion_flags = attr.request_completion_flags;
        }
        if has(DAT_EP_FIELD_EP_ATTR_SRQ_SOFT_HW) {
            next.srq_soft_hw = attr.srq_soft_hw;
        }
        *self = next;
        Some(())
    }

    fn apply_counts(
        &mut self,
        mask: DatEpParamMask,
        attr: &DatEpAttr,
        limits: &RnicAttr,
    ) -> Option<()> {
        let set = |bit: DatEpParamMask, place: &mut u32, count: DatCount, limit: u32| {
            set_count(mask & bit != 0, place, count, limit)
        };
        set(
            DAT_EP_FIELD_EP_ATTR_MAX_RECV_DTOS,
            &mut self.max_recv_dtos,
            attr.max_recv_dtos,
            limits.wr_max,
        )?;
        set(
            DAT_EP_FIELD_EP_ATTR_MAX_REQUEST_DTOS,
            &mut self.max_request_dtos,
            attr.max_request_dtos,
            limits.wr_max,
        )?;
        set(
            DAT_EP_FIELD_EP_ATTR_MAX_RECV_IOV,
            &mut self.max_recv_iov,
            attr.max_recv_iov,
            limits.sge_max,
        )?;
        set(
            DAT_EP_FIELD_EP_ATTR_MAX_REQUEST_IOV,
            &mut self.max_request_iov,
            attr.max_request_iov,
            limits.sge_max,
        )?;
        set(
            DAT_EP_FIELD_EP_ATTR_MAX_RDMA_READ_IOV,
            &mut self.max_rdma_read_iov,
            attr.max_rdma_read_iov,
            limits.read_sge_max,
        )?;
        set(
            DAT_EP_FIELD_EP_ATTR_MAX_RDMA_WRITE_IOV,
            &mut self.max_rdma_write_iov,
            attr.max_rdma_write_iov,
            limits.sge_max,
        )
    }

    /// Applies the numbers of concurrent RDMA Reads, IRD and ORD.
    fn apply_read_depths(
        &mut self,
        mask: DatEpParamMask,
        attr: &DatEpAttr,
        limits: &RnicAttr,
    ) -> Option<()> {
        use DAT_EP_FIELD_EP_ATTR_MAX_RDMA_READ_IN as READ_IN;
        use DAT_EP_FIELD_EP_ATTR_MAX_RDMA_READ_OUT as READ_OUT;
        set_count(
            mask & READ_IN != 0,
            &mut self.max_rdma_read_in,
            attr.max_rdma_read_in,
            limits.ird_max,
        )?;
        set_count(
            mask & READ_OUT != 0,
            &mut self.max_rdma_read_out,
            attr.max_rdma_read_out,
            limits.ord_max,
        )?;
        if mask & (READ_IN | READ_OUT) != 0 {
            // A consumer without a requirement sets both to 0 (DAT 2.0 iWARP extensions 3.1.4.1).
            self.read_depth_is_consumers = self.max_rdma_read_in > 0 || self.max_rdma_read_out > 0;
        }
        Some(())
    }

    /// Refuses receives or requests that have no EVD for their completions.
    pub(crate) fn check_evds(&self, has_recv_evd: bool, has_request_evd: bool) -> DatResult {
        let recv = has_recv_evd || self.max_recv_dtos == 0;
        let request = has_request_evd || self.max_request_dtos == 0;
        if recv && request {
            Ok(())
        } else {
            Err(DatError::bare(DAT_INVALID_PARAMETER, DAT_INVALID_ARG6))
        }
    }

    /// Maximum number of requests posted at once.
    pub(crate) fn request_dtos(&self) -> usize {
        usize::try_from(self.max_request_dtos).unwrap_or(usize::MAX)
    }

    /// Returns the attributes for the creation of the queue pair.
    pub(crate) fn qp_attr(&self, limits: &RnicAttr) -> QpAttr {
        let segments = self.segment_limits(limits);
        QpAttr {
            recv_wr_max: self.max_recv_dtos,
            send_wr_max: self.max_request_dtos,
            recv_sge_max: segments.recv,
            send_sge_max: segments.send.max(segments.write).max(segments.read),
            ird: self.max_rdma_read_in,
            ord: self.max_rdma_read_out,
            read_depth_is_consumers: self.read_depth_is_consumers,
            acknowledged: false,
        }
    }

    /// Returns the segment limits in force. A limit of zero selects the default, which for RDMA
    /// operations is the limit of sends.
    pub(crate) fn segment_limits(&self, limits: &RnicAttr) -> SegmentLimits {
        let or =
            |requested: u32, otherwise: u32| if requested == 0 { otherwise } else { requested };
        let send = or(self.max_request_iov, DEFAULT_IOV.min(limits.sge_max));
        SegmentLimits {
            recv: or(self.max_recv_iov, DEFAULT_IOV.min(limits.sge_max)),
            send,
            write: or(self.max_rdma_write_iov, send),
            read: or(self.max_rdma_read_iov, send.min(limits.read_sge_max)),
        }
    }

    /// Returns the number of receives of its shared receive queue that the endpoint may hold before
    /// the consumer is notified. Returns `None` also for 0, because consumers that do not use the
    /// attribute set it to 0.
    pub(crate) fn soft_watermark(&self) -> Option<u32> {
        u32::try_from(self.srq_soft_hw)
            .ok()
            .filter(|soft| *soft > 0)
    }

    /// Returns the attributes in their C form. There are no named attributes.
    pub(crate) fn to_dat(self) -> DatEpAttr {
        // Each count was a DatCount or is below a limit of that type.
        let count = |value: u32| DatCount::try_from(value).unwrap_or(DatCount::MAX);
        DatEpAttr {
            service_type: self.service_type,
            max_message_size: self.max_message_size,
            max_rdma_size: self.max_rdma_size,
            qos: self.qos,
            recv_completion_flags: self.recv_completion_flags,
            request_completion_flags: self.request_completion_flags,
            max_recv_dtos: count(self.max_recv_dtos),
            max_request_dtos: count(self.max_request_dtos),
            max_recv_iov: count(self.max_recv_iov),
            max_request_iov: count(self.max_request_iov),
            max_rdma_read_in: count(self.max_rdma_read_in),
            max_rdma_read_out: count(self.max_rdma_read_out),
            srq_soft_hw: self.srq_soft_hw,
            max_rdma_read_iov: count(self.max_rdma_read_iov),
            max_rdma_write_iov: count(self.max_rdma_write_iov),
            ..DatEpAttr::zeroed()
        }
    }
}

/// Stores a count if `is_named`. Returns `None` if the count is above the limit.
fn set_count(is_named: bool, place: &mut u32, count: DatCount, limit: u32) -> Option<()> {
    if is_named {
        *place = u32::try_from(count).ok().filter(|count| *count <= limit)?;
    }
    Some(())
}

fn size(requested: u32, limits: &RnicAttr) -> Option<u32> {
    // Consumers pass the value from dat_ia_query, which is at least DEFAULT_SIZE if the RNIC
    // supports that size.
    (requested <= limits.message_len_max).then_some(requested)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> RnicAttr {
        RnicAttr {
            wr_max: 100,
            read_sge_max: 2,
            srq_max: 0,
            immediate_and_atomics: false,
            ..crate::scripted_rnic::attr()
        }
    }

    #[test]
    fn defaults_are_those_of_ofa() {
        let attr = EpAttrs::defaults(&limits(), true, true).to_dat();
        assert_eq!((attr.max_recv_dtos, attr.max_request_dtos), (16, 16));
        assert_eq!((attr.max_recv_iov, attr.max_request_iov), (4, 4));
        assert_eq!((attr.max_rdma_read_in, attr.max_rdma_read_out), (4, 4));
        assert_eq!(attr.max_message_size, 0x8000_0000);
        assert_eq!(attr.max_rdma_size, 0x8000_0000);
        assert_eq!(attr.recv_completion_flags, 0x10);
        assert_eq!(attr.request_completion_flags, 0x10);
    }

    #[test]
    fn a_missing_evd_zeroes_the_counts_of_its_side() {
        let attr = EpAttrs::defaults(&limits(), false, true).to_dat();
        assert_eq!((attr.max_recv_dtos, attr.max_recv_iov), (0, 0));
        assert_eq!((attr.max_request_dtos, attr.max_request_iov), (16, 4));
    }

    #[test]
    fn zero_is_valid_and_selects_the_default() {
        let attrs = EpAttrs::from_dat(&DatEpAttr::zeroed(), &limits()).unwrap();
        assert_eq!(attrs.to_dat().max_rdma_read_iov, 0);
        let segments = attrs.segment_limits(&limits());
        assert_eq!((segments.recv, segments.send), (4, 4));
        assert_eq!((segments.write, segments.read), (4, 2));
        assert!(!attrs.qp_attr(&limits()).read_depth_is_consumers);
    }

    #[test]
    fn each_count_is_checked_against_its_own_limit() {
        type Field = fn(&mut DatEpAttr) -> &mut DatCount;
        let fields: [(Field, u32); 8] = [
            (|a| &mut a.max_recv_dtos, 100),
            (|a| &mut a.max_request_dtos, 100),
            (|a| &mut a.max_recv_iov, 8),
            (|a| &mut a.max_request_iov, 8),
            (|a| &mut a.max_rdma_read_in, 16),
            (|a| &mut a.max_rdma_read_out, 16),
            (|a| &mut a.max_rdma_read_iov, 2),
            (|a| &mut a.max_rdma_write_iov, 8),
        ];
        for (number, (field, limit)) in fields.into_iter().enumerate() {
            for (requested, passes) in
                [(limit as i32, true), (limit as i32 + 1, false), (-1, false)]
            {
                let mut attr = DatEpAttr::zeroed();
                *field(&mut attr) = requested;
                let taken = EpAttrs::from_dat(&attr, &limits());
                assert_eq!(taken.is_some(), passes, "field {number} = {requested}");
            }
        }
    }

    #[test]
    fn only_masked_attributes_are_taken_over() {
        let mut attrs = EpAttrs::defaults(&limits(), true, true);
        let requested = DatEpAttr {
            max_recv_dtos: 50,
            max_request_dtos: 60,
            ..DatEpAttr::zeroed()
        };
        let mask = DAT_EP_FIELD_EP_ATTR_MAX_RECV_DTOS;
        attrs.apply(mask, &requested, &limits()).unwrap();
        assert_eq!((attrs.max_recv_dtos, attrs.max_request_dtos), (50, 16));
    }

    #[test]
    fn read_depths_count_as_the_consumers_once_it_sets_them() {
        let requested = DatEpAttr {
            max_rdma_read_in: 4,
            ..DatEpAttr::zeroed()
        };
        let attrs = EpAttrs::from_dat(&requested, &limits()).unwrap();
        assert!(attrs.qp_attr(&limits()).read_depth_is_consumers);
        assert!(!EpAttrs::defaults(&limits(), true, true).read_depth_is_consumers);
    }

    #[test]
    fn work_requests_without_an_evd_for_them_are_refused() {
        let attrs = EpAttrs::defaults(&limits(), true, true);
        for (recv, request) in [(false, true), (true, false)] {
            let refused = attrs.check_evds(recv, request).unwrap_err();
            assert_eq!(refused.code().0, 0x0006_002A);
        }
        assert!(attrs.check_evds(true, true).is_ok());
        let none = EpAttrs::defaults(&limits(), false, false);
        assert!(none.check_evds(false, false).is_ok());
    }
}
