//! Inbound segments: checked by the protocol, placed in memory, delivered as completions.
//!
//! Every carrier passes its segments to this module. The memory table stays open from the check of
//! a segment to the last byte of its payload.

use std::collections::VecDeque;

use iwarp_proto::wire::rdmap::AtomicOp;
use iwarp_proto::{
    Access, CarrierMessage, Connection, Delivery, Immediate, Inbound, Placement, ProtocolError,
    ReceiveBuffer, ReceiveQueue, Stag, Target, TerminateCode, UntaggedError,
};
use rnic::{Completion, WcOpcode, WcStatus};

use super::End;
use crate::memory::{Bytes, MemoryAccess, MemoryTable, Stream, StreamMemory};
use crate::work::{Outstanding, RecvSlot, notify};

/// The source of receives: a queue pair.
pub(crate) trait ReceiveSource {
    /// Takes the next receive for a message. `batch` belongs to the connection, so that one lock
    /// serves many receives.
    fn take_receive(&self, batch: &mut VecDeque<RecvSlot>) -> Option<RecvSlot>;
}

/// The receives that a connection has taken from its queue pair, and the carrier messages of its
/// peer.
#[derive(Debug)]
pub(crate) struct Inbox {
    batch: VecDeque<RecvSlot>,
    /// The receive of the message that is being received, and the reason why it will fail.
    current: Option<RecvSlot>,
    current_status: WcStatus,
    /// The carrier messages that were received and not handled.
    messages: Vec<CarrierMessage>,
    /// The STags that the peer has invalidated in this pass.
    invalidated: Vec<Stag>,
    /// Payload that was placed, in bytes, by any carrier.
    placed: u64,
    /// True if the next segment begins a message for which no receive is posted. The carrier has
    /// kept the segment and receives nothing before it.
    is_unready: bool,
}

impl Default for Inbox {
    fn default() -> Self {
        Self {
            batch: VecDeque::new(),
            current: None,
            current_status: WcStatus::Success,
            messages: Vec::new(),
            invalidated: Vec::new(),
            placed: 0,
            is_unready: false,
        }
    }
}

impl Inbox {
    /// Takes the receives that have not completed. The partly filled one is first, with its status.
    pub(crate) fn take_receives(&mut self) -> (Option<(RecvSlot, WcStatus)>, VecDeque<RecvSlot>) {
        let status = match self.current_status {
            WcStatus::Success => WcStatus::Flushed,
            failed => failed,
        };
        (
            self.current.take().map(|slot| (slot, status)),
            std::mem::take(&mut self.batch),
        )
    }

    /// Takes the carrier messages that were received.
    pub(crate) fn take_messages(&mut self) -> Vec<CarrierMessage> {
        std::mem::take(&mut self.messages)
    }

    /// Takes the STags that the peer has invalidated. Their accesses must end before the receives
    /// of this pass complete.
    pub(crate) fn take_invalidated(&mut self) -> Vec<Stag> {
        std::mem::take(&mut self.invalidated)
    }

    /// Payload that was placed, in bytes, by any carrier.
    pub(crate) fn placed(&self) -> u64 {
        self.placed
    }

    /// True if the next segment waits for a receive.
    pub(crate) fn is_unready(&self) -> bool {
        self.is_unready
    }

    pub(crate) fn has_messages(&self) -> bool {
        !self.messages.is_empty()
    }

    /// Loads the next receive into the cache while there is time: a queue of thousands of receives
    /// is larger than the processor's first caches.
    pub(super) fn warm_up(&self) {
        if let Some(next) = self.batch.front() {
            std::hint::black_box((next.wr_id, next.signalled));
        }
    }
}

/// The parts of a connection that receiving needs, for one pass.
pub(crate) struct Reception<'a> {
    pub(crate) table: &'a MemoryTable,
    pub(crate) stream: Stream,
    pub(crate) source: &'a dyn ReceiveSource,
    pub(crate) proto: &'a mut Connection,
    pub(crate) outstanding: &'a mut Outstanding,
    pub(crate) completions: &'a mut Vec<Completion>,
    pub(crate) inbox: &'a mut Inbox,
}

/// The parts of [`Reception`], with the memory table open.
pub(super) struct Sinks<'a> {
    pub(super) memory: &'a MemoryAccess<'a>,
    pub(super) stream: Stream,
    source: &'a dyn ReceiveSource,
    pub(super) proto: &'a mut Connection,
    pub(super) outstanding: &'a mut Outstanding,
    completions: &'a mut Vec<Completion>,
    pub(super) inbox: &'a mut Inbox,
}

impl Reception<'_> {
    pub(super) fn open<'a>(&'a mut self, memory: &'a MemoryAccess<'a>) -> Sinks<'a> {
        Sinks {
            memory,
            stream: self.stream,
            source: self.source,
            proto: &mut *self.proto,
            outstanding: &mut *self.outstanding,
            completions: &mut *self.completions,
            inbox: &mut *self.inbox,
        }
    }
}

/// A segment that the protocol has accepted.
pub(super) enum Accepted<'m> {
    /// The payload must be placed, and then [`Sinks::deliver`] must be called.
    Place(Placement<Bytes<'m>>),
    /// The segment is handled.
    Done,
    /// The segment waits for a receive and must be presented again.
    Unready,
}

impl<'m> Sinks<'m> {
    /// Calls the protocol with the memory and the receives of this pass.
    #[inline]
    pub(super) fn with_proto<R>(
        &mut self,
        call: impl FnOnce(&mut Connection, &StreamMemory<'m>, &mut Receives<'_>) -> R,
    ) -> R {
        let memory = StreamMemory {
            access: self.memory,
            stream: self.stream,
        };
        let mut receives = Receives {
            source: self.source,
            batch: &mut self.inbox.batch,
            current: &mut self.inbox.current,
        };
        call(self.proto, &memory, &mut receives)
    }

    /// Handles a complete segment. Returns false if the segment waits for a receive and must be
    /// presented again.
    #[inline]
    pub(super) fn handle_ulpdu(&mut self, ulpdu: &[u8]) -> Result<bool, End> {
        let checked =
            self.with_proto(|proto, memory, receives| proto.handle_ulpdu(ulpdu, memory, receives));
        match self.accept(checked)? {
            Accepted::Place(placement) => {
                let payload = &ulpdu[placement.payload.clone()];
                let (mut at, mut is_placed) = (0, true);
                self.place(&placement.target, payload.len(), |bytes| {
                    is_placed &= bytes.write(&payload[at..at + bytes.len()]);
                    at += bytes.len();
                })?;
                if !is_placed {
                    return Err(self.fail_place(&placement.target));
                }
                self.deliver(&placement);
            }
            Accepted::Done => {}
            Accepted::Unready => return Ok(false),
        }
        Ok(true)
    }

    /// Acts on the protocol's result for a segment, except for its payload.
    #[inline]
    pub(super) fn accept(
        &mut self,
        checked: Result<Inbound<Bytes<'m>>, ProtocolError>,
    ) -> Result<Accepted<'m>, End> {
        self.inbox.is_unready = false;
        match checked {
            Ok(Inbound::Place(placement)) => return Ok(Accepted::Place(placement)),
            Ok(Inbound::Atomic { request, place }) => {
                let original = self.execute_atomic(request.op, &place)?;
                self.proto.answer_atomic(original);
            }
            Ok(Inbound::AtomicResponse { token, original }) => {
                self.store_atomic(token, original)?;
            }
            Ok(Inbound::Carrier(message)) => self.inbox.messages.push(message),
            Ok(Inbound::ReadRequest | Inbound::ReadyToReceive | Inbound::Dropped) => {}
            Ok(Inbound::Unready) => {
                self.inbox.is_unready = true;
                return Ok(Accepted::Unready);
            }
            Ok(Inbound::Terminated(terminate)) => return Err(End::Terminated(terminate)),
            Err(fault) => return Err(self.end_by_fault(fault)),
        }
        Ok(Accepted::Done)
    }

    /// Returns the end for a fault. If a message is longer than its receive, the receive completes
    /// with that error.
    pub(super) fn end_by_fault(&mut self, fault: ProtocolError) -> End {
        if fault.code == TerminateCode::Untagged(UntaggedError::TooLong) {
            self.inbox.current_status = WcStatus::LocalLength;
        }
        End::Fault(fault)
    }

    /// Visits the target memory of `len` bytes of payload, in order.
    #[inline]
    pub(super) fn place(
        &mut self,
        target: &Target<Bytes<'m>>,
        len: usize,
        mut visit: impl FnMut(Bytes<'m>),
    ) -> Result<(), End> {
        match target {
            Target::None => {}
            Target::Tagged { place, .. } => visit(*place),
            Target::Untagged { offset, .. } => {
                self.place_untagged(*offset as usize, len, visit)?;
            }
        }
        Ok(())
    }

    /// Visits the memory of the current receive from `offset` on.
    pub(super) fn place_untagged(
        &mut self,
        offset: usize,
        len: usize,
        visit: impl FnMut(Bytes<'m>),
    ) -> Result<(), End> {
        let (memory, pd) = (self.memory, self.stream.pd);
        let current = self.inbox.current.as_ref();
        let is_placed = current.is_some_and(|slot| {
            slot.sgl
                .for_each_piece(memory, pd, true, (offset, len), visit)
        });
        if is_placed {
            Ok(())
        } else {
            Err(self.fail_receive())
        }
    }

    /// Returns the registrations that contain the target memory of a payload.
    pub(super) fn registrations_of(&self, target: &Target<Bytes<'m>>) -> Vec<Stag> {
        match target {
            Target::None => Vec::new(),
            Target::Tagged { stag, .. } => self.memory.registrations(*stag),
            Target::Untagged { .. } => {
                let slot = self.inbox.current.as_ref();
                let segments = slot.map(|slot| slot.sgl.as_slice()).unwrap_or_default();
                segments.iter().map(|sge| Stag(sge.lkey)).collect()
            }
        }
    }

    /// Delivers a message that may be complete now, because the payload was placed.
    #[inline]
    pub(super) fn deliver<P>(&mut self, placement: &Placement<P>) {
        self.inbox.placed += placement.payload.len() as u64;
        let (len, solicited, invalidate, immediate) = match placement.delivered {
            Some(Delivery::Receive {
                len,
                solicited,
                invalidate,
                immediate,
                ..
            }) => (len, solicited, invalidate, immediate),
            Some(Delivery::Read { .. }) => return self.proto.on_answer_stored(),
            Some(Delivery::Write) | None => return,
        };
        if let Some(stag) = invalidate {
            self.memory.invalidate(stag);
            self.inbox.invalidated.push(stag);
        }
        let Some(slot) = self.inbox.current.take() else {
            return;
        };
        let (opcode, immediate) = match (invalidate, immediate) {
            (Some(_), _) => (WcOpcode::RecvInvalidate, None),
            (_, Some(Immediate::OfWrite(bytes))) => {
                (WcOpcode::RecvImmediate, Some(immediate_value(&bytes)))
            }
            (_, Some(Immediate::OfSend(value))) => (WcOpcode::RecvSendImmediate, Some(value)),
            (None, None) => (WcOpcode::Recv, None),
        };
        self.completions.push(Completion {
            wr_id: slot.wr_id,
            qp: self.stream.qp,
            opcode,
            status: WcStatus::Success,
            byte_len: len,
            invalidated: invalidate.map(|stag| stag.0),
            immediate,
            notify: notify(slot.signalled, solicited, WcStatus::Success),
        });
    }

    /// Fails the operation whose target memory cannot be written.
    #[cold]
    pub(super) fn fail_place<P>(&mut self, target: &Target<P>) -> End {
        match target {
            Target::Untagged { .. } => self.fail_receive(),
            Target::Tagged {
                access: Access::ReadSink,
                ..
            } => self.fail_read_sink(),
            Target::Tagged { .. } | Target::None => End::Fault(self.proto.fail_local()),
        }
    }

    /// Fails the receive that is being filled, because its memory cannot be used.
    pub(super) fn fail_receive(&mut self) -> End {
        self.inbox.current_status = WcStatus::LocalProtection;
        End::Fault(self.proto.fail_local())
    }

    /// Fails the read that is being answered, because its sink cannot be used.
    pub(super) fn fail_read_sink(&mut self) -> End {
        if let Some(token) = self.proto.answered_read()
            && let Some(slot) = self.outstanding.get_mut(token)
        {
            slot.status = WcStatus::LocalProtection;
        }
        End::Fault(self.proto.fail_local())
    }

    fn store_atomic(&mut self, token: u64, original: u64) -> Result<(), End> {
        let bytes = original.to_ne_bytes();
        let (mut at, mut is_placed) = (0, true);
        let (memory, pd) = (self.memory, self.stream.pd);
        let is_resolved = self.outstanding.get(token).is_some_and(|slot| {
            let range = (0, bytes.len());
            slot.sgl.for_each_piece(memory, pd, true, range, |piece| {
                is_placed &= piece.write(&bytes[at..at + piece.len()]);
                at += piece.len();
            })
        });
        if is_resolved && is_placed {
            self.proto.on_answer_stored();
            return Ok(());
        }
        if let Some(slot) = self.outstanding.get_mut(token) {
            slot.status = WcStatus::LocalProtection;
        }
        Err(End::Fault(self.proto.fail_local()))
    }

    fn execute_atomic(&mut self, op: AtomicOp, place: &Bytes<'_>) -> Result<u64, End> {
        // No result means that the address is misaligned, although the tagged offset is aligned, or
        // that the word is beyond the end of its file.
        place
            .update(|original| op.apply(original))
            .ok_or_else(|| End::Fault(self.proto.fail_local()))
    }
}

/// The receive queue as the protocol sees it.
pub(super) struct Receives<'a> {
    source: &'a dyn ReceiveSource,
    batch: &'a mut VecDeque<RecvSlot>,
    current: &'a mut Option<RecvSlot>,
}

impl ReceiveQueue for Receives<'_> {
    fn next(&mut self) -> Option<ReceiveBuffer> {
        let slot = self.source.take_receive(self.batch)?;
        let buffer = ReceiveBuffer {
            token: slot.wr_id,
            len: slot.len,
        };
        // One message is received at a time, so one receive is in use at a time.
        *self.current = Some(slot);
        Some(buffer)
    }
}

/// The 32-bit value in the first four of eight bytes of Immediate Data, in network order.
fn immediate_value(bytes: &[u8; 8]) -> u32 {
    let [a, b, c, d, ..] = *bytes;
    u32::from_be_bytes([a, b, c, d])
}

/// The wire form of a 32-bit immediate value.
pub(crate) fn immediate_bytes(value: u32) -> [u8; 8] {
    let [a, b, c, d] = value.to_be_bytes();
    [a, b, c, d, 0, 0, 0, 0]
}
