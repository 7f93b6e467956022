//! RDMA Writes and Reads that the initiator carries out itself.
//!
//! Where the kernel lets a process access the memory of its peer, the initiator of a Write or Read
//! copies the bytes within the post (`process_vm_writev(2)`, `process_vm_readv(2)`). Nothing of the
//! target runs: its program may sleep, compute, or be stopped. The trust boundary is the kernel's
//! permission: a process that has it may access every byte of the target anyway.
//!
//! # Which memory
//!
//! The target keeps a table of its registrations for such peers ([`crate::memory`]) and announces
//! its address. The initiator reads the bucket of an STag by the same permission, makes the checks
//! that the target would make, and keeps the entry until the target's *generation* changes. A short
//! Write to a peer that polls is sent by the ring (`super::attention`), which is faster. A
//! request for which anything is unusual (no entry, a missing right, a range outside, memory that
//! is not mapped) is sent by the ring. So the target names the fault, and the connection ends, as
//! with any other carrier.
//!
//! # Deregistration
//!
//! | Word | Written by | Meaning |
//! |---|---|---|
//! | `TABLE` | the target | address of the table; 0 while direct copies are not possible |
//! | `PD`, `QP` | the target | its end of the connection, for the checks |
//! | `GENERATION` | the target | changes after an entry was removed from the table |
//! | `CLAIM` | the initiator | the STag and the region of the copy in progress, or 0 |
//!
//! The initiator claims, executes a full fence, and copies if the generation has not changed since
//! it has read the entry. The target removes the entry, changes the generation, executes a full
//! fence, and waits for a claim of the entry. At least one of the two sees the store of the other
//! (Dekker). So no byte is read or written after the deregistration has returned.
//!
//! A claim of a dead process is void, because its copy has ended with it. A process that is stopped
//! between its claim and its copy delays the deregistration for a second. Then the target withdraws
//! the page with which each copy begins ([`Witness::withdraw`]): the copy fails when the process
//! continues, and its request is sent by the ring. A copy that has passed the page is inside of the
//! kernel, which does not stop a process there; the target waits one second more for it. A peer
//! that claims without an end delays by these two seconds once.
//!
//! # Order
//!
//! A copy is complete before a later request is sent. It may overtake an earlier Send, which RFC
//! 5040 (section 5.5) permits. It does not overtake other requests: the initiator copies only if
//! the peer has handled them ([`must_follow`]). The table is announced once the peer has handled
//! everything that this end has sent over TCP.
//!
//! # Cost
//!
//! A Write or Read of up to [`DIRECT_MAX`] bytes is one system call, one locked instruction for the
//! claim, and two uncontended locks for the pin of its local memory. The first use of an STag after
//! a deregistration costs one system call more. A short Write reads a clock first, and once in a
//! while the word of the peer's polls.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use iwarp_proto::wire::rdmap::{Control, Opcode};
use iwarp_proto::{Access, Stag};
use rnic::{QpToken, Sge};
use rustix::io::Errno;

use super::pull::{Puller, Target, Witness};
use super::record::{PIECES_MAX, Piece};
use super::segment::Half;
use crate::memory::{
    BUCKET_LEN, Bucket, Denied, Entry, MemoryAccess, Stream, TAIL, bucket_at, find_published,
};

/// The longest Write or Read that is carried out directly. A deregistration waits for this amount.
pub(crate) const DIRECT_MAX: u32 = 16 * 1024 * 1024;
/// The number of entries that an initiator keeps.
const KEPT: usize = 16;
/// The number of attempts to copy while the target changes its table.
const ATTEMPTS: usize = 4;

/// Offsets of control words, after those of [`super::ring`].
const TABLE: usize = 1024;
const PD: usize = 1032;
const QP: usize = 1040;
const GENERATION: usize = 1152;
const CLAIM: usize = 1280;

/// A range of the peer's memory and the access to it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Remote {
    pub(crate) access: Access,
    pub(crate) stag: Stag,
    pub(crate) to: u64,
    pub(crate) len: u32,
}

/// The memory of a segment list, checked, for a copy by the kernel.
#[derive(Debug)]
pub(crate) struct Places {
    count: usize,
    places: [Target; PIECES_MAX],
}

impl Places {
    /// Returns `None` if a segment may not be used in this way, or if there are too many.
    pub(crate) fn of(
        memory: &MemoryAccess<'_>,
        pd: u32,
        sgl: &[Sge],
        is_target: bool,
    ) -> Option<Self> {
        if sgl.len() > PIECES_MAX {
            return None;
        }
        let nowhere = Target {
            ptr: std::ptr::null_mut(),
            len: 0,
        };
        let mut places = [nowhere; PIECES_MAX];
        for (place, sge) in places.iter_mut().zip(sgl) {
            let (ptr, len) = memory.local(pd, sge, is_target)?.as_place();
            *place = Target { ptr, len };
        }
        Some(Self {
            count: sgl.len(),
            places,
        })
    }

    pub(crate) fn as_slice(&self) -> &[Target] {
        &self.places[..self.count]
    }
}

/// The initiator's side, of one connection.
#[derive(Debug)]
pub(super) struct Initiator {
    half: Half,
    /// Entries by STag, each valid for the generation with which it was read.
    kept: [Option<(u32, u64, Entry)>; KEPT],
    /// True after the kernel has refused a copy.
    is_refused: bool,
}

impl Initiator {
    /// `half` is that of the records from the peer.
    pub(super) fn new(half: Half) -> Self {
        Self {
            half,
            kept: [const { None }; KEPT],
            is_refused: false,
        }
    }

    /// Returns true if the peer permits direct copies.
    pub(super) fn is_permitted(&self) -> bool {
        !self.is_refused && self.word(TABLE).load(Ordering::Acquire) != 0
    }

    /// Copies between memory of this process and the peer's. Returns false if the request must be
    /// sent by the ring; part of the bytes may have been copied then.
    ///
    /// # Safety
    ///
    /// For a read, `local` may be written. Its total length is that of `remote`.
    pub(super) unsafe fn copy(
        &mut self,
        puller: &Puller,
        remote: &Remote,
        local: &[Target],
    ) -> bool {
        for _ in 0..ATTEMPTS {
            let table = self.word(TABLE).load(Ordering::Acquire);
            let generation = self.word(GENERATION).load(Ordering::Acquire);
            let target = self.target();
            let Some(entry) = self.entry(puller, table, generation, remote.stag.0) else {
                return false;
            };
            let checked = entry.check(target, remote.access, remote.to, remote.len);
            let Ok(place) = checked else { return false };
            let region = u64::from(entry.region.unwrap_or(0));
            let claim = self.word(CLAIM);
            claim.swap(u64::from(remote.stag.0) | region << 32, Ordering::SeqCst);
            let is_current = self.word(GENERATION).load(Ordering::SeqCst) == generation;
            let copied = is_current.then(|| {
                let place = place.expose_provenance() as u64;
                // SAFETY: as for the caller.
                unsafe { copy_checked(puller, remote, place, local) }
            });
            claim.store(0, Ordering::Release);
            match copied {
                None => {}
                Some(Ok(())) => return true,
                Some(Err(error)) => {
                    tracing::debug!(%error, "a request is sent that was not carried out directly");
                    self.is_refused |= error.raw_os_error() != Some(Errno::FAULT.raw_os_error());
                    return false;
                }
            }
        }
        false
    }

    /// Returns the entry of an STag, and keeps it.
    fn entry(&mut self, puller: &Puller, table: u64, generation: u64, stag: u32) -> Option<&Entry> {
        let kept = &mut self.kept[stag as usize % KEPT];
        if !matches!(kept, Some((of, at, _)) if (*of, *at) == (stag, generation)) {
            let mut bucket = Bucket::default();
            let place = Target {
                ptr: (&raw mut bucket).cast(),
                len: BUCKET_LEN,
            };
            let there = Piece {
                addr: bucket_at(table, stag),
                len: BUCKET_LEN as u32,
            };
            // SAFETY: the target is the bucket, to which no reference exists during the call.
            unsafe { puller.pull(&[there], &[place]) }.ok()?;
            *kept = Some((stag, generation, find_published(&bucket, stag)?));
        }
        kept.as_ref().map(|(_, _, entry)| entry)
    }

    /// The peer's end of the connection.
    fn target(&self) -> Stream {
        Stream {
            pd: self.word(PD).load(Ordering::Relaxed) as u32,
            qp: QpToken(self.word(QP).load(Ordering::Relaxed)),
            denied: Denied::default(),
        }
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        self.half.control_word(at)
    }
}

/// Returns true if a later direct copy must not overtake this segment of this end.
pub(super) fn must_follow(header: &[u8]) -> bool {
    let opcode = header.get(1).and_then(|byte| Control(*byte).opcode());
    !matches!(
        opcode,
        Some(
            Opcode::Send
                | Opcode::SendSolicited
                | Opcode::ReadResponse
                | Opcode::ImmediateData
                | Opcode::ImmediateDataSolicited
        )
    )
}

/// # Safety
///
/// As for [`Initiator::copy`].
unsafe fn copy_checked(
    puller: &Puller,
    remote: &Remote,
    place: u64,
    local: &[Target],
) -> std::io::Result<()> {
    let piece = |skip: u32, len| Piece {
        addr: place.wrapping_add(u64::from(skip)),
        len,
    };
    if remote.access == Access::RemoteRead {
        // SAFETY: as for the caller.
        return unsafe { puller.pull(&[piece(0, remote.len)], local) };
    }
    // A program that polls its memory finds the last bytes after all others: the kernel writes the
    // pieces in their order.
    let body = remote.len.saturating_sub(TAIL as u32);
    let pieces = [piece(0, body), piece(body, remote.len - body)];
    let first = usize::from(body == 0);
    puller.push(local, &pieces[first..])
}

/// The target's side, of one connection.
#[derive(Debug)]
pub(super) struct Grant {
    half: Half,
    witness: Witness,
    is_withdrawn: AtomicBool,
}

impl Grant {
    /// `half` is that of the records to the peer.
    pub(super) fn new(half: Half, witness: Witness) -> Self {
        Self {
            half,
            witness,
            is_withdrawn: AtomicBool::new(false),
        }
    }

    /// Announces the table, once everything that the peer has sent before is handled.
    pub(super) fn announce(&self, table: u64, own: Stream) {
        if own.denied.denies_copies() {
            return;
        }
        self.word(PD).store(own.pd.into(), Ordering::Relaxed);
        self.word(QP).store(own.qp.0, Ordering::Relaxed);
        self.word(TABLE).store(table, Ordering::Release);
    }

    /// Returns true if the peer may copy directly.
    pub(super) fn is_announced(&self) -> bool {
        self.word(TABLE).load(Ordering::Relaxed) != 0
    }

    /// Called when an entry was removed from the table.
    pub(super) fn on_removed(&self) {
        self.word(GENERATION).fetch_add(1, Ordering::SeqCst);
    }

    /// Returns true while the peer claims memory of this registration, or any memory.
    pub(super) fn is_claimed(&self, stag: Option<Stag>) -> bool {
        let claim = self.word(CLAIM).load(Ordering::SeqCst);
        let parts = [claim as u32, (claim >> 32) as u32];
        stag.map_or(claim != 0, |stag| parts.contains(&stag.0))
    }

    /// Ends all access of the peer that has not begun.
    pub(super) fn withdraw(&self) {
        self.word(TABLE).store(0, Ordering::Release);
        if !self.is_withdrawn.swap(true, Ordering::AcqRel) {
            self.witness.withdraw();
        }
    }

    /// Returns true if [`Self::withdraw`] was called.
    pub(super) fn is_withdrawn(&self) -> bool {
        self.is_withdrawn.load(Ordering::Acquire)
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        self.half.control_word(at)
    }
}

#[cfg(test)]
mod tests;
