//! Messages as bytes: parse and emit, with no state.
//!
//! All fields are big-endian, and all headers are multiples of four bytes. Every message begins
//! with [`Bsdh`]. [`Hello`] and [`HelloAck`] are sent in the private data of the transport's
//! connection set-up; every other kind is a [`Message`] in one Send.
//!
//! | File | Contents |
//! |---|---|
//! | `mid.rs` | the 18 kinds |
//! | `bsdh.rs` | the base header and its flags |
//! | `hello.rs`, `hello_ack.rs` | set-up, and how much of it may be trimmed |
//! | `body.rs` | the extended headers |
//! | `message.rs` | a whole message of the data path |
//! | `wire_error.rs` | the reasons why bytes are not a message |

mod body;
mod bsdh;
mod hello;
mod hello_ack;
mod message;
mod mid;
mod wire_error;

pub use body::{Body, Mode, ModeChange, SinkAvail, SrcAvail, TargetHalf};
pub use bsdh::{BSDH_LEN, Bsdh, Flags};
pub use hello::{Hello, TrimError, Version};
pub use hello_ack::HelloAck;
pub use message::{HEADER_MAX, Header, Message};
pub use mid::Mid;
pub use wire_error::WireError;

/// The big-endian number at `at`. The callers check the length of a header before they read it.
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(array_at(bytes, at))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(array_at(bytes, at))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(array_at(bytes, at))
}

/// `N` bytes at `at`. Missing bytes read as zero, because trailing zeros may have been trimmed.
fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    for (to, from) in array.iter_mut().zip(bytes.iter().skip(at)) {
        *to = *from;
    }
    array
}
