//! Payloads of references that the receiver cannot read: the sender copies them.
//!
//! The receiver stops at the record of the reference, and takes the payload in pieces from the
//! supply area of the ring. The record is then handled as if the payload had been pulled. Once the
//! permission has ended, later payloads are copied through the ring.

use iwarp_proto::{Access, Connection, Placement, Target, TransmitPayload};

use super::{Budget, LocalCarrier, PendingPull, bell};
use crate::carrier::inbox::Sinks;
use crate::carrier::local::ring::SUPPLY_MAX;
use crate::carrier::{End, Payloads, TxFault, visit_payload};
use crate::memory::{Bytes, is_readable};

/// A message whose payload is being supplied.
#[derive(Debug)]
pub(super) struct Declined {
    placement: Placement<()>,
    len: usize,
    /// The number of bytes that are placed.
    done: usize,
}

impl Declined {
    pub(super) fn new(pull: PendingPull) -> Self {
        Self {
            placement: pull.placement,
            len: pull.len,
            done: 0,
        }
    }
}

impl LocalCarrier {
    /// True if the next piece of the oldest reference can be supplied.
    pub(super) fn must_supply(&self) -> bool {
        self.oldest_reference()
            .is_some_and(|payload| self.supplied < payload.byte_len())
            && self.producer.can_supply()
    }

    fn oldest_reference(&self) -> Option<TransmitPayload> {
        let oldest = self.unfinished.front()?;
        oldest.reference.map(|(_, payload)| payload)
    }

    /// Supplies the next piece of the oldest reference, if the peer has declined it.
    pub(super) fn supply(
        &mut self,
        proto: &mut Connection,
        payloads: &Payloads<'_>,
    ) -> Result<(), TxFault> {
        if !self.must_supply() {
            return Ok(());
        }
        if !self.producer.consumer_can_pull() {
            proto.set_segment_max(self.segment_max());
        }
        let Some(payload) = self.oldest_reference() else {
            return Ok(());
        };
        let len = (payload.byte_len() - self.supplied).min(SUPPLY_MAX);
        let part = payload.part(self.supplied as u32, len as u32);
        let memory = payloads.table.access();
        let copied = self.producer.supply(|to| {
            let mut at = to;
            let mut is_copied = true;
            let visited = visit_payload(part, &memory, payloads, |bytes| {
                is_copied &= copy_checked(&bytes, at);
                at = at.wrapping_add(bytes.len());
            });
            if visited.is_ok() && is_copied {
                Ok(())
            } else {
                Err(())
            }
        });
        drop(memory);
        if copied.is_err() {
            return Err(unreadable(payload, proto));
        }
        self.supplied += len;
        if self.producer.must_ring() {
            bell::ring(&self.conn);
        }
        Ok(())
    }

    /// Takes the pieces that the peer has supplied for the record at the front. Returns false if
    /// pieces are missing.
    pub(super) fn take_supplied(
        &mut self,
        sinks: &mut Sinks<'_>,
        budget: &mut Budget,
    ) -> Result<bool, End> {
        let Some(mut declined) = self.declined.take() else {
            return Ok(true);
        };
        if self.consumer.is_supply_revoked() {
            return Err(End::Broken);
        }
        if let Some(from) = self.consumer.supplied() {
            let len = (declined.len - declined.done).min(SUPPLY_MAX);
            place_supplied(&declined, from, len, sinks)?;
            declined.done += len;
            self.consumer.take_supply();
        }
        if declined.done < declined.len {
            self.declined = Some(declined);
            return Ok(false);
        }
        if !self.consumer.end_supply() {
            return Err(End::Broken);
        }
        self.ring.received.add_segment(declined.len);
        self.consumer.advance();
        budget.take(declined.len);
        sinks.deliver(&declined.placement);
        Ok(true)
    }
}

/// Copies a piece to its target, which is resolved again, because the memory table was closed since
/// the last piece.
fn place_supplied(
    declined: &Declined,
    mut from: *const u8,
    len: usize,
    sinks: &mut Sinks<'_>,
) -> Result<(), End> {
    let mut is_placed = true;
    let mut visit = |bytes: Bytes<'_>| {
        // SAFETY: the pieces of the target are `len` bytes long in all, and so is the piece in the
        // supply area, which is mapped and never registered memory.
        is_placed &= unsafe { bytes.write_checked(from) };
        from = from.wrapping_add(bytes.len());
    };
    match declined.placement.target {
        Target::None => {}
        Target::Tagged {
            access, stag, to, ..
        } => {
            let to = to.wrapping_add(declined.done as u64);
            match sinks
                .memory
                .remote(sinks.stream, access, stag, to, len as u32)
            {
                Ok(bytes) => visit(bytes),
                Err(_) if access == Access::ReadSink => return Err(sinks.fail_read_sink()),
                Err(_) => return Err(End::Fault(sinks.proto.fail_local())),
            }
        }
        Target::Untagged { offset, .. } => {
            sinks.place_untagged(offset as usize + declined.done, len, visit)?;
        }
    }
    if !is_placed {
        return Err(sinks.fail_place(&declined.placement.target));
    }
    Ok(())
}

/// Returns the fault for a payload that this process itself cannot read.
fn unreadable(payload: TransmitPayload, proto: &mut Connection) -> TxFault {
    tracing::warn!("a registered payload is not mapped");
    match payload {
        TransmitPayload::WorkRequest { token, .. } => TxFault::Local { token },
        _ => TxFault::Response(proto.fail_local()),
    }
}

/// Copies memory that the consumer may have unmapped, although it is registered. Returns false if
/// it cannot be read.
fn copy_checked(bytes: &Bytes<'_>, to: *mut u8) -> bool {
    if !is_readable(bytes.addr(), bytes.len()) {
        return false;
    }
    // SAFETY: the supply area has room for the piece, and is never registered memory.
    unsafe { bytes.read_to(to) }
}
