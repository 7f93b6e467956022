//! An encoder of iWARP frames for attackers: every field can be given any value.
//!
//! The encoder shares no code with the stack under test. Frames are lists of named bit
//! fields in the order of the figures of RFC 5040, 5041, 5044, 6581 and 7306, packed from the most
//! significant bit on. The CRC is computed bit by bit from its polynomial.

mod crc;
mod fpdu;
mod frame;
mod mpa;
mod rdmap;

pub use crc::crc32c;
pub use fpdu::Fpdu;
pub use frame::Frame;
pub use mpa::{enhanced_reply, enhanced_request, reply, request};
pub use rdmap::{
    Atomic, READ_RESPONSE, Read, SEND, SEND_INVALIDATE, SEND_SOLICITED, SEND_SOLICITED_INVALIDATE,
    WRITE, atomic_request, atomic_response, immediate, read_request, read_response, send, tagged,
    terminate, untagged, write,
};
