//! Queued work requests: the data of a request that a queue pair keeps from post to completion.

use std::collections::VecDeque;

use iwarp_proto::Stag;
use rnic::{Access, Completion, Notify, QpToken, RecvWr, SendOp, SendWr, Sge, WcOpcode, WcStatus};

use crate::memory::{Bytes, MemoryAccess, Window};

/// The number of segments that need no allocation.
const INLINE_MAX: usize = 4;

/// A copy of a segment list.
#[derive(Debug, Clone)]
pub(crate) enum SegmentList {
    Inline(u8, [Sge; INLINE_MAX]),
    Heap(Box<[Sge]>),
}

impl SegmentList {
    pub(crate) fn new(sgl: &[Sge]) -> Self {
        if sgl.len() > INLINE_MAX {
            return Self::Heap(sgl.into());
        }
        let mut inline = [Sge::default(); INLINE_MAX];
        inline[..sgl.len()].copy_from_slice(sgl);
        Self::Inline(sgl.len() as u8, inline)
    }

    pub(crate) fn as_slice(&self) -> &[Sge] {
        match self {
            Self::Inline(count, inline) => &inline[..usize::from(*count)],
            Self::Heap(list) => list,
        }
    }

    /// Returns the length of all segments in bytes; `None` if it exceeds the length of a message.
    pub(crate) fn total(sgl: &[Sge]) -> Option<u32> {
        sgl.iter()
            .try_fold(0_u32, |sum, sge| sum.checked_add(sge.len))
    }

    /// Visits the memory of `len` bytes from `skip` on, piece by piece. Returns `false` if a
    /// segment may not be used in this way, or if the list is shorter; some pieces may have been
    /// visited by then.
    pub(crate) fn for_each_piece<'m>(
        &self,
        memory: &'m MemoryAccess<'_>,
        pd: u32,
        write: bool,
        (mut skip, mut len): (usize, usize),
        mut visit: impl FnMut(Bytes<'m>),
    ) -> bool {
        for sge in self.as_slice() {
            let own = sge.len as usize;
            if skip >= own {
                skip -= own;
                continue;
            }
            if len == 0 {
                break;
            }
            let Some(bytes) = memory.local(pd, sge, write) else {
                return false;
            };
            let piece = bytes.part(skip, len);
            skip = 0;
            len -= piece.len();
            visit(piece);
        }
        len == 0
    }
}

/// The memory of a short segment list, checked.
#[derive(Debug)]
pub(crate) struct Pieces<'m> {
    count: usize,
    bytes: [Bytes<'m>; INLINE_MAX],
}

impl<'m> Pieces<'m> {
    /// Returns `None` if the list is longer than `INLINE_MAX`, or a segment may not be read, or its
    /// copy may fail.
    pub(crate) fn of(memory: &'m MemoryAccess<'_>, pd: u32, sgl: &[Sge]) -> Option<Self> {
        let mut bytes = [Bytes::EMPTY; INLINE_MAX];
        if sgl.len() > INLINE_MAX {
            return None;
        }
        for (piece, sge) in bytes.iter_mut().zip(sgl) {
            *piece = memory
                .local(pd, sge, false)
                .filter(|bytes| !bytes.may_fail())?;
        }
        Some(Self {
            count: sgl.len(),
            bytes,
        })
    }

    pub(crate) fn as_slice(&self) -> &[Bytes<'m>] {
        &self.bytes[..self.count]
    }
}

/// The operation of a send-queue entry.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Task {
    /// An operation on the wire.
    Wire(SendOp),
    /// A memory window bind, which sends nothing.
    Bind(BindTask),
}

/// A bind with its objects resolved to STags.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BindTask {
    /// The window, under the STag that it has after the bind.
    pub(crate) window: Window,
    /// The region; `None` to unbind.
    pub(crate) region: Option<Stag>,
    pub(crate) range: Sge,
    pub(crate) access: Access,
    pub(crate) zero_based: bool,
    /// True if the bind fails while the window is bound.
    pub(crate) is_first: bool,
    /// The only queue pair whose peer may use the window.
    pub(crate) only: Option<QpToken>,
}

/// A send-queue entry.
#[derive(Debug, Clone)]
pub(crate) struct SendSlot {
    pub(crate) wr_id: u64,
    pub(crate) task: Task,
    pub(crate) sgl: SegmentList,
    pub(crate) len: u32,
    pub(crate) completion: bool,
    pub(crate) signalled: bool,
    pub(crate) fence: bool,
    /// True if the payload is to be copied by this end.
    pub(crate) inline: bool,
    /// The number of the entry's protocol requests that have not completed.
    pub(crate) parts_left: u32,
    /// True if one of these requests is an empty Read, whose answer acknowledges the entry.
    pub(crate) is_acknowledged: bool,
    pub(crate) status: WcStatus,
}

impl SendSlot {
    pub(crate) fn new(wr: &SendWr<'_>, len: u32) -> Self {
        Self {
            wr_id: wr.wr_id,
            task: Task::Wire(wr.op),
            sgl: SegmentList::new(wr.sgl),
            len,
            completion: wr.completion,
            signalled: wr.signalled,
            fence: wr.fence,
            inline: wr.inline,
            parts_left: 0,
            is_acknowledged: false,
            status: WcStatus::Success,
        }
    }

    /// Creates an entry for a memory window bind without a fence and with a completion.
    pub(crate) fn bind(wr_id: u64, task: BindTask) -> Self {
        Self {
            wr_id,
            task: Task::Bind(task),
            sgl: SegmentList::new(&[]),
            len: 0,
            completion: true,
            signalled: true,
            fence: false,
            inline: false,
            parts_left: 0,
            is_acknowledged: false,
            status: WcStatus::Success,
        }
    }

    /// True if the entry must wait for earlier reads here, because it bypasses the protocol.
    fn is_fenced_bind(&self) -> bool {
        let is_local = matches!(
            self.task,
            Task::Bind(_) | Task::Wire(SendOp::LocalInvalidate(_))
        );
        self.fence && is_local
    }

    /// True if the peer must still answer the entry.
    fn awaits_answer(&self) -> bool {
        let is_answered = matches!(
            self.task,
            Task::Wire(
                SendOp::Read(_)
                    | SendOp::ReadToWindow { .. }
                    | SendOp::FetchAdd(..)
                    | SendOp::CompareSwap { .. }
            )
        );
        is_answered && self.parts_left > 0
    }

    /// Returns the number of payload bytes that are sent for the entry. The payload of the peer's
    /// answer does not count.
    pub(crate) fn sent_len(&self) -> u32 {
        match self.task {
            Task::Wire(
                SendOp::Send { .. }
                | SendOp::SendImmediate { .. }
                | SendOp::Write(_)
                | SendOp::WriteImmediate { .. },
            ) => self.len,
            Task::Wire(_) | Task::Bind(_) => 0,
        }
    }

    /// Returns the data for the entry's completion.
    pub(crate) fn report(&self) -> Report {
        Report {
            wr_id: self.wr_id,
            opcode: match &self.task {
                Task::Bind(_) => WcOpcode::BindMw,
                Task::Wire(op) => opcode_of(op),
            },
            len: self.len,
            completion: self.completion,
            signalled: self.signalled,
        }
    }
}

/// The data for the completion of a send-queue entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Report {
    wr_id: u64,
    opcode: WcOpcode,
    len: u32,
    completion: bool,
    signalled: bool,
}

impl Report {
    pub(crate) fn new(wr: &SendWr<'_>, len: u32) -> Self {
        Self {
            wr_id: wr.wr_id,
            opcode: opcode_of(&wr.op),
            len,
            completion: wr.completion,
            signalled: wr.signalled,
        }
    }

    /// Returns the completion, unless it was suppressed and the request succeeded.
    pub(crate) fn completion(&self, qp: QpToken, status: WcStatus) -> Option<Completion> {
        if status == WcStatus::Success && !self.completion {
            return None;
        }
        Some(Completion {
            wr_id: self.wr_id,
            qp,
            opcode: self.opcode,
            status,
            byte_len: self.len,
            notify: notify(self.signalled, false, status),
            ..Completion::EMPTY
        })
    }
}

fn opcode_of(op: &SendOp) -> WcOpcode {
    match op {
        SendOp::Send { .. } | SendOp::SendImmediate { .. } => WcOpcode::Send,
        SendOp::Write(_) => WcOpcode::RdmaWrite,
        SendOp::WriteImmediate { .. } => WcOpcode::RdmaWriteImmediate,
        SendOp::Read(_) | SendOp::ReadToWindow { .. } => WcOpcode::RdmaRead,
        SendOp::FetchAdd(..) => WcOpcode::FetchAdd,
        SendOp::CompareSwap { .. } => WcOpcode::CompareSwap,
        SendOp::LocalInvalidate(_) => WcOpcode::LocalInvalidate,
    }
}

/// A posted receive.
#[derive(Debug, Clone)]
pub(crate) struct RecvSlot {
    pub(crate) wr_id: u64,
    pub(crate) sgl: SegmentList,
    pub(crate) len: u32,
    pub(crate) signalled: bool,
}

impl RecvSlot {
    pub(crate) fn new(wr: &RecvWr<'_>, len: u32) -> Self {
        Self {
            wr_id: wr.wr_id,
            sgl: SegmentList::new(wr.sgl),
            len,
            signalled: wr.signalled,
        }
    }

    /// Returns the completion in error.
    pub(crate) fn failed(&self, qp: QpToken, status: WcStatus) -> Completion {
        Completion {
            wr_id: self.wr_id,
            qp,
            opcode: WcOpcode::Recv,
            status,
            notify: notify(self.signalled, false, status),
            ..Completion::EMPTY
        }
    }
}

/// Selects the waiters that a completion wakes. A failure wakes all, regardless of the flags.
pub(crate) fn notify(signalled: bool, solicited: bool, status: WcStatus) -> Notify {
    match (status, signalled, solicited) {
        (WcStatus::Success, false, _) => Notify::Never,
        (WcStatus::Success, true, false) => Notify::Always,
        _ => Notify::Solicited,
    }
}

/// The send-queue entries that are submitted to the protocol, by the token that the protocol uses.
#[derive(Debug, Default)]
pub(crate) struct Outstanding {
    slots: VecDeque<SendSlot>,
    first_token: u64,
}

impl Outstanding {
    /// Returns the token of the next entry.
    pub(crate) fn next_token(&self) -> u64 {
        self.first_token + self.slots.len() as u64
    }

    pub(crate) fn push(&mut self, slot: SendSlot) {
        self.slots.push_back(slot);
    }

    pub(crate) fn get(&self, token: u64) -> Option<&SendSlot> {
        self.slots
            .get(usize::try_from(token.checked_sub(self.first_token)?).ok()?)
    }

    pub(crate) fn get_mut(&mut self, token: u64) -> Option<&mut SendSlot> {
        self.slots
            .get_mut(usize::try_from(token.checked_sub(self.first_token)?).ok()?)
    }

    /// True if this entry must wait for an earlier read or atomic.
    pub(crate) fn must_wait_for(&self, slot: &SendSlot) -> bool {
        slot.is_fenced_bind() && self.slots.iter().any(SendSlot::awaits_answer)
    }

    /// Stops to wait for acknowledgements of the entries.
    pub(crate) fn assume_acknowledged(&mut self) {
        for slot in &mut self.slots {
            if std::mem::take(&mut slot.is_acknowledged) {
                slot.parts_left = slot.parts_left.saturating_sub(1);
            }
        }
    }

    /// Takes the oldest entry, if all its requests are done.
    pub(crate) fn pop_done(&mut self) -> Option<SendSlot> {
        if self.slots.front()?.parts_left > 0 {
            return None;
        }
        self.pop()
    }

    /// Takes the oldest entry.
    pub(crate) fn pop(&mut self) -> Option<SendSlot> {
        let slot = self.slots.pop_front()?;
        self.first_token += 1;
        Some(slot)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use rnic::RemoteRange;

    use super::*;
    use crate::support::{SEND, send_wr};

    #[test]
    fn short_lists_need_no_allocation_and_long_ones_are_kept_whole() {
        let list: Vec<Sge> = (0..9)
            .map(|i| Sge {
                addr: i,
                len: 1,
                lkey: 2,
            })
            .collect();
        for count in 0..=9 {
            let own = SegmentList::new(&list[..count]);
            assert_eq!(own.as_slice(), &list[..count]);
            assert_eq!(matches!(own, SegmentList::Heap(_)), count > INLINE_MAX);
        }
    }

    #[test]
    fn only_sent_bytes_are_counted_as_sent() {
        let remote = RemoteRange::default();
        let sent_len = |op| SendSlot::new(&send_wr(0, op, &[]), 100).sent_len();
        let answered = [
            SendOp::Read(remote),
            SendOp::ReadToWindow {
                local: remote,
                remote,
            },
            SendOp::FetchAdd(remote, 1),
            SendOp::CompareSwap {
                remote,
                compare: 0,
                swap: 1,
            },
        ];
        for op in [
            SEND,
            SendOp::Write(remote),
            SendOp::WriteImmediate {
                to: remote,
                value: 1,
                solicited: false,
            },
        ] {
            assert_eq!(sent_len(op), 100, "{op:?}");
        }
        assert!(answered.into_iter().all(|op| sent_len(op) == 0));
    }

    #[test]
    fn a_list_longer_than_a_message_has_no_total() {
        let huge = Sge {
            addr: 0,
            len: u32::MAX,
            lkey: 0,
        };
        assert_eq!(SegmentList::total(&[huge]), Some(u32::MAX));
        assert_eq!(SegmentList::total(&[huge, Sge { len: 1, ..huge }]), None);
        assert_eq!(SegmentList::total(&[]), Some(0));
    }

    #[test]
    fn failures_wake_all_waiters() {
        assert_eq!(notify(false, true, WcStatus::Success), Notify::Never);
        assert_eq!(notify(true, false, WcStatus::Success), Notify::Always);
        assert_eq!(notify(true, true, WcStatus::Success), Notify::Solicited);
        assert_eq!(notify(false, false, WcStatus::Flushed), Notify::Solicited);
    }
}
