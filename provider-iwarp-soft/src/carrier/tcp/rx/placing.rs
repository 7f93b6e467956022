//! Payload that the kernel writes directly to its target.
//!
//! Without CRC only the consumer reads a payload. So of a long segment only the header is received
//! through the staging buffer. One `recvmsg` receives the rest of the payload into the consumer's
//! memory, and the bytes that follow, up to the header of the next frame, into the buffer. This
//! saves the copy but costs a system call per frame, so it is done for long frames only.
//!
//! With CRC every byte must be read before any byte may be placed, and must be read from memory
//! that neither the consumer nor another peer can change meanwhile.

use std::io::IoSliceMut;
use std::os::fd::BorrowedFd;

use iwarp_proto::Target;
use iwarp_proto::wire::ddp::{Control, TAGGED_LEN, UNTAGGED_LEN};
use iwarp_proto::wire::fpdu::{self, CRC_LEN, LENGTH_LEN};
use rustix::io::Errno;

use crate::carrier::End;
use crate::carrier::inbox::{Accepted, Reception, Sinks};
use crate::engine::io::{self, Received};
use crate::memory::TAIL;
use crate::pool::Staging;

use super::Rx;

/// The minimum number of missing bytes of a frame that is worth a system call of its own. Frames of
/// 16 KiB have fewer: one receive into the buffer takes eight of them.
const DIRECT_MIN: usize = 24 * 1024;
/// Maximum number of pieces of one `recvmsg`, including the staging buffer.
const VECTOR_MAX: usize = 8;
/// The number of frames after a frame that was placed directly for which a receive ends at the next
/// header, so that the next payload can be placed directly too. Two of these frames may be short:
/// the last frame of a message, and an answer of the peer's consumer.
const NARROW_FRAMES: u8 = 2;

/// A segment whose payload is being placed.
#[derive(Debug)]
pub(super) struct Placing {
    header: [u8; UNTAGGED_LEN],
    ulpdu_len: usize,
    /// The target of the payload, not resolved: see [`Rx::for_each_place`].
    target: Target<()>,
    /// The number of payload bytes that are placed.
    done: usize,
}

impl Placing {
    /// Creates the state for the frame at the front of `here`, if the header was received.
    fn of(here: &[u8], target: impl FnOnce(&[u8], usize) -> Option<Target<()>>) -> Option<Self> {
        let (length, ulpdu) = here.split_first_chunk::<LENGTH_LEN>()?;
        let ulpdu_len = usize::from(u16::from_be_bytes(*length));
        let found = ulpdu.get(..header_len(*ulpdu.first()?))?;
        let mut header = [0; UNTAGGED_LEN];
        header[..found.len()].copy_from_slice(found);
        Some(Self {
            header,
            ulpdu_len,
            target: target(found, ulpdu_len)?,
            done: 0,
        })
    }

    fn header(&self) -> &[u8] {
        &self.header[..self.header_len()]
    }

    fn header_len(&self) -> usize {
        header_len(self.header[0])
    }

    fn payload_len(&self) -> usize {
        self.ulpdu_len - self.header_len()
    }

    /// The end of the part of the payload that the kernel places.
    fn direct_end(&self) -> usize {
        self.payload_len().saturating_sub(TAIL).max(self.done)
    }

    /// The number of bytes that follow the direct part in the frame.
    fn rest(&self) -> usize {
        self.payload_len() - self.direct_end() + fpdu::pad(self.ulpdu_len) + CRC_LEN
    }
}

fn header_len(control: u8) -> usize {
    if Control(control).is_tagged() {
        TAGGED_LEN
    } else {
        UNTAGGED_LEN
    }
}

impl Rx {
    /// Returns the number of bytes to receive into the staging buffer: usually `room`. If the next
    /// payload can probably be placed directly, the receive ends after the header of that frame.
    pub(super) fn narrowed(&self, staging: &Staging, room: usize) -> usize {
        if self.narrow == 0 {
            return room;
        }
        let here = &staging[..self.end];
        let control = here.get(LENGTH_LEN).copied();
        let header = LENGTH_LEN + control.map_or(UNTAGGED_LEN, header_len);
        let wanted = match fpdu::peek(here) {
            fpdu::Deframed::Need(total) if here.len() >= header => total + header,
            _ => header,
        };
        wanted.saturating_sub(self.end).clamp(1, room)
    }

    /// Handles an incomplete frame at the front of the staging buffer. If the frame is long, the
    /// rest of its payload is received directly to its target from now on.
    pub(super) fn begin_placing(
        &mut self,
        staging: &Staging,
        sinks: &mut Sinks<'_>,
    ) -> Result<(), End> {
        let frame = &staging[..self.end];
        let predicted = Placing::of(frame, |header, ulpdu_len| {
            if fpdu::total_len(ulpdu_len) < frame.len() + DIRECT_MIN {
                return None;
            }
            sinks.with_proto(|proto, memory, receives| {
                proto.predict_target(header, ulpdu_len - header.len(), memory, receives)
            })
        });
        let Some(mut placing) = predicted else {
            return Ok(());
        };
        let payload = &frame[LENGTH_LEN + placing.header_len()..];
        self.put(&mut placing, payload, sinks)?;
        self.placing = Some(placing);
        (self.start, self.end) = (0, 0);
        Ok(())
    }

    /// Copies the next part of a payload to its target.
    fn put(
        &mut self,
        placing: &mut Placing,
        payload: &[u8],
        sinks: &mut Sinks<'_>,
    ) -> Result<(), End> {
        let (mut at, mut is_placed) = (0, true);
        self.for_each_place(placing, payload.len(), sinks, |bytes| {
            is_placed &= bytes.write(&payload[at..at + bytes.len()]);
            at += bytes.len();
        })?;
        if !is_placed {
            return Err(sinks.fail_place(&placing.target));
        }
        placing.done += payload.len();
        Ok(())
    }

    /// Resolves the target of the next `len` bytes of a payload and visits its memory.
    ///
    /// Each drive resolves the target again, because the memory table was closed since the last
    /// drive, and the consumer may have deregistered the memory. A failure ends the stream.
    fn for_each_place<'m>(
        &mut self,
        placing: &Placing,
        len: usize,
        sinks: &mut Sinks<'m>,
        mut visit: impl FnMut(crate::memory::Bytes<'m>),
    ) -> Result<(), End> {
        if len == 0 {
            return Ok(());
        }
        match placing.target {
            Target::None => {}
            Target::Tagged {
                access, stag, to, ..
            } => {
                let to = to.wrapping_add(placing.done as u64);
                match sinks
                    .memory
                    .remote(sinks.stream, access, stag, to, len as u32)
                {
                    Ok(bytes) => visit(bytes),
                    Err(fault) => {
                        let (header, len) = (placing.header(), placing.ulpdu_len);
                        let fault = sinks.proto.refuse_placement(header, len, fault);
                        return Err(End::Fault(fault));
                    }
                }
            }
            Target::Untagged { offset, .. } => {
                sinks.place_untagged(offset as usize + placing.done, len, visit)?;
            }
        }
        Ok(())
    }

    /// Receives once into the target of the payload and, after it, into the staging buffer. Also
    /// returns true if the kernel returned fewer bytes than requested, so that the socket is empty.
    pub(super) fn receive_placing(
        &mut self,
        mut placing: Placing,
        staging: &mut Staging,
        fd: BorrowedFd<'_>,
        reception: &mut Reception<'_>,
    ) -> Result<(Received, bool), End> {
        let memory = reception.table.access();
        let mut sinks = reception.open(&memory);
        let mut vector: [IoSliceMut<'_>; VECTOR_MAX] =
            std::array::from_fn(|_| IoSliceMut::new(&mut []));
        let (mut count, mut direct) = (0, 0);
        let left = placing.direct_end() - placing.done;
        self.for_each_place(&placing, left, &mut sinks, |bytes| {
            if count < VECTOR_MAX - 1 {
                direct += bytes.len();
                // SAFETY: only the kernel receives the slice, below and while the table is open.
                vector[count] = unsafe { bytes.as_io_slice_mut() };
                count += 1;
            }
        })?;
        let mut requested = direct;
        if direct == left {
            let end = placing.rest() + LENGTH_LEN + placing.header_len();
            vector[count] = IoSliceMut::new(&mut staging[self.end..end]);
            requested += end - self.end;
            count += 1;
        }
        let received = io::receive_vectored(fd, &mut vector[..count]);
        if let Received::Bytes(got) = received {
            let placed = got.min(direct);
            placing.done += placed;
            self.end += got - placed;
        }
        if received == Received::Failed(Errno::FAULT) {
            // The consumer has unmapped memory that is registered.
            return Err(sinks.fail_place(&placing.target));
        }
        self.placing = Some(placing);
        let is_short = !matches!(received, Received::Bytes(got) if got == requested);
        Ok((received, is_short))
    }

    /// Delivers the segment if all of it was received. The received bytes of the next frame are
    /// then at the front of the staging buffer.
    pub(super) fn end_placing(
        &mut self,
        staging: &Staging,
        sinks: &mut Sinks<'_>,
    ) -> Result<u32, End> {
        let Some(mut placing) = self.placing.take() else {
            return Ok(0);
        };
        let rest = placing.rest();
        if placing.done < placing.direct_end() || self.end < rest {
            self.placing = Some(placing);
            return Ok(0);
        }
        let tail = placing.payload_len() - placing.done;
        self.put(&mut placing, &staging[..tail], sinks)?;
        self.start = rest;
        self.narrow = NARROW_FRAMES;
        self.handle_placed(&placing, sinks)?;
        Ok(1)
    }

    fn handle_placed(&mut self, placing: &Placing, sinks: &mut Sinks<'_>) -> Result<(), End> {
        let (header, len) = (placing.header(), placing.payload_len());
        let checked = sinks.with_proto(|proto, memory, receives| {
            proto.handle_segment(header, len, memory, receives)
        });
        if let Accepted::Place(placement) = sinks.accept(checked)? {
            sinks.deliver(&placement);
        }
        Ok(())
    }
}
