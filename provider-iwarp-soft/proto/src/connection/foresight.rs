//! Segments whose payload is placed while it arrives.
//!
//! An engine that reads a long payload straight into its place has to know the place from the
//! header alone, and nothing may be told of the segment before all of it is there. So such a
//! segment is looked at twice: [`Connection::foresee`] says where its payload belongs, and changes
//! nothing but that the receive of a Send is taken, as by its first segment;
//! [`Connection::handle_placed`] takes it when its last byte has come.
//!
//! Only without CRC: with it, a header is not to be trusted before the payload has arrived.

use crate::{
    MemoryTable, ReceiveQueue, Target,
    wire::{
        ddp::{self, TAGGED_LEN, Tagged, UNTAGGED_LEN, Untagged, qn},
        rdmap::Opcode,
    },
};

use super::{
    Connection,
    inbound::{check_write, opcode_of},
    requests::Outstanding,
};

impl Connection {
    /// Where the payload of a segment of `ulpdu_len` bytes belongs, of which only the header has
    /// arrived; all of the payload may be placed there.
    ///
    /// `None` says nothing against it: it has to be handled when it has arrived whole, because it
    /// is of a kind that this does not look at, because no receive is posted yet, or because it
    /// will be refused.
    pub fn foresee<M: MemoryTable, Q: ReceiveQueue>(
        &mut self,
        header: &[u8],
        ulpdu_len: usize,
        memory: &M,
        receives: &mut Q,
    ) -> Option<Target> {
        // The first FPDU may be none of the consumer's.
        if !self.state.accepts_input() || !self.has_received() {
            return None;
        }
        let control = ddp::Control(*header.first()?);
        if !control.is_version_known() {
            return None;
        }
        if control.is_tagged() {
            let header = Tagged::parse(header.first_chunk()?);
            let segment = payload_len(ulpdu_len, TAGGED_LEN)?;
            match opcode_of(header.rdmap).ok()? {
                Opcode::Write => check_write(&header, segment, memory),
                Opcode::ReadResponse => self.check_read_response(&header, segment, memory),
                _ => return None,
            }
            .ok()?;
            return Some(Target::Tagged {
                stag: header.stag,
                to: header.to,
            });
        }
        let header = Untagged::parse(header.first_chunk()?);
        let segment = payload_len(ulpdu_len, UNTAGGED_LEN)?;
        let opcode = opcode_of(header.rdmap).ok()?;
        let is_foreseen = matches!(opcode, Opcode::Send | Opcode::SendSolicited);
        if !is_foreseen || header.qn != qn::SEND || header.msn != self.rx.next_send() {
            return None;
        }
        let message = self.message_of(&header, opcode, segment, receives).ok()?;
        Some(message.target())
    }

    /// The token of the read whose response arrives next.
    #[must_use]
    pub fn answered_read(&self) -> Option<u64> {
        match self.outstanding.entries.front()? {
            Outstanding::Read { work, .. } => work.map(|(_, token)| token),
            Outstanding::Atomic { .. } => None,
        }
    }
}

/// Bytes behind the header, if there are any.
fn payload_len(ulpdu_len: usize, header_len: usize) -> Option<u32> {
    let len = u16::try_from(ulpdu_len.checked_sub(header_len)?).ok()?;
    (len > 0).then_some(u32::from(len))
}
