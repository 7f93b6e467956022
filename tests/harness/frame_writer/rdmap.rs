//! DDP segments of every RDMAP message (RFC 5041 section 4, RFC 5040 section 4, RFC 7306).

use super::Frame;

/// Opcode of an RDMA Write.
pub const WRITE: u8 = 0;
/// Opcode of a Read Response.
pub const READ_RESPONSE: u8 = 2;
/// Opcode of a Send.
pub const SEND: u8 = 3;
/// Opcode of a Send with Invalidate.
pub const SEND_INVALIDATE: u8 = 4;
/// Opcode of a Send with Solicited Event.
pub const SEND_SOLICITED: u8 = 5;
/// Opcode of a Send with Solicited Event and Invalidate.
pub const SEND_SOLICITED_INVALIDATE: u8 = 6;

/// A Read Request after its DDP header (RFC 5040 figure 6).
#[derive(Debug, Clone, Copy, Default)]
pub struct Read {
    /// The STag of the memory that receives the data.
    pub sink_stag: u32,
    /// The tagged offset in the sink.
    pub sink_to: u64,
    /// The length in bytes.
    pub len: u32,
    /// The STag of the memory that is read.
    pub source_stag: u32,
    /// The tagged offset in the source.
    pub source_to: u64,
}

/// An Atomic Request after its DDP header (RFC 7306 figure 4).
#[derive(Debug, Clone, Copy, Default)]
pub struct Atomic {
    /// 0 FetchAdd, 2 CmpSwap.
    pub operation: u8,
    /// The identifier, which the response repeats.
    pub id: u32,
    /// The STag of the memory that is changed.
    pub stag: u32,
    /// The tagged offset in that memory.
    pub to: u64,
    /// Add or swap data.
    pub data: u64,
}

fn control(tagged: bool, opcode: u8) -> Frame {
    Frame::new(
        &[
            ("t", 1, tagged.into()),
            ("l", 1, 1),
            ("ddp_reserved", 4, 0),
            ("dv", 2, 1),
            ("rv", 2, 1),
            ("rdmap_reserved", 2, 0),
            ("opcode", 4, opcode.into()),
        ],
        &[],
    )
}

/// A tagged segment, the last of its message.
pub fn tagged(opcode: u8, stag: u32, to: u64, payload: &[u8]) -> Frame {
    let mut frame = control(true, opcode).with_payload(payload);
    frame.append(&[("stag", 32, stag.into()), ("to", 64, to.into())]);
    frame
}

/// An untagged segment, the only one of its message.
pub fn untagged(opcode: u8, qn: u32, msn: u32, payload: &[u8]) -> Frame {
    let mut frame = control(false, opcode).with_payload(payload);
    frame.append(&[
        ("rsvd_ulp", 32, 0),
        ("qn", 32, qn.into()),
        ("msn", 32, msn.into()),
        ("mo", 32, 0),
    ]);
    frame
}

/// An RDMA Write.
pub fn write(stag: u32, to: u64, payload: &[u8]) -> Frame {
    tagged(WRITE, stag, to, payload)
}

/// A Read Response.
pub fn read_response(stag: u32, to: u64, payload: &[u8]) -> Frame {
    tagged(READ_RESPONSE, stag, to, payload)
}

/// A message of the Send family.
pub fn send(opcode: u8, msn: u32, payload: &[u8]) -> Frame {
    untagged(opcode, 0, msn, payload)
}

/// A Read Request.
pub fn read_request(msn: u32, read: &Read) -> Frame {
    let mut frame = untagged(1, 1, msn, &[]);
    frame.append(&[
        ("sink_stag", 32, read.sink_stag.into()),
        ("sink_to", 64, read.sink_to.into()),
        ("read_len", 32, read.len.into()),
        ("source_stag", 32, read.source_stag.into()),
        ("source_to", 64, read.source_to.into()),
    ]);
    frame
}

/// A Terminate without headers.
pub fn terminate(layer: u8, etype: u8, code: u8) -> Frame {
    let mut frame = untagged(7, 2, 1, &[]);
    frame.append(&[
        ("layer", 4, layer.into()),
        ("etype", 4, etype.into()),
        ("code", 8, code.into()),
        ("header_control", 3, 0),
        ("terminate_reserved", 13, 0),
    ]);
    frame
}

/// Immediate Data; opcode 9 is the variant with Solicited Event.
pub fn immediate(opcode: u8, msn: u32, data: u64) -> Frame {
    let mut frame = untagged(opcode, 0, msn, &[]);
    frame.append(&[("immediate", 64, data.into())]);
    frame
}

/// An Atomic Request on a whole 64-bit word: a FetchAdd without field boundaries, or a CmpSwap that
/// compares and swaps all bits.
pub fn atomic_request(msn: u32, atomic: &Atomic) -> Frame {
    let plain_mask = if atomic.operation == 0 {
        0
    } else {
        u64::MAX.into()
    };
    let mut frame = untagged(0xa, 1, msn, &[]);
    frame.append(&[
        ("atomic_reserved", 28, 0),
        ("operation", 4, atomic.operation.into()),
        ("request_id", 32, atomic.id.into()),
        ("remote_stag", 32, atomic.stag.into()),
        ("remote_to", 64, atomic.to.into()),
        ("data", 64, atomic.data.into()),
        ("mask", 64, plain_mask),
        ("compare", 64, 0),
        ("compare_mask", 64, plain_mask),
    ]);
    frame
}

/// An Atomic Response.
pub fn atomic_response(msn: u32, id: u32, original: u64) -> Frame {
    let mut frame = untagged(0xb, 3, msn, &[]);
    frame.append(&[
        ("response_id", 32, id.into()),
        ("original", 64, original.into()),
    ]);
    frame
}
