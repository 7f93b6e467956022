//! Segments whose payload is placed before the segment is complete.
//!
//! An engine that receives a long payload straight into its target must determine the target from
//! the header alone, and a segment has no effect before it is complete. So the engine presents such
//! a segment twice. [`Connection::predict_target`] returns the target of the payload; its only
//! other effect is that a Send takes its receive, as its first segment does.
//! [`Connection::handle_segment`] handles the segment when its last byte is received.
//!
//! This is for FPDUs without CRC only: with CRC, a header is not trusted before the payload is
//! complete.

use crate::{
    MemoryTable, ReceiveQueue, Target,
    wire::{
        ddp::{self, Tagged, Untagged, qn},
        rdmap::Opcode,
    },
};

use super::{
    Connection,
    inbound::{opcode_of, resolve_write},
    requests::Outstanding,
};

impl Connection {
    /// Returns the target of the payload of an FPDU, of which only the DDP header has been
    /// received; `payload_len` bytes may be placed there. The target is not resolved: the engine
    /// unlocks its memory table while it waits for the rest, and must check the memory again before
    /// each part that it places.
    ///
    /// `None` is not a refusal. The segment must be handled when it is complete, because segments
    /// of its kind cannot be placed early, because no receive is posted yet, or because it will be
    /// refused.
    pub fn predict_target<M: MemoryTable, Q: ReceiveQueue>(
        &mut self,
        header: &[u8],
        payload_len: usize,
        memory: &M,
        receives: &mut Q,
    ) -> Option<Target<()>> {
        // The first FPDU may not be the consumer's, and after `Moved` there are no FPDUs.
        if !self.state.accepts_input() || !self.has_received() || self.has_rx_moved() {
            return None;
        }
        let segment = ulpdu_payload(header, payload_len)?;
        let control = ddp::Control(*header.first()?);
        if !control.is_version_known() {
            return None;
        }
        if control.is_tagged() {
            let header = Tagged::parse(header.first_chunk()?);
            let target = match opcode_of(header.rdmap).ok()? {
                Opcode::Write => resolve_write(&header, segment, memory),
                Opcode::ReadResponse => self.resolve_read_response(&header, segment, memory),
                _ => return None,
            };
            return target.ok().map(Target::unresolved);
        }
        let header = Untagged::parse(header.first_chunk()?);
        let opcode = opcode_of(header.rdmap).ok()?;
        let is_predictable = matches!(opcode, Opcode::Send | Opcode::SendSolicited);
        if !is_predictable || header.qn != qn::SEND || header.msn != self.rx.next_send() {
            return None;
        }
        let message = self.message_of(&header, opcode, segment, receives).ok()?;
        Some(message.target(segment))
    }

    /// The token of the read whose response is expected next, or is being placed.
    #[must_use]
    pub fn answered_read(&self) -> Option<u64> {
        match self.outstanding.entries.front()? {
            Outstanding::Read { work, .. } => work.map(|(_, token)| token),
            Outstanding::Atomic { .. } => None,
        }
    }
}

/// The length of a payload that is not empty and fits into an FPDU after its header.
fn ulpdu_payload(header: &[u8], payload_len: usize) -> Option<u32> {
    let ulpdu_len = header.len().checked_add(payload_len)?;
    let fits = ulpdu_len <= usize::from(u16::MAX);
    (fits && payload_len > 0).then_some(payload_len as u32)
}
