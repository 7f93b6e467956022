//! The RDMAP control byte and the headers that some messages add (RFC 5040 section 4, RFC 7306).
//!
//! ```text
//! Control byte     Read Request          Atomic Request            Atomic Response
//!  0 1 2 3 4 5 6 7  0 Data Sink STag  4   0 reserved, AOpCode   4   0 Request ID      4
//! +-+-+-+-+-+-+-+-+ 4 Data Sink TO    8   4 Request ID          4   4 original value  8
//! |RV | Rsv|Opcode|12 Message Size    4   8 Remote STag         4
//! +-+-+-+-+-+-+-+-+16 Data Source STag4  12 Remote TO           8
//!                  20 Data Source TO  8  20 Add / Swap Data     8
//!                                        28 Add / Swap Mask     8
//!                                        36 Compare Data        8
//!                                        44 Compare Mask        8
//! ```
//!
//! (offset, name, bytes; counted from the end of the DDP header)

use crate::Stag;

use super::ddp::{be32, be64, qn};

/// Bytes of the Read Request header.
pub const READ_REQUEST_LEN: usize = 28;
/// Bytes of Immediate Data.
pub const IMMEDIATE_LEN: usize = 8;
/// Bytes of the Atomic Request header.
pub const ATOMIC_REQUEST_LEN: usize = 52;
/// Bytes of the Atomic Response header.
pub const ATOMIC_RESPONSE_LEN: usize = 12;

/// The RDMAP version of the IETF.
const VERSION: u8 = 0x40;
const VERSION_MASK: u8 = 0xC0;
const OPCODE_MASK: u8 = 0x0F;
const ATOMIC_OP_MASK: u32 = 0x0F;

/// The messages of RDMAP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Opcode {
    /// Tagged data into advertised memory.
    Write = 0x0,
    /// Requests tagged data.
    ReadRequest = 0x1,
    /// The tagged data that was requested.
    ReadResponse = 0x2,
    /// Untagged data into a posted receive.
    Send = 0x3,
    /// A Send that also invalidates an STag.
    SendInvalidate = 0x4,
    /// A Send that also raises a solicited event.
    SendSolicited = 0x5,
    /// A Send that also invalidates an STag and raises a solicited event.
    SendSolicitedInvalidate = 0x6,
    /// Ends the stream.
    Terminate = 0x7,
    /// Eight bytes into a completion (RFC 7306).
    ImmediateData = 0x8,
    /// Immediate Data that also raises a solicited event.
    ImmediateDataSolicited = 0x9,
    /// Requests a 64-bit operation (RFC 7306).
    AtomicRequest = 0xA,
    /// The answer to an Atomic Request.
    AtomicResponse = 0xB,
    /// A Send with four bytes of immediate data in the place of the STag to invalidate. No RFC
    /// assigns this number and the next one; only ends of this implementation exchange them.
    SendImmediate = 0xC,
    /// A Send with immediate data that also raises a solicited event.
    SendSolicitedImmediate = 0xD,
}

impl Opcode {
    /// Every opcode, in numeric order without gaps.
    pub const ALL: [Self; 14] = [
        Self::Write,
        Self::ReadRequest,
        Self::ReadResponse,
        Self::Send,
        Self::SendInvalidate,
        Self::SendSolicited,
        Self::SendSolicitedInvalidate,
        Self::Terminate,
        Self::ImmediateData,
        Self::ImmediateDataSolicited,
        Self::AtomicRequest,
        Self::AtomicResponse,
        Self::SendImmediate,
        Self::SendSolicitedImmediate,
    ];

    /// Returns the Send variant with these properties.
    #[must_use]
    pub const fn send(solicited: bool, invalidate: bool) -> Self {
        match (solicited, invalidate) {
            (false, false) => Self::Send,
            (false, true) => Self::SendInvalidate,
            (true, false) => Self::SendSolicited,
            (true, true) => Self::SendSolicitedInvalidate,
        }
    }

    /// Returns the variant of a Send with immediate data.
    #[must_use]
    pub const fn send_immediate(solicited: bool) -> Self {
        match solicited {
            false => Self::SendImmediate,
            true => Self::SendSolicitedImmediate,
        }
    }

    /// The queue on which an untagged message travels; `None` for the tagged ones.
    #[must_use]
    pub const fn queue(self) -> Option<u32> {
        match self {
            Self::Write | Self::ReadResponse => None,
            Self::Send
            | Self::SendInvalidate
            | Self::SendSolicited
            | Self::SendSolicitedInvalidate
            | Self::SendImmediate
            | Self::SendSolicitedImmediate
            | Self::ImmediateData
            | Self::ImmediateDataSolicited => Some(qn::SEND),
            Self::ReadRequest | Self::AtomicRequest => Some(qn::REQUEST),
            Self::Terminate => Some(qn::TERMINATE),
            Self::AtomicResponse => Some(qn::ATOMIC_RESPONSE),
        }
    }

    /// True if the receiver raises a solicited event.
    #[must_use]
    pub const fn is_solicited(self) -> bool {
        matches!(
            self,
            Self::SendSolicited
                | Self::SendSolicitedInvalidate
                | Self::SendSolicitedImmediate
                | Self::ImmediateDataSolicited
        )
    }

    /// True if the DDP header carries an STag to invalidate.
    #[must_use]
    pub const fn is_invalidate(self) -> bool {
        matches!(self, Self::SendInvalidate | Self::SendSolicitedInvalidate)
    }

    /// True if the DDP header of a Send carries immediate data.
    #[must_use]
    pub const fn is_send_immediate(self) -> bool {
        matches!(self, Self::SendImmediate | Self::SendSolicitedImmediate)
    }

    /// The control byte of this message.
    #[must_use]
    pub const fn control(self) -> u8 {
        control(self as u8)
    }
}

/// The control byte of a message with this opcode.
pub(crate) const fn control(opcode: u8) -> u8 {
    VERSION | opcode
}

/// The second byte of every DDP segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control(pub u8);

impl Control {
    /// True if the version is the one of RFC 5040 (not the RDMA Consortium's 0).
    #[must_use]
    pub const fn is_version_known(self) -> bool {
        self.0 & VERSION_MASK == VERSION
    }

    /// The number in the opcode field, assigned or not.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0 & OPCODE_MASK
    }

    /// The opcode, unless it is one of the unassigned.
    #[must_use]
    pub fn opcode(self) -> Option<Opcode> {
        Opcode::ALL.get(usize::from(self.number())).copied()
    }
}

/// The header of a Read Request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// The requester's memory.
    pub sink_stag: Stag,
    /// The tagged offset in that memory.
    pub sink_to: u64,
    /// Bytes to read.
    pub len: u32,
    /// The responder's memory.
    pub source_stag: Stag,
    /// The tagged offset in that memory.
    pub source_to: u64,
}

impl ReadRequest {
    /// Parses the header.
    #[must_use]
    pub fn parse(header: &[u8; READ_REQUEST_LEN]) -> Self {
        Self {
            sink_stag: Stag(be32(&header[0..4])),
            sink_to: be64(&header[4..12]),
            len: be32(&header[12..16]),
            source_stag: Stag(be32(&header[16..20])),
            source_to: be64(&header[20..28]),
        }
    }

    /// Writes the header.
    pub fn emit(&self, header: &mut [u8; READ_REQUEST_LEN]) {
        header[0..4].copy_from_slice(&self.sink_stag.0.to_be_bytes());
        header[4..12].copy_from_slice(&self.sink_to.to_be_bytes());
        header[12..16].copy_from_slice(&self.len.to_be_bytes());
        header[16..20].copy_from_slice(&self.source_stag.0.to_be_bytes());
        header[20..28].copy_from_slice(&self.source_to.to_be_bytes());
    }

    /// Returns a request for the rest of the read after `done` bytes were answered. A Terminate
    /// message quotes it (RFC 5040 section 4.8).
    #[must_use]
    pub const fn after(&self, done: u32) -> Self {
        Self {
            sink_to: self.sink_to.wrapping_add(done as u64),
            source_to: self.source_to.wrapping_add(done as u64),
            len: self.len.saturating_sub(done),
            ..*self
        }
    }
}

/// A 64-bit operation with its operands (RFC 7306 section 5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicOp {
    /// Adds `add`; the carry out of each bit set in `mask` is dropped.
    FetchAdd {
        /// The addend.
        add: u64,
        /// Ends of the fields that are added independently; 0 for a plain 64-bit addition.
        mask: u64,
    },
    /// Replaces the bits in `swap_mask` by those of `swap`, if the bits in `compare_mask` equal
    /// those of `compare`.
    CmpSwap {
        /// The new bits.
        swap: u64,
        /// The bits that are replaced.
        swap_mask: u64,
        /// The expected bits.
        compare: u64,
        /// The bits that are compared.
        compare_mask: u64,
    },
}

impl AtomicOp {
    const FETCH_ADD: u32 = 0;
    const CMP_SWAP: u32 = 2;
    /// RFC 7306 figure 5 leaves the compare fields of FetchAdd to the sender; known captures
    /// carry a zero comparison over all bits.
    const UNUSED_COMPARE: (u64, u64) = (0, u64::MAX);

    /// Returns the new value of memory that holds `original`.
    #[must_use]
    pub const fn apply(&self, original: u64) -> u64 {
        match *self {
            Self::FetchAdd { add, mask } => masked_add(original, add, mask),
            Self::CmpSwap {
                swap,
                swap_mask,
                compare,
                compare_mask,
            } => {
                if original & compare_mask == compare & compare_mask {
                    original & !swap_mask | swap & swap_mask
                } else {
                    original
                }
            }
        }
    }
}

/// Adds without a carry out of any bit that is set in `mask`.
const fn masked_add(a: u64, b: u64, mask: u64) -> u64 {
    // The top bit of every field is added without carry (exclusive or), all lower bits with an
    // ordinary addition that cannot overflow out of the field, because its top bits are cleared.
    let top = mask | 1 << 63;
    (a & !top).wrapping_add(b & !top) ^ (a ^ b) & top
}

/// The header of an Atomic Request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicRequest {
    /// The identifier that the requester chose; the response repeats it.
    pub request_id: u32,
    /// The responder's memory.
    pub stag: Stag,
    /// The tagged offset in that memory; a multiple of 8.
    pub to: u64,
    /// The operation with its operands.
    pub op: AtomicOp,
}

impl AtomicRequest {
    /// Parses the header; `None` for an operation that is not assigned.
    #[must_use]
    pub fn parse(header: &[u8; ATOMIC_REQUEST_LEN]) -> Option<Self> {
        let data = be64(&header[20..28]);
        let mask = be64(&header[28..36]);
        let op = match be32(&header[0..4]) & ATOMIC_OP_MASK {
            AtomicOp::FETCH_ADD => AtomicOp::FetchAdd { add: data, mask },
            AtomicOp::CMP_SWAP => AtomicOp::CmpSwap {
                swap: data,
                swap_mask: mask,
                compare: be64(&header[36..44]),
                compare_mask: be64(&header[44..52]),
            },
            _ => return None,
        };
        Some(Self {
            request_id: be32(&header[4..8]),
            stag: Stag(be32(&header[8..12])),
            to: be64(&header[12..20]),
            op,
        })
    }

    /// Writes the header.
    pub fn emit(&self, header: &mut [u8; ATOMIC_REQUEST_LEN]) {
        let (code, data, mask, (compare, compare_mask)) = match self.op {
            AtomicOp::FetchAdd { add, mask } => {
                (AtomicOp::FETCH_ADD, add, mask, AtomicOp::UNUSED_COMPARE)
            }
            AtomicOp::CmpSwap {
                swap,
                swap_mask,
                compare,
                compare_mask,
            } => (AtomicOp::CMP_SWAP, swap, swap_mask, (compare, compare_mask)),
        };
        header[0..4].copy_from_slice(&code.to_be_bytes());
        header[4..8].copy_from_slice(&self.request_id.to_be_bytes());
        header[8..12].copy_from_slice(&self.stag.0.to_be_bytes());
        header[12..20].copy_from_slice(&self.to.to_be_bytes());
        header[20..28].copy_from_slice(&data.to_be_bytes());
        header[28..36].copy_from_slice(&mask.to_be_bytes());
        header[36..44].copy_from_slice(&compare.to_be_bytes());
        header[44..52].copy_from_slice(&compare_mask.to_be_bytes());
    }
}

/// The header of an Atomic Response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicResponse {
    /// The identifier of the request.
    pub request_id: u32,
    /// The value of the memory before the operation.
    pub original: u64,
}

impl AtomicResponse {
    /// Parses the header.
    #[must_use]
    pub fn parse(header: &[u8; ATOMIC_RESPONSE_LEN]) -> Self {
        Self {
            request_id: be32(&header[0..4]),
            original: be64(&header[4..12]),
        }
    }

    /// Writes the header.
    pub fn emit(&self, header: &mut [u8; ATOMIC_RESPONSE_LEN]) {
        header[0..4].copy_from_slice(&self.request_id.to_be_bytes());
        header[4..12].copy_from_slice(&self.original.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opcodes_know_their_queue_and_control_byte() {
        for (number, opcode) in Opcode::ALL.into_iter().enumerate() {
            assert_eq!(opcode as usize, number);
            assert_eq!(opcode.control(), 0x40 | number as u8);
            assert_eq!(Control(opcode.control() | 0x30).opcode(), Some(opcode));
        }
        for number in 0xE..=0xF {
            assert_eq!(Control(0x40 | number).opcode(), None);
        }
        let queues: Vec<_> = Opcode::ALL.into_iter().map(Opcode::queue).collect();
        let (s, r, t, a) = (Some(0), Some(1), Some(2), Some(3));
        assert_eq!(queues, [None, r, None, s, s, s, s, t, s, s, r, a, s, s]);
        assert!(Control(0x43).is_version_known());
        assert!(
            ![0x03, 0x83, 0xC3]
                .into_iter()
                .any(|byte| Control(byte).is_version_known())
        );
    }

    #[test]
    fn the_rest_of_a_read_begins_after_what_was_answered() {
        let whole = ReadRequest {
            sink_stag: Stag(1),
            sink_to: 0x2000,
            len: 16,
            source_stag: Stag(2),
            source_to: 0x1008,
        };
        let rest = whole.after(6);
        assert_eq!(
            (rest.sink_to, rest.source_to, rest.len),
            (0x2006, 0x100e, 10)
        );
    }

    #[test]
    fn masked_addition_drops_carries_at_the_marked_bits() {
        let add = |a, add, mask| AtomicOp::FetchAdd { add, mask }.apply(a);
        assert_eq!(add(41, 1, 0), 42);
        assert_eq!(add(u64::MAX, 1, 0), 0);
        // Two 32-bit counters.
        assert_eq!(
            add(0x0000_0001_FFFF_FFFF, 0x0000_0001_0000_0001, 1 << 31),
            0x2_0000_0000
        );
        assert_eq!(
            add(0xFFFF_FFFF_0000_0007, 0x0000_0001_0000_0001, 1 << 31),
            8
        );
        // Every bit its own field: exclusive or.
        assert_eq!(add(0b1100, 0b1010, u64::MAX), 0b0110);
    }

    #[test]
    fn compare_and_swap_compares_and_writes_through_its_masks() {
        let op = AtomicOp::CmpSwap {
            swap: 0xAAAA,
            swap_mask: 0xFF,
            compare: 0x1200,
            compare_mask: 0xFF00,
        };
        assert_eq!(op.apply(0x1234), 0x12AA);
        assert_eq!(op.apply(0x1334), 0x1334);
    }
}
