//! A record whose payload must be read from the peer's memory.

use iwarp_proto::{Placement, Stag, Target};

use crate::carrier::End;
use crate::carrier::inbox::Sinks;
use crate::carrier::local::pull;
use crate::memory::{Bytes, TAIL};

/// A payload that is read from the peer's memory while the memory table is not open: the kernel may
/// take any time to supply that memory.
pub(super) struct PendingPull {
    /// The message that is delivered afterwards.
    pub(super) placement: Placement<()>,
    pub(super) len: usize,
    pub(super) places: Vec<pull::Target>,
    /// The place of the last bytes of an RDMA Write, which are written last, unless the place is in
    /// a file, whose end may change.
    pub(super) late: Option<*mut u8>,
    /// The registrations that contain the target.
    pub(super) stags: Vec<Stag>,
}

impl PendingPull {
    pub(super) fn prepare<'m>(
        placement: Placement<Bytes<'m>>,
        len: usize,
        sinks: &mut Sinks<'m>,
    ) -> Result<Self, End> {
        let mut places: Vec<pull::Target> = Vec::with_capacity(4);
        let mut may_fail = false;
        sinks.place(&placement.target, len, |bytes| {
            may_fail |= bytes.may_fail();
            let (ptr, len) = bytes.as_place();
            places.push(pull::Target { ptr, len });
        })?;
        let mut late = None;
        if let (Target::Tagged { .. }, [whole]) = (&placement.target, &mut places[..])
            && whole.len > TAIL
        {
            whole.len -= TAIL;
            let last = whole.ptr.wrapping_add(whole.len);
            if may_fail {
                // The kernel writes the places in their order.
                let (ptr, len) = (last, TAIL);
                places.push(pull::Target { ptr, len });
            } else {
                late = Some(last);
            }
        }
        Ok(Self {
            stags: sinks.registrations_of(&placement.target),
            placement: Placement {
                target: placement.target.unresolved(),
                payload: placement.payload,
                delivered: placement.delivered,
            },
            len,
            places,
            late,
        })
    }
}
